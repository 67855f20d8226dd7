"""HiMatch: its objective and losses against loops, the labels' texts, resuming, files, whole runs."""

from __future__ import annotations

from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor
from transformers import TrainerCallback

from hgclr.paper.models.hiagm import HiAGMTPForSequenceClassification, edge_prior
from hgclr.paper.models.himatch import (
    HiMatchForSequenceClassification,
    draw_labels,
    label_words,
)
from hgclr.taxonomy import Taxonomy
from hgclr.training import RunConfig, train
from support.toy import GOLD, TEXTS, batch_of, check_it_is_deployed_as, check_saved_and_loaded

ADDED = ("label_structure.", "label_joint.", "text_joint.")


def make_model(make_encoder, taxonomy: Taxonomy, tokenizer, **settings) -> HiMatchForSequenceClassification:
    """Return a model in training mode without dropout, its new weights large enough to matter."""
    torch.manual_seed(0)
    settings = {"node_width": 10, "joint_width": 6, "classifier_dropout": 0.0, "structure_dropout": 0.0} | settings
    model = HiMatchForSequenceClassification.from_encoder(make_encoder("bert"), taxonomy, tokenizer, **settings)
    for name, parameter in model.named_parameters():
        if not name.startswith("encoder."):
            torch.nn.init.normal_(parameter, std=0.3)
    model.train()
    model.encoder.eval()
    return model


def documents_of(tokenizer, taxonomy: Taxonomy) -> datasets.Dataset:
    gold = [[taxonomy.resolve(name) for name in names] for names in GOLD]
    encoded = [tokenizer(text, truncation=True, max_length=32)["input_ids"] for text in TEXTS]
    return datasets.Dataset.from_dict({"input_ids": encoded, "labels": gold})


def literal_losses(model: HiMatchForSequenceClassification, batch: dict[str, Tensor]) -> tuple[float, float]:
    """One text and one label at a time; the labels that are drawn are those that the seed gives."""
    drawn = draw_labels(batch["labels"], torch.tensor(model.config.label_parents))
    texts = [tokens[tokens >= 0][None] for tokens in model.label_tokens]
    vectors = [model.encoder(input_ids=text).last_hidden_state[0, 0] for text in texts]
    nodes = model.label_structure(torch.stack(vectors)[None])[0]

    def place(projection: torch.nn.Sequential, vector: Tensor) -> Tensor:
        hidden = torch.clamp(projection[0].weight @ vector + projection[0].bias, min=0)
        point = projection[3].weight @ hidden + projection[3].bias
        return point / point.norm()

    joint = matching = 0.0
    for document, (ids, mask) in enumerate(zip(batch["input_ids"], batch["attention_mask"], strict=True)):
        first = model.encoder(input_ids=ids[: int(mask.sum())][None]).last_hidden_state[:, 0]
        text = place(model.text_joint, model.propagate(first)[0].reshape(-1))
        gold, parent, sibling, other = (int(chosen[document]) for chosen in drawn)
        distance = [((text - place(model.label_joint, node)) ** 2).sum().item() for node in nodes]
        joint += distance[gold]
        if parent != -1:
            joint += max(0.0, distance[parent] - 0.01)
        if sibling != -1:
            matching += max(0.0, 0.1 - distance[sibling] + distance[gold])
        matching += max(0.0, 0.2 - distance[other] + distance[gold])
    return joint / len(TEXTS), matching / len(TEXTS)


