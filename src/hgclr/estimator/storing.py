"""A fitted estimator as a model's folder, with ``estimator.json`` beside the weights for what only it needs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hgclr.errors import InputError
from hgclr.estimator.packing import load_folder, pack, write_model
from hgclr.estimator.targets import Form
from hgclr.files import atomic_folder
from hgclr.taxonomy import Taxonomy

if TYPE_CHECKING:
    from hgclr.estimator.classifier import HGCLRClassifier

__all__ = ["FILE", "load", "save"]

FILE = "estimator.json"
REMEDY = "give a folder that HGCLRClassifier.save wrote, or the folder 'model' that hgclr train wrote"

Estimator = TypeVar("Estimator", bound="HGCLRClassifier")


def save(estimator: HGCLRClassifier, folder: Path) -> None:
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
            write_model(estimator.classifier_, estimator._files, temporary)
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
    files = pack(folder, weights=False)
    estimator._files = {name: content for name, content in files.items() if name != FILE}
    return estimator


def _read(file: Path, taxonomy: Taxonomy) -> dict[str, Any]:
    """Return the fields of the file; of a folder without it, what the model tells."""
    if not file.is_file():
        parameters = {"taxonomy": taxonomy}
        return {"parameters": parameters, "labels": {"kind": "paths"}, "drawn": False, "history": []}
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {error}", path=file, remedy=REMEDY) from error
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
