"""Explanations: words from tokens, relevance against literal computations, kept words, the page, refused input."""

from __future__ import annotations

import re
import threading
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from hgclr.decisions.settings import Decisions, Temperatures
from hgclr.errors import InputError
from hgclr.evaluation.explanation import (
    STEPS,
    ExplainedLabel,
    Explanation,
    Method,
    Stability,
    Word,
    explain,
    explanation_page,
    find_words,
    integrated_gradients,
    occlusion,
    read_text,
)
from hgclr.inference import HierarchicalClassifier, PredictedLabel
from support.html import HtmlReader

SHORT = "Laser of the laser, a prism"
LABELS = [4, 0, 7]
TEXT = "Laser of the laser, a prism in a lake"
WORDS = ["Laser", "of", "the", "laser", ",", "a", "prism", "in", "a", "lake"]


def sigmoid(value: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.asarray(value, dtype=np.float64)))


# Relevance


def literal_products(network, ids: list[int], label: int) -> np.ndarray:
    """The mean over the steps of gradient times embedding, per token, with the embeddings given from outside."""
    words = network.encoder.get_input_embeddings().weight[ids].detach()  # (L, H)
    total = np.zeros(len(ids))
    for share in [(step + 0.5) / STEPS for step in range(STEPS)]:
        factor = torch.tensor([1.0 if i in (0, len(ids) - 1) else share for i in range(len(ids))])
        moved = (words * factor[:, None])[None].requires_grad_()
        logit = network.classifier(network.encode(torch.ones(1, len(ids)), inputs_embeds=moved))[0, label]
        logit.backward()
        for token in range(len(ids)):
            total[token] += float(moved.grad[0, token] @ words[token]) / STEPS
    return total


def test_gradients_are_those_of_autograd(classifier: HierarchicalClassifier, monkeypatch) -> None:
    text = read_text(classifier, SHORT)
    expected = [literal_products(classifier.backend.model, text.ids.tolist(), label) for label in LABELS]
    for batch_tokens in (10_000, 21, 1):
        monkeypatch.setattr(classifier.backend, "batch_tokens", batch_tokens)
        found = integrated_gradients(classifier, text, LABELS)
        # Every word of this text is one token, between the special ones.
        np.testing.assert_allclose(found, np.array(expected)[:, 1:-1], rtol=1e-4, atol=1e-5)
    assert np.abs(found).max() > 0.1


class LinearModel(torch.nn.Module):
    """Logits that are linear in the word embeddings."""

    def __init__(self, words: int, labels: int) -> None:
        super().__init__()
        self.encoder = torch.nn.Module()
        self.encoder.table = torch.nn.Embedding(words, 6)
        self.encoder.get_input_embeddings = lambda: self.encoder.table
        self.head = torch.nn.Linear(6, labels)

    def forward(self, input_ids, attention_mask):
        summed = (self.encoder.table(input_ids) * attention_mask.unsqueeze(-1)).sum(1)
        return SimpleNamespace(logits=self.head(summed))


def test_the_parts_of_a_linear_model_are_its_own(additive: HierarchicalClassifier, taxonomy) -> None:
    torch.manual_seed(0)
    network = LinearModel(len(additive.backend.weights), len(taxonomy))
    backend = SimpleNamespace(model=network, device=torch.device("cpu"), batch_tokens=1000)
    text = read_text(additive, SHORT)
    found = integrated_gradients(SimpleNamespace(backend=backend), text, range(len(taxonomy)))
    with torch.no_grad():
        one_by_one = network.encoder.table(torch.from_numpy(text.ids)[1:-1]) @ network.head.weight.T
    np.testing.assert_allclose(found, one_by_one.T.numpy(), rtol=1e-4, atol=1e-5)
    network.encoder.get_input_embeddings = lambda: torch.nn.Embedding(1, 1)  # words are looked up elsewhere
    with pytest.raises(InputError):
        integrated_gradients(SimpleNamespace(backend=backend), text, [0])


