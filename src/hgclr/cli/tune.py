"""``hgclr tune`` and ``hgclr calibrate``: find on dev how to train a model, and how it should decide."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hgclr.cli.console import Console, counting, open_classifier, print_written, quiet_libraries, standard_error
from hgclr.cli.options import (
    Cluster,
    Model,
    Paths,
    Reading,
    Rule,
    Settings,
    SkipBadRows,
    cluster_options,
    file,
    folder,
    number_list,
    option,
    reading_options,
    rule_option,
)
from hgclr.errors import InputError, require_extra
from hgclr.files import check_output

if TYPE_CHECKING:
    from rich.table import Table

    from hgclr.decisions.tuning import Outputs
    from hgclr.taxonomy import Taxonomy
    from hgclr.training import RunConfig
    from hgclr.tuning.search import TuningResult
    from hgclr.tuning.space import Search
    from hgclr.tuning.trials import Onlookers, Turn


logger = logging.getLogger(__name__)

SHOWN = 10
CUTS = ("data.limit", "data.dev_limit", "data.test_limit", "training.epochs")
"""What --set makes trials cheap with: not for the training with the best settings."""


def _points(text: str) -> Any:
    return option(f"With --grid: {text}", metavar="A,B,…")


@cluster_options
def tune(
    cluster: Cluster,
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG.yaml", help="Settings that all trials share, as for hgclr train.")
    ],
    grid: Annotated[
        bool,
        option("Try every lambda with every gamma. The values are ours; the paper states none.", "--grid"),
    ] = False,
    trials: Annotated[
        int | None,
        option("Let Optuna choose N trials in all, including those already run.", min=1, metavar="N"),
    ] = None,
    lambdas: Annotated[str | None, _points("the contrastive weights.  [default: .05,.1,.3]")] = None,
    gammas: Annotated[str | None, _points("the keep thresholds (gamma).  [default: .001,.002,.005,.02]")] = None,
    fractions: Annotated[
        str | None,
        _points(
            "shares of tokens to keep, instead of gammas; .3,.5,.7,.9 is the default where CONFIG keeps tokens by a"
            " share."
        ),
    ] = None,
    space: Annotated[
        Path | None, file("With --trials: a YAML file of the settings to search and their ranges.")
    ] = None,
    seeds: Annotated[
        str | None, option("Train each trial with each of these seeds and take the mean.", metavar="1,2,…")
    ] = None,
    metric: Annotated[
        Literal["macro_f1", "micro_f1"], option("The dev score to maximise, taken at each run's best epoch.")
    ] = "macro_f1",
    settings: Settings = None,
    output: Annotated[
        Path | None, folder("Folder to write; default: runs/NAME-tuning, where NAME is that of CONFIG.")
    ] = None,
) -> None:
    """Search for settings on dev: a grid over the paper's lambda and gamma, or Optuna over a wider space.

    Test is never scored. After an interruption, run the same command again: finished trials stay, and an interrupted
    one continues from its checkpoint. With a larger **--trials**, a search continues for longer.

    A space is a YAML file with lines such as **model.contrastive_weight: {low: 0.003, high: 1, log: true}**,
    **model.keep_at_least: {low: 0, high: 24, step: 4}** or **model.positives: {choices: [hierarchy, dropout]}**.

    On Ray, no trial is given up early, and Optuna chooses each one by those that have ended until then.

    The output folder then holds **best.yaml**, **trials.csv**, **tuning.json** and plots. Where --set makes trials
    smaller (data.limit, data.dev_limit, data.test_limit, training.epochs), best.yaml has the values of CONFIG again.

    Example: **hgclr tune my-data.yaml --trials 20 --output runs/search**

    Next: **hgclr train runs/search/best.yaml**
    """
    for module in ("torch", "optuna", "matplotlib"):
        require_extra(module, extra="tune", capability="Tuning")
    from hgclr.training.run_checks import check_run
    from hgclr.training.settings import RunConfig

    run = RunConfig.read(config, settings, output or Path("runs") / f"{config.stem}-tuning")
    uncut = [setting for setting in settings or () if setting.partition("=")[0].strip() not in CUTS]
    whole = RunConfig.read(config, uncut, run.output)
    check_run(run)
    check_output(run.output)
    import matplotlib as mpl
    import optuna

    from hgclr.tuning.search import tune as search_settings

    quiet_libraries()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    mpl.use("agg")
    search = _search(run, trials, grid, space, lambdas=lambdas, gammas=gammas, fractions=fractions)
    cluster.check()
    result = search_settings(
        run,
        search,
        trials=trials,
        seeds=None if seeds is None else number_list("--seeds", seeds, int),
        metric=metric,
        whole=whole,
        watch=lambda turn: _watched(turn, standard_error()),
        **vars(cluster),
    )
    console = Console()
    console.print(_best_trials(result, metric))
    for note in result.notes:
        console.print(f"[dim]{note}[/]", soft_wrap=True)
    print_written(path for path in result.files if path.suffix != ".svg")
    console.print(f"Train with the best: [b]hgclr train {result.config}[/b]", soft_wrap=True)


def _search(run: RunConfig, trials: int | None, grid: bool, space: Path | None, **points: str | None) -> Search:
    """Return what the options ask to search; options that do not go together are refused."""
    from hgclr.tuning.space import default_space, read_space
    from hgclr.tuning.space import grid as make_grid

    if grid == (trials is not None):
        raise InputError(
            "--grid and --trials are both given" if grid else "nothing says how to search",
            remedy="give --grid for lambda and gamma or --trials N for Optuna's choice",
        )
    values = {name: number_list(f"--{name}", text, float) for name, text in points.items() if text is not None}
    if grid and space is not None:
        raise InputError("--space belongs to --trials", remedy="give --lambdas and --gammas for a grid")
    if grid:
        return make_grid(run, **values)
    if values:
        raise InputError(f"--{next(iter(values))} belongs to a grid", remedy="give --grid, or a --space for --trials")
    return default_space(run) if space is None else read_space(space, run)


@contextmanager
def _watched(turn: Turn, console: Console) -> Iterator[Onlookers]:
    """Say which trial comes and what the best so far is, and show the run's bar."""
    from rich.markup import escape

    from hgclr.cli.progress import TrainingProgress
    from hgclr.tuning.space import describe

    title = f"trial {turn.number} of {turn.total}"
    best = ""
    if turn.best is not None:
        best = f", best so far {100 * (turn.best.value or 0.0):.1f} ({describe(turn.best.params)})"
    console.print(f"[bold]{title}[/]{escape(best)}", soft_wrap=True)
    console.print(f"  [dim]now {escape(describe(turn.parameters))}, seed {turn.seed}[/]", soft_wrap=True)
    with TrainingProgress(console, title) as progress:
        yield [progress], progress.on_documents


