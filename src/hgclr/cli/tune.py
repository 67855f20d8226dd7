"""``hgclr tune``: search for settings on dev."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hgclr.cli.console import print_written, quiet_libraries, standard_error
from hgclr.cli.options import Engine, RayAddress, Settings, engine_options, number_list
from hgclr.errors import InputError, require_extra

if TYPE_CHECKING:
    from rich.table import Table

    from hgclr.cli.console import Console
    from hgclr.training import RunConfig
    from hgclr.tuning.search import TuningResult
    from hgclr.tuning.space import Search
    from hgclr.tuning.trials import Onlookers, Turn

__all__ = ["tune"]

SHOWN = 10
CUTS = ("data.limit", "data.dev_limit", "data.test_limit", "training.epochs")
"""What --set makes trials cheap with: not for the training with the best settings."""


def tune(
    config: Annotated[
        Path,
        typer.Argument(metavar="CONFIG.yaml", help="Settings that all trials share, as for hgclr train."),
    ],
    grid: Annotated[
        bool,
        typer.Option(
            "--grid", help="A grid: every lambda with every gamma. The values are ours; the paper states none."
        ),
    ] = False,
    trials: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Let Optuna choose N trials in all, including those already run."),
    ] = None,
    lambdas: Annotated[
        str | None, typer.Option(metavar="A,B,…", help="With --grid: the contrastive weights.  [default: .05,.1,.3]")
    ] = None,
    gammas: Annotated[
        str | None,
        typer.Option(metavar="A,B,…", help="With --grid: the keep thresholds (gamma).  [default: .001,.002,.005,.02]"),
    ] = None,
    fractions: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            help="With --grid: shares of tokens to keep, instead of gammas; .3,.5,.7,.9 is the default where CONFIG"
            " keeps tokens by a share.",
        ),
    ] = None,
    space: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --trials: a YAML file with the settings to search and their ranges."),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="1,2,…", help="Train each trial with each seed and take the mean.")
    ] = None,
    metric: Annotated[
        Literal["macro_f1", "micro_f1"], typer.Option(help="The dev score to maximise, taken at each run's best epoch.")
    ] = "macro_f1",
    settings: Settings = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Output folder; default: runs/NAME-tuning, where NAME is that of CONFIG."),
    ] = None,
    engine: Annotated[
        Engine,
        typer.Option(help="local trains one trial after the other; ray several at a time, here or on a cluster."),
    ] = "local",
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="With --engine ray: trials at a time; default: one for each GPU or core."
        ),
    ] = None,
    ray_address: RayAddress = None,
) -> None:
    """Search for settings on dev: a grid over the paper's lambda and gamma, or Optuna over a wider space.

    The test split is not scored. Run the same command again to go on after an interruption; finished trials stay, an
    interrupted one is taken up from its checkpoint. With a larger **--trials** a search goes on for longer.

    A space is a YAML file with lines such as **model.contrastive_weight: {low: 0.003, high: 1, log: true}**,
    **model.keep_at_least: {low: 0, high: 24, step: 4}** or **model.negatives: {choices: [all, different]}**.

    On Ray the trials of Optuna are not given up early, and each is chosen from those that have ended until then.

    The output folder then holds **best.yaml** (for hgclr train), **trials.csv**, **tuning.json** and plots. Where --set
    cuts trials short (data.limit, data.dev_limit, data.test_limit, training.epochs), best.yaml has what CONFIG says.
    """
    for module in ("torch", "optuna", "matplotlib"):
        require_extra(module, extra="tune", capability="Tuning")
    from hgclr.files import check_output
    from hgclr.training.run_checks import check_run
    from hgclr.training.settings import RunConfig

    run = RunConfig.read(config, settings, output or Path("runs") / f"{config.stem}-tuning")
    uncut = [setting for setting in settings or () if setting.partition("=")[0].strip() not in CUTS]
    whole = RunConfig.read(config, uncut, run.output)
    check_run(run)
    check_output(run.output)
    import matplotlib as mpl
    import optuna

    from hgclr.cli.console import Console
    from hgclr.tuning.search import tune as search_settings

    quiet_libraries()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    mpl.use("agg")
    search = _search(run, trials, grid, space, lambdas=lambdas, gammas=gammas, fractions=fractions)
    cluster = engine_options(engine, workers, ray_address)
    result = search_settings(
        run,
        search,
        trials=trials,
        seeds=None if seeds is None else number_list("--seeds", seeds, int),
        metric=metric,
        whole=whole,
        watch=lambda turn: _watched(turn, standard_error()),
        engine=engine,
        workers=cluster["workers"],
        ray_address=cluster["address"],
    )
    console = Console()
    console.print(_table(result, metric))
    for note in result.notes:
        console.print(f"[dim]{note}[/]", highlight=False, soft_wrap=True)
    print_written(path for path in result.files if path.suffix != ".svg")
    console.print(f"Train with the best: [b]hgclr train {result.config}[/b]", highlight=False, soft_wrap=True)


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


def _table(result: TuningResult, metric: str) -> Table:
    """Return the best trials, one in a row."""
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
