"""``hgclr audit``: find labels that look wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgclr.cli.options import JsonFile, Raw, Reading, reading_options

if TYPE_CHECKING:
    from hgclr.evaluation.audit_results import Audit

__all__ = ["audit"]


@reading_options
def audit(
    reading: Reading,
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="Model that was not trained on the split: folder 'model' that hgclr train wrote, folder that hgclr"
            " export wrote, or a hub name.",
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Argument(metavar="DATA", help="Data folder with the documents to audit.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Which split: dev, test or train; default: dev, with --folds train.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many documents to list, the most contradicted first.")] = 50,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write audit.html to look at, audit.csv to fill in and audit.json. With --folds it also holds the"
            " models; default there: runs/NAME-audit, where NAME is that of CONFIG.",
        ),
    ] = None,
    csv_file: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="Write the list here, with an empty column for your verdict."),
    ] = None,
    json_file: JsonFile = None,
    folds: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Audit train: divide it into this many folds, train a model on all but one, audit that one, and so on."
            " An interrupted audit continues where it stopped.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="CONFIG.yaml", help="With --folds: data and settings to train with, as for hgclr train."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="With --folds: override one setting of CONFIG; repeatable."),
    ] = None,
    skip_bad_rows: Annotated[bool, typer.Option("--skip-bad-rows", help="Leave bad rows out, with a warning.")] = False,
    raw: Raw = False,
) -> None:
    """List the documents whose labels a model contradicts most, with the labels that it predicts.

    There the annotation is wrong, or the tree is ambiguous, or the model has something to learn: look, then decide.
    The score says by how many orders of magnitude the gold labels are less probable than labels usually are.

    Example: **hgclr audit runs/first/model my-data --split test --output my-audit**

    Example: **hgclr audit --folds 5 --config my-data.yaml --output my-audit**
    """
    from hgclr.cli.console import Console
    from hgclr.cli.tables import print_audit
    from hgclr.errors import InputError
    from hgclr.evaluation.audit_results import write_audit, write_csv
    from hgclr.files import check_output, write_json

    if output is not None:
        check_output(output)
    if folds is not None:
        if model is not None or data is not None or reading != Reading() or skip_bad_rows:
            raise InputError(
                "with --folds, model and data come from the configuration",
                remedy="give --folds and --config alone; --set data.path=DIR names other data",
            )
        if split not in (None, "train"):
            raise InputError(
                f"--folds audits train, not {split}",
                remedy="train a model on train and give it: hgclr audit MODEL DATA --split " + split,
            )
        if config is None:
            raise InputError("--folds trains models", remedy="say how with --config CONFIG.yaml")
        output = output or Path("runs") / f"{config.stem}-audit"
        check_output(output)
        found = _with_folds(config, settings, output, folds, top)
    else:
        if config is not None or settings:
            raise InputError("--config and --set are for training models", remedy="add --folds 5, or leave them out")
        if model is None or data is None:
            raise InputError("no model or no data is given", remedy="give MODEL and DATA, or --folds and --config")
        found = _held_out(model, data, split or "dev", top, reading, skip_bad_rows)
    if json_file is not None:
        write_json(json_file, found.to_json())
    if csv_file is not None:
        write_csv(csv_file, found, raw=raw)
    console = Console()
    print_audit(found, console)
    if output is not None:
        written = write_audit(output, found, raw=raw)
        console.print(f"written: {written[0]}", highlight=False, markup=False, soft_wrap=True)


def _held_out(model: str, data: Path, split: str, top: int, reading: Reading, skip_bad_rows: bool) -> Audit:
    """Audit with one model."""
    from hgclr.cli.console import open_classifier, progress_bar
    from hgclr.evaluation.audit import audit as audit_split

    classifier = open_classifier(model, data)
    folder = reading.open(data, taxonomy=classifier.taxonomy, skip_bad_rows=skip_bad_rows)
    with progress_bar() as bar:
        task = bar.add_task(split, total=None)
        return audit_split(
            classifier,
            folder,
            split,
            top=top,
            on_survey=lambda total: bar.update(task, total=total),
            progress=lambda count: bar.advance(task, count),
        )


def _with_folds(config: Path, settings: list[str] | None, output: Path, folds: int, top: int) -> Audit:
    """Train a model for each fold and audit with it."""
    from hgclr.errors import require_extra

    require_extra("torch", extra="train", capability="Training a model for each fold")
    from hgclr.cli.console import quiet_libraries
    from hgclr.training.run_checks import check_run
    from hgclr.training.settings import RunConfig

    run = RunConfig.read(config, settings, output)
    check_run(run)
    from hgclr.cli.progress import fold_progress
    from hgclr.evaluation.audit_folds import audit_folds

    quiet_libraries()
    return audit_folds(run, folds=folds, top=top, watch=fold_progress(folds))