def test_integrated_parts_sum_up_to_what_the_words_add(classifier: HierarchicalClassifier, monkeypatch) -> None:
    monkeypatch.setattr("hgclr.evaluation.explanation.STEPS", 400)
    text, network = read_text(classifier, SHORT), classifier.backend.model
    found = integrated_gradients(classifier, text, LABELS)
    words = network.encoder.get_input_embeddings().weight[text.ids.tolist()].detach()
    empty = words.clone()
    empty[1:-1] = 0
    with torch.no_grad():
        ends = network.encode(torch.ones(2, len(words)), inputs_embeds=torch.stack([words, empty]))
        whole, without = network.classifier(ends)
    np.testing.assert_allclose(found.sum(1), (whole - without)[LABELS].numpy(), atol=0.02)


def test_predictions_of_other_threads_are_left_alone(classifier: HierarchicalClassifier) -> None:
    text = read_text(classifier, SHORT)
    classifier.backend.model.zero_grad()
    expected = classifier.predict_proba(["the judge"])
    meanwhile: list = []

    def predict_meanwhile(*_arguments) -> None:
        if not meanwhile:
            meanwhile.append(None)
            thread = threading.Thread(target=lambda: meanwhile.append(classifier.predict_proba(["the judge"])))
            thread.start()
            thread.join()

    handle = classifier.backend.model.encoder.register_forward_pre_hook(predict_meanwhile)
    try:
        during = integrated_gradients(classifier, text, LABELS)
    finally:
        handle.remove()
    np.testing.assert_array_equal(meanwhile[1], expected)
    np.testing.assert_array_equal(during, integrated_gradients(classifier, text, LABELS))
    np.testing.assert_array_equal(classifier.predict_proba(["the judge"]), expected)
    assert all(parameter.grad is None for parameter in classifier.backend.model.parameters())


@pytest.mark.parametrize("method", ["integrated", "occlusion"])
def test_an_explanation_can_be_stopped_before_every_pass(classifier: HierarchicalClassifier, method: Method) -> None:
    passes = 0

    def stop_at(last: float) -> None:
        nonlocal passes
        if passes == last:
            raise TimeoutError
        passes += 1

    explain(classifier, SHORT, method=method, before_pass=lambda: stop_at(float("inf")))
    in_all = passes
    assert in_all > 2
    for last in range(in_all):
        passes = 0
        with pytest.raises(TimeoutError):
            explain(classifier, SHORT, method=method, before_pass=lambda: stop_at(last))  # noqa: B023


def test_occlusion_is_what_is_lost_with_each_word(classifier: HierarchicalClassifier) -> None:
    found = occlusion(classifier, read_text(classifier, SHORT), LABELS)
    words = ["laser", "of", "the", "laser", ",", "a", "prism"]
    (whole,) = classifier.logits([SHORT])
    for place in range(len(words)):
        (without,) = classifier.logits([" ".join(words[:place] + words[place + 1 :])])
        np.testing.assert_allclose(found[:, place], (whole - without)[0, LABELS], atol=1e-5)
    assert np.abs(found).max() > 0.1


# Labels and kept words


def test_the_labels_are_the_predicted_ones_in_their_order(classifier: HierarchicalClassifier) -> None:
    for options in ({}, {"rule": "closure"}, {"threshold": 0.9}, {"rule": "closure", "abstain_below": 0.97}):
        prediction = classifier.predict([TEXT], **options)[0]
        found = classifier.explain(TEXT, decisions=classifier.decisions.changed(**{"rule": None, **options})).labels
        status = {label.id: "predicted" for label in prediction.labels}
        status |= {label.id: "abstained" for label in prediction.abstained}
        assert {one.label.id: one.status for one in found} == status
        assert [one.label for one in found if one.status == "predicted"] == [
            PredictedLabel(label.id, label.path, pytest.approx(label.probability)) for label in prediction.labels
        ]