@pytest.mark.parametrize("structure", ["gcn", "tree-lstm"])
@pytest.mark.parametrize("reduction", ["mean", "document", "sum"])
def test_the_objective_literally(make_encoder, taxonomy: Taxonomy, tokenizer, reduction: str, structure: str) -> None:
    """The added losses keep their ratio to the cross-entropy in every reduction, and padding changes nothing."""
    settings = {"classification_loss": reduction, "structure_encoder": structure}
    model = make_model(make_encoder, taxonomy, tokenizer, **settings)
    model.prepare(documents_of(tokenizer, taxonomy))
    batch = batch_of(tokenizer, taxonomy)
    torch.manual_seed(9)
    joint, matching = literal_losses(model, batch)
    scale = {"mean": 1, "document": len(taxonomy), "sum": 4 * len(taxonomy)}[reduction] / 6  # the joint width
    for padding in (0, 5):
        torch.manual_seed(9)
        output = model(**batch_of(tokenizer, taxonomy, extra_padding=padding))
        assert output.terms["loss_joint"].item() == pytest.approx(scale * joint, rel=1e-3)
        assert output.terms["loss_matching"].item() == pytest.approx(scale * matching, rel=1e-3)
        assert output.loss.item() == pytest.approx(sum(term.item() for term in output.terms.values()), rel=1e-5)
    assert joint > 0
    assert matching > 0


def test_every_parameter_is_trained(make_encoder, taxonomy: Taxonomy, tokenizer) -> None:
    """All without exception; the encoder by the documents alone, since it reads the labels without gradient."""
    model = make_model(make_encoder, taxonomy, tokenizer)
    model(**batch_of(tokenizer, taxonomy)).loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
    assert not model.label_vectors.requires_grad
    names = {name for name, _ in model.named_parameters()}
    assert all(any(name.startswith(part) for name in names) for part in ADDED)


def test_prepare_gives_labels_texts_and_unseen_labels_their_names(make_encoder, taxonomy: Taxonomy, tokenizer) -> None:
    model = make_model(make_encoder, taxonomy, tokenizer)

    def text(label: str) -> list[str]:
        tokens = model.label_tokens[taxonomy.resolve(label)]
        real = tokens[tokens >= 0].tolist()
        assert (tokens[len(real) :] == -1).all()
        return tokenizer.convert_ids_to_tokens(real)

    assert text("law") == ["[CLS]", "law", "[SEP]"]
    documents = documents_of(tokenizer, taxonomy)
    model.prepare(documents)
    assert text("law") == ["[CLS]", "judge", "[SEP]"]
    assert set(text("chemistry")[1:-1]) == {"salt", "is", "a", "molecule"}
    assert text("rowing") == ["[CLS]", "rowing", "[SEP]"]
    prior = edge_prior(documents, taxonomy)
    assert torch.equal(model.structure.down, prior)
    assert torch.equal(model.label_structure.down, prior)


def test_labels_are_read_anew_after_so_many_batches(make_encoder, taxonomy: Taxonomy, tokenizer) -> None:
    model = make_model(make_encoder, taxonomy, tokenizer, label_refresh=3)
    batch = batch_of(tokenizer, taxonomy)
    read = []
    for _ in range(7):
        before = model.label_vectors.clone()
        model(**batch)
        read.append(not torch.equal(model.label_vectors, before))
        with torch.no_grad():
            model.encoder.get_input_embeddings().weight += 0.1 * torch.randn(32)  # as if a step had been taken
        model.eval()
        model(**batch)  # evaluation counts no batches
        model.train()
        model.encoder.eval()
    assert read == [True, False, False, True, False, False, True]


def test_evaluation_mode_is_hiagm(make_encoder, taxonomy: Taxonomy, tokenizer) -> None:
    model = make_model(make_encoder, taxonomy, tokenizer).eval()
    check_it_is_deployed_as(HiAGMTPForSequenceClassification, model, batch_of(tokenizer, taxonomy))


