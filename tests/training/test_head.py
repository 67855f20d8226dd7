"""Efforts below full training, the fit and refit of the head, and decisions tuned on dev."""

from __future__ import annotations

import copy
import json
import shutil
import tracemalloc
from dataclasses import asdict
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.linear_model import LogisticRegression
from torch.utils._python_dispatch import TorchDispatchMode

from hgclr.data.folder import Document
from hgclr.data.tokens import tokenize_documents
from hgclr.errors import InputError
from hgclr.inference import HierarchicalClassifier
from hgclr.models import FlatForSequenceClassification
from hgclr.models.base import load_tokenizer
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.concepts import Choices
from hgclr.training import RunConfig, head, train
from hgclr.training.head import choose_head, fit_head, refit_head, tune_decisions
from hgclr.training.trainer import Collator


@pytest.fixture
def encoder(make_encoder) -> str:
    return make_encoder("bert")


def make_run(encoder: str, folder: Path, output: Path, **sections: dict) -> RunConfig:
    tree = {
        "data": {"path": folder},
        "model": {"encoder": encoder, "label_heads": 4, "pooling": "mean"},
        "training": {"epochs": 3, "precision": "fp32", "seed": 3},
    }
    return RunConfig(**{name: values | sections.get(name, {}) for name, values in tree.items()}, output=output)