def test_other_labels_are_explained_on_request_or_if_there_is_none(
    classifier: HierarchicalClassifier, taxonomy, monkeypatch
) -> None:
    unsure = classifier.decisions.changed(rule=None, threshold=1.0)
    (label,) = explain(classifier, TEXT, decisions=unsure).labels
    best = taxonomy.ids[int(classifier.predict_proba([TEXT])[0].argmax())]
    assert (label.label.id, label.status) == (best, "not predicted")
    found = explain(classifier, TEXT, labels=["society > sports > tennis", "law", "law"], decisions=unsure).labels
    assert [one.label.path for one in found] == [("society", "law"), ("society", "sports", "tennis")]
    monkeypatch.setattr("hgclr.evaluation.explanation.MOST_LABELS", 2)
    everything = classifier.decisions.changed(rule=None, threshold=0.0)
    few = explain(classifier, TEXT, decisions=everything)
    assert (len(few.labels), few.unexplained) == (2, 7)
    probabilities = sorted(classifier.predict_proba([TEXT])[0].tolist())
    assert sorted(one.label.probability for one in few.labels) == pytest.approx(probabilities[-2:])
    named = explain(classifier, TEXT, decisions=everything, labels=taxonomy.ids)
    assert (len(named.labels), named.unexplained) == (9, 0)


@pytest.mark.parametrize(("keep", "count"), [(0.3, 3), (0.31, 4), (0.01, 1), (1.0, 10)])
def test_kept_words_and_probabilities_are_those_of_the_sum(
    additive: HierarchicalClassifier, taxonomy, keep: float, count: int
) -> None:
    explanation = explain(additive, TEXT, keep=keep, labels=taxonomy.ids)
    parts = additive.backend.weights[additive.tokenizer.encode(TEXT).ids].astype(np.float64)  # (L, K)
    special, words = parts[0] + parts[-1] - 1, parts[1:-1]
    assert explanation.method == "occlusion"
    assert [explanation.word(index) for index in range(len(explanation.words))] == WORDS
    for one in explanation.labels:
        label = taxonomy.resolve(one.label.id)
        np.testing.assert_allclose(one.relevance, words[:, label], atol=1e-5)
        best = sorted(sorted(range(10), key=lambda word: -words[word, label])[:count])
        assert list(one.kept) == best
        kept, whole = words[best, label].sum(), words[:, label].sum()
        assert one.label.probability == pytest.approx(sigmoid(special[label] + whole), abs=1e-5)
        assert one.only_kept == pytest.approx(sigmoid(special[label] + kept), abs=1e-5)
        assert one.without_kept == pytest.approx(sigmoid(special[label] + whole - kept), abs=1e-5)
        if keep == 1:
            assert one.only_random == pytest.approx(one.label.probability)
    best = sorted(sorted(range(10), key=lambda word: -words[word].sum())[:count])
    stability = explanation.stability
    assert list(stability.kept) == best
    before, after = (set(np.flatnonzero(special + words[rows].sum(0) > 0)) for rows in (list(range(10)), best))
    assert {taxonomy.resolve(label.id) for label in stability.lost} == before - after
    assert {taxonomy.resolve(label.id) for label in stability.gained} == after - before
    assert stability.same == (before == after)


def test_random_words_are_as_many_and_the_same_every_time(additive: HierarchicalClassifier, monkeypatch) -> None:
    seen: list[int] = []
    compute = additive.backend.logits
    monkeypatch.setattr(
        additive.backend, "logits", lambda ids, mask: (seen.extend(mask.sum(1).tolist()), compute(ids, mask))[1]
    )
    one = explain(additive, TEXT, labels=["law"], keep=0.2)
    # The whole text twice (to decide and to compare), without each word, only the two for the label and for all
    # labels, without them, and ten times two random ones; two special tokens in each.
    assert sorted(seen) == sorted([12] * 2 + [11] * 10 + [4] * 2 + [10] + [4] * 10)
    assert one == explain(additive, TEXT, labels=["law"], keep=0.2)
    two = explain(additive, TEXT, labels=["law", "tennis"], keep=0.2)
    assert two.labels[0].only_random == pytest.approx(one.labels[0].only_random)  # the same draws for all


