"""Open a model to write it in another form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from hgclr.errors import InputError
from hgclr.inference.backends import TorchBackend
from hgclr.inference.finding import find_model
from hgclr.inference.loading import LoadedModel, is_onnx, load
from hgclr.models.saving import load_tokenizer

__all__ = ["open_model", "open_tokenizer"]


def open_model(model: str | Path, output: Path) -> tuple[LoadedModel, TorchBackend]:
    """Load a model on the processor in fp32; what its configuration says of this machine's folders is left out.

    Args:
        model: a folder that ``hgclr train`` wrote, or a hub name.
        output: where it will be written.

    Raises:
        InputError: if there is no such model, or the output is in use.
    """
    if any(output.iterdir()) if output.is_dir() else output.exists():
        raise InputError("the output is there already", path=output, remedy="give a new or empty folder")
    folder = find_model(model)
    if is_onnx(folder):
        raise InputError("this is an ONNX model already", path=model, remedy="give the model that hgclr train wrote")
    loaded = load(folder, "cpu")
    backend = loaded.backend
    if not isinstance(backend, TorchBackend):
        raise TypeError(f"expected a torch model, got {type(backend).__name__}")
    backend.model.float()
    config = backend.model.config
    config.name_or_path = ""
    config.text_encoder.name_or_path = Path(config.text_encoder.name_or_path).name
    return loaded, backend


def open_tokenizer(model: str | Path, max_length: int) -> PreTrainedTokenizerBase:
    """Load a model's tokenizer for other programs: it cuts texts where the model does, and pads only when told to."""
    tokenizer: Any = load_tokenizer(str(find_model(model)))
    tokenizer.model_max_length = max_length
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.enable_truncation(max_length)
    opened: PreTrainedTokenizerBase = tokenizer
    return opened
