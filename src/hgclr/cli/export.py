"""``hgclr export``: models for other programs."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hgclr.cli.console import Console, counting, find_folder, standard_error
from hgclr.cli.options import Model, NewFolder, Reading, file, folder, option, reading_options
from hgclr.errors import InputError, require_extra
from hgclr.files import check_output

if TYPE_CHECKING:
    from hgclr.data import DataFolder

FOLDABLE = ("stock", "sentence-transformers")
"""Forms for programs that know no thresholds."""
TEXTS = 64
"""Texts of the data that export and model are compared on."""


@reading_options
def export(
    model: Model,
    to: Annotated[
        Literal["stock", "sentence-transformers", "onnx", "onnx-int8"],
        option("stock, sentence-transformers, onnx or onnx-int8.", metavar="FORM"),
    ],
    output: NewFolder,
    reading: Reading,
    data: Annotated[Path | None, folder("Data folder to score the model and the export on.")] = None,
    split: Annotated[str, option("With --data: split to score, train, dev or test.")] = "dev",
    fold_thresholds: Annotated[
        bool, option("Put thresholds and temperature into the bias of the head.", "--fold-thresholds")
    ] = False,
    scores_file: Annotated[
        Path | None, file("Scores for the model card, written by hgclr evaluate.", "--scores")
    ] = None,
    licence: Annotated[
        str | None, option("Licence for the model card, such as mit.", "--license", metavar="ID")
    ] = None,
) -> None:
    """Write a trained model for other programs: transformers, sentence-transformers, or onnxruntime without torch.

    **stock**: a model of transformers with the same logits. **sentence-transformers**: the same for any pooling; its
    encode returns logits. **onnx**: for onnxruntime. **onnx-int8**: smaller and faster, with rounding.

    With --fold-thresholds (stock and sentence-transformers), programs without hgclr predict every label above 0.5;
    hgclr decides as before. Every export is compared with the model, has a model card, and works in hgclr predict.

    Example: **hgclr export runs/first/model --to onnx-int8 --output first-int8**

    Next: **hgclr predict first-int8 "a text"** or **hgclr serve first-int8**
    """
    from hgclr.cli.tables import print_scores

    check_output(output)
    if to in FOLDABLE:
        require_extra("torch", extra="train", capability="Exporting to transformers")
    elif fold_thresholds:
        raise InputError(
            f"--fold-thresholds is not for --to {to}: only hgclr reads such a folder, and uses decisions.json",
            remedy="leave it out",
        )
    else:
        for module in ("torch", "onnxscript", "onnxruntime"):
            require_extra(module, extra="export", capability="Exporting to ONNX")
    find_folder(model, data)
    from hgclr.export.card import CardScore, model_card, read_scores, read_training, write_card
    from hgclr.inference import HierarchicalClassifier
    from hgclr.inference.loading import load_model

    console = Console()
    # Read and scored before anything is written, so that bad input leaves nothing behind.
    recorded = [] if scores_file is None else [read_scores(scores_file)]
    documents, scores, texts = None, {}, []

    def score(classifier: HierarchicalClassifier, name: str, documents: DataFolder) -> dict[str, Any]:
        with counting(f"{name} on {split}") as progress:
            return classifier.evaluate(documents, split, progress=progress).to_json()

    if data is not None:
        classifier = HierarchicalClassifier.load(model)
        documents = reading.open(data, taxonomy=classifier.taxonomy)
        scores["torch"] = score(classifier, model, documents)
        texts = [document.text for document in islice(documents.documents(split), TEXTS)]
    with standard_error().status("writing the model and comparing it with torch"):
        if to == "stock":
            from hgclr.export.stock import export_stock

            result = export_stock(model, output, texts=texts, fold_thresholds=fold_thresholds)
        elif to == "sentence-transformers":
            from hgclr.export.stock import export_sentence_transformers

            result = export_sentence_transformers(model, output, texts=texts, fold_thresholds=fold_thresholds)
        else:
            from hgclr.export.onnx import export_onnx

            result = export_onnx(model, output, int8=to == "onnx-int8", texts=texts)
    difference, what = result.difference, str(result.to)
    if result.own_class is not None:
        what = f"{result.class_name} of hgclr, because {result.own_class}"
    elif to not in FOLDABLE:
        before, after = (size / 1e6 for size in result.sizes)
        what += f", {after:.1f} MB (the weights in torch: {before:.1f} MB)"
    console.say(f"written: {output}, {what}; its README.md says how to use it")
    apart = f"{difference.logit:.2g} in a logit, {difference.probability:.2g} in a probability"
    console.say(f"largest difference from the model on {difference.texts} texts: {apart}")
    if documents is not None:
        scores[to] = score(HierarchicalClassifier.load(output), str(output), documents)
        print_scores(f"{data}, {split}", scores, console)
        change = {name: 100 * (scores[to][name]["f1"] - scores["torch"][name]["f1"]) for name in ("micro", "macro")}
        console.print(f"change: Micro-F1 {change['micro']:+.2f}, Macro-F1 {change['macro']:+.2f}")
        of_data = str(documents.path.resolve())
        recorded.insert(0, CardScore.from_json(scores[to], of="this folder", data=of_data, split=split))
    written = load_model(output, "cpu")
    card = model_card(
        to if result.own_class is None else "model",
        output.resolve().name,
        written.decisions,
        written.max_length,
        training=read_training(model, len(written.taxonomy)),
        scores=recorded,
        licence=licence,
        folded=result.folded,
    )
    write_card(output, card)
