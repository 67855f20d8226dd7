"""A fitted estimator as a model's folder, with ``estimator.json`` beside the weights for what only it needs."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hgclr.errors import InputError
from hgclr.estimator.labels import Form
from hgclr.files import atomic_folder, cache_dir
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.backends import TorchBackend
from hgclr.taxonomy import Taxonomy

if TYPE_CHECKING:
    from hgclr.estimator.classifier import HGCLRClassifier

__all__ = ["WEIGHTS", "alone", "load", "pack", "quiet_libraries", "save", "shown_log", "unpack", "write_model"]

_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def alone(cache: Path) -> Iterator[None]:
    """Train in here: one thread at a time, with the process's random state and cache as they were before and after.

    Training seeds the generators of Python, numpy and torch, which belong to the whole process: two fits in two
    threads would not repeat, and a user's own random numbers would. And it keeps tokens for later runs, which the
    documents of a fold of a cross-validation do not have.

    Args:
        cache: takes the tokens in the place of the user's cache.
    """
    import torch

    with _ONE_AT_A_TIME, torch.random.fork_rng():
        python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (it is this one that training seeds)
        user_cache, chosen = cache_dir(), os.environ.get("HGCLR_CACHE")
        cache.mkdir(parents=True, exist_ok=True)
        if (known := user_cache / "hardware.json").is_file():
            shutil.copy(known, cache)  # what this machine can do need not be tried again
        os.environ["HGCLR_CACHE"] = str(cache)
        try:
            yield
        finally:
            if chosen is None:
                del os.environ["HGCLR_CACHE"]
            else:
                os.environ["HGCLR_CACHE"] = chosen
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


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


@contextmanager
def shown_log(verbose: int) -> Iterator[None]:
    """Show what the library is doing on standard error, if asked to and nobody has set up another place for it."""
    if not verbose:
        yield
        return
    logger, handler = logging.getLogger("hgclr"), logging.StreamHandler()
    level = logger.level
    if not logger.hasHandlers():
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


WEIGHTS = ".safetensors"
"""In the name of every file with weights."""


def pack(folder: Path, *, weights: bool = True) -> dict[str, bytes]:
    """Return the files of a model's folder by name, with or without those of the weights."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return {path.name: path.read_bytes() for path in files if weights or WEIGHTS not in path.name}


def write_model(classifier: HierarchicalClassifier, files: Mapping[str, bytes], folder: Path) -> None:
    """Write a model's folder: the weights and decisions that a classifier has, and the other files as they were."""
    assert isinstance(classifier.backend, TorchBackend)  # load_folder and training give no other
    for name, content in files.items():
        (folder / name).write_bytes(content)
    with quiet_libraries():
        classifier.backend.model.save_pretrained(folder)
    classifier.decisions.write(folder)


def unpack(files: Mapping[str, bytes]) -> HierarchicalClassifier:
    """Load the model that a folder's files make.

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
