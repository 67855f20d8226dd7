"""Write a trained model as a folder that ``AutoModelForSequenceClassification`` loads by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForSequenceClassification

from hgclr.errors import InputError
from hgclr.export.check import Difference, compare, open_model, open_tokenizer, sample_batches
from hgclr.files import atomic_folder
from hgclr.inference.manifest import write_manifest
from hgclr.models.sentence_transformers import no_modules_form
from hgclr.models.stock import no_stock_form, to_stock

__all__ = ["StockExport", "export_stock"]

TOLERANCE = 1e-5
"""How far a logit may be from the model's; it should not be at all."""


@dataclass(frozen=True)
class StockExport:
    """What an export wrote.

    Args:
        folder: where it is.
        class_name: the class that the folder is loaded in.
        own_class: why that is one of ours, for which hgclr has to be installed; None if it is transformers' own.
        difference: how far its logits are from the model's.
        folded: whether thresholds are in its bias.
    """

    folder: Path
    class_name: str
    own_class: str | None
    difference: Difference
    folded: bool = False


def export_stock(
    model: str | Path, output: Path, *, texts: Sequence[str] = (), fold_thresholds: bool = False
) -> StockExport:
    """Write a model in a class of transformers' own, if one has the same logits, and else in ours.

    What was written is loaded again as anybody would load it, and held against the model.

    Args:
        model: a folder that ``hgclr train`` wrote, or a hub name.
        output: a new or empty folder, which is written whole or not at all.
        texts: what to hold the two against each other on, besides the label names.
        fold_thresholds: move the logits so that above one half means above the label's threshold; see
            :meth:`~hgclr.decisions.settings.Decisions.logit_shift`.

    Raises:
        InputError: if there is no such model, the output is in use or cannot be written, what was written gives other
            logits, the model pools in a way for which there is another form, or its thresholds cannot be folded.
    """
    loaded, expected = open_model(model, output)
    reason = no_stock_form(expected.model)
    if (pooling := expected.model.config.pooling) != "cls" and no_modules_form(expected.model) is None:
        raise InputError(
            f"transformers' own classes read the first token, this model's pooling is {pooling}",
            path=model,
            remedy="use --to sentence-transformers, or --to onnx",
        )
    if fold_thresholds and reason is not None:
        raise InputError(
            f"this model would be written in a class of ours, because {reason}: thresholds are not folded into that",
            path=model,
            remedy="leave --fold-thresholds out",
        )
    shift = loaded.decisions.logit_shift() if fold_thresholds else None
    network = to_stock(expected.model, shift) if reason is None else expected.model
    tokenizer = open_tokenizer(model, loaded.max_length)
    try:
        with atomic_folder(output) as folder:
            network.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            loaded.decisions.write(folder)
            difference = compare(expected, _AutoModel(folder), sample_batches(loaded, texts), shift)
            if not difference.logit <= TOLERANCE:  # NaN is not
                raise InputError(
                    f"this model as {type(network).__name__} gives other logits, by {difference.logit:.2g}",
                    path=model,
                    remedy="nothing was written; use the model as it is",
                )
            write_manifest(folder)
    except OSError as error:
        raise InputError(f"the export cannot be written: {error.strerror or error}", path=output) from error
    return StockExport(output, type(network).__name__, reason, difference, fold_thresholds)


class _AutoModel:
    """What transformers makes of a folder, as a backend."""

    batch_tokens = 1024

    def __init__(self, folder: Path) -> None:
        self.model: Any = AutoModelForSequenceClassification.from_pretrained(folder, use_safetensors=True)
        self.model.eval()

    def logits(self, input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return logits, (B, K), from ids and mask, (B, L)."""
        with torch.inference_mode():
            output = self.model(input_ids=torch.from_numpy(input_ids), attention_mask=torch.from_numpy(attention_mask))
        logits: NDArray[np.float32] = output.logits.numpy()
        return logits
