"""``hgclr reproduce``: rerun the rows of the paper's tables, and put the paper's figures beside ours."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from hgclr.paper.runner import Step, Watch
    from hgclr.paper.summary import Summary

__all__ = ["app"]

HELP = """Rerun the rows of the paper's tables on your data, and write our figures beside the paper's.

A table is a set of systems; each is trained with every seed, its best epoch selected on dev, and test scored once.
The tables share runs: what one has made in --output, the others use. A killed command goes on where it was when it
is given again; what is done is not touched. A row that cannot be run (say, for want of memory) is named with the reason
and the others go on; the exit code is 1 if no row has a figure.

**Example**, an evening on a small machine:

    hgclr reproduce table2 --data my-data --encoder all-MiniLM-L6-v2 --seeds 1,2,3 --output runs/paper \\
        --budget documents=1500,length=64,epochs=8
"""

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", help=HELP)

Data = Annotated[Path, typer.Option(metavar="DIR", help="Data folder with train, dev, test and a taxonomy.")]
Encoder = Annotated[str, typer.Option(metavar="NAME", help="Pretrained encoder; see hgclr encoders list.")]
Seeds = Annotated[str, typer.Option(metavar="N,N,…", help="Seeds; the table shows mean ± sd over them.")]
Output = Annotated[Path, typer.Option(metavar="DIR", help="Where tables and runs go, and where done runs are found.")]
Rows = Annotated[
    str | None, typer.Option(metavar="KEY,KEY,…", help="Only these rows, or extra ones; the keys stand above.")
]
BudgetText = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="KEY=N,…",
        help="Scale all rows down alike: documents=1500,length=64,epochs=8; dev= and test= set the samples that are "
        "scored, by default as many as documents. The table's title says so.",
    ),
]
Preset = Annotated[
    Literal["default", "paper", "published"],
    typer.Option(
        help="Ours, the paper's text, or its authors' program; decides for all rows alike where heads start, pooling, "
        "loss, documents of the label tree, decisions and recipe."
    ),
]
Corpus = Annotated[
    Literal["wos", "nyt", "rcv1"], typer.Option(help="Whose figures of the paper to show, and whose λ and γ to use.")
]
Precision = Annotated[
    Literal["auto", "fp32", "bf16", "fp16"], typer.Option(help="Precision of training, the same for all rows.")
]
RecipeName = Annotated[
    Literal["default", "paper"] | None,
    typer.Option(
        "--recipe",
        help="Optimisation recipe; by default the paper's under the paper's presets, which needs tens of thousands of "
        "documents.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Another setting for all rows, as for hgclr train; repeatable."),
]
Sizes = Annotated[str, typer.Option(metavar="N,N,…", help="Sizes of the training sample; all is every document.")]
CurveSeeds = Annotated[
    str,
    typer.Option(metavar="N,N,…", help="Seeds of sizes up to 5,000; larger ones are run with the first alone."),
]
CurveRows = Annotated[str | None, typer.Option(metavar="KEY,KEY,…", help="Rows of the table systems.")]
CurveBudget = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="KEY=N,…",
        help="As for systems, without documents: length=64,epochs=8,dev=1000,test=2000. Without dev and test, these "
        "are scored whole.",
    ),
]
KeepModels = Annotated[bool, typer.Option("--keep-models", help="Leave the trained models in the runs' folders.")]


def _command(name: str, what: str) -> Callable[..., None]:
    """Return the command that makes one table, with the keys of its rows in its help."""

    def command(
        data: Data,
        encoder: Encoder,
        output: Output,
        seeds: Seeds = "1,2,3",
        rows: Rows = None,
        budget: BudgetText = None,
        preset: Preset = "default",
        corpus: Corpus = "wos",
        precision: Precision = "fp32",
        recipe: RecipeName = None,
        settings: Settings = None,
        keep_models: KeepModels = False,
    ) -> None:
        from hgclr.errors import InputError, require_extra

        require_extra("torch", extra="train", capability="Training")
        if name == "systems" and preset != "default":
            raise InputError("the rows of systems have presets of their own", remedy=f"use --rows hgclr-{preset}")
        from hgclr.paper.experiment import Experiment
        from hgclr.paper.systems import Budget

        experiment = Experiment(
            data=data,
            encoder=encoder,
            output=output,
            preset=preset,
            corpus=corpus,
            recipe=recipe,
            precision=precision,
            budget=None if budget is None else Budget.parse(budget),
            overrides=tuple(settings or ()),
            keep_models=keep_models,
        )
        make_table(name, _numbers(seeds), None if rows is None else _words(rows), experiment)

    command.__doc__ = f"{what}\n\n{_rows_of(name)}"
    return command


def make_table(name: str, seeds: Sequence[int], rows: Sequence[str] | None, experiment: Any) -> None:
    """Run the rows of a table with a display, print it, and say where it is; exit with 1 if no row has a figure."""
    from rich.console import Console

    from hgclr.cli.console import quiet_libraries, standard_error
    from hgclr.paper.runner import reproduce
    from hgclr.paper.systems import TABLES
    from hgclr.provenance import command_line

    quiet_libraries()
    command = command_line(["hgclr", *sys.argv[1:]])
    summary = reproduce(TABLES[name], seeds, experiment, rows=rows, command=command, watch=_watch())
    console = Console()
    console.print(summary.title, style="bold", markup=False, soft_wrap=True)
    console.print(_rendered(summary))
    console.print(summary.setting, style="dim", markup=False, soft_wrap=True)
    for suffix in ("md", "csv", "json"):
        console.print(
            str(experiment.output / f"{summary.name}.{suffix}"), highlight=False, markup=False, soft_wrap=True
        )
    refused = [(line.title, reason) for line in summary.lines for reason in set(line.refused.values())]
    for title, reason in refused:
        standard_error().print(f"{title} could not be run: {reason}", style="yellow", markup=False, soft_wrap=True)
    if not any(line.ours for line in summary.lines):
        raise typer.Exit(1)


def curves(
    data: Data,
    encoder: Encoder,
    output: Output,
    sizes: Sizes = "300,1000,4000,all",
    rows: CurveRows = None,
    seeds: CurveSeeds = "1,2,3",
    budget: CurveBudget = None,
    precision: Precision = "fp32",
    recipe: RecipeName = None,
    settings: Settings = None,
) -> None:
    """Draw learning curves: the table systems at several sizes of the training sample.

    Writes **curves.json**, **curves.md** and **curves.svg**, anew after each run, and each size's table into a folder
    of its own. The plot shows test Macro-F1 over all labels, over each level and over rare labels, with decisions tuned
    on dev (solid) and at one half (dashed). What is done is not run again; what is missing is named.

    Example: **hgclr reproduce curves --data my-data --encoder all-MiniLM-L6-v2 --sizes 300,1000,all --output curves**
    """
    from rich.console import Console

    from hgclr.errors import require_extra

    for module in ("torch", "matplotlib"):
        require_extra(module, extra="paper", capability="Learning curves")
    from hgclr.cli.console import quiet_libraries, standard_error
    from hgclr.paper.curves import parse_sizes, run_curves
    from hgclr.paper.experiment import Experiment
    from hgclr.paper.systems import Budget
    from hgclr.provenance import command_line

    quiet_libraries()
    experiment = Experiment(
        data=data,
        encoder=encoder,
        output=output,
        recipe=recipe,
        precision=precision,
        budget=None if budget is None else Budget.parse(budget),
        overrides=tuple(settings or ()),
    )
    command = command_line(["hgclr", *sys.argv[1:]])
    chosen = None if rows is None else _words(rows)
    found = run_curves(parse_sizes(sizes), _numbers(seeds), experiment, rows=chosen, command=command, watch=_watch())
    console = Console(highlight=False)
    for suffix in ("md", "json", *(["svg"] if found.panels else [])):
        console.print(str(output / f"curves.{suffix}"), markup=False, soft_wrap=True)
    for what in found.missing:
        standard_error().print(f"missing: {what}", style="yellow", markup=False, soft_wrap=True)
    if not found.panels:
        raise typer.Exit(1)


def _watch() -> Watch:
    """Return what shows a run: which row of how many, with the bar and the scores of ``hgclr train``."""
    from hgclr.cli.console import standard_error
    from hgclr.cli.progress import TrainingProgress

    console = standard_error()

    @contextmanager
    def watch(step: Step) -> Iterator[tuple[list[TrainingProgress], Callable[[int], None]]]:
        title = f"row {step.number} of {step.total}, seed {step.seed}: {step.system}"
        with TrainingProgress(console, title) as progress:
            yield [progress], progress.on_documents

    return watch


def _rendered(summary: Summary) -> RichTable:
    from rich.table import Table

    from hgclr.paper.output import cells, columns

    table = Table()
    for number, name in enumerate(columns(summary)):
        table.add_column(name.replace(" / ", "\n"), justify="right" if number else "left")
    for line in summary.lines:  # Micro above Macro: a terminal is narrower than a page
        table.add_row(*(cell.replace(" / ", "\n") for cell in cells(summary, line)))
    return table


def _rows_of(name: str) -> str:
    """Return the keys of a table's rows for its help."""
    from hgclr.paper.systems import TABLES

    rows = [row for row in TABLES[name].rows if not row.printed]
    extra = [row.system for row in rows if row.extra]
    text = f"Rows: {', '.join(row.system for row in rows if not row.extra)}."
    return text + (f" Only with --rows: {', '.join(extra)}." if extra else "")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(text: str) -> list[int]:
    from hgclr.errors import InputError

    words = _words(text)
    if not words or not all(word.isascii() and word.isdigit() for word in words):
        raise InputError(f"--seeds is {text!r}", remedy="give whole numbers with commas, such as 1,2,3")
    return [int(word) for word in words]


_WHAT = {
    "table2": "Compare HGCLR on test with its encoder alone, HiAGM, HTCInfoMax and HiMatch, over it and over TextRCNN.",
    "table3": "Replace or remove components of HGCLR, on dev.",
    "table4": "Take parts of Graphormer away, on dev.",
    "table5": "Make positive samples in other ways, on dev.",
    "systems": "Compare, on test, what a user would otherwise pick with our default and the presets of HGCLR.",
}
for _name, _what in _WHAT.items():
    app.command(_name)(_command(_name, _what))
app.command("curves")(curves)
