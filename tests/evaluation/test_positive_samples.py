"""Positive samples: draws against direct calls of the model, agreement by counting pairs, the page, refused input."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch

from hgclr.config import PRESETS
from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError
from hgclr.evaluation import positive_samples as module
from hgclr.evaluation.explanation import Word
from hgclr.evaluation.positive_samples import (
    PositiveSample,
    load_label_side,
    positive_sample,
    positive_sample_page,
)
from hgclr.inference import HierarchicalClassifier
from hgclr.models import FlatForSequenceClassification, HGCLRForSequenceClassification
from hgclr.models.base import load_tokenizer, save
from support.html import HtmlReader

TEXT = "The quantum laser of the atom, in a lens"


@pytest.fixture(scope="module")
def runs(make_encoder: Callable[[str], str], taxonomy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs by name, each with ``model`` and ``training-model``."""
    root = tmp_path_factory.mktemp("positives")
    tokenizer = load_tokenizer(make_encoder("bert"))
    for name, kind, settings in (
        ("half", HGCLRForSequenceClassification, {"keep_at_least": 0}),
        ("default", HGCLRForSequenceClassification, {}),
        ("paper", HGCLRForSequenceClassification, PRESETS["paper"] | {"keep_threshold": 0.2}),
        ("dropout", HGCLRForSequenceClassification, {"positives": "dropout"}),
        ("flat", FlatForSequenceClassification, {}),
    ):
        torch.manual_seed(2)
        model = kind.from_encoder(make_encoder("bert"), taxonomy, tokenizer, **settings)
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.startswith("token_label_attention"):
                torch.nn.init.normal_(parameter, std=2.0)  # enough guidance to differ from chance
        save(model, tokenizer, root / name / "training-model")
        save(model.deployed(), tokenizer, root / name / "model")
    return root


@pytest.fixture
def classifier(runs: Path) -> HierarchicalClassifier:
    return HierarchicalClassifier.load(runs / "half" / "model")


def hand_made(**changes: object) -> PositiveSample:
    """A text of three words, the first in two pieces: "Unseen <b", and an unread ">"."""
    fields = {
        "text": "Unseen <b >",
        "labels": ("a", "b"),
        "paths": ("a & b > <i>",),
        "words": (Word(0, 6), Word(7, 8), Word(8, 9)),
        "unread": 1,
        "spans": ((0, 2), (2, 6), (7, 8), (8, 9)),
        "word_of": np.array([0, 0, 1, 2]),
        "kept": np.array([[1, 0, 1, 1], [0, 0, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0]], dtype=bool),
    }
    return PositiveSample(**(fields | changes))  # type: ignore[arg-type]


def test_shares_and_parts_by_hand() -> None:
    one = hand_made()
    assert one.shares == [0.375, 0.5, 0.5]
    assert one.parts(0) == [("Un", True), ("seen ", False), ("<b", True)]
    assert one.parts(2) == [("Un", True), ("seen <b", False)]
    spaced = hand_made(kept=np.array([[0, 1, 1, 0]] * 4, dtype=bool))
    assert spaced.parts(0) == [("Un", False), ("seen <", True), ("b", False)]  # the space between kept tokens is kept
    assert one.to_json()["tokens_kept"] == 7 / 4


def test_agreement_counts_pairs_of_draws() -> None:
    random = np.random.default_rng(0)
    for kept in (hand_made().kept, random.random((6, 9)) < 0.4, np.tile([True, False, True, True], (5, 1))):
        pairs = [float(np.mean(kept[one] == kept[other])) for one, other in combinations(range(len(kept)), 2)]
        by_chance = kept.mean() ** 2 + (1 - kept.mean()) ** 2
        expected = (np.mean(pairs) - by_chance) / (1 - by_chance)
        assert hand_made(kept=kept).agreement == pytest.approx(expected)
    assert expected == 1  # all draws were the same
    for value, whole in ((np.ones, True), (np.zeros, False)):
        same = hand_made(kept=value((4, 4), dtype=bool))
        assert (same.agreement, same.whole) == (1, whole)


