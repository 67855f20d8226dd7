"""Exports that load without hgclr: a class of transformers, or modules of sentence-transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from transformers import AutoModelForSequenceClassification, PreTrainedModel

from hgclr.errors import InputError
from hgclr.export.check import Export, open_model, write_checked
from hgclr.models.pretrained import load_weights
from hgclr.models.stock import from_modules, no_modules_form, no_stock_form, to_stock, write_modules


def export_stock(
    model: str | Path, output: Path, *, texts: Sequence[str] = (), fold_thresholds: bool = False
) -> Export:
    """Write a model that ``AutoModelForSequenceClassification`` loads, in a class of transformers or else of hgclr.

    The written folder is loaded with that class and compared with the model.

    Args:
        model: a folder that ``hgclr train`` wrote, or a hub name.
        output: a new or empty folder, written completely or not at all.
        texts: texts for the comparison, besides the label names.
        fold_thresholds: shift the logits so that a label is predicted above 0; see
            :meth:`~hgclr.decisions.settings.Decisions.logit_shift`.

    Raises:
        InputError: if there is no such model, the output is not empty or cannot be written, the written model's logits
            differ, another form suits the model's pooling, or its thresholds cannot be folded.
    """
    source = open_model(model, output)
    reason = no_stock_form(source.network)
    if (pooling := source.network.config.pooling) != "cls" and no_modules_form(source.network) is None:
        raise InputError(
            f"classes of transformers read the first token, but this model's pooling is {pooling}",
            path=model,
            remedy="use --to sentence-transformers or --to onnx, which support it",
        )
    if fold_thresholds and reason is not None:
        raise InputError(
            f"thresholds cannot be folded into a class of hgclr, which this model needs because {reason}",
            path=model,
            remedy="omit --fold-thresholds",
        )
    shift = source.loaded.decisions.logit_shift() if fold_thresholds else None
    network = to_stock(source.network, shift) if reason is None else source.network
    name = type(network).__name__

    def read(folder: Path) -> PreTrainedModel:
        written: PreTrainedModel = load_weights(AutoModelForSequenceClassification, folder, use_safetensors=True)
        return written

    difference = write_checked(source, output, name, network.save_pretrained, read, texts=texts, shift=shift)
    return Export(output, "stock", difference, class_name=name, own_class=reason, folded=fold_thresholds)


def export_sentence_transformers(
    model: str | Path, output: Path, *, texts: Sequence[str] = (), fold_thresholds: bool = False
) -> Export:
    """Write a model that ``SentenceTransformer`` loads: modules Transformer, Pooling and Dense, which returns logits.

    Arguments and errors are those of :func:`export_stock`.
    """
    source = open_model(model, output)
    if (reason := no_modules_form(source.network)) is not None:
        raise InputError(
            f"not possible with sentence-transformers: {reason}", path=model, remedy="use --to onnx or --to stock"
        )
    shift = source.loaded.decisions.logit_shift() if fold_thresholds else None
    difference = write_checked(
        source,
        output,
        "modules",
        lambda folder: write_modules(source.network, folder, shift),
        lambda folder: from_modules(folder, shifted=True),
        texts=texts,
        shift=shift,
    )
    return Export(output, "sentence-transformers", difference, folded=fold_thresholds)
