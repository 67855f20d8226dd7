"""``hgclr calibrate``: find out on dev how a model should decide."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hgclr.cli.options import Model, Paths, Rule
from hgclr.cli.reading_options import Reading, reading_options

if TYPE_CHECKING:
    from rich.table import Table

    from hgclr.inference.calibrating import Calibrated

__all__ = ["calibrate"]

logger = logging.getLogger(__name__)


@reading_options
def calibrate(
    model: Model,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Data folder with documents not trained on.")],
    reading: Reading,
    split: Annotated[str, typer.Option(help="Which split to look at: dev; never test.")] = "dev",
    metric: Annotated[Literal["micro", "macro"], typer.Option(help="Which F1 to tune for.")] = "macro",
    method: Annotated[
        Literal["temperature", "isotonic", "none"],
        typer.Option(help="How to calibrate probabilities; isotonic takes any shape and needs more documents."),
    ] = "temperature",
    thresholds: Annotated[
        Literal["auto", "global", "level", "label", "none"],
        typer.Option(help="How many thresholds to tune; auto: whichever does best on documents not tuned on."),
    ] = "auto",
    decode: Annotated[
        Literal["auto", Rule], typer.Option(help="Decoding rule; auto: the best of those that keep parents.")
    ] = "auto",
    paths: Paths = None,
    risk: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Stop at the parent where a label is so unsure that more than this share of labels would be wrong.",
        ),
    ] = None,
    skip_bad_rows: Annotated[bool, typer.Option("--skip-bad-rows", help="Leave bad rows out, with a warning.")] = False,
) -> None:
    """Calibrate probabilities, choose the decoding rule and tune thresholds on dev; predict and evaluate then use them.

    What is found is written to **decisions.json** in the model's folder; deleting that file undoes it. All scores shown
    are of documents that the choice was not fitted to: each half of dev is decided with what was found on the other.
    """
    from rich.console import Console

    from hgclr.cli.console import progress_bar
    from hgclr.cli.opening import open_classifier
    from hgclr.decisions.settings import FILE
    from hgclr.errors import InputError
    from hgclr.inference.calibrating import calibrate as find_decisions
    from hgclr.inference.calibrating import read_outputs

    if split == "test":
        raise InputError("nothing is ever tuned on test: its scores would mean nothing", remedy="give --split dev")
    if split == "train":
        logger.warning("what a model was trained on it knows too well: on other texts it will do worse than shown here")
    if not Path(model).is_dir():
        raise InputError("not a folder, and the result is written beside the model", path=model)
    classifier = open_classifier(model)
    folder = reading.open(data, taxonomy=classifier.taxonomy, skip_bad_rows=skip_bad_rows)
    with progress_bar() as bar:
        task = bar.add_task(split, total=None)
        outputs = read_outputs(classifier, folder, split, progress=lambda count: bar.advance(task, count))
    found = find_decisions(
        classifier, outputs, method=method, rule=decode, scope=thresholds, metric=metric, paths=paths, risk=risk
    )
    found.decisions.write(Path(model))
    console = Console()
    console.print(_table(found, classifier.decisions.rule, metric))
    console.print(_calibration(found), highlight=False)
    if found.decisions.sure is not None:
        console.print(f"labels less probable than {found.decisions.sure:.1%} are left out as doubtful", highlight=False)
    console.print(f"wrote {Path(model) / FILE}", highlight=False, markup=False, soft_wrap=True)


def _table(found: Calibrated, rule: str, metric: str) -> Table:
    """Return what was compared, the winner marked."""
    from rich.table import Table

    title = f"{metric.capitalize()}-F1 on {found.decisions.found['documents']:,} documents, held out"
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("decoding rule")
    table.add_column("thresholds")
    table.add_column("F1", justify="right")
    table.add_row(rule, "as the model had it", f"{100 * found.f1_today:.2f}")
    for candidate in found.candidates:
        chosen = candidate is found.best
        name = f"{candidate.thresholds}, chosen" if chosen else candidate.thresholds
        table.add_row(candidate.rule, name, f"{100 * candidate.f1:.2f}", style="bold green" if chosen else None)
    return table


def _calibration(found: Calibrated) -> str:
    return (
        f"expected calibration error {found.before.ece():.2%} → {found.after.ece():.2%},"
        f" Brier score {found.before.brier():.4f} → {found.after.brier():.4f}"
    )
