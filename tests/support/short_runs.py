"""Runs of a second: toy documents to be learned by heart, and a run whose best epoch is not its last."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import shutil
import signal
from pathlib import Path

from transformers import AutoModel, TrainerCallback

from hgclr.training import RunConfig, trainer


def make_run(encoder: str, data: Path, output: Path, **changes: object) -> RunConfig:
    """A run of three epochs of two steps, the best of which is the second; without dropout, so that it stays so."""
    still = Path(f"{encoder}-still")
    if not still.exists():
        without_dropout(encoder, still)
    run: dict = {
        "data": {"path": data, "limit": 24, "test_limit": 2, "label_documents": False},
        "model": {"encoder": str(still), "classifier_dropout": 0.0},
        "training": {"epochs": 3, "learning_rate": 5e-2, "batch_size": 12, "precision": "fp32", "seed": 6},
        "output": output,
    }
    run["training"]["calibrate"] = False
    for place, value in changes.items():
        section, _, name = place.partition("__")
        run[section][name] = value
    return RunConfig.model_validate(run)


def die_after_checkpoint_in(output: Path) -> None:
    """Let this process, a fork, be killed as soon as a run in ``output`` has a whole checkpoint."""
    mark_complete = trainer.mark_complete

    def mark_and_die(checkpoint: Path) -> None:
        mark_complete(checkpoint)
        if checkpoint.is_relative_to(output):
            os.kill(os.getpid(), signal.SIGKILL)

    trainer.mark_complete = mark_and_die


def tiny_set(toy_data: Path, folder: Path, documents: int = 32, times: int = 4) -> Path:
    """Write a data folder whose dev are its train documents, which train has several times: as epochs, scored once."""
    folder.mkdir()
    shutil.copy(toy_data / "taxonomy.tsv", folder)
    with gzip.open(toy_data / "train.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = "".join(itertools.islice(file, documents))
    (folder / "train.jsonl").write_text(times * rows, encoding="utf-8")
    (folder / "dev.jsonl").write_text(rows, encoding="utf-8")
    return folder


def without_dropout(encoder: str, folder: Path) -> str:
    """Copy an encoder; the copy has no dropout."""
    shutil.copytree(encoder, folder)
    file = folder / "config.json"
    config = json.loads(file.read_text()) | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    file.write_text(json.dumps(config))
    return str(folder)


def first_layer(encoder: str, folder: Path) -> str:
    """Copy an encoder's first layer alone, with its tokenizer."""
    shutil.copytree(encoder, folder)
    AutoModel.from_pretrained(encoder, num_hidden_layers=1).save_pretrained(folder)
    return str(folder)


class StopAfterEpoch(TrainerCallback):
    """Stop after so many epochs of a run that is planned to be longer: it begins as the whole one does."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_evaluate(self, args, state, control, **kwargs) -> None:
        if round(state.epoch) >= self.epoch:
            control.should_training_stop = True


class StopWhenLearned(TrainerCallback):
    """Stop after the first epoch with such scores on dev, by default perfect ones."""

    def __init__(self, f1: float = 1.0) -> None:
        self.f1 = f1

    def on_evaluate(self, args, state, control, metrics, **kwargs) -> None:
        if min(metrics["eval_micro_f1"], metrics["eval_macro_f1"]) >= self.f1:
            control.should_training_stop = True
