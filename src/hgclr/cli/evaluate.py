"""``hgclr evaluate``: score a model on a data folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hgclr.cli.options import (
    AddAncestors,
    Decode,
    JsonFile,
    LabelColumn,
    LabelSeparator,
    Model,
    PathSeparator,
    TextColumn,
    Threshold,
)

__all__ = ["evaluate"]


def evaluate(
    model: Model,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Data folder; see hgclr data check --help.")],
    split: Annotated[str, typer.Option(help="Which split: train, dev or test.")] = "test",
    json_file: JsonFile = None,
    threshold: Threshold = None,
    decode: Decode = "threshold",
    text_column: TextColumn = "text",
    label_column: LabelColumn = "labels",
    label_separator: LabelSeparator = ";",
    path_separator: PathSeparator = " > ",
    add_ancestors: AddAncestors = False,
    skip_bad_rows: Annotated[bool, typer.Option("--skip-bad-rows", help="Leave bad rows out, with a warning.")] = False,
) -> None:
    """Score a model: Micro- and Macro-F1 over all labels and per level, and how often a child lacks its parent.

    Labels are read with the model's own tree; a label that the model does not know is an error.
    """
    from rich.console import Console

    from hgclr.cli.console import progress_bar, quiet_libraries
    from hgclr.cli.rendering import score_table
    from hgclr.data.folder import DataFolder
    from hgclr.errors import require_extra
    from hgclr.files import atomic_file
    from hgclr.hardware import machine
    from hgclr.inference import HierarchicalClassifier
    from hgclr.inference import evaluate as score
    from hgclr.inference.loading import is_onnx

    if not is_onnx(model):
        require_extra("torch", extra="train", capability="Evaluation of a model that is no ONNX folder")
        quiet_libraries()
    classifier = HierarchicalClassifier.from_pretrained(model)
    folder = DataFolder(
        data,
        taxonomy=classifier.taxonomy,
        text_column=text_column,
        label_column=label_column,
        label_separator=label_separator,
        path_separator=path_separator,
        add_ancestors=add_ancestors,
        skip_bad_rows=skip_bad_rows,
    )
    with progress_bar() as bar:
        task = bar.add_task(split, total=None)
        scores = score(
            classifier,
            folder,
            split,
            threshold=threshold,
            decode=decode,
            progress=lambda count: bar.advance(task, count),
        ).to_json()
    if json_file is not None:
        report = {
            "model": model,
            "data": str(data),
            "split": split,
            "threshold": classifier.threshold if threshold is None else threshold,
            "decode": decode,
            "scores": scores,
            "machine": machine(),
        }
        with atomic_file(json_file) as path:
            path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    Console().print(score_table(f"{model} on {data}", {f"{split} ({scores['documents']} documents)": scores}))