def test_a_folder_with_a_tree_alone_gives_a_model_that_gives_every_text_one_path(
    encoder: str, taxonomy: Taxonomy, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    taxonomy.write(tmp_path / "data" / "taxonomy.json")
    result = train(make_run(encoder, tmp_path / "data", tmp_path / "run", training={"effort": "names"}))
    assert "dev" not in result.metrics
    assert "test" not in result.metrics
    classifier = HierarchicalClassifier.load(result.model)
    for prediction in classifier.predict(["a lens", "the court of a judge", "zzz"]):
        *inner, last = [classifier.taxonomy.ids.index(label.id) for label in prediction.labels]
        assert inner == classifier.taxonomy.ancestors(last).tolist()[::-1]
        assert last in classifier.taxonomy.leaves
    (row,) = classifier.predict_proba(["a lens"])
    tree = classifier.taxonomy
    for label in np.setdiff1d(np.arange(len(tree)), tree.leaves):
        assert row[label] == pytest.approx(row[tree.parents == label].sum(), abs=1e-5)
    assert row[tree.parents < 0].sum() == pytest.approx(1, abs=1e-5)
    threshold = float(np.sort(row)[-3])
    more = classifier.predict("a lens", rule="closure", threshold=threshold - 1e-6)
    assert {label.id for label in more.labels} == {tree.ids[k] for k in np.flatnonzero(row > threshold - 1e-6)}


@pytest.mark.parametrize("effort", ["names", "head", "full"])
def test_one_label_is_enough(encoder: str, tmp_path: Path, effort: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    rows = [json.dumps({"text": text, "labels": ["court"]}) for text in ["the court", "a judge", "the lens"] * 8]
    for split in ("train", "dev"):
        (data / f"{split}.jsonl").write_text("\n".join(rows))
    Taxonomy(["court"], [-1]).write(data / "taxonomy.json")
    result = train(make_run(encoder, data, tmp_path / "run", training={"effort": effort, "epochs": 1}))
    (label,) = HierarchicalClassifier.load(result.model).predict("the court", threshold=0.0).labels
    assert label.id == "court"


def test_texts_in_the_language_of_alternative_names_get_their_label(encoder: str, tmp_path: Path) -> None:
    """An encoder that knows the words of two languages, and a vocabulary in both: ``--language en,de``."""
    words = {"physics": "atom laser quantum", "law": "court judge contract", "tennis": "racket serve net"}
    lines = [
        f'<u:{name}> a skos:Concept ; skos:prefLabel "{name}"@en , "{other}"@de .' for name, other in words.items()
    ]
    (tmp_path / "tree.ttl").write_text("@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n" + "\n".join(lines))
    taxonomy, _ = Taxonomy.import_from([tmp_path / "tree.ttl"], Choices(("en", "de")))
    (tmp_path / "data").mkdir()
    taxonomy.write(tmp_path / "data" / "taxonomy.json")
    result = train(make_run(encoder, tmp_path / "data", tmp_path / "run", training={"effort": "names"}))
    classifier = HierarchicalClassifier.load(result.model)
    for texts in (words.keys(), words.values()):
        assert [one.labels[0].path[0] for one in classifier.predict(list(texts))] == list(words)


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("described", [{}, {"optics": "lens and mirror", "science": "atom"}])
@pytest.mark.parametrize("others", [{}, {"optics": ("lens", "prism"), "law": ("court",)}])
def test_names_are_compared_by_cosine_and_inner_labels_by_all_below_them(
    encoder: str, taxonomy: Taxonomy, described: dict[str, str], several: bool, others: dict[str, tuple[str, ...]]
) -> None:
    """The head's rows from their definition, with vectors of equal length so that the dot product is the cosine."""
    descriptions = [described.get(identifier) for identifier in taxonomy.ids]
    further: list[tuple[int, ...]] = [()] * len(taxonomy)
    if several:
        further[taxonomy.resolve("optics")] = (taxonomy.resolve("society"), taxonomy.resolve("chemistry"))
    alternatives = [others.get(identifier, ()) for identifier in taxonomy.ids]
    taxonomy = Taxonomy(
        taxonomy.ids, taxonomy.parents, taxonomy.names, descriptions, alternatives=alternatives, more_parents=further
    )
    tokenizer = load_tokenizer(encoder)
    model = FlatForSequenceClassification.from_encoder(encoder, taxonomy, tokenizer, pooling="mean").eval()
    model.classify_by_names(tokenizer)

    @torch.no_grad()
    def vector(text: str) -> np.ndarray:
        return model.encoder(**tokenizer([text], return_tensors="pt")).last_hidden_state[0].mean(0).numpy()

    def direction(vector: np.ndarray) -> np.ndarray:
        return vector / np.linalg.norm(vector)

    length = np.mean([np.linalg.norm(vector(name)) for name in taxonomy.names])
    names = []
    for name, more, text in zip(taxonomy.names, alternatives, descriptions, strict=True):
        named = direction(np.mean([direction(vector(one)) for one in (name, *more)], axis=0))
        names.append(named if text is None else direction(named + direction(vector(text))))
    for label in range(len(taxonomy)):
        below = [names[other] for other in range(len(taxonomy)) if label in set(taxonomy.closure([other])) - {other}]
        row = names[label]
        if below:
            row = direction(row + direction(np.mean(below, axis=0))) * 0.5 / 2  # at most two inner labels above a leaf
        np.testing.assert_allclose(model.classifier.weight[label].detach().numpy(), 5 / length * row, atol=1e-4)
    assert not model.classifier.bias.any()


def test_the_head_is_a_logistic_regression_drawn_to_where_it_starts(
    encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From rows of 0 and with one label, it must be scikit-learn's ridge logistic regression of the same strength."""
    monkeypatch.setattr(head, "ITERATIONS", 500)
    monkeypatch.setattr(head, "FEATURE_ENTRIES", 20)  # several blocks of documents
    tokenizer = load_tokenizer(encoder)
    model = FlatForSequenceClassification.from_encoder(
        encoder, Taxonomy(["only"], [-1]), tokenizer, pooling="mean"
    ).eval()
    with torch.no_grad():
        model.classifier.weight.zero_()
    random = np.random.default_rng(0)
    words = ["atom", "laser", "court", "judge", "lens", "boat"]
    texts = [" ".join(random.choice(words, 4)) for _ in range(60)]
    gold = np.array(["court" in text for text in texts])
    documents = [Document(text, (0,) if has else ()) for text, has in zip(texts, gold, strict=True)]
    tokens = tokenize_documents(documents, tokenizer, max_length=16)
    fit_head(model, tokens, Collator(1, tokenizer.pad_token_id), strength=0.01)
    with torch.no_grad():
        vectors = np.stack(
            [
                model.encoder(**tokenizer([text], return_tensors="pt")).last_hidden_state[0].mean(0).numpy()
                for text in texts
            ]
        )
    # scikit-learn minimises |w|²/2 + C Σ loss, ours λ|w|²/2 + Σ loss / N.
    reference = LogisticRegression(C=1 / (0.01 * len(texts)), tol=1e-8, max_iter=5000).fit(vectors, gold)
    np.testing.assert_allclose(model.classifier.weight.detach().numpy(), reference.coef_, atol=2e-3)
    np.testing.assert_allclose(model.classifier.bias.detach().numpy(), reference.intercept_, atol=2e-3)


class Largest(TorchDispatchMode):
    """Notes how many numbers the largest tensor has that is computed."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.numbers = max(self.numbers, result.untyped_storage().nbytes() // result.element_size())
        return result


@pytest.mark.slow
def test_memory_of_a_head_does_not_grow_with_the_documents(
    encoder: str, taxonomy: Taxonomy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in memory nor in a file do parts of the documents change what is fitted, save by rounding."""
    monkeypatch.setenv("HGCLR_CACHE", str(tmp_path))
    monkeypatch.setattr(head, "ITERATIONS", 4)  # after many, rounding errors have grown
    tokenizer = load_tokenizer(encoder)
    collator = Collator(len(taxonomy), tokenizer.pad_token_id)
    torch.manual_seed(0)
    fresh = FlatForSequenceClassification.from_encoder(encoder, taxonomy, tokenizer, pooling="mean").eval()

    def fit(documents: int) -> tuple[torch.Tensor, int, int]:
        """The head's rows, the numbers of the largest tensor, and the most bytes of numpy and Python at a time."""
        words = ["atom", "laser", "court", "judge", "lens", "boat"]
        rows = (Document(" ".join([words[i % 6], words[i // 6 % 6]] * 2), (i % 6, 7)) for i in range(documents))
        tokens, model = tokenize_documents(rows, tokenizer, max_length=16), copy.deepcopy(fresh)
        tracemalloc.start()
        with Largest() as largest:
            fit_head(model, tokens, collator)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return model.classifier.weight.detach(), largest.numbers, most

    whole, *_ = fit(200)
    monkeypatch.setattr(head, "FEATURE_ENTRIES", 32 * 30)  # 30 documents of 32 features at a time
    parts, *_ = fit(200)
    monkeypatch.setattr(head, "IN_MEMORY", 0)
    in_file, most_numbers, most_bytes = fit(200)
    torch.testing.assert_close(parts, whole, atol=1e-4, rtol=1e-4)
    assert torch.equal(in_file, parts)
    assert not list(tmp_path.iterdir())  # nothing is left
    _, numbers, bytes_ = fit(2000)
    assert numbers == most_numbers
    assert bytes_ - most_bytes < 1800 * 32 * 4 / 2  # less than half of the vectors


def test_a_head_is_fitted_and_the_encoder_stays(encoder: str, toy_data: Path, tmp_path: Path) -> None:
    result = train(make_run(encoder, toy_data, tmp_path / "run", training={"effort": "head"}))
    saved, before = load_file(result.model / "model.safetensors"), load_file(Path(encoder) / "model.safetensors")
    for name, value in before.items():
        if not name.startswith("pooler."):
            assert torch.equal(saved[f"encoder.{name}"], value), name
    names = train(make_run(encoder, toy_data, tmp_path / "names", training={"effort": "names"}))
    assert result.metrics["test"]["micro"]["f1"] > names.metrics["test"]["micro"]["f1"] + 0.2
    assert not (tmp_path / "run" / "checkpoints").exists()
    with pytest.raises(InputError, match="holds a finished run"):
        train(make_run(encoder, toy_data, tmp_path / "run", training={"effort": "head"}))


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        ({"model": {"start": "x"}, "training": {"effort": "names"}}, "takes nothing from model.start"),
    ],
)
def test_what_needs_full_training_says_so(tmp_path: Path, sections: dict, problem: str) -> None:
    tree = {"data": {"path": "d"}, "output": "o", **sections}
    with pytest.raises(InputError, match=problem):
        RunConfig.build(tree)


@pytest.mark.slow
def test_training_ends_with_decisions_tuned_on_dev(encoder: str, toy_data: Path, tmp_path: Path) -> None:
    result = train(make_run(encoder, toy_data, tmp_path / "run"))
    decisions = json.loads((result.model / "decisions.json").read_text())
    assert decisions["provenance"]["documents"] == 24
    tuned = result.metrics["tuned"]
    assert tuned["rule"] == decisions["rule"]
    assert set(tuned["dev"]["before"]) == {"micro_f1", "macro_f1", "precision", "recall", "exact"}
    assert result.metrics["dev_at_0.5"]["micro"]["f1"] == pytest.approx(tuned["dev"]["before"]["micro_f1"])
    assert not (result.training_model / "decisions.json").exists()
    # What the saved model decides is what was scored.
    again = HierarchicalClassifier.load(result.model).evaluate(toy_data, "test")
    assert again.micro().f1 == pytest.approx(result.metrics["test"]["micro"]["f1"])
    assert again.macro().f1 == pytest.approx(result.metrics["test"]["macro"]["f1"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "sections", [{"training": {"calibrate": False}}, {"model": {"preset": "published", "token_label_heads": 4}}]
)
def test_decisions_stay_at_one_half_where_asked_and_in_the_presets(
    encoder: str, toy_data: Path, tmp_path: Path, sections: dict
) -> None:
    training = {"epochs": 1} | sections.pop("training", {})
    result = train(make_run(encoder, toy_data, tmp_path / "run", training=training, **sections))
    assert not (result.model / "decisions.json").exists()
    assert "tuned" not in result.metrics


@pytest.mark.slow
def test_scores_stand_apart_for_labels_that_train_has_no_document_of(
    encoder: str, toy_data: Path, tmp_path: Path, taxonomy: Taxonomy
) -> None:
    import gzip

    data = shutil.copytree(toy_data, tmp_path / "data")
    with gzip.open(data / "train.jsonl.gz", "rt") as file:
        rows = [line for line in file if "rowing" not in json.loads(line)["labels"]]
    with gzip.open(data / "train.jsonl.gz", "wt") as file:
        file.writelines(rows)
    groups = train(make_run(encoder, data, tmp_path / "run", training={"effort": "head"})).metrics["test"][
        "by_frequency"
    ]
    assert groups["unseen"]["labels"] == 1
    assert groups["unseen"]["gold"] > 0


WORDS = ["atom", "laser", "court", "judge", "lens", "boat"]


@pytest.mark.parametrize("alike", [True, False])
def test_a_new_head_stays_unless_the_old_one_is_better_on_dev(make_encoder, alike: bool) -> None:
    """In one dev labels mean what they mean in train, in the other the contrary, as the old head has it."""
    tokenizer = load_tokenizer(make_encoder("bert"))
    tree = Taxonomy(["court", "lens"], [-1, -1])
    torch.manual_seed(0)
    model = FlatForSequenceClassification.from_encoder(make_encoder("bert"), tree, tokenizer, pooling="mean").eval()
    random, collator = np.random.default_rng(0), Collator(len(tree), tokenizer.pad_token_id)

    def documents(count: int, *, as_named: bool) -> datasets.Dataset:
        rows = []
        for _ in range(count):
            words = random.choice(WORDS, 4)
            rows.append(Document(" ".join(words), tuple(np.flatnonzero(np.isin(tree.ids, words) == as_named).tolist())))
        return tokenize_documents(rows, tokenizer, max_length=16)

    fit_head(model, documents(80, as_named=False), collator)
    encoded: list[int] = []
    collator.on_documents = encoded.append
    before = {name: value.clone() for name, value in model.state_dict().items()}
    dev = documents(40, as_named=alike)
    recipe, found = refit_head(model, documents(80, as_named=True), dev, collator, seed=0)
    assert sum(encoded) == 40 + 80 + 40
    assert recipe["kept"] is alike
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == ({"classifier.weight", "classifier.bias"} if alike else set())
    # The decisions are those of the head that stayed.
    again = tune_decisions(model, dev, collator, seed=0)
    assert found.after == again.after
    assert found.after.micro_f1 > 0.8


@pytest.mark.parametrize("misleading", [True, False])
def test_the_head_without_label_names_is_kept_where_they_mislead(make_encoder, misleading: bool) -> None:
    """Label documents, behind 60 documents, that say the contrary of train and dev, or the same."""
    tokenizer = load_tokenizer(make_encoder("bert"))
    tree = Taxonomy(["court", "lens"], [-1, -1])
    torch.manual_seed(0)
    model = FlatForSequenceClassification.from_encoder(make_encoder("bert"), tree, tokenizer, pooling="mean").eval()
    random, collator = np.random.default_rng(0), Collator(len(tree), tokenizer.pad_token_id)
    rows = []
    for number in range(360):
        words = random.choice(WORDS, 4)
        has = np.isin(tree.ids, words) != (misleading and number >= 60)
        rows.append(Document(" ".join(words), tuple(np.flatnonzero(has).tolist())))
    learned = tokenize_documents(rows, tokenizer, max_length=16)
    dev, encoded = tokenize_documents(rows[:60], tokenizer, max_length=16), []
    model.start_from_names(tokenizer, length=5.0)
    collator.on_documents = encoded.append
    recipe = choose_head(model, learned, dev, collator, documents=60)
    assert sum(encoded) == 360 + 60
    assert (recipe["vectors"] == 60) is misleading
    assert recipe["strength"] in head.STRENGTHS
    found = tune_decisions(model, dev, collator, seed=0)
    assert found.after.micro_f1 > 0.8


@pytest.mark.parametrize(
    ("model", "training", "refits"),
    [
        ({}, {}, None),
        ({"architecture": "hgclr"}, {}, None),
        ({}, {"refit_head": True}, True),
        ({}, {"refit_head": False}, False),
        ({"preset": "paper"}, {}, False),
        ({"preset": "published", "architecture": "flat"}, {"refit_head": True}, True),
        ({}, {"effort": "head"}, False),
    ],
)
def test_linear_heads_of_the_default_preset_may_be_fitted_again(
    model: dict, training: dict, refits: bool | None
) -> None:
    run = RunConfig(data={"path": "d"}, model=model, training=training, output="o")
    assert run.refits_head is run.resolved_training.refit_head is refits


@pytest.mark.slow
@pytest.mark.parametrize("many", [100, 200])
def test_the_head_is_fitted_again_where_documents_are_many(
    make_encoder, toy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    """96 documents and those of nine labels."""
    monkeypatch.setattr("hgclr.training.fitting.MANY_DOCUMENTS", many)
    training = {"epochs": 1, "precision": "fp32"}
    model = {"encoder": make_encoder("bert"), "pooling": "mean"}
    run = RunConfig(data={"path": toy_data}, model=model, training=training, output=tmp_path / "run")
    result = train(run)
    fitted = result.metrics["recipe"].get("refit_head")
    assert (fitted is None) is (many == 200)
    if fitted is not None:  # after one epoch, a toy's head has hardly begun to learn
        assert fitted["kept"]
        assert result.calibrated is not None
        assert result.metrics["tuned"]["dev"]["after"] == asdict(result.calibrated.after)
