"""Find a model: a folder on this machine, or a name on a model hub."""

from __future__ import annotations

from pathlib import Path

from hgclr.errors import InputError

__all__ = ["find_model"]

WANTED = ["*.json", "*.model", "*.onnx", "*.onnx.data", "*.safetensors", "*.txt"]
"""What is fetched: weights, graphs, tokenizers and settings; never pickles or code."""


def find_model(model: str | Path) -> Path:
    """Return the folder of a model; one with a hub name is fetched first, unless it is in the cache already.

    Without a connection, or with ``HF_HUB_OFFLINE=1``, the copy in the hub's cache is taken.

    Raises:
        InputError: if there is no such folder and no such name.
    """
    if Path(model).is_dir():
        return Path(model)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(snapshot_download(str(model), allow_patterns=WANTED))
    except (OSError, ValueError) as error:
        reason = "no such folder, and no name on a hub" if isinstance(error, HFValidationError) else _first_line(error)
        raise InputError(
            f"no model could be loaded from {model}: {reason}",
            remedy="give the folder 'model' that hgclr train wrote, or a name that the hub has",
        ) from error


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")
