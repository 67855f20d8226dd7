"""Which documents share a batch: those of similar length, or any."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hgclr.models import FlatForSequenceClassification
from hgclr.models.base import load_tokenizer
from hgclr.training import HierarchicalTrainer, RunConfig, TrainingSettings
from hgclr.training.fitting import trainer_arguments
from hgclr.training.recipe import make_recipe


@pytest.mark.parametrize(
    ("sections", "batching"),
    [
        ({}, "by_length"),
        ({"model": {"preset": "paper"}}, "uniform"),
        ({"model": {"preset": "published"}}, "uniform"),
        ({"training": {"batching": "uniform"}}, "uniform"),
        ({"model": {"preset": "published"}, "training": {"batching": "by_length"}}, "by_length"),
    ],
)
def test_the_presets_draw_batches_uniformly(sections: dict, batching: str) -> None:
    run = RunConfig.model_validate({"data": {"path": "data"}, "output": "run", **sections})
    assert run.resolved_training.batching == batching


@pytest.mark.parametrize(
    ("preset", "training", "precision"),
    [
        ("default", {}, "auto"),
        ("paper", {}, "fp32"),
        ("published", {}, "fp32"),
        ("paper", {"precision": "auto"}, "auto"),
    ],
)
def test_the_presets_compute_in_full_precision(preset: str, training: dict, precision: str) -> None:
    sections = {"data": {"path": "data"}, "output": "run", "model": {"preset": preset}, "training": training}
    assert RunConfig.model_validate(sections).resolved_training.precision == precision


def test_lengths_within_a_batch_spread_more_when_batches_are_drawn(make_encoder, taxonomy, tmp_path: Path) -> None:
    encoder = make_encoder("bert")
    tokenizer = load_tokenizer(encoder)
    model = FlatForSequenceClassification.from_encoder(encoder, taxonomy, tokenizer)
    documents = [("atom " * (1 + number % 40), ["physics"]) for number in range(400)]
    spreads = {}
    for batching in ("by_length", "uniform"):
        settings = TrainingSettings(batching=batching, batch_size=8)
        recipe = make_recipe(settings, documents=len(documents), encoder_parameters=1000)
        arguments = trainer_arguments(settings, recipe, "fp32", tmp_path / batching)
        trainer = HierarchicalTrainer(
            model, arguments, processing_class=tokenizer, train_dataset=documents, eval_dataset=documents
        )
        masks = [batch["attention_mask"].sum(1).numpy() for batch in trainer.get_train_dataloader()]
        assert sum(map(len, masks)) == 400
        spreads[batching] = float(np.mean([mask.max() - mask.min() for mask in masks]))
    assert spreads["by_length"] < 5 < 25 < spreads["uniform"]
