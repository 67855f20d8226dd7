"""``hgclr tune`` and ``hgclr calibrate``: search settings on dev, and tune decisions on dev."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hgclr.cli.console import Console, counting, open_classifier, print_written, quiet_libraries, standard_error
from hgclr.cli.options import (
    Model,
    Paths,
    Reading,
    Rule,
    Settings,
    SkipBadRows,
    file,
    folder,
    number_list,
    option,
    reading_options,
)
from hgclr.errors import InputError, require_extra
from hgclr.files import check_output

if TYPE_CHECKING:
    from hgclr.decisions.tuning import Outputs
    from hgclr.taxonomy import Taxonomy
    from hgclr.training import RunConfig


logger = logging.getLogger(__name__)

SHOWN = 10


def tune(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG.yaml", help="Settings that all trials share, as for hgclr train.")
    ],
    space: Annotated[
        Path | None, file("YAML file of the settings to search and their values; default: the learning rate and more.")
    ] = None,
    trials: Annotated[
        int | None,
        option("Number of trials in all, earlier ones included; default: every combination of choices.", min=1),
    ] = None,
    seeds: Annotated[
        str | None, option("Train each trial with each of these seeds and take the mean.", metavar="1,2,…")
    ] = None,
    metric: Annotated[Literal["macro_f1", "micro_f1"], option("The dev score to maximise.")] = "macro_f1",
    settings: Settings = None,
    output: Annotated[
        Path | None, folder("Folder to write; default: runs/NAME-tuning, where NAME is that of CONFIG.")
    ] = None,
) -> None:
    """Search for settings on dev with Optuna; test is never scored.

    A space is a YAML file with lines such as **model.contrastive_weight: {low: 0.003, high: 1, log: true}** or
    **training.batch_size: {choices: [16, 32]}**. The study is in **study.db** in the output folder. Start the same
    command in several processes to train several trials at a time; start it again to continue a search. The output
    folder then holds **best.yaml**.

    Example: **hgclr tune my-data.yaml --trials 20 --output runs/search**

    Next: **hgclr train runs/search/best.yaml**
    """
    for module in ("torch", "optuna"):
        require_extra(module, extra="tune", capability="Tuning")
    from rich.table import Table

    from hgclr.training.run_checks import check_run
    from hgclr.training.settings import RunConfig, read_yaml

    run = RunConfig.read(config, settings, output or Path("runs") / f"{config.stem}-tuning")
    check_run(run)
    check_output(run.output)
    import optuna

    from hgclr import tuning
    from hgclr.cli.progress import TrainingProgress

    quiet_libraries()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = tuning.tune(
        run,
        tuning.read_space(None if space is None else read_yaml(space), run, space),
        trials=trials,
        seeds=None if seeds is None else number_list("--seeds", seeds, int),
        metric=metric,
        watch=lambda title: TrainingProgress(standard_error(), title),
    )
    scored = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name == "COMPLETE"]
    scored.sort(key=lambda trial: (-(trial.value or 0.0), trial.number))
    table = Table("trial", metric, "settings", title=f"The best of {len(study.trials)} trials on dev")
    for trial in scored[:SHOWN]:
        table.add_row(str(trial.number + 1), f"{100 * (trial.value or 0.0):.2f}", tuning.describe(trial.params))
    console = Console()
    console.print(table)
    print_written([run.output / tuning.STUDY, run.output / "best.yaml"])
    console.say(f"next: hgclr train {run.output / 'best.yaml'}")


@reading_options
def calibrate(
    model: Model,
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="Data folder, or its URL, with documents not trained on.")
    ],
    reading: Reading,
    split: Annotated[str, option("Split to tune on: dev; never test.")] = "dev",
    metric: Annotated[
        Literal["both", "micro", "macro"],
        option("F1 to tune for. both: their mean, without harm to either; else one at the other's cost."),
    ] = "both",
    max_loss: Annotated[
        float,
        option("With --metric both: points of Micro- or Macro-F1 that may be lost on dev.", min=0.0, max=100.0),
    ] = 1.0,
    method: Annotated[
        Literal["temperature", "isotonic", "none"],
        option("How to calibrate probabilities; isotonic fits any shape and needs more documents."),
    ] = "temperature",
    thresholds: Annotated[
        Literal["auto", "global", "level", "label", "none"],
        option("How many thresholds to tune; auto: whichever does best on documents not tuned on."),
    ] = "auto",
    rule: Annotated[
        Literal["auto", Rule], option("Decoding rule; auto: the best of those that keep parents.")
    ] = "auto",
    paths: Paths = None,
    risk: Annotated[
        float | None,
        option(
            "Stop at the parent where a label is so unsure that more than this share of labels would be wrong.",
            min=0.0,
            max=1.0,
        ),
    ] = None,
    folds: Annotated[
        int | None,
        option(
            "For a small dev: also tune on train, in this many folds, each with a model trained on the others."
            " That many models are trained; an interrupted command continues where it stopped.",
            min=2,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        option("With --folds: settings to train with; default: config.yaml beside MODEL.", metavar="CONFIG.yaml"),
    ] = None,
    output: Annotated[
        Path | None, folder("With --folds: folder for the models; default: calibration beside MODEL.")
    ] = None,
    skip_bad_rows: SkipBadRows = False,
) -> None:
    """Calibrate probabilities, choose the decoding rule and tune thresholds on dev; predict and evaluate then use them.

    The result is written to **decisions.json** in the model's folder; deleting that file undoes it. All scores shown
    are of documents that the choice was not fitted to: each fold of dev is decided with what was found on the others.
    Where nothing is better without harm, decisions stay as they were. A model that was tuned before, as by
    **hgclr train**, is tuned again and compared with a threshold of 0.5.

    Example: **hgclr calibrate runs/first/model my-data**

    Next: **hgclr evaluate runs/first/model my-data** scores test with the new decisions.
    """
    from hgclr.cli.tables import print_calibrated, print_candidates
    from hgclr.decisions.settings import FILE
    from hgclr.decisions.tuning import ENTRIES, Outputs
    from hgclr.inference.classifier import sampled

    if split == "test":
        raise InputError("nothing is ever tuned on test: its scores would mean nothing", remedy="give --split dev")
    if split == "train":
        logger.warning("scores on training data are optimistic: on other texts the model will do worse")
    if not Path(model).is_dir():
        raise InputError(
            "not a local folder, and decisions.json is written into the model's folder",
            path=model,
            remedy="calibrate a copy, and upload its decisions.json",
        )
    if folds is None and (config is not None or output is not None):
        raise InputError("--config and --output are for training models", remedy="add --folds 5, or leave them out")
    if folds is not None and split == "train":
        raise InputError("--folds tunes on train with models trained for it", remedy="leave out --split train")
    check_output(Path(model))
    if output is not None:
        check_output(output)
    classifier = open_classifier(model, data)
    documents = reading.open(data, taxonomy=classifier.taxonomy, skip_bad_rows=skip_bad_rows)
    most = max(1, ENTRIES // ((folds or 0) + 1) // len(classifier.taxonomy))
    parts: list[Outputs] = []
    if folds is not None:
        require_extra("torch", extra="train", capability="Training a model for each fold")
        from hgclr.training import RunConfig

        config = config or Path(model).parent / "config.yaml"
        if not config.is_file():
            raise InputError("no settings to train the models of the folds", path=config, remedy="give --config FILE")
        run = RunConfig.read(config, output=output or Path(model).parent / "calibration")
        read = {"path": data, "skip_bad_rows": skip_bad_rows, **asdict(reading)}
        run = run.model_copy(update={"data": run.data.model_copy(update=read)})
        parts += _out_of_fold(run, folds, most, classifier.taxonomy)
    if folds is None or split in documents.splits:
        with counting(split) as progress:
            parts.append(classifier.outputs(sampled(documents, split, most), progress=progress))
    found = classifier.calibrate(
        Outputs.joined(parts),
        method=method,
        rule=rule,
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


def _out_of_fold(run: RunConfig, folds: int, most: int, taxonomy: Taxonomy) -> Iterator[Outputs]:
    """Yield logits of documents of train, up to ``most`` a fold, by models that were not trained on them."""
    import numpy as np

    from hgclr.cli.progress import fold_progress
    from hgclr.evaluation.folds import train_folds
    from hgclr.training.run_checks import data_folder

    quiet_libraries()
    watch = fold_progress(folds)
    for seed, fold in enumerate(train_folds(run, data_folder(run, taxonomy), folds, watch=watch)):
        kept = set(np.random.default_rng(seed).permutation(fold.documents)[:most].tolist())
        yield fold.classifier.outputs(row for number, row in enumerate(fold.rows) if number in kept)
