"""Write a trained model as a folder that ``SentenceTransformer`` loads by itself; its ``encode`` gives logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hgclr.errors import InputError
from hgclr.export.check import LogitDifference, open_model, write_checked
from hgclr.models.stock import no_modules_form, read_modules, write_modules

__all__ = ["SentenceTransformersExport", "export_sentence_transformers"]


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
    difference: LogitDifference
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
        read_modules,
        texts=texts,
        shift=shift,
        relative=True,  # the sum of a mean has another order
    )
    return SentenceTransformersExport(output, source.network.config.pooling, difference, fold_thresholds)
