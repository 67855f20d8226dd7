"""Steps of all exports: load the model, write the folder atomically, compare its logits with torch's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from hgclr.data.folder import Document
from hgclr.decisions.settings import sigmoid
from hgclr.errors import InputError
from hgclr.files import atomic_folder
from hgclr.inference.backends import TorchBackend, pad, windows
from hgclr.inference.loading import LoadedModel, find_model, is_onnx, load_model
from hgclr.metrics.scores import MultiLabelScores
from hgclr.model_files import write_manifest
from hgclr.models import HierarchicalPreTrainedModel
from hgclr.models.base import load_tokenizer
from hgclr.models.pretrained import quiet_libraries

Target = Literal["stock", "sentence-transformers", "onnx", "onnx-int8"]
Batch = tuple[NDArray[np.int64], NDArray[np.int64]]
Logits = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float32]]
SHORT = 24
"""Number of label names among the texts of the comparison."""
GROUP = 8
"""Size of a batch of the given texts."""
TOLERANCE = 1e-5
"""Largest allowed difference of a logit: only the order of a sum may differ."""


@dataclass(frozen=True)
class LogitDifference:
    """Largest differences between two backends over a number of texts; NaN if a logit is NaN.

    ``relative`` is the difference of logits, divided by the logit if that is larger than 1.
    """

    texts: int
    logit: float
    relative: float
    probability: float


@dataclass(frozen=True)
class Export:
    """An exported model.

    Args:
        folder, to: its path and form.
        difference: difference of its logits from the model's.
        class_name: for ``stock``, the class that loads it.
        own_class: the reason for a class of hgclr, which needs hgclr to load; None for a class of transformers.
        folded: whether the bias of the head contains the thresholds.
        sizes: for ONNX, bytes of the weights in torch, and of the graph with its weights.
        kept: for int8, the products that stay in fp32.
        measured: for int8, the loss of Micro- and Macro-F1 with each choice of products up to that one.
        lost: for int8, the loss with the last choice on documents that did not choose it.
    """

    folder: Path
    to: Target
    difference: LogitDifference
    class_name: str = ""
    own_class: str | None = None
    folded: bool = False
    sizes: tuple[int, int] = (0, 0)
    kept: str = ""
    measured: tuple[tuple[str, tuple[float, float]], ...] = ()
    lost: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class ExportSource:
    """A model to export, on the CPU in fp32; ``name`` is the path or hub name that the user gave."""

    name: str | Path
    folder: Path
    loaded: LoadedModel
    backend: TorchBackend

    @property
    def network(self) -> HierarchicalPreTrainedModel:
        return self.backend.model


def open_model(model: str | Path, output: Path) -> ExportSource:
    """Load a model on the CPU in fp32, and remove local paths from its configuration."""
    refuse_used(output)
    folder = find_model(model)
    if is_onnx(folder):
        raise InputError("this is already an ONNX model", path=model, remedy="give the model that hgclr train wrote")
    loaded = load_model(folder, "cpu")
    if not isinstance(loaded.backend, TorchBackend):
        raise TypeError(f"expected a torch model, got {type(loaded.backend).__name__}")
    network = loaded.backend.model.float()
    network.config.name_or_path = ""
    network.config.text_encoder.name_or_path = Path(network.config.text_encoder.name_or_path).name
    return ExportSource(model, folder, loaded, loaded.backend)


def refuse_used(output: Path) -> None:
    """Raise an `InputError` unless the output is new or an empty folder."""
    if any(output.iterdir()) if output.is_dir() else output.exists():
        raise InputError("the output already exists", path=output, remedy="give a new or empty folder")


@contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes ``output``, which must be new or empty, if the block succeeds."""
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
    read: Callable[[Path], Any],
    *,
    texts: Sequence[str],
    shift: NDArray[np.float32] | None,
) -> LogitDifference:
    """Write a model with tokenizer, decisions and manifest for another library, and check that its logits are equal.

    Args:
        source: the model.
        output: a new or empty folder; nothing is written if the check fails.
        form: name of the new form, for messages.
        write, read: functions that write weights and configuration into a folder, and load them as a model.
        texts, shift: see :func:`sample_batches` and :func:`compare`.
    """
    max_length = source.loaded.max_length
    tokenizer: Any = load_tokenizer(str(source.folder))
    tokenizer.model_max_length = max_length  # other programs must truncate texts at the same length
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.enable_truncation(max_length)
    with new_folder(output) as folder, quiet_libraries():
        write(folder)
        tokenizer.save_pretrained(folder)
        source.loaded.decisions.write(folder)
        written = read(folder).eval()

        def logits(*batch: NDArray[np.int64]) -> NDArray[np.float32]:
            ids, mask = map(torch.from_numpy, batch)
            with torch.inference_mode():
                computed: NDArray[np.float32] = written(input_ids=ids, attention_mask=mask).logits.numpy()
            return computed

        difference = compare(source.backend.logits, logits, sample_batches(source.loaded, texts), shift)
        if not difference.logit <= TOLERANCE:  # also true for NaN
            raise InputError(
                f"the export as {form} differs by {difference.logit:.2g} in a logit, so nothing was written",
                path=source.name,
                remedy="use the model without an export",
            )
        write_manifest(folder)
    return difference


def sample_batches(model: LoadedModel, texts: Sequence[str] = ()) -> list[Batch]:
    """Return batches of ids and mask, (B, L): label names, longer texts composed of them, and the given texts.

    They cover all lengths that the model reads, and batches with much padding, without padding, and of one text.
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


def labelled_batches(model: LoadedModel, documents: Sequence[Document]) -> tuple[list[Batch], NDArray[np.bool_]]:
    """Return batches of ids and mask of documents, by length, and their gold labels in the same order, (N, K)."""
    encoded = [model.tokenizer.encode(document.text).ids for document in documents]
    order = sorted(range(len(encoded)), key=lambda place: len(encoded[place]))
    gold = np.zeros((len(documents), len(model.taxonomy)), dtype=np.bool_)
    for row, place in enumerate(order):
        gold[row, list(documents[place].labels)] = True
    return [pad([encoded[place] for place in group], model.pad_token) for group in windows(order, GROUP)], gold


def f1_of_backend(
    model: LoadedModel, logits: Logits, batches: Sequence[Batch], gold: NDArray[np.bool_]
) -> tuple[float, float]:
    """Return Micro- and Macro-F1 with the model's decisions."""
    scores, start = MultiLabelScores(model.taxonomy), 0
    for batch in batches:
        found = model.decisions.probabilities(logits(*batch))
        scores.update(model.decisions.decide(found).predicted, gold[start : start + len(found)])
        start += len(found)
    return scores.micro().f1, scores.macro().f1


def compare(
    expected: Logits, found: Logits, batches: Sequence[Batch], shift: NDArray[np.float32] | None = None
) -> LogitDifference:
    """Return the difference between an export's logits and the model's plus ``shift``, (K,)."""
    logit = relative = probability = np.float64(0)
    for batch in batches:
        one, other = (logits(*batch).astype(np.float64) for logits in (expected, found))
        one += 0 if shift is None else shift
        apart = np.abs(one - other)
        logit = np.maximum(logit, apart.max())  # keeps a NaN
        relative = np.maximum(relative, (apart / np.maximum(np.abs(one), 1)).max())
        probability = np.maximum(probability, np.abs(sigmoid(one) - sigmoid(other)).max())
    return LogitDifference(sum(len(ids) for ids, _ in batches), float(logit), float(relative), float(probability))