@pytest.mark.parametrize("name", ["half", "paper"])
def test_draws_are_those_of_direct_calls(runs: Path, taxonomy, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network = load_label_side(runs / name / "model")
    classifier = HierarchicalClassifier.load(runs / name / "model")
    seen: list[torch.Tensor] = []
    choose = network.positive_weights

    def record(input_ids, words, attention_mask, labels, noise=None):
        """Give each draw a noise that the test knows."""
        generator = torch.Generator().manual_seed(len(seen))
        noise = -torch.empty(*input_ids.shape, len(taxonomy)).exponential_(generator=generator).log()
        seen.append(noise)
        return choose(input_ids, words, attention_mask, labels, noise)

    monkeypatch.setattr(network, "positive_weights", record)
    monkeypatch.setattr(module, "BATCH_TOKENS", 300)  # some draws at a time, not all
    found = positive_sample(classifier, network, TEXT, labels=["science > physics"])
    assert found.labels == tuple(i for i in taxonomy.ids if i in ("science", "physics"))
    assert found.paths == ("science > physics",)
    assert len(seen) > 2
    ids = torch.tensor([load_tokenizer(str(runs / name / "model"))(TEXT)["input_ids"]])
    gold = torch.tensor([[float(label in ("science", "physics")) for label in taxonomy.ids]])
    expected = []
    with torch.no_grad():
        for noise in torch.cat(seen):
            words = network.encoder.get_input_embeddings()(ids)
            weights, _ = choose(ids, words, torch.ones_like(ids), gold, noise[None])
            expected.append((weights[0, 1:-1] != 0).numpy())  # without the special tokens
    np.testing.assert_array_equal(found.kept, np.array(expected))
    assert 0.05 < found.kept.mean() < 0.95
    if name == "half":
        assert set(found.kept.sum(1)) == {-(-len(found.spans) // 2)}


def test_draws_follow_the_seed_and_leave_torch_alone(runs: Path, classifier: HierarchicalClassifier) -> None:
    network = load_label_side(runs / "half" / "training-model")
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first, again, other = (
        positive_sample(classifier, network, TEXT, labels=["law"], seed=seed).kept for seed in (5, 5, 6)
    )
    torch.testing.assert_close(torch.rand(3), expected)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert len({row.tobytes() for row in first}) > 1


def test_labels_are_by_default_those_predicted(runs: Path, classifier: HierarchicalClassifier, taxonomy) -> None:
    network = load_label_side(runs / "half" / "model")
    probabilities = classifier.predict_proba(TEXT)
    nothing = Decisions(taxonomy, thresholds=1.0)
    most_probable = taxonomy.closure([int(probabilities.argmax())])
    found = positive_sample(classifier, network, TEXT, decisions=nothing)
    assert found.labels == tuple(taxonomy.ids[label] for label in most_probable)
    second = float(np.sort(probabilities)[-3])  # two labels are above it
    some = positive_sample(classifier, network, TEXT, decisions=Decisions(taxonomy, thresholds=second))
    predicted = np.flatnonzero(probabilities > second)
    assert some.labels == tuple(taxonomy.ids[label] for label in taxonomy.closure(predicted))


def test_short_texts_are_kept_whole_unless_a_share_is_given(runs: Path, classifier: HierarchicalClassifier) -> None:
    model = runs / "default" / "model"
    assert positive_sample(classifier, load_label_side(model), TEXT, labels=["law"]).whole
    third = positive_sample(classifier, load_label_side(model, 0.3), TEXT, labels=["law"])
    assert set(third.kept.sum(1)) == {int(np.ceil(0.3 * len(third.spans)))}


def test_what_cannot_be_shown_is_refused(runs: Path, classifier: HierarchicalClassifier) -> None:
    for name in ("flat", "dropout", "nowhere"):
        with pytest.raises(InputError):
            load_label_side(runs / name / "model")
    with pytest.raises(InputError):
        load_label_side(runs / "half" / "model", 1.5)
    network = load_label_side(runs / "half" / "model")
    for text, labels in (("\u200b", ["law"]), (TEXT, ["lawn"]), (TEXT, [])):
        with pytest.raises(InputError):
            positive_sample(classifier, network, text, labels=labels)


def test_the_page_escapes_marks_and_needs_nothing_else() -> None:
    whole = hand_made(kept=np.ones((4, 4), dtype=bool))
    page = positive_sample_page([hand_made(), whole], model="<run>/model", rule="P > 0.02 & more")
    read = HtmlReader(page)
    assert read.fetched == []
    for shown in ("<run>/model", "P > 0.02 & more", "a & b > <i>", "Unseen <b"):
        assert shown in read.text
    assert {"mark", "section"} <= set(read.tags)
    assert not {"i", "run", "script", "link"} & set(read.tags)
    shares = [values["title"] for tag, values in read.attributes if tag == "span" and "title" in values]
    assert shares == ["38%", "50%", "50%"]
