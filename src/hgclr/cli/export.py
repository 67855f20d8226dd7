"""``hgclr export``: write a trained model for another runtime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hgclr.cli.options import Model

if TYPE_CHECKING:
    from hgclr.export.onnx import OnnxExport

__all__ = ["export"]


def export(
    model: Model,
    to: Annotated[
        Literal["onnx", "onnx-int8"],
        typer.Option(help="onnx: the same numbers, in onnxruntime. onnx-int8: smaller and faster, with rounding."),
    ],
    output: Annotated[Path, typer.Option(metavar="DIR", help="Where to write; a new or empty folder.")],
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Data folder to score both the model and the export on.")
    ] = None,
    split: Annotated[str, typer.Option(help="Which split of it: train, dev or test.")] = "dev",
) -> None:
    """Write a trained model for onnxruntime, where torch need not be installed.

    The output folder takes the model's place in hgclr predict and evaluate. It is held against torch before it is
    written; with **--data**, Micro- and Macro-F1 of both are shown side by side.

    Example: **hgclr export runs/first/model --to onnx-int8 --output first-int8**
    """
    from rich.console import Console

    from hgclr.errors import require_extra

    for module in ("torch", "onnxscript", "onnxruntime"):
        require_extra(module, extra="export", capability="Exporting to ONNX")
    from hgclr.cli.console import quiet_libraries, standard_error
    from hgclr.cli.rendering import score_table
    from hgclr.export.onnx import export_onnx

    quiet_libraries()
    console = Console(highlight=False)
    # Scored before anything is written, so that data that cannot be read leaves nothing behind.
    scores = {} if data is None else {"torch": _scores(model, data, split)}
    with standard_error().status("writing the graph and holding it against torch"):
        result = export_onnx(model, output, int8=to == "onnx-int8")
    for line in _summary(result):
        console.print(line, markup=False, soft_wrap=True)
    if data is not None:
        scores[to] = _scores(output, data, split)
        console.print(score_table(f"{data}, {split}", scores))
        change = {name: 100 * (scores[to][name]["f1"] - scores["torch"][name]["f1"]) for name in ("micro", "macro")}
        console.print(f"change: Micro-F1 {change['micro']:+.2f}, Macro-F1 {change['macro']:+.2f}")


def _scores(model: str | Path, data: Path, split: str) -> dict[str, Any]:
    """Return the scores of a model on a split, as a table takes them."""
    from hgclr.cli.console import progress_bar
    from hgclr.data.folder import DataFolder
    from hgclr.inference import HierarchicalClassifier, evaluate

    classifier = HierarchicalClassifier.from_pretrained(model)
    folder = DataFolder(data, taxonomy=classifier.taxonomy)
    with progress_bar() as bar:
        task = bar.add_task(f"{model} on {split}", total=None)
        return evaluate(classifier, folder, split, progress=lambda count: bar.advance(task, count)).to_json()


def _summary(result: OnnxExport) -> list[str]:
    """Return what was written, what it differs by, and what to do with it."""
    before, after = result.model_bytes / 1e6, result.graph_bytes / 1e6
    difference = result.difference
    apart = f"{difference.logit:.2g} in a logit, {difference.probability:.2g} in a probability"
    return [
        f"written: {result.folder}, {after:.1f} MB (the weights in torch: {before:.1f} MB)",
        f"largest difference from torch on {difference.texts} texts: {apart}",
        f"use it: hgclr predict {result.folder} \"a text\" (pip install 'hgclr[onnx]' is enough for that)",
    ]
