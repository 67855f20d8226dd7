"""A fitted estimator as a model's folder, with ``estimator.json`` beside the weights for what only it needs."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hgclr.errors import InputError
from hgclr.estimator.labels import Form
from hgclr.files import atomic_folder, read_json
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.backends import TorchBackend
from hgclr.taxonomy import Taxonomy

__all__ = ["load", "pack", "quiet_libraries", "save", "unpack"]


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Turn the bars and notices of transformers and datasets off, and back to what they were."""
    import datasets
    from transformers.utils import logging as transformers_logging

    level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    dataset_bars = not datasets.are_progress_bars_disabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()
        if dataset_bars:
            datasets.enable_progress_bars()


def pack(classifier: HierarchicalClassifier) -> dict[str, bytes]:
    """Return the files of a classifier's folder by name."""
    with tempfile.TemporaryDirectory(prefix="hgclr-") as temporary, quiet_libraries():
        classifier.save_pretrained(Path(temporary) / "model")
        return {path.name: path.read_bytes() for path in sorted((Path(temporary) / "model").iterdir())}


def unpack(files: Mapping[str, bytes]) -> HierarchicalClassifier:
    """Load the classifier that a folder's files make.

    Raises:
        InputError: if a name is no plain file name, or the files are no model.
    """
    with tempfile.TemporaryDirectory(prefix="hgclr-", ignore_cleanup_errors=True) as temporary:
        for name, content in files.items():
            if name != Path(name).name:
                raise InputError(f"{name!r} is no name of a file")
            (Path(temporary) / name).write_bytes(content)
        return load_folder(Path(temporary))


def load_folder(folder: Path) -> HierarchicalClassifier:
    """Load a model's folder, in torch.

    Raises:
        InputError: if it is no such folder, or one for onnxruntime, which cannot be trained.
    """
    with quiet_libraries():
        classifier = HierarchicalClassifier.from_pretrained(folder)
    if not isinstance(classifier.backend, TorchBackend):
        raise InputError("an ONNX model", path=folder, remedy="open it with hgclr.HierarchicalClassifier")
    return classifier


FILE = "estimator.json"
REMEDY = "give a folder that HGCLRClassifier.save wrote, or the folder 'model' that hgclr train wrote"
Estimator = TypeVar("Estimator", bound=Any)


def save(estimator: Any, folder: Path) -> None:
    """Write a fitted estimator into a folder, in the place of an estimator that may be there.

    Raises:
        InputError: if something else is there, or the folder or a parameter cannot be written.
    """
    if folder.exists() and not (folder / FILE).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError("something else is here already", path=folder, remedy="give the name of a new folder")
    fields = {
        "parameters": {name: _json_value(value) for name, value in estimator.get_params(deep=False).items()},
        "labels": asdict(estimator._form),
        "drawn": estimator._drawn,
        "history": estimator.history_,
    }
    try:
        text = json.dumps(fields, indent=2, ensure_ascii=False) + "\n"
    except TypeError as error:
        raise InputError(f"a parameter cannot be written as JSON: {error}") from None
    try:
        with atomic_folder(folder) as temporary:
            for name, content in pack(estimator.classifier_).items():
                (temporary / name).write_bytes(content)
            (temporary / FILE).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=folder) from error


def load(kind: type[Estimator], folder: Path) -> Estimator:
    """Load an estimator.

    Raises:
        InputError: if the folder holds none.
    """
    if not folder.is_dir():
        raise InputError("no such folder", path=folder, remedy=REMEDY)
    classifier = load_folder(folder)
    fields = _read(folder / FILE, classifier.taxonomy)
    try:
        estimator = kind(**fields["parameters"])
        form, drawn, history = Form(**fields["labels"]), fields["drawn"], fields["history"]
    except (KeyError, TypeError) as error:
        raise InputError(f"not what this version writes: {error}", path=folder / FILE, remedy=REMEDY) from None
    estimator.classifier_, estimator.history_ = classifier, history
    estimator._set_tree(classifier.taxonomy, form, drawn)
    return estimator  # type: ignore[no-any-return]


def _read(file: Path, taxonomy: Taxonomy) -> dict[str, Any]:
    """Return the fields of the file; of a folder without it, what the model tells."""
    if not file.is_file():
        parameters = {"taxonomy": taxonomy}
        return {"parameters": parameters, "labels": {"kind": "paths"}, "drawn": False, "history": []}
    fields = read_json(file, remedy=REMEDY)
    if not isinstance(fields, dict):
        raise InputError(f"expected an object, got {fields!r:.80}", path=file, remedy=REMEDY)
    return fields


def _json_value(value: Any) -> Any:
    """Return a parameter in plain Python types."""
    if isinstance(value, Taxonomy):
        return value.to_json()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    return None if isinstance(value, np.random.RandomState) else value
