"""Write a trained model as a folder that ``SentenceTransformer`` loads by itself; its ``encode`` gives logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from hgclr.errors import InputError
from hgclr.export.check import Difference, compare, open_model, open_tokenizer, sample_batches
from hgclr.files import atomic_folder
from hgclr.inference.manifest import write_manifest
from hgclr.models.sentence_transformers import no_modules_form, read_modules, write_modules

__all__ = ["SentenceTransformersExport", "export_sentence_transformers"]

TOLERANCE = 1e-5
"""How far a logit may be from the model's, as a share of it where it is larger than 1: the order of a sum."""


@dataclass(frozen=True)
class SentenceTransformersExport:
    """What an export wrote.

    Args:
        folder: where it is.
        pooling: of its Pooling module.
        difference: how far its logits are from the model's.
        folded: whether thresholds are in its bias.
    """

    folder: Path
    pooling: str
    difference: Difference
    folded: bool = False


def export_sentence_transformers(
    model: str | Path, output: Path, *, texts: Sequence[str] = (), fold_thresholds: bool = False
) -> SentenceTransformersExport:
    """Write a model as the modules Transformer, Pooling and Dense, whose output is the logits.

    What was written is read again, and held against the model.

    Args:
        model: a folder that ``hgclr train`` wrote, or a hub name.
        output: a new or empty folder, which is written whole or not at all.
        texts: what to hold the two against each other on, besides the label names.
        fold_thresholds: move the logits so that above 0 means above the label's threshold; see
            :meth:`~hgclr.decisions.settings.Decisions.logit_shift`.

    Raises:
        InputError: if there is no such model, it has no such form, the output is in use or cannot be written, what was
            written gives other logits, or its thresholds cannot be folded.
    """
    loaded, expected = open_model(model, output)
    if (reason := no_modules_form(expected.model)) is not None:
        raise InputError(
            f"no modules of sentence-transformers: {reason}", path=model, remedy="use --to onnx, or --to stock"
        )
    shift = loaded.decisions.logit_shift() if fold_thresholds else None
    tokenizer = open_tokenizer(model, loaded.max_length)
    try:
        with atomic_folder(output) as folder:
            write_modules(expected.model, folder, shift)
            tokenizer.save_pretrained(folder)
            loaded.decisions.write(folder)
            difference = compare(expected, _Modules(folder), sample_batches(loaded, texts), shift)
            if not difference.relative <= TOLERANCE:  # NaN is not
                raise InputError(
                    f"this model as modules gives other logits, by {difference.logit:.2g}",
                    path=model,
                    remedy="nothing was written; use the model as it is",
                )
            write_manifest(folder)
    except OSError as error:
        raise InputError(f"the export cannot be written: {error.strerror or error}", path=output) from error
    return SentenceTransformersExport(output, expected.model.config.pooling, difference, fold_thresholds)


class _Modules:
    """What the files of a folder say, as a backend."""

    batch_tokens = 1024

    def __init__(self, folder: Path) -> None:
        self.modules = read_modules(folder)

    def logits(self, input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return logits, (B, K), from ids and mask, (B, L)."""
        with torch.inference_mode():
            output = self.modules(torch.from_numpy(input_ids), torch.from_numpy(attention_mask))
        logits: NDArray[np.float32] = output.numpy()
        return logits
