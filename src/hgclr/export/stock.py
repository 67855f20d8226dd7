"""Write a trained model as a folder that ``AutoModelForSequenceClassification`` loads by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor
from transformers import AutoModelForSequenceClassification

from hgclr.errors import InputError
from hgclr.export.check import Computation, LogitDifference, open_model, write_checked
from hgclr.models.pretrained import load_weights
from hgclr.models.stock import no_modules_form, no_stock_form, to_stock

__all__ = ["StockExport", "export_stock"]


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
    difference: LogitDifference
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
    source = open_model(model, output)
    reason = no_stock_form(source.network)
    if (pooling := source.network.config.pooling) != "cls" and no_modules_form(source.network) is None:
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
    shift = source.loaded.decisions.logit_shift() if fold_thresholds else None
    network = to_stock(source.network, shift) if reason is None else source.network
    name = type(network).__name__
    difference = write_checked(source, output, name, network.save_pretrained, _read, texts=texts, shift=shift)
    return StockExport(output, name, reason, difference, fold_thresholds)


def _read(folder: Path) -> Computation:
    network = load_weights(AutoModelForSequenceClassification, folder, use_safetensors=True).eval()

    def logits(input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        output: Tensor = network(input_ids=input_ids, attention_mask=attention_mask).logits
        return output

    return logits