def test_probabilities_are_calibrated_and_unread_words_counted(additive: HierarchicalClassifier, taxonomy) -> None:
    calibration = Temperatures(taxonomy, tuple(4.0 for _ in taxonomy.levels))
    decisions = Decisions(taxonomy, calibration=calibration)
    expected = decisions.probabilities(next(additive.logits([TEXT])))[0]
    for one in explain(additive, TEXT, decisions=decisions).labels:
        assert one.label.probability == pytest.approx(float(expected[taxonomy.resolve(one.label.id)]), abs=1e-6)
    text = "laser of the prism in a lake is the goal , match court judge don't"  # 10 tokens are read, 12 with special
    explanation = explain(additive, text)
    assert explanation.word(len(explanation.words) - 1) == "goal"
    assert (len(explanation.words), explanation.unread) == (10, 5)


def test_bad_input_is_refused(classifier: HierarchicalClassifier, additive: HierarchicalClassifier) -> None:
    for text, options in (
        ("", {}),
        (" \n\t", {}),
        (3, {}),
        ("a\ud800", {}),
        ("a", {"keep": 0.0}),
        ("a", {"keep": 1.5}),
        ("a", {"labels": ["tenis"]}),
        ("a", {"labels": []}),
        ("a", {"method": "gradient"}),
    ):
        with pytest.raises(InputError):
            explain(classifier, text, **options)
    assert explain(classifier, TEXT).method == "integrated"
    with pytest.raises(InputError) as caught:
        explain(additive, TEXT, method="integrated")
    assert caught.value.remedy


# Words


