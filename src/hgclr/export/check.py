"""What all exports share: open the model, write a folder whole or not at all, and check it against the torch model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from hgclr.decisions.calibration import sigmoid
from hgclr.errors import InputError
from hgclr.files import atomic_folder
from hgclr.inference.backends import TorchBackend, pad, windows
from hgclr.inference.loading import LoadedModel, find_model, is_onnx, load_model
from hgclr.model_files import write_manifest
from hgclr.models import HierarchicalPreTrainedModel
from hgclr.models.base import load_tokenizer

__all__ = [
    "Computation",
    "LogitDifference",
    "compare",
    "new_folder",
    "open_model",
    "refuse_used",
    "sample_batches",
    "write_checked",
]

Batch = tuple[NDArray[np.int64], NDArray[np.int64]]
Logits = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float32]]
Computation = Callable[[Tensor, Tensor], Tensor]
"""Logits, (B, K), from ids and mask, (B, L)."""
SHORT = 24
"""Label names among the texts of the comparison."""
GROUP = 8
"""Given texts in a batch."""
TOLERANCE = 1e-5
"""How far a logit may be from the model's; it should not be at all, but for the order of a sum."""


@dataclass(frozen=True)
class ExportSource:
    """A model to export: what the user calls it, its folder, and the model itself on the CPU, in fp32."""

    name: str | Path
    folder: Path
    loaded: LoadedModel
    backend: TorchBackend

    @property
    def network(self) -> HierarchicalPreTrainedModel:
        return self.backend.model


def open_model(model: str | Path, output: Path) -> ExportSource:
    """Load a model on the CPU in fp32; what its configuration says of this machine's folders is left out."""
    refuse_used(output)
    folder = find_model(model)
    if is_onnx(folder):
        raise InputError("this is an ONNX model already", path=model, remedy="give the model that hgclr train wrote")
    loaded = load_model(folder, "cpu")
    if not isinstance(loaded.backend, TorchBackend):
        raise TypeError(f"expected a torch model, got {type(loaded.backend).__name__}")
    network = loaded.backend.model.float()
    network.config.name_or_path = ""
    network.config.text_encoder.name_or_path = Path(network.config.text_encoder.name_or_path).name
    return ExportSource(model, folder, loaded, loaded.backend)


def refuse_used(output: Path) -> None:
    """Raise an `InputError` if the output is neither new nor an empty folder."""
    if any(output.iterdir()) if output.is_dir() else output.exists():
        raise InputError("the output is there already", path=output, remedy="give a new or empty folder")


@contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """Yield a folder that takes the place of ``output``, which must be new or empty, when the block succeeds."""
    refuse_used(output)
    try:
        with atomic_folder(output) as folder:
            yield folder
    except OSError as error:
        raise InputError(f"the model cannot be written: {error.strerror or error}", path=output) from error


def write_checked(
    source: ExportSource,
    output: Path,
    form: str,
    write: Callable[[Path], object],
    read: Callable[[Path], Computation],
    *,
    texts: Sequence[str],
    shift: NDArray[np.float32] | None,
    relative: bool = False,
) -> LogitDifference:
    """Write a model for another library with tokenizer, decisions and manifest, read it again and compare the two.

    Args:
        source: the model.
        output: a new or empty folder, which is written whole or not at all.
        form: what it becomes, for messages.
        write, read: what writes weights and configuration into a folder, and reads them.
        texts, shift: see :func:`sample_batches` and :func:`compare`.
        relative: whether a logit may be off by a share of it where it is larger than 1.
    """
    max_length = source.loaded.max_length
    tokenizer: Any = load_tokenizer(str(source.folder))
    tokenizer.model_max_length = max_length  # other programs cut texts where the model does, and pad when told to
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.enable_truncation(max_length)
    with new_folder(output) as folder:
        write(folder)
        tokenizer.save_pretrained(folder)
        source.loaded.decisions.write(folder)
        batches = sample_batches(source.loaded, texts)
        compute = read(folder)

        def logits(*batch: NDArray[np.int64]) -> NDArray[np.float32]:
            with torch.inference_mode():
                computed: NDArray[np.float32] = compute(*map(torch.from_numpy, batch)).numpy()
            return computed

        difference = compare(source.backend.logits, logits, batches, shift)
        if not (difference.relative if relative else difference.logit) <= TOLERANCE:  # NaN is not
            raise InputError(
                f"this model as {form} gives other logits, by {difference.logit:.2g}",
                path=source.name,
                remedy="nothing was written; use the model as it is",
            )
        write_manifest(folder)
    return difference


@dataclass(frozen=True)
class LogitDifference:
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
    """Return real texts as ids and mask, (B, L): label names, longer texts made of them, and the given texts.

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
    expected: Logits, found: Logits, batches: Sequence[Batch], shift: NDArray[np.float32] | None = None
) -> LogitDifference:
    """Return how far an export's logits are from the model's; ``shift``, (K,), is what they have been moved by."""
    logit = relative = probability = np.float64(0)
    for batch in batches:
        one, other = (logits(*batch).astype(np.float64) for logits in (expected, found))
        one += 0 if shift is None else shift
        apart = np.abs(one - other)
        logit = np.maximum(logit, apart.max())  # which keeps a NaN
        relative = np.maximum(relative, (apart / np.maximum(np.abs(one), 1)).max())
        probability = np.maximum(probability, np.abs(sigmoid(one) - sigmoid(other)).max())
    return LogitDifference(sum(len(ids) for ids, _ in batches), float(logit), float(relative), float(probability))
