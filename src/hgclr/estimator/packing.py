"""A fitted model as bytes and as a folder: safetensors, JSON and tokenizer files, nothing that runs when it is read."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from hgclr.errors import InputError
from hgclr.estimator.isolation import quiet_libraries
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.backends import TorchBackend

__all__ = ["WEIGHTS", "load_folder", "pack", "unpack", "write_model"]

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
