"""Hold an export against the torch model it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from hgclr.errors import InputError
from hgclr.inference.backends import Backend, TorchBackend, pad, windows
from hgclr.inference.classifier import sigmoid
from hgclr.inference.loading import LoadedModel, find_model, is_onnx, load
from hgclr.models.base import load_tokenizer

__all__ = ["Difference", "compare", "open_model", "open_tokenizer", "sample_batches"]

Batch = tuple[NDArray[np.int64], NDArray[np.int64]]
SHORT = 24
"""Label names among the texts of the comparison."""
GROUP = 8
"""Given texts in a batch."""


@dataclass(frozen=True)
class Difference:
    """How far two backends are apart on the same texts.

    Args:
        texts: how many there were.
        logit: the largest difference of two logits; NaN if a logit is none.
        relative: the same, as a share of the logit where that is larger than 1.
        probability: the largest difference of two probabilities.
    """

    texts: int
    logit: float
    relative: float
    probability: float


def sample_batches(model: LoadedModel, texts: Sequence[str] = ()) -> list[Batch]:
    """Return real texts as ids and mask, (B, L): label names, longer texts made of them, and those that are given.

    Lengths go from the shortest there can be to the longest that is read, in batches with much padding, with none, and
    of one text.
    """
    random = np.random.default_rng(0)
    names = [model.taxonomy.names[label] for label in random.permutation(len(model.taxonomy))]
    prose = " ".join(random.choice(names, size=model.max_length))
    tokenizer = Tokenizer.from_str(model.tokenizer.to_str())
    tokenizer.no_padding()

    def encode(text: str, length: int) -> list[int]:
        tokenizer.enable_truncation(length)
        ids: list[int] = tokenizer.encode(text).ids
        return ids

    shortest = encode("", model.max_length)
    short = [encode(name, model.max_length) for name in names[:SHORT]]
    long = [encode(prose, max(model.max_length // share, len(shortest))) for share in (8, 4, 2, 1)]
    mixed = [*short[:3], *long, shortest]
    groups = [mixed, short, [long[-1]] * 2, *([text] for text in (shortest, short[0], *long))]
    groups += windows([encode(text, model.max_length) for text in texts], GROUP)
    return [pad(group, model.pad_token) for group in groups]


def compare(
    expected: Backend, found: Backend, batches: Sequence[Batch], shift: NDArray[np.float32] | None = None
) -> Difference:
    """Return how far one backend is from another.

    Args:
        expected: the model.
        found: the export.
        batches: what to hold them against each other on.
        shift: what the export's logits have been moved by, (K,).
    """
    logit = relative = probability = np.float64(0)
    for batch in batches:
        one, other = (backend.logits(*batch).astype(np.float64) for backend in (expected, found))
        one += 0 if shift is None else shift
        apart = np.abs(one - other)
        logit = np.maximum(logit, apart.max())  # which keeps a NaN
        relative = np.maximum(relative, (apart / np.maximum(np.abs(one), 1)).max())
        probability = np.maximum(probability, np.abs(sigmoid(one) - sigmoid(other)).max())
    return Difference(sum(len(ids) for ids, _ in batches), float(logit), float(relative), float(probability))


def open_model(model: str | Path, output: Path) -> tuple[LoadedModel, TorchBackend]:
    """Load a model on the CPU in fp32; what its configuration says of this machine's folders is left out.

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
