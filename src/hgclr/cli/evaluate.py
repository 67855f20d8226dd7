"""``hgclr evaluate``: score a model on a data folder."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from hgclr.cli.options import Decode, JsonFile, Model, Paths, Sure, Threshold
from hgclr.cli.reading_options import Reading, reading_options

__all__ = ["evaluate"]


@reading_options
def evaluate(
    model: Model,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Data folder; see hgclr data check --help.")],
    reading: Reading,
    split: Annotated[str, typer.Option(help="Which split: train, dev or test.")] = "test",
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write report.html, one page that needs nothing else: scores with confidence intervals, the label tree"
            " coloured by F1, confused siblings, documents that went wrong, plots. Beside it: plots and report.json.",
        ),
    ] = None,
    json_file: JsonFile = None,
    threshold: Threshold = None,
    decode: Decode = None,
    paths: Paths = None,
    sure: Sure = None,
    skip_bad_rows: Annotated[bool, typer.Option("--skip-bad-rows", help="Leave bad rows out, with a warning.")] = False,
) -> None:
    """Score a model: Micro- and Macro-F1 over all labels and per level, and how often a child lacks its parent.

    Labels are read with the model's own tree; a label that the model does not know is an error.
    What **--report** writes can be put side by side with other reports: **hgclr compare**.
    """
    from rich.console import Console

    from hgclr.cli.console import progress_bar
    from hgclr.cli.opening import open_classifier
    from hgclr.cli.rendering import score_table
    from hgclr.files import atomic_file
    from hgclr.hardware import machine
    from hgclr.inference import evaluate as score

    if report is not None:
        from hgclr.reporting.writing import check_output

        check_output(report)
    classifier = open_classifier(model)
    decisions = classifier.decisions.changed(rule=decode, threshold=threshold, paths=paths, sure=sure)
    folder = reading.open(data, taxonomy=classifier.taxonomy, skip_bad_rows=skip_bad_rows)
    with progress_bar() as bar:
        task = bar.add_task(split, total=None)
        progress = partial(bar.advance, task)
        if report is None:
            scores = score(
                classifier,
                folder,
                split,
                threshold=threshold,
                decode=decode,
                paths=paths,
                sure=sure,
                progress=progress,
            ).to_json()
        else:
            from hgclr.reporting import report as write_report
            from hgclr.reproduction.provenance import command_line

            written = write_report(
                classifier,
                folder,
                split,
                report,
                name=model,
                decisions=decisions,
                command=command_line(["hgclr", *sys.argv[1:]]),
                progress=progress,
            )
            scores = written.content["scores"]
    if json_file is not None:
        content = {
            "model": model,
            "data": str(data),
            "split": split,
            "decisions": decisions.to_json(),
            "scores": scores,
            "machine": machine(),
        }
        with atomic_file(json_file) as path:
            path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    table = score_table(f"{model} on {data}", {f"{split} ({scores['documents']} documents)": scores})
    table.caption = f"{decisions.summary()}\n{table.caption}"
    Console().print(table)
    if report is not None:
        Console().print(f"wrote {written.page}", highlight=False, markup=False, soft_wrap=True)
