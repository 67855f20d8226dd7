"""Checks of a run that need no torch: whether settings, data and output folder fit together."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from hgclr.data.folder import DataFolder, DocumentSet, find_data, taxonomy_files
from hgclr.errors import InputError, require_extra
from hgclr.files import check_output, read_json
from hgclr.provenance import first_difference
from hgclr.remote import local
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.tree import MAIN
from hgclr.training.settings import RunConfig

Data = DataFolder | DocumentSet
MODEL, TRAINING_MODEL, CHECKPOINTS = "model", "training-model", "checkpoints"
CONFIG, DOCUMENTS, METRICS = "config.yaml", "documents.json", "metrics.json"
"""Settings and documents are written before training starts, metrics last."""
LOCK = ".hgclr-train.lock"


def check_run(run: RunConfig) -> DataFolder | None:
    """Reject a run with wrong paths or a missing split; return the data if it has its own label tree."""
    if run.model.lora is not None:
        require_extra("peft", extra="lora", capability="Training with model.lora")
    if run.model.label_changes is not None and not local(run.model.label_changes).is_file():
        raise InputError("no such file", path=run.model.label_changes, remedy="correct model.label_changes")
    if run.model.start is not None and not local(run.model.start).is_dir():
        raise InputError("no such folder", path=run.model.start, remedy="give the folder training-model of a run")
    if run.model.start is not None and not has_own_tree(run):
        find_data(run.data.path)
        return None
    folder = data_folder(run, run.data.taxonomy)
    check_splits(run, folder)
    return folder


def has_own_tree(run: RunConfig) -> bool:
    """Return whether the data has a label tree; otherwise the label tree of the model to start from is used."""
    return run.data.taxonomy is not None or bool(taxonomy_files(find_data(run.data.path)))


def data_folder(run: RunConfig, taxonomy: Taxonomy | Path | None) -> DataFolder:
    """Open the data folder of a run."""
    ours = {"path", "taxonomy", "limit", "dev_limit", "test_limit", "dev_share", "unlabelled", "label_documents"}
    documents = run.training.effort != "names"
    return DataFolder(run.data.path, taxonomy=taxonomy, needs_documents=documents, **run.data.model_dump(exclude=ours))


def check_splits(run: RunConfig, folder: Data) -> None:
    """Reject data without a split that training needs; the effort ``names`` needs none.

    The presets of the paper need a tree, as its method does.
    """
    if run.model.follows_paper:
        folder.taxonomy.require_tree(f"the preset {run.model.preset}", f"choose another preset, {MAIN}")
    if run.training.effort == "names":
        return
    if "train" not in folder.splits:
        raise InputError("there is no train split", path=run.data.path, remedy="add train.jsonl")
    if "dev" not in folder.splits and run.data.dev_share is None:
        raise InputError(
            "there is no dev split to select the best epoch on",
            path=run.data.path,
            remedy="add dev.jsonl, or hold out a tenth of train with data.dev_share=0.1",
        )


def state_of(output: Path) -> Literal["empty", "stopped", "finished"]:
    """Return the state of the run in a folder."""
    if (output / METRICS).is_file() and (output / MODEL).is_dir():
        return "finished"
    left = [*(output / CHECKPOINTS).glob("checkpoint-*"), *(output / name for name in (MODEL, TRAINING_MODEL))]
    return "stopped" if any(path.exists() for path in left) else "empty"


def check_new_run(run: RunConfig) -> None:
    """Reject an output folder that cannot be written, or that holds a run."""
    check_output(run.output)
    state = state_of(run.output)
    if state == "finished":
        raise InputError(
            "holds a finished run",
            path=run.output,
            remedy=f"use it (hgclr predict {run.output / MODEL}), or give another --output",
        )
    if state == "stopped":
        raise InputError(
            "holds an unfinished run",
            path=run.output,
            remedy="continue it with --resume, or give another --output",
        )


def check_resumed(run: RunConfig) -> None:
    """Reject a resume with other settings, or one that would overwrite a model."""
    state = state_of(run.output)
    if state == "empty":
        return
    if not (run.output / CONFIG).is_file():
        raise InputError(f"holds a run without {CONFIG}", path=run.output, remedy="give another --output")
    there, here = (
        each.model_dump(mode="json", exclude={"output"}) for each in (RunConfig.read(run.output / CONFIG), run)
    )
    if run.model.start is not None and "architecture" not in run.model.model_fields_set:  # it comes with the model
        del there["model"]["architecture"], here["model"]["architecture"]
    if (difference := first_difference(there, here)) is not None:
        place, before, now = difference
        raise InputError(
            f"holds a run with other settings: {place} was {before!r}, and is {now!r} now",
            path=run.output,
            remedy="give the same settings, or another --output",
        )
    whole = run.training.effort == "full"
    if state == "stopped" and whole and not any((run.output / CHECKPOINTS).glob("checkpoint-*")):
        raise InputError(
            "holds a model, but no checkpoint to continue from", path=run.output, remedy="give another --output"
        )


def check_documents(run: RunConfig, documents: Mapping[str, Mapping[str, Any]]) -> None:
    """Reject a resume with other documents."""
    if not (run.output / DOCUMENTS).is_file():
        return
    there = read_json(run.output / DOCUMENTS)
    if (difference := first_difference(there, documents)) is not None:
        split = difference.place.partition(".")[0]
        counts = [each.get(split, {}).get("documents", 0) for each in (there, documents)]
        raise InputError(
            f"holds a run with other documents in {split}: {counts[0]} then, {counts[1]} now"
            + (", with other content" if counts[0] == counts[1] else ""),
            path=run.output,
            remedy="give the same data, or another --output",
        )


def restarted() -> bool:
    """Return whether torchrun has restarted this run after a process died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
