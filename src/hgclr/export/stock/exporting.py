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
from hgclr.export.comparing import Difference, compare, sample_batches
from hgclr.export.opening import open_model
from hgclr.files import atomic_folder
from hgclr.inference.finding import find_model
from hgclr.inference.manifest import write_manifest
from hgclr.models.saving import load_tokenizer
from hgclr.models.stock import no_stock_form, to_stock

__all__ = ["TOLERANCE", "StockExport", "export_stock"]

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
    """

    folder: Path
    class_name: str
    own_class: str | None
    difference: Difference


def export_stock(model: str | Path, output: Path, *, texts: Sequence[str] = ()) -> StockExport:
    """Write a model in a class of transformers' own, if one has the same logits, and else in ours.

    What was written is loaded again as anybody would load it, and held against the model.

    Args:
        model: a folder that ``hgclr train`` wrote, or a hub name.
        output: a new or empty folder, which is written whole or not at all.
        texts: what to hold the two against each other on, besides the label names.

    Raises:
        InputError: if there is no such model, the output is in use or cannot be written, or what was written gives
            other logits.
    """
    loaded, expected = open_model(model, output)
    reason = no_stock_form(expected.model)
    network = to_stock(expected.model) if reason is None else expected.model
    tokenizer: Any = load_tokenizer(str(find_model(model)))
    tokenizer.model_max_length = loaded.max_length  # where the pipeline cuts texts when it is told to
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.enable_truncation(loaded.max_length)
    try:
        with atomic_folder(output) as folder:
            network.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            loaded.decisions.write(folder)
            difference = compare(expected, _AutoModel(folder), sample_batches(loaded, texts))
            if not difference.logit <= TOLERANCE:  # NaN is not
                raise InputError(
                    f"this model as {type(network).__name__} gives other logits, by {difference.logit:.2g}",
                    path=model,
                    remedy="nothing was written; use the model as it is",
                )
            write_manifest(folder)
    except OSError as error:
        raise InputError(f"the export cannot be written: {error.strerror or error}", path=output) from error
    return StockExport(output, type(network).__name__, reason, difference)


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