def byte_level(*merges: tuple[str, str], trim: bool) -> Tokenizer:
    """A byte-level BPE as RoBERTa has it; without ``trim`` a token's span holds the space before it."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*alphabet, *("".join(pair) for pair in merges), "<s>", "</s>"]
    ids = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(ids, list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=trim)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", ids["</s>"]), ("<s>", ids["<s>"]), trim_offsets=trim, add_prefix_space=False
    )
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return tokenizer


def word_pieces() -> Tokenizer:
    """BERT's way of cutting; every single character is a piece, and a few words are."""
    letters = [chr(code) for code in range(33, 127)] + ["ï", "é", "你", "好"]
    pieces = ["[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{letter}" for letter in letters), "ice", "##ice"]
    tokenizer = Tokenizer(models.WordPiece({piece: n for n, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return tokenizer


MIXED = "Ice, ice-cold: naïve don't 2.5 mg"
TOKENIZERS = {
    "word pieces": word_pieces(),
    "byte-level": byte_level(("i", "c"), ("ic", "e"), ("Ġ", "i"), trim=True),
    "byte-level with spaces": byte_level(("i", "c"), ("Ġ", "ic"), trim=False),
}


def words_of(tokenizer: Tokenizer, text: str) -> tuple[list[Word], list[int], list[tuple[int, int] | None]]:
    encoding = tokenizer.encode(text)
    spans = [None if s else span for span, s in zip(encoding.offsets, encoding.special_tokens_mask, strict=True)]
    return *find_words(text, spans), spans


@pytest.mark.parametrize("name", TOKENIZERS)
def test_words_are_those_that_are_written_whatever_the_tokenizer(name: str) -> None:
    words, word_of, _ = words_of(TOKENIZERS[name], MIXED)
    found = [MIXED[word.start : word.stop] for word in words]
    assert found == ["Ice", ",", "ice", "-", "cold", ":", "naïve", "don't", "2", ".", "5", "mg"]
    assert sorted(set(word_of) - {-1}) == list(range(len(words)))


@pytest.mark.parametrize("name", ["byte-level", "byte-level with spaces"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ice 🙂🙂 ice", ["ice", "🙂", "🙂", "ice"]),
        ("a👩\u200d🔬b", ["a", "👩\u200d🔬", "b"]),
        ("cafe\u0301s", ["cafe\u0301s"]),
        ("co\u00adop", ["co\u00adop"]),
        ("你好", ["你", "好"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("'tis 'twas' l’eau", ["'", "tis", "'", "twas", "'", "l’eau"]),
        ("  ice \n ice\t", ["ice", "ice"]),
    ],
)
def test_characters_of_several_bytes_and_scripts(name: str, text: str, expected: list[str]) -> None:
    assert [text[word.start : word.stop] for word in words_of(TOKENIZERS[name], text)[0]] == expected


@settings(deadline=None, derandomize=True, max_examples=150)
@given(text=st.text(max_size=30), name=st.sampled_from(sorted(TOKENIZERS)))
def test_words_are_in_order_apart_and_hold_all_that_tokens_cover(text: str, name: str) -> None:
    words, word_of, spans = words_of(TOKENIZERS[name], text)
    for word in words:
        assert word.start < word.stop
        assert text[word.start : word.stop] == text[word.start : word.stop].strip()
    assert all(one.stop <= other.start for one, other in pairwise(words))
    covered = {place for span in spans if span for place in range(*span) if not text[place].isspace()}
    assert covered <= {place for word in words for place in range(word.start, word.stop)}
    for span, number in zip(spans, word_of, strict=True):
        if span is not None and text[slice(*span)].strip():
            assert text[slice(*span)].strip() in text[words[number].start : words[number].stop]


# The result and its page

PAGE_TEXT = "<b>\nice & 'fire'"
PATHS = (("top",), ("top", "<script>alert(1)</script>"), ("top", "other"))


def hand_made(unread: int = 0, *, same: bool = True) -> Explanation:
    words = tuple(Word(match.start(), match.end()) for match in re.finditer(r"\w+|[^\w\s]", PAGE_TEXT))
    labels = tuple(
        ExplainedLabel(
            PredictedLabel(f"id{number}", path, 0.87654),
            "not predicted" if number == 2 else "predicted",
            tuple(float((-1) ** place * (place + number)) for place in range(len(words))),
            kept=(0, 2),
            only_kept=0.7,
            only_random=0.4,
            without_kept=0.123456,
        )
        for number, path in enumerate(PATHS)
    )
    lost = () if same else (labels[1].label,)
    return Explanation(PAGE_TEXT, "occlusion", words, unread, labels, unread, 0.3, Stability((0, 2), lost, ()))


def test_the_page_is_whole_escaped_and_lets_one_choose_a_label() -> None:
    html = explanation_page([hand_made(), hand_made(unread=1, same=False)], model="a <model>")
    page = HtmlReader(html)
    assert not page.fetched
    assert "script" not in page.tags
    assert page.text.count(PAGE_TEXT) == 6  # as it was typed, for every label
    marks = {values["class"] for tag, values in page.attributes if tag == "span" and "title" in values}
    assert {"f4", "a4"} <= marks
    inputs = [values for tag, values in page.attributes if tag == "input"]
    assert [one["name"] for one in inputs] == ["text1"] * 3 + ["text2"] * 3
    assert ["checked" in one for one in inputs] == [True, False, False] * 2
    assert page.tags.count("fieldset") == page.tags.count("legend") == 2
    for number in range(3):
        assert f".explained:has(.c{number}:checked) .p{number} " in html
    classes = [values.get("class") for _, values in page.attributes]
    assert (classes.count("notice good"), classes.count("notice warning")) == (1, 1)
    assert classes.count("unread") == 3
