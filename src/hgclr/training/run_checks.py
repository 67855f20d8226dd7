"""What can be told of a run before torch is imported, which takes seconds: whether settings and data fit together."""

from __future__ import annotations

from pathlib import Path

from hgclr.data.folder import DataFolder, DocumentSet, find_data, taxonomy_files
from hgclr.encoders import TEXTRCNN
from hgclr.errors import InputError, require_extra
from hgclr.remote import local
from hgclr.taxonomy import Taxonomy
from hgclr.training.settings import RunConfig

__all__ = ["Data", "check_run", "check_splits", "check_word_vectors", "data_folder", "has_own_tree"]

Data = DataFolder | DocumentSet


def check_run(run: RunConfig) -> None:
    """Refuse a run whose paths are wrong, or whose data lacks what training needs.

    Raises:
        InputError: naming the path, or what is missing.
        MissingExtraError: naming the extra that is.
    """
    check_word_vectors(run)
    if run.model.lora is not None:
        require_extra("peft", extra="lora", capability="Training with model.lora")
    for name, path in (("word_vectors", run.model.word_vectors), ("label_changes", run.model.label_changes)):
        if path is not None and not local(path).is_file():
            raise InputError(f"no such file, and it is model.{name}", path=path)
    if run.model.start is not None and not local(run.model.start).is_dir():
        raise InputError("no such folder to start from", path=run.model.start, remedy="give a training-model")
    if run.model.start is None or has_own_tree(run):
        check_splits(run, data_folder(run, run.data.taxonomy))
    else:
        find_data(run.data.path)


def has_own_tree(run: RunConfig) -> bool:
    """Tell whether the data has a label tree, or takes that of the model to start from."""
    return run.data.taxonomy is not None or bool(taxonomy_files(find_data(run.data.path)))


def data_folder(run: RunConfig, taxonomy: Taxonomy | Path | None) -> DataFolder:
    """Open the data folder as the settings say."""
    ours = {"path", "taxonomy", "limit", "dev_limit", "test_limit", "dev_share", "label_documents"}
    documents = run.training.effort != "names"
    return DataFolder(run.data.path, taxonomy=taxonomy, needs_documents=documents, **run.data.model_dump(exclude=ours))


def check_splits(run: RunConfig, folder: Data) -> None:
    """Refuse data without a split that training needs; from the label tree alone it needs none."""
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


def check_word_vectors(run: RunConfig) -> None:
    """Refuse word vectors for an encoder that has its own."""
    if run.model.word_vectors is not None and (run.model.encoder != TEXTRCNN or run.model.start is not None):
        encoder = "a model to train on from" if run.model.start is not None else run.model.encoder
        raise InputError(
            f"model.word_vectors is given, but {encoder} has its own word embeddings",
            remedy=f"leave it out, or set model.encoder to {TEXTRCNN}",
        )
