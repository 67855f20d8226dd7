"""``hgclr export``: models for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hgclr.cli.console import Console, counting, find_folder, standard_error
from hgclr.cli.options import Model, NewFolder, Reading, file, folder, option, reading_options
from hgclr.errors import InputError, require_extra
from hgclr.files import check_output

if TYPE_CHECKING:
    from huggingface_hub import ModelCard

    from hgclr.data import DataFolder
    from hgclr.export.card import CardScore
    from hgclr.export.onnx import OnnxExport
    from hgclr.export.sentence_transformers import SentenceTransformersExport
    from hgclr.export.stock import StockExport
    from hgclr.inference import HierarchicalClassifier

    Export = OnnxExport | SentenceTransformersExport | StockExport


Target = Literal["stock", "sentence-transformers", "onnx", "onnx-int8"]
FOLDABLE: tuple[Target, ...] = ("stock", "sentence-transformers")
"""What programs read that know of no thresholds."""
TEXTS = 64
"""Texts of the data that the export is held against the model on."""


@reading_options
def export(
    model: Model,
    to: Annotated[
        Target,
        option(
            "stock: a plain model of transformers with the same numbers, for the pooling cls; loading it needs no"
            " hgclr. sentence-transformers: the same for any pooling, as a model of sentence-transformers whose encode"
            " gives logits. onnx: the same numbers in onnxruntime, without torch. onnx-int8: smaller and faster, with"
            " rounding."
        ),
    ],
    output: NewFolder,
    reading: Reading,
    data: Annotated[
        Path | None,
        folder("Data folder to score the model and the export on; the two are also compared on some of its texts."),
    ] = None,
    split: Annotated[str, option("With --data: split to score, train, dev or test.")] = "dev",
    fold_thresholds: Annotated[
        bool,
        option(
            "For stock and sentence-transformers: put the thresholds of decisions.json, and the temperature if"
            " there is one, into the bias, so that programs without hgclr can give every label above one half (a logit"
            " above 0). What such a program takes for a probability is then a shifted score; hgclr decides as before.",
            "--fold-thresholds",
        ),
    ] = False,
    scores_file: Annotated[
        Path | None,
        file(
            "Scores for the model card: what hgclr evaluate wrote with --json, or the report.json of its --output."
            " Those in the metrics.json of training are found automatically.",
            "--scores",
        ),
    ] = None,
    licence: Annotated[
        str | None,
        option("Licence for the model card, such as mit; default: not stated.", "--license", metavar="ID"),
    ] = None,
) -> None:
    """Write a trained model for other programs: transformers, sentence-transformers, or onnxruntime without torch.

    The output folder can take the model's place in hgclr predict and evaluate. It is compared with the model before it
    is written; with **--data**, Micro- and Macro-F1 of both are shown side by side. It holds safetensors or ONNX, JSON,
    a model card (README.md), and a manifest.json by which hgclr can tell that the files are as they were written.

    Example: **hgclr export runs/first/model --to onnx-int8 --output first-int8**

    Next: **hgclr predict first-int8 "a text"** or **hgclr serve first-int8**
    """
    from hgclr.cli.tables import print_scores

    check_output(output)
    if to in FOLDABLE:
        require_extra("torch", extra="train", capability="Exporting to transformers")
    elif fold_thresholds:
        raise InputError(
            f"--fold-thresholds is not for --to {to}: only hgclr reads such a folder, and decides by decisions.json",
            remedy="leave it out",
        )
    else:
        for module in ("torch", "onnxscript", "onnxruntime"):
            require_extra(module, extra="export", capability="Exporting to ONNX")
    find_folder(model, data)
    from hgclr.export.card import CardScore, read_scores, write_card
    from hgclr.inference import HierarchicalClassifier

    console = Console()
    # Read and scored before anything is written, so that what cannot be read leaves nothing behind.
    recorded = [] if scores_file is None else [read_scores(scores_file)]
    documents, scores, texts = None, {}, []
    if data is not None:
        classifier = HierarchicalClassifier.load(model)
        documents = reading.open(data, taxonomy=classifier.taxonomy)
        scores["torch"] = _scores(classifier, model, documents, split)
        texts = [document.text for document in islice(documents.documents(split), TEXTS)]
    with standard_error().status("writing the model and comparing it with torch"):
        result = _write(model, to, output, texts, fold_thresholds=fold_thresholds)
    for line in _summary(result):
        console.say(line)
    if documents is not None:
        scores[to] = _scores(HierarchicalClassifier.load(output), str(output), documents, split)
        print_scores(f"{data}, {split}", scores, console)
        change = {name: 100 * (scores[to][name]["f1"] - scores["torch"][name]["f1"]) for name in ("micro", "macro")}
        console.print(f"change: Micro-F1 {change['micro']:+.2f}, Macro-F1 {change['macro']:+.2f}")
        of_data = str(documents.path.resolve())
        recorded.insert(0, CardScore.from_json(scores[to], of="this folder", data=of_data, split=split))
    write_card(output, _card(model, to, result, recorded, licence))


def _scores(classifier: HierarchicalClassifier, name: str, data: DataFolder, split: str) -> dict[str, Any]:
    from hgclr.inference import evaluate

    with counting(f"{name} on {split}") as progress:
        return evaluate(classifier, data, split, progress=progress).to_json()


def _write(model: str, to: Target, output: Path, texts: Sequence[str], *, fold_thresholds: bool) -> Export:
    if to == "stock":
        from hgclr.export.stock import export_stock

        return export_stock(model, output, texts=texts, fold_thresholds=fold_thresholds)
    if to == "sentence-transformers":
        from hgclr.export.sentence_transformers import export_sentence_transformers

        return export_sentence_transformers(model, output, texts=texts, fold_thresholds=fold_thresholds)
    from hgclr.export.onnx import export_onnx

    return export_onnx(model, output, int8=to == "onnx-int8", texts=texts)


def _summary(result: Export) -> list[str]:
    """Return what was written, what it differs by, and what to do with it."""
    from hgclr.export.onnx import OnnxExport
    from hgclr.export.stock import StockExport

    folder, difference = result.folder, result.difference
    if isinstance(result, OnnxExport):
        before, after = result.model_bytes / 1e6, result.graph_bytes / 1e6
        apart = f"{difference.logit:.2g} in a logit, {difference.probability:.2g} in a probability"
        return [
            f"written: {folder}, {after:.1f} MB (the weights in torch: {before:.1f} MB)",
            f"largest difference from torch on {difference.texts} texts: {apart}",
            f"use it: hgclr predict {folder} \"a text\" (pip install 'hgclr[onnx]' is enough for that)",
        ]
    alone = "hgclr need not be installed for that"
    if isinstance(result, StockExport):
        given, call = "a score above one half", "transformers.pipeline("
        call += f'"text-classification", model="{folder}", top_k=None, truncation=True)'
        what, how = f"{result.class_name} of transformers", f"{call}; {alone}"
        if result.own_class is not None:
            what = f"{result.class_name} of hgclr, because {result.own_class}"
            how = f"import hgclr.models, then {call}"
    else:
        given, what = "a logit above 0", f"modules of sentence-transformers with {result.pooling} pooling"
        how = f'sentence_transformers.SentenceTransformer("{folder}").encode(texts) gives logits; {alone}'
    apart = "none" if difference.logit == 0 else f"{difference.logit:.2g} in a logit"
    return [
        f"written: {folder}, {what}",
        f"largest difference from the model on {difference.texts} texts: {apart}",
        *([f"thresholds are folded into the bias: {given} means that the label is given"] if result.folded else []),
        f"use it: {how}",
    ]


def _card(model: str, to: Target, result: Export, scores: Sequence[CardScore], licence: str | None) -> ModelCard:
    """Return the model card, from the folder as hgclr itself loads it."""
    from hgclr.export.card import model_card, read_training
    from hgclr.inference.loading import load_model

    written = load_model(result.folder, "cpu")
    return model_card(
        to if getattr(result, "own_class", None) is None else "model",
        result.folder.resolve().name,
        written.decisions,
        written.max_length,
        training=read_training(model, len(written.taxonomy)),
        scores=scores,
        licence=licence,
        folded=getattr(result, "folded", False),
    )