def _best_trials(result: TuningResult, metric: str) -> Table:
    from rich.table import Table

    from hgclr.tuning.space import describe
    from hgclr.tuning.trials import METRICS

    trials = len(result.best) + result.unscored
    table = Table(title=f"The best of {trials} trials, dev {METRICS[metric]}", title_justify="left")
    if result.unscored:
        table.caption = f"{result.unscored} were given up early or could not be trained; see trials.csv"
        table.caption_justify = "left"
    for name in ("trial", METRICS[metric], "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("settings")  # in one column: half a dozen of their own would cut numbers off
    for trial in result.best[:SHOWN]:
        score, seconds = f"{100 * (trial.value or 0.0):.2f}", f"{trial.user_attrs['seconds']:.0f}"
        table.add_row(str(trial.number + 1), score, seconds, describe(trial.params))
    return table


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
        Literal["auto", Rule], rule_option("Decoding rule; auto: the best of those that keep parents.", "auto")
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
    Where nothing is better without harm, decisions stay as they were. Those of a model that was tuned before, as
    **hgclr train** does, are found anew and compared with a threshold of one half.

    Example: **hgclr calibrate runs/first/model my-data**

    Next: **hgclr evaluate runs/first/model my-data** scores test with the new decisions.
    """
    from hgclr.cli.tables import print_calibrated, print_candidates
    from hgclr.decisions.settings import FILE, Decisions
    from hgclr.decisions.tuning import ENTRIES, Outputs
    from hgclr.decisions.tuning import calibrate as find_decisions
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
    documents = reading.open(data, taxonomy=classifier.taxonomy, skip_bad_rows=skip_bad_rows)
    entries = ENTRIES // ((folds or 0) + 1)
    parts: list[Outputs] = []
    if folds is not None:
        run = _fold_run(Path(model), config, output, data, reading, skip_bad_rows)
        parts += _out_of_fold(run, folds, entries, classifier.taxonomy)
    if folds is None or split in documents.splits:
        with counting(split) as progress:
            parts.append(read_outputs(classifier, documents, split, entries=entries, progress=progress))
    # Decisions that were tuned before look too good on the documents that they may have been tuned on.
    today = Decisions(classifier.taxonomy) if classifier.decisions.provenance else classifier.decisions
    found = find_decisions(
        Outputs.joined(parts),
        today,
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
    documents = data_folder(run, run.data.taxonomy)
    if _parents(documents.taxonomy) != _parents(taxonomy):
        raise InputError(
            "the data has another label tree than the model",
            path=run.data.path,
            remedy="give the data that the model was trained on",
        )
    place = {label: column for column, label in enumerate(documents.taxonomy.ids)}
    columns = [place[label] for label in taxonomy.ids]
    most = max(1, entries // len(taxonomy))
    for seed, fold in enumerate(train_folds(run, documents, folds, watch=fold_progress(folds))):
        kept = set(np.random.default_rng(seed).permutation(fold.documents)[:most].tolist())
        said = outputs_of(fold.classifier, (row for number, row in enumerate(fold.rows) if number in kept))
        yield Outputs(said.logits[:, columns], said.gold[:, columns])


def _parents(taxonomy: Taxonomy) -> dict[str, str | None]:
    """Return the parent of each label, whatever their order."""
    ids = taxonomy.ids
    return {own: ids[parent] if parent >= 0 else None for own, parent in zip(ids, taxonomy.parents, strict=True)}
