"""Exports that other libraries load by themselves: a class of transformers, or modules of sentence-transformers."""

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
    """Write a model that ``AutoModelForSequenceClassification`` loads: in a class of transformers, or else in ours.

    The written folder is loaded again as any user would load it, and compared with the model.

    Args:
        model: a folder that ``hgclr train`` wrote, or a hub name.
        output: a new or empty folder, which is written whole or not at all.
        texts: texts to compare both on, besides the label names.
        fold_thresholds: move the logits so that above 0 means above the label's threshold; see
            :meth:`~hgclr.decisions.settings.Decisions.logit_shift`.

    Raises:
        InputError: if there is no such model, the output is in use or cannot be written, the written model gives other
            logits, the model pools in a way for which there is another form, or its thresholds cannot be folded.
    """
    source = open_model(model, output)
    reason = no_stock_form(source.network)
    if (pooling := source.network.config.pooling) != "cls" and no_modules_form(source.network) is None:
        raise InputError(
            f"the classes of transformers read the first token, this model's pooling is {pooling}",
            path=model,
            remedy="use --to sentence-transformers, or --to onnx",
        )
    if fold_thresholds and reason is not None:
        raise InputError(
            f"this model would be written in a class of hgclr, because {reason}: thresholds are not folded into that",
            path=model,
            remedy="leave --fold-thresholds out",
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
    """Write a model that ``SentenceTransformer`` loads: Transformer, Pooling and Dense, whose output is the logits.

    Arguments and errors are those of :func:`export_stock`.
    """
    source = open_model(model, output)
    if (reason := no_modules_form(source.network)) is not None:
        raise InputError(
            f"no modules of sentence-transformers: {reason}", path=model, remedy="use --to onnx, or --to stock"
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
