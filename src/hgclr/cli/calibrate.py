"""``hgclr calibrate``: find out on dev how a model should decide."""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hgclr.cli.console import open_classifier, print_written, progress_bar, quiet_libraries
from hgclr.cli.options import Model, Paths, Reading, Rule, reading_options, rule_option
from hgclr.errors import InputError, require_extra

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hgclr.decisions.tuning import Outputs
    from hgclr.taxonomy import Taxonomy
    from hgclr.training import RunConfig

__all__ = ["calibrate"]

logger = logging.getLogger(__name__)


@reading_options
def calibrate(
    model: Model,
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="Data folder, or its URL, with documents not trained on.")
    ],
    reading: Reading,
    split: Annotated[str, typer.Option(help="Which split to look at: dev; never test.")] = "dev",
    metric: Annotated[
        Literal["both", "micro", "macro"],
        typer.Option(help="Which F1 to tune for; both: their mean, without harm to either; one: at the other's cost."),
    ] = "both",
    max_loss: Annotated[
        float,
        typer.Option(
            min=0.0, max=100.0, help="With --metric both: points of Micro- or Macro-F1 that may be lost on dev."
        ),
    ] = 1.0,
    method: Annotated[
        Literal["temperature", "isotonic", "none"],
        typer.Option(help="How to calibrate probabilities; isotonic takes any shape and needs more documents."),
    ] = "temperature",
    thresholds: Annotated[
        Literal["auto", "global", "level", "label", "none"],
        typer.Option(help="How many thresholds to tune; auto: whichever does best on documents not tuned on."),
    ] = "auto",
    decode: Annotated[
        Literal["auto", Rule], rule_option("Decoding rule; auto: the best of those that keep parents.", "auto")
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
    folds: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="For a small dev: look at train as well, each document with a model that was not trained on it. Costs"
            " so many trainings on all folds of train but one; if interrupted, it goes on where it was.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="CONFIG.yaml", help="With --folds: settings to train with; default: config.yaml beside MODEL."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="With --folds: where to keep the models; default: calibration beside MODEL."),
    ] = None,
    skip_bad_rows: Annotated[bool, typer.Option("--skip-bad-rows", help="Leave bad rows out, with a warning.")] = False,
) -> None:
    """Calibrate probabilities, choose the decoding rule and tune thresholds on dev; predict and evaluate then use them.

    What is found is written to **decisions.json** in the model's folder; deleting that file undoes it. All scores shown
    are of documents that the choice was not fitted to: each fold of dev is decided with what was found on the others.
    Where nothing is better without harm, decisions stay as they were; those of a model that was tuned before, as
    **hgclr train** does, are found anew and compared with one half.
    """
    from hgclr.cli.console import Console
    from hgclr.cli.tables import print_calibrated, print_candidates
    from hgclr.decisions.settings import FILE, Decisions
    from hgclr.decisions.tuning import ENTRIES, Outputs
    from hgclr.decisions.tuning import calibrate as find_decisions
    from hgclr.files import check_output
    from hgclr.inference.outputs import read_outputs

    if split == "test":
        raise InputError("nothing is ever tuned on test: its scores would mean nothing", remedy="give --split dev")
    if split == "train":
        logger.warning("what a model was trained on it knows too well: on other texts it will do worse than shown here")
    if not Path(model).is_dir():
        raise InputError(
            "not a folder here, and the result is written into the model's",
            path=model,
            remedy="calibrate a copy, and upload its decisions.json",
        )
    if folds is None and (config is not None or output is not None):
        raise InputError("--config and --output are for training models", remedy="add --folds 5, or leave them out")
    if folds is not None and split == "train":
        raise InputError("--folds looks at train with models of its own", remedy="leave out --split train")
    check_output(Path(model))
    if output is not None:
        check_output(output)
    classifier = open_classifier(model, data)
    folder = reading.open(data, taxonomy=classifier.taxonomy, skip_bad_rows=skip_bad_rows)
    entries = ENTRIES // ((folds or 0) + 1)
    parts: list[Outputs] = []
    if folds is not None:
        run = _fold_run(Path(model), config, output, data, reading, skip_bad_rows)
        parts += _out_of_fold(run, folds, entries, classifier.taxonomy)
    if folds is None or split in folder.splits:
        with progress_bar() as bar:
            task = bar.add_task(split, total=None)
            parts.append(
                read_outputs(
                    classifier, folder, split, entries=entries, progress=lambda count: bar.advance(task, count)
                )
            )
    # Decisions that were tuned before look too good on the documents that they may have been tuned on.
    today = Decisions(classifier.taxonomy) if classifier.decisions.provenance else classifier.decisions
    found = find_decisions(
        Outputs.joined(parts),
        today,
        method=method,
        rule=decode,
        scope=thresholds,
        metric=metric,
        paths=paths,
        risk=risk,
        max_loss=max_loss / 100,
    )
    found.decisions.write(Path(model))
    console = Console()
    print_candidates(found, console)
    print_calibrated(found, console)
    print_written([Path(model) / FILE])


def _fold_run(
    model: Path, config: Path | None, output: Path | None, data: Path, reading: Reading, skip_bad_rows: bool
) -> RunConfig:
    """Return the run that trains the models of the folds: as the model was trained, on the data that is given."""
    require_extra("torch", extra="train", capability="Training a model for each fold")
    from hgclr.training import RunConfig

    config = config or model.parent / "config.yaml"
    if not config.is_file():
        raise InputError("--folds trains models, and there are no settings", path=config, remedy="give --config FILE")
    run = RunConfig.read(config, output=output or model.parent / "calibration")
    read_so = {"path": data, "skip_bad_rows": skip_bad_rows, **asdict(reading)}
    return run.model_copy(update={"data": run.data.model_copy(update=read_so)})


def _out_of_fold(run: RunConfig, folds: int, entries: int, taxonomy: Taxonomy) -> Iterator[Outputs]:
    """Yield what the models of the folds say of the documents that they were not trained on."""
    import numpy as np

    from hgclr.cli.progress import fold_progress
    from hgclr.decisions.tuning import Outputs
    from hgclr.evaluation.audit_folds import train_folds
    from hgclr.inference.outputs import outputs_of
    from hgclr.training.run_checks import data_folder

    quiet_libraries()
    folder = data_folder(run, run.data.taxonomy)
    if _parents(folder.taxonomy) != _parents(taxonomy):
        raise InputError(
            "the data has another label tree than the model",
            path=run.data.path,
            remedy="give the data that the model was trained on",
        )
    place = {label: column for column, label in enumerate(folder.taxonomy.ids)}
    columns = [place[label] for label in taxonomy.ids]
    most = max(1, entries // len(taxonomy))
    for seed, fold in enumerate(train_folds(run, folder, folds, watch=fold_progress(folds))):
        kept = set(np.random.default_rng(seed).permutation(fold.documents)[:most].tolist())
        said = outputs_of(fold.classifier, (row for number, row in enumerate(fold.rows) if number in kept))
        yield Outputs(said.logits[:, columns], said.gold[:, columns])


def _parents(taxonomy: Taxonomy) -> dict[str, str | None]:
    """Return the parent of each label, whatever their order."""
    ids = taxonomy.ids
    return {own: ids[parent] if parent >= 0 else None for own, parent in zip(ids, taxonomy.parents, strict=True)}
