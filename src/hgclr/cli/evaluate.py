"""``hgclr evaluate`` and ``hgclr compare``: score a model on a data folder, put reports side by side."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from hgclr.cli.options import AbstainBelow, Decode, JsonFile, Model, Paths, Reading, Threshold, reading_options

__all__ = ["compare", "evaluate"]


@reading_options
def evaluate(
    model: Model,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Data folder, or its URL; see hgclr data check --help.")],
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
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Score so many documents only: a random sample, the same one every time."),
    ] = None,
    threshold: Threshold = None,
    decode: Decode = None,
    paths: Paths = None,
    abstain_below: AbstainBelow = None,
    skip_bad_rows: Annotated[bool, typer.Option("--skip-bad-rows", help="Leave bad rows out, with a warning.")] = False,
) -> None:
    """Score a model: Micro- and Macro-F1 over all labels and per level, and how often a child lacks its parent.

    Labels are read with the model's own tree; a label that the model does not know is an error.
    What **--report** writes can be put side by side with other reports: **hgclr compare**.
    """
    from hgclr.cli.console import Console, open_classifier, progress_bar
    from hgclr.cli.tables import print_scores
    from hgclr.files import write_json
    from hgclr.hardware import machine
    from hgclr.inference import evaluate as score
    from hgclr.urls import as_written

    if report is not None:
        from hgclr.evaluation.report import check_report

        check_report(report)
    classifier = open_classifier(model, data)
    decisions = classifier.decisions.changed(rule=decode, threshold=threshold, paths=paths, abstain_below=abstain_below)
    folder = reading.open(data, taxonomy=classifier.taxonomy, skip_bad_rows=skip_bad_rows)
    with progress_bar() as bar:
        task = bar.add_task(split, total=None)
        progress = partial(bar.advance, task)
        if report is None:
            scores = score(classifier, folder, split, decisions=decisions, limit=limit, progress=progress).to_json()
        else:
            from hgclr.evaluation.report import report as write_report
            from hgclr.provenance import command_line

            written = write_report(
                classifier,
                folder,
                split,
                report,
                name=model,
                decisions=decisions,
                limit=limit,
                command=command_line(["hgclr", *sys.argv[1:]]),
                progress=progress,
            )
            scores = written.content["scores"]
    if json_file is not None:
        content = {
            "model": model,
            "data": as_written(data),
            "split": split,
            "decisions": decisions.to_json(),
            "scores": scores,
            "machine": machine(),
        }
        write_json(json_file, content)
    title = f"{model} on {as_written(data)}, {scores['documents']:,} documents"
    print_scores(title, {split: scores}, Console(), decisions)
    if report is not None:
        Console().print(f"written: {written.page}", highlight=False, markup=False, soft_wrap=True)


def compare(
    reports: Annotated[
        list[Path],
        typer.Argument(metavar="REPORT...", help="Folders that hgclr evaluate --report wrote, or their report.json."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write comparison.html, one page that needs nothing else, with a plot and the labels that gained and"
            " lost most; beside it the plot as PNG and SVG, and comparison.json.",
        ),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Compare reports with the first of them: is the difference more than chance?

    The reports must be of the same documents and the same label tree. Chance is judged by a paired bootstrap test: both
    models are scored on the same resamples of the documents; **p** is how likely a difference as large is by chance.

    Example: **hgclr compare report-flat report-hgclr --output comparison**
    """
    from hgclr.cli.console import Console
    from hgclr.cli.tables import print_comparison
    from hgclr.evaluation.comparison import compare as compare_reports
    from hgclr.evaluation.comparison import write_comparison
    from hgclr.evaluation.report import check_report
    from hgclr.files import write_json
    from hgclr.provenance import command_line

    if output is not None:
        check_report(output)
    comparison = compare_reports(reports)
    if json_file is not None:
        write_json(json_file, comparison.to_json())
    console = Console()
    print_comparison(comparison, console)
    if output is not None:
        page = write_comparison(output, comparison, command=command_line(["hgclr", *sys.argv[1:]]))
        console.print(f"written: {page}", highlight=False, markup=False, soft_wrap=True)
