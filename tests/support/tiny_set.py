"""A few toy documents to be learned by heart, and an encoder that makes it easy."""

from __future__ import annotations

import gzip
import itertools
import json
import shutil
from pathlib import Path

from transformers import AutoModel, TrainerCallback


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
