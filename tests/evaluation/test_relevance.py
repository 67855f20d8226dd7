"""Relevance against literal computations: torch's own gradients, sums that must come out, words left out one by one."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from hgclr.errors import InputError
from hgclr.evaluation.explanation import Method, explain
from hgclr.evaluation.relevance import STEPS, AttentionRelevance, GradientRelevance, OcclusionRelevance, read_text
from hgclr.inference import HierarchicalClassifier
from hgclr.models import HGCLRForSequenceClassification
from hgclr.nn.positive_samples import gold_probability

TEXT = "Laser of the laser, a prism"
LABELS = [4, 0, 7]


def literal_products(network, ids: list[int], label: int, shares: list[float]) -> np.ndarray:
    """The mean over the shares of gradient times embedding, per token, with the embeddings given from outside."""
    words = network.encoder.get_input_embeddings().weight[ids].detach()  # (L, H)
    total = np.zeros(len(ids))
    for share in shares:
        factor = torch.tensor([1.0 if i in (0, len(ids) - 1) else share for i in range(len(ids))])
        moved = (words * factor[:, None])[None].requires_grad_()
        logit = network.classifier(network.encode(torch.ones(1, len(ids)), inputs_embeds=moved))[0, label]
        logit.backward()
        for token in range(len(ids)):
            total[token] += float(moved.grad[0, token] @ words[token]) / len(shares)
    return total


@pytest.mark.parametrize("integrated", [False, True])
def test_gradients_are_those_of_autograd(classifier: HierarchicalClassifier, integrated: bool, monkeypatch) -> None:
    text = read_text(classifier, TEXT)
    shares = [(step + 0.5) / STEPS for step in range(STEPS)] if integrated else [1.0]
    expected = [literal_products(classifier.backend.model, text.ids.tolist(), label, shares) for label in LABELS]
    relevance_of = GradientRelevance(classifier.backend, integrated=integrated)
    for batch_tokens in (10_000, 21, 1):
        monkeypatch.setattr(classifier.backend, "batch_tokens", batch_tokens)
        found = relevance_of(text, LABELS)
        # Every word of this text is one token, between the special ones.
        np.testing.assert_allclose(found, np.array(expected)[:, 1:-1], rtol=1e-4, atol=1e-5)
    assert np.abs(found).max() > 0.1


def test_pieces_of_a_word_are_summed_up(classifier: HierarchicalClassifier) -> None:
    text = read_text(classifier, "laser of the prism")
    joined = type(text)(text.text, text.ids, text.words[:3], np.array([-1, 0, 1, 1, 2, -1]), 0)
    relevance_of = GradientRelevance(classifier.backend, integrated=False)
    apart, together = relevance_of(text, LABELS), relevance_of(joined, LABELS)
    np.testing.assert_allclose(together, np.stack([apart[:, 0], apart[:, 1] + apart[:, 2], apart[:, 3]], 1), atol=1e-6)


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


@pytest.mark.parametrize("integrated", [False, True])
def test_the_parts_of_a_linear_model_sum_up_to_its_logit(additive, taxonomy, integrated: bool) -> None:
    torch.manual_seed(0)
    network = LinearModel(len(additive.backend.weights), len(taxonomy))
    backend = SimpleNamespace(model=network, device=torch.device("cpu"), batch_tokens=1000)
    text = read_text(additive, TEXT)
    found = GradientRelevance(backend, integrated=integrated)(text, range(len(taxonomy)))
    ids = torch.from_numpy(text.ids)[None]
    with torch.no_grad():
        whole = network(ids, torch.ones_like(ids)).logits[0]
        without = network(ids[:, [0, -1]], torch.ones(1, 2)).logits[0]  # [CLS] and [SEP] stay in any case
        one_by_one = network.encoder.table(ids[0, 1:-1]) @ network.head.weight.T
    np.testing.assert_allclose(found.sum(1), (whole - without).numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found, one_by_one.T.numpy(), rtol=1e-4, atol=1e-5)


def test_integrated_parts_sum_up_to_what_the_words_add(classifier: HierarchicalClassifier, monkeypatch) -> None:
    monkeypatch.setattr("hgclr.evaluation.relevance.STEPS", 400)
    text, network = read_text(classifier, TEXT), classifier.backend.model
    found = GradientRelevance(classifier.backend, integrated=True)(text, LABELS)
    words = network.encoder.get_input_embeddings().weight[text.ids.tolist()].detach()
    empty = words.clone()
    empty[1:-1] = 0
    with torch.no_grad():
        ends = network.encode(torch.ones(2, len(words)), inputs_embeds=torch.stack([words, empty]))
        whole, without = network.classifier(ends)
    np.testing.assert_allclose(found.sum(1), (whole - without)[LABELS].numpy(), atol=0.02)


def test_an_encoder_that_looks_words_up_elsewhere_is_refused(additive) -> None:
    network = LinearModel(len(additive.backend.weights), 9)
    network.encoder.get_input_embeddings = lambda: torch.nn.Embedding(1, 1)
    backend = SimpleNamespace(model=network, device=torch.device("cpu"), batch_tokens=1000)
    with pytest.raises(InputError, match=r"does not look words up .*; choose the method occlusion"):
        GradientRelevance(backend, integrated=False)(read_text(additive, TEXT), [0])


def test_predictions_of_other_threads_are_left_alone(classifier: HierarchicalClassifier, monkeypatch) -> None:
    text = read_text(classifier, TEXT)
    expected = classifier.predict_proba(["the judge"])
    network, meanwhile = classifier.backend.model, []

    def predict_meanwhile(*_arguments) -> None:
        if not meanwhile:
            meanwhile.append(None)
            thread = threading.Thread(target=lambda: meanwhile.append(classifier.predict_proba(["the judge"])))
            thread.start()
            thread.join()

    handle = network.encoder.register_forward_pre_hook(predict_meanwhile)
    try:
        during = GradientRelevance(classifier.backend, integrated=True)(text, LABELS)
    finally:
        handle.remove()
    np.testing.assert_array_equal(meanwhile[1], expected)
    np.testing.assert_array_equal(during, GradientRelevance(classifier.backend, integrated=True)(text, LABELS))
    np.testing.assert_array_equal(classifier.predict_proba(["the judge"]), expected)


def test_gradients_can_be_stopped_before_every_pass(classifier: HierarchicalClassifier, monkeypatch) -> None:
    text = read_text(classifier, TEXT)
    monkeypatch.setattr(classifier.backend, "batch_tokens", 4 * len(text.ids))
    passes = 0

    def stop_at(last: float) -> None:
        nonlocal passes
        if passes == last:
            raise TimeoutError
        passes += 1

    everything = GradientRelevance(classifier.backend, integrated=True, before_pass=lambda: stop_at(float("inf")))
    everything(text, LABELS)
    assert passes == STEPS // 4 * (1 + len(LABELS))  # four steps at a time: once forwards, once back for each label
    passes = 0
    with pytest.raises(TimeoutError):
        GradientRelevance(classifier.backend, integrated=True, before_pass=lambda: stop_at(2))(text, LABELS)
    assert passes == 2


@pytest.mark.parametrize("method", ["integrated", "gradient", "occlusion"])
def test_an_explanation_can_be_stopped_before_every_pass(classifier: HierarchicalClassifier, method: Method) -> None:
    passes = 0

    def stop_at(last: float) -> None:
        nonlocal passes
        if passes == last:
            raise TimeoutError
        passes += 1

    explain(classifier, TEXT, method=method, before_pass=lambda: stop_at(float("inf")))
    in_all = passes
    assert in_all >= 3  # the text, the relevance of its words, and the text with some of them
    for last in range(in_all):
        passes = 0
        with pytest.raises(TimeoutError):
            explain(classifier, TEXT, method=method, before_pass=lambda: stop_at(last))  # noqa: B023


def test_occlusion_is_what_is_lost_with_each_word(classifier: HierarchicalClassifier) -> None:
    text = read_text(classifier, TEXT)
    found = OcclusionRelevance(classifier)(text, LABELS)
    words = ["laser", "of", "the", "laser", ",", "a", "prism"]
    (whole,) = classifier.logits([TEXT])
    for place in range(len(words)):
        (without,) = classifier.logits([" ".join(words[:place] + words[place + 1 :])])
        np.testing.assert_allclose(found[:, place], (whole - without)[0, LABELS], atol=1e-5)
    assert np.abs(found).max() > 0.1


def test_occlusion_of_a_sum_gives_its_parts(additive: HierarchicalClassifier) -> None:
    text = read_text(additive, TEXT)
    found = OcclusionRelevance(additive)(text, LABELS)
    np.testing.assert_allclose(found, additive.backend.weights[text.ids[1:-1]][:, LABELS].T, atol=1e-5)


@pytest.mark.parametrize("guidance", ["logits", "probabilities"])
def test_attention_is_the_models_own_without_noise(
    make_encoder, taxonomy, classifier: HierarchicalClassifier, guidance: str, monkeypatch
) -> None:
    monkeypatch.setattr("hgclr.evaluation.relevance.TOKENS", 4)
    tokenizer = AutoTokenizer.from_pretrained(make_encoder("bert"))
    torch.manual_seed(2)
    network = HGCLRForSequenceClassification.from_encoder(
        make_encoder("bert"), taxonomy, tokenizer, guidance=guidance, token_label_heads=4, gumbel_temperature=0.3
    ).eval()
    for parameter in network.token_label_attention.parameters():
        torch.nn.init.normal_(parameter)
    text = read_text(classifier, TEXT)
    words = network.encoder.get_input_embeddings()(torch.from_numpy(text.ids))
    found = AttentionRelevance(network)(text, LABELS)
    for row, label in enumerate(LABELS):
        expected = gold_probability(
            network.token_label_attention,
            words,
            network.label_features(),
            torch.full((len(words), 1), label),
            temperature=0.3,
            noise=torch.zeros(len(words), len(taxonomy)),
        )
        np.testing.assert_allclose(found[row], expected[1:-1].detach().numpy(), rtol=1e-4)
    everything = AttentionRelevance(network)(text, range(len(taxonomy)))
    np.testing.assert_allclose(everything.sum(0), 1, rtol=1e-5)
    assert AttentionRelevance(network).neutral == pytest.approx(1 / 9)


def test_attention_of_a_word_is_the_mean_of_its_pieces(run: Path, classifier: HierarchicalClassifier) -> None:
    text = read_text(classifier, "laser of the prism")
    joined = type(text)(text.text, text.ids, text.words[:3], np.array([-1, 0, 1, 1, 2, -1]), 0)
    relevance_of = AttentionRelevance.from_pretrained(run / "training-model")
    apart, together = relevance_of(text, LABELS), relevance_of(joined, LABELS)
    np.testing.assert_allclose(together[:, 1], apart[:, 1:3].mean(1))
    np.testing.assert_allclose(together[:, [0, 2]], apart[:, [0, 3]])


def test_a_deployed_model_has_no_attention(run: Path) -> None:
    with pytest.raises(
        InputError, match=r"model: this FlatForSequenceClassification has no label side; give the folder training-model"
    ):
        AttentionRelevance.from_pretrained(run / "model")