def test_saved_and_loaded_it_predicts_the_same(
    make_encoder, taxonomy: Taxonomy, tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = make_model(make_encoder, taxonomy, tokenizer)
    model.prepare(documents_of(tokenizer, taxonomy))
    model(**batch_of(tokenizer, taxonomy))
    expected = model.eval()(**batch_of(tokenizer, taxonomy)).logits
    caplog.clear()
    added = (*ADDED, "label_", "batches")
    again = check_saved_and_loaded(HiAGMTPForSequenceClassification, model, tokenizer, expected, added, tmp_path)
    assert not caplog.records  # what is for training only is left out without a word
    assert again.batches == 1  # texts and vectors of the labels are there too


def make_run(make_encoder, data: Path, output: Path, model: dict | None = None, **training) -> RunConfig:
    settings = {"encoder": make_encoder("bert"), "architecture": "himatch", "node_width": 16, "label_refresh": 5}
    return RunConfig.model_validate(
        {
            "data": {"path": data},
            "model": settings | (model or {}),
            "training": {"learning_rate": 3e-3, "precision": "fp32", "seed": 3} | training,
            "output": output,
        }
    )


class Kill(TrainerCallback):
    """Stop the run in the middle of an epoch."""

    def on_step_end(self, args, state, control, **kwargs) -> None:
        if state.global_step == 9:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_a_seed_decides_all_and_a_stopped_run_goes_on_as_if_it_had_not_been(
    make_encoder, toy_data: Path, tmp_path: Path
) -> None:
    """Six steps an epoch and labels read every five: the second epoch begins between two readings.

    Each run computes the first epoch by itself, hence equal histories tell of the seed, too.
    """
    whole, run = (
        make_run(make_encoder, toy_data, tmp_path / name, epochs=2, batch_size=4) for name in ("whole", "cut")
    )
    for each in (whole, run):
        each.data.limit, each.data.dev_limit, each.data.test_limit = 24, 12, 2
        each.data.label_documents = False
    expected = train(whole).metrics["history"]
    with pytest.raises(KeyboardInterrupt):
        train(run, callbacks=[Kill()])
    assert (tmp_path / "cut" / "checkpoints" / "checkpoint-6").is_dir()  # else there is nothing to go on from
    assert train(run, resume=True).metrics["history"] == expected


#            0 ─ 1, 2, 3       4 ─ 5       6
PARENTS = torch.tensor([-1, 0, 0, 0, -1, 4, -1])


@settings(deadline=None, derandomize=True, max_examples=50)
@given(rows=st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=5), seed=st.integers(0, 99))
def test_each_drawn_label_is_what_it_shall_be(rows: list[list[bool]], seed: int) -> None:
    torch.manual_seed(seed)
    drawn = draw_labels(torch.tensor(rows).float(), PARENTS)
    for row, gold, parent, sibling, other in zip(rows, *(chosen.tolist() for chosen in drawn), strict=True):
        right = {label for label in range(7) if row[label]}
        wrong = set(range(7)) - right
        assert gold in right if right else gold == -1
        assert other in wrong if wrong else other == -1
        assert parent == (PARENTS[gold].item() if right else -1)
        beside = {label for label in wrong if right and PARENTS[label] == PARENTS[gold]}
        assert sibling in beside if beside else sibling == -1


def make_documents(texts: list[list[int]], labels: list[list[int]]) -> datasets.Dataset:
    return datasets.Dataset.from_dict({"input_ids": texts, "labels": labels})


def test_words_are_ordered_as_by_scikit_learns_vectoriser() -> None:
    random = np.random.default_rng(0)
    labels = [sorted(random.choice(5, size=2, replace=False).tolist()) for _ in range(60)]
    texts = [[1, *(random.zipf(1.3, 12) % 40 + 10).tolist(), *(100 + label for label in gold), 2] for gold in labels]
    found = label_words(make_documents(texts, labels), labels=6, vocabulary=110, special=[1, 2], most=8)

    belonging = [[text[1:-1] for text, gold in zip(texts, labels, strict=True) if k in gold] for k in range(6)]
    joined = [" ".join(str(token) for text in group for token in text) for group in belonging]
    vectoriser = TfidfVectorizer(token_pattern=r"\d+", norm=None)
    weights = vectoriser.fit_transform(joined).toarray()
    column = {int(word): place for word, place in vectoriser.vocabulary_.items()}
    for k, group in enumerate(belonging):
        allowed = [
            token
            for token in column
            if sum(token in text for text in group) >= 0.1 * len(group) > 0
            and sum(token in text[1:-1] for text in texts) <= 0.8 * len(texts)
        ]
        expected = sorted(allowed, key=lambda token: (-weights[k, column[token]], token))[:8]
        assert found[k].tolist() == expected
    assert all(100 + k in found[k] for k in range(5))  # though all documents of the label have it
    assert len(found[5]) == 0  # no documents
