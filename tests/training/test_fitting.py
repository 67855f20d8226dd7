"""Training from memory: every way in gives the weights that a folder gives; the trainer's defaults; saving."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from transformers import TrainingArguments, set_seed

from hgclr.data.folder import DataFolder, Document, DocumentSet, read_documents
from hgclr.errors import InputError
from hgclr.inference import HierarchicalClassifier
from hgclr.models import FlatForSequenceClassification
from hgclr.models.base import load_tokenizer
from hgclr.taxonomy import Taxonomy
from hgclr.training import HierarchicalTrainer, RunConfig, TrainingSettings, fit, train
from hgclr.training.fitting import Plan

TREE = Taxonomy(["science", "physics", "law"], [-1, 0, -1])
SETTINGS = TrainingSettings(epochs=1, batch_size=8, learning_rate=1e-3, precision="fp32", seed=3)
TEXTS = ["the atom and the laser", "a judge in court"]


@pytest.fixture(scope="module")
def encoder(make_encoder) -> str:
    return make_encoder("bert")


def make_model(encoder: str, taxonomy: Taxonomy) -> tuple[FlatForSequenceClassification, Any]:
    set_seed(SETTINGS.seed)
    tokenizer = load_tokenizer(encoder)
    return FlatForSequenceClassification.from_encoder(encoder, taxonomy, tokenizer, pooling="mean"), tokenizer


def as_pairs(documents: list[Document], ids: list[str]) -> Any:
    return [(document.text, [ids[label] for label in document.labels]) for document in documents]


WAYS: dict[str, Callable[[list[Document], list[str]], Any]] = {
    "an iterator": lambda documents, ids: iter(as_pairs(documents, ids)),
    "a data set": lambda documents, ids: datasets.Dataset.from_dict(
        dict(zip(("text", "labels"), map(list, zip(*as_pairs(documents, ids), strict=True)), strict=True))
    ),
}


@pytest.fixture(scope="module")
def from_folder(encoder: str, toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """The weights of a run that reads the folder."""
    run = RunConfig(
        data={"path": toy_data},
        model={"encoder": encoder, "pooling": "mean"},
        training=SETTINGS.model_dump(),
        output=tmp_path_factory.mktemp("run"),
    )
    result = train(run)
    return HierarchicalClassifier.load(result.model, device="cpu").backend.model.state_dict()


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_documents_from_memory_give_the_weights_that_the_folder_gives(
    way: str, encoder: str, toy_data: Path, from_folder: dict[str, torch.Tensor]
) -> None:
    folder = DataFolder(toy_data)
    ids = list(folder.taxonomy.ids)
    model, tokenizer = make_model(encoder, folder.taxonomy)
    fitted = fit(
        model,
        tokenizer,
        WAYS[way](list(folder.documents("train")), ids),
        WAYS[way](list(folder.documents("dev")), ids),
        settings=SETTINGS,
    )
    for name, weight in model.deployed().state_dict().items():
        torch.testing.assert_close(weight.cpu(), from_folder[name], rtol=0, atol=0)
    assert fitted.metrics["documents"] == {"train": 96, "dev": 24}
    assert len(fitted.metrics["history"]) == 1
    assert fitted.calibrated is not None


def test_a_tenth_is_held_out_where_there_is_no_dev(encoder: str, toy_data: Path) -> None:
    folder = DataFolder(toy_data)
    model, tokenizer = make_model(encoder, folder.taxonomy)
    fitted = fit(model, tokenizer, folder.documents("train"), settings=TrainingSettings(effort="head", seed=1))
    assert fitted.metrics["documents"] == {"train": 86, "dev": 10}


def test_the_label_tree_alone(encoder: str, toy_data: Path) -> None:
    folder = DataFolder(toy_data)
    model, tokenizer = make_model(encoder, folder.taxonomy)
    names = TrainingSettings(effort="names")
    fitted = fit(model, tokenizer, None, test=folder.documents("test"), settings=names)
    assert fitted.decisions.rule == "best-path"
    assert fitted.metrics["test"] != fitted.metrics["test_at_0.5"]
    with pytest.raises(InputError, match=r"training\.effort is head"):
        fit(model, tokenizer, None, settings=TrainingSettings(effort="head"))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("a text", ["chemistry"]), "document 1: .*'chemistry'"),
        (("a text", []), "document 1: no labels"),
        ((" ", ["law"]), "document 1: "),
        ({"text": "no labels"}, "document 1 .*no labels.*; give a pair"),
        (7, "document 1 .*7; give a pair"),
    ],
)
def test_a_document_that_cannot_be_used_is_named(row: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(read_documents([("good", ["law"]), row], TREE))


def test_a_set_of_documents_adds_ancestors() -> None:
    data = DocumentSet(TREE, {"train": [("a lens", "science > physics"), ("a court", ["law"])]})
    assert data.splits["train"] == [Document("a lens", (0, 1)), Document("a court", (2,))]


@pytest.mark.slow
def test_the_trainer_needs_nothing_but_model_arguments_and_documents(
    encoder: str, toy_data: Path, tmp_path: Path
) -> None:
    folder = DataFolder(toy_data)
    model, tokenizer = make_model(encoder, folder.taxonomy)
    arguments = TrainingArguments(
        str(tmp_path), num_train_epochs=1, learning_rate=1e-3, use_cpu=True, report_to=[], disable_tqdm=True
    )
    trainer = HierarchicalTrainer(
        model,
        arguments,
        processing_class=tokenizer,
        train_dataset=folder.documents("train"),
        eval_dataset=folder.documents("dev"),
    )
    assert trainer.head_learning_rate == pytest.approx(model.head_rate * 1e-3)
    before = trainer.evaluate()
    assert {"eval_micro_f1", "eval_macro_f1"} <= before.keys()
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before["eval_loss"]
    with pytest.raises(InputError, match="processing_class"):
        HierarchicalTrainer(model, arguments)


class PlanKnownError(Exception):
    """Stops a run once its plan is known."""


@pytest.mark.parametrize(("case", "steps"), [("names", 300), ("random", 750), ("continued", 750)])
def test_a_head_that_starts_from_names_has_fewer_steps(encoder: str, toy_data: Path, case: str, steps: int) -> None:
    def stop(plan: Plan) -> None:
        assert plan.recipe is not None
        assert plan.recipe.epochs == round(steps / plan.recipe.steps_per_epoch) > 5
        raise PlanKnownError

    data, settings = DataFolder(toy_data), TrainingSettings(batch_size=2, precision="fp32")
    model, tokenizer = make_model(encoder, data.taxonomy)
    model.config.classifier_start = "random" if case == "random" else "names"
    documents = list(data.documents("train"))
    with pytest.raises(PlanKnownError):
        fit(model, tokenizer, documents, settings=settings, continued=case == "continued", on_start=stop)


def test_a_failed_allocation_names_the_settings_to_change(encoder: str, toy_data: Path, monkeypatch) -> None:
    model, tokenizer = make_model(encoder, DataFolder(toy_data).taxonomy)
    settings, documents = TrainingSettings(effort="head"), [(TEXTS[0], ["physics"])] * 20
    monkeypatch.setattr(model, "encode", lambda *_, **__: torch.empty(10**15))
    with pytest.raises(InputError) as refused:
        fit(model, tokenizer, documents, settings=settings, continued=True)
    assert "training.batch_size" in str(refused.value.remedy)
    monkeypatch.setattr(model, "encode", lambda *_, **__: torch.empty(2) @ torch.empty(3))
    with pytest.raises(RuntimeError, match="size"):
        fit(model, tokenizer, documents, settings=settings, continued=True)
