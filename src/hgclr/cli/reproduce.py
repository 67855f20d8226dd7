"""``hgclr reproduce``: rerun the rows of the paper's tables, and put the paper's figures beside ours."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hgclr.cli.console import print_written, quiet_libraries, standard_error
from hgclr.cli.options import Settings, number_list, options_from
from hgclr.errors import InputError, require_extra
from hgclr.paper.systems import TABLES

if TYPE_CHECKING:
    from hgclr.cli.progress import TrainingProgress
    from hgclr.paper.experiment import Experiment
    from hgclr.paper.runner import Step

__all__ = ["app"]

HELP = """Rerun the rows of the paper's tables on your data; with --corpus, beside the paper's figures.

A table is a set of systems; each is trained with every seed, its best epoch selected on dev, and test scored once.
The tables share runs: what one has made in --output, the others use. A killed command goes on where it was when it
is given again; what is done is not touched. A row that cannot be run (say, for want of memory) is named with the reason
and the others go on; the exit code is 1 if no row has a figure.

**Example**, an evening on a small machine:

    hgclr reproduce table2 --data my-data --encoder all-MiniLM-L6-v2 --seeds 1,2,3 --output runs/paper \\
        --budget documents=1500,length=64,epochs=8
"""

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", help=HELP)


@dataclass(frozen=True)
class Shared:
    """The options of every table and of the curves."""

    data: Annotated[Path, typer.Option(metavar="DIR", help="Data folder with train, dev, test and a taxonomy.")]
    encoder: Annotated[str, typer.Option(metavar="NAME", help="Pretrained encoder; see hgclr encoders list.")]
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for tables and runs; finished runs in it are used again.")
    ]
    rows: Annotated[
        str | None,
        typer.Option(
            metavar="KEY,KEY,…", help="Run only these rows, extra ones included; their keys are listed above."
        ),
    ] = None
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="KEY=N,…",
            help="Scale all rows down alike: documents=1500,length=64,epochs=8; dev= and test= set the samples that "
            "are scored, by default as many as documents. The title says so.",
        ),
    ] = None
    precision: Annotated[
        Literal["auto", "fp32", "bf16", "fp16"], typer.Option(help="Precision of training, the same for all rows.")
    ] = "fp32"
    recipe: Annotated[
        Literal["default", "paper"] | None,
        typer.Option(
            help="Optimisation recipe; by default the paper's under the paper's presets, which needs tens of thousands "
            "of documents."
        ),
    ] = None
    settings: Settings = None

    def experiment(self, **choices: Any) -> Experiment:
        """Return what all rows share."""
        from hgclr.files import check_output
        from hgclr.paper.experiment import Budget, Experiment

        check_output(self.output)
        return Experiment(
            data=self.data,
            encoder=self.encoder,
            output=self.output,
            precision=self.precision,
            recipe=self.recipe,
            budget=None if self.budget is None else Budget.parse(self.budget),
            overrides=tuple(self.settings or ()),
            **choices,
        )

    def running(self, seeds: str) -> dict[str, Any]:
        """Return how to run them: the arguments that tables and curves have in common."""
        from hgclr.provenance import command_line

        rows = None if self.rows is None else [word.strip() for word in self.rows.split(",") if word.strip()]
        command = command_line(["hgclr", *sys.argv[1:]])
        return {
            "seeds": number_list("--seeds", seeds, int),
            "rows": rows,
            "command": command,
            "watch": _watch,
        }


Preset = Annotated[
    Literal["default", "paper", "published"],
    typer.Option(
        help="Ours, the paper's text, or its authors' program; decides for all rows alike where heads start, pooling, "
        "loss, documents of the label tree, decisions and recipe."
    ),
]
Corpus = Annotated[
    Literal["wos", "nyt", "rcv1"] | None,
    typer.Option(
        help="Put the paper's figures for this corpus beside yours, and use its λ and γ. By default no figures of the"
        " paper, and λ and γ of WOS."
    ),
]


def _table_command(name: str, what: str) -> Callable[..., None]:
    """Return the command that makes one table, with the keys of its rows in its help."""

    def command(
        shared: Shared,
        seeds: Annotated[
            str, typer.Option(metavar="N,N,…", help="Seeds; the table shows mean ± sd over them.")
        ] = "1,2,3",
        preset: Preset = "default",
        corpus: Corpus = None,
        keep_models: Annotated[
            bool, typer.Option("--keep-models", help="Keep the trained models in the runs' folders.")
        ] = False,
    ) -> None:
        from hgclr.cli.console import Console

        require_extra("torch", extra="train", capability="Training")
        if name == "systems" and preset != "default":
            raise InputError("the rows of systems have presets of their own", remedy=f"use --rows hgclr-{preset}")
        from hgclr.cli.tables import print_table
        from hgclr.paper.runner import reproduce
        from hgclr.paper.summary import table_cells

        quiet_libraries()
        experiment = shared.experiment(preset=preset, corpus=corpus, keep_models=keep_models)
        summary = reproduce(TABLES[name], experiment=experiment, **shared.running(seeds))
        console = Console()
        # Micro above Macro: a terminal is narrower than a page.
        head, *rows = ([cell.replace(" / ", "\n") for cell in row] for row in table_cells(summary))
        print_table(console, head, rows, title=summary.title)
        console.print(summary.setting, style="dim", markup=False, soft_wrap=True)
        print_written(shared.output / f"{summary.name}.{suffix}" for suffix in ("md", "csv", "json"))
        refused = [(line.title, reason) for line in summary.lines for reason in set(line.refused.values())]
        _end([f"{title} could not be run: {reason}" for title, reason in refused], any(x.ours for x in summary.lines))

    rows = [row for row in TABLES[name].rows if not row.printed]
    extra = ", ".join(row.system for row in rows if row.extra)
    only = f" Only with --rows: {extra}." if extra else ""
    command.__doc__ = f"{what}\n\nRows: {', '.join(row.system for row in rows if not row.extra)}.{only}"
    return options_from(Shared, "shared", first=True)(command)


_WHAT = {
    "table2": "Compare HGCLR on test with its encoder alone, HiAGM, HTCInfoMax and HiMatch, over it and over TextRCNN.",
    "table3": "Replace or remove components of HGCLR, on dev.",
    "table4": "Take parts of Graphormer away, on dev.",
    "table5": "Make positive samples in other ways, on dev.",
    "systems": "Compare, on test, what a user would otherwise pick with our default and the presets of HGCLR.",
}
for _name, _what in _WHAT.items():
    app.command(_name)(_table_command(_name, _what))


@app.command("table1")
def table1(
    output: Annotated[Path, typer.Option(metavar="DIR", help="Where to write table1.md, .csv and .json.")],
    wos: Annotated[Path | None, typer.Option(metavar="DIR", help="Data folder of Web of Science.")] = None,
    nyt: Annotated[Path | None, typer.Option(metavar="DIR", help="Data folder of the New York Times.")] = None,
    rcv1: Annotated[Path | None, typer.Option(metavar="DIR", help="Data folder of RCV1-V2.")] = None,
) -> None:
    """Count the paper's corpora in data folders: labels, depth, labels of a document, sizes of the splits.

    Each stands below what the paper prints of it. A folder that hgclr data prepare made otherwise than published
    figures were made (--text, --labels) is named. Give one folder or several.

    Example: **hgclr reproduce table1 --wos data/wos --nyt data/nyt --rcv1 data/rcv1 --output runs/paper**
    """
    from hgclr.cli.console import Console, progress_bar
    from hgclr.cli.tables import print_table
    from hgclr.files import check_output
    from hgclr.paper.corpora_table import count_corpus, figure_cells, write_table1
    from hgclr.provenance import command_line

    folders = {corpus: folder for corpus, folder in (("wos", wos), ("nyt", nyt), ("rcv1", rcv1)) if folder is not None}
    if not folders:
        raise InputError("no data folder is given", remedy="give --wos, --nyt or --rcv1, or several of them")
    check_output(output)
    lines = {}
    with progress_bar() as bar:
        for corpus, folder in folders.items():
            task = bar.add_task(corpus, total=None)
            lines[corpus] = count_corpus(corpus, folder, partial(bar.advance, task))
    head, *rows = figure_cells(lines)
    print_table(Console(), head, rows)
    for corpus, line in lines.items():
        for note in line.notes:
            standard_error().print(f"{folders[corpus]}: {note}", style="yellow", markup=False, soft_wrap=True)
    print_written(write_table1(lines, output, command_line(["hgclr", *sys.argv[1:]])))


@app.command("curves")
@options_from(Shared, "shared", first=True)
def curves(
    shared: Shared,
    sizes: Annotated[
        str, typer.Option(metavar="N,N,…", help="Sizes of the training sample; all is every document.")
    ] = "300,1000,4000,all",
    seeds: Annotated[
        str,
        typer.Option(metavar="N,N,…", help="Seeds of sizes up to 5,000; larger ones are run with the first alone."),
    ] = "1,2,3",
) -> None:
    """Draw learning curves: the table systems at several sizes of the training sample.

    Writes **curves.json**, **curves.md** and **curves.svg**, anew after each run, and each size's table into a folder
    of its own. The plot shows test Macro-F1 over all labels, over each level and over rare labels, with decisions tuned
    on dev (solid) and at one half (dashed). What is done is not run again; what is missing is named.

    Rows are those of **systems**, by default tfidf, names, head, flat-cls, flat-random-head, flat, default and hgclr.
    The budget has no documents, as in length=64,epochs=8,dev=1000,test=2000; without dev and test, these are scored
    whole.

    Example: **hgclr reproduce curves --data my-data --encoder all-MiniLM-L6-v2 --sizes 300,1000,all --output curves**
    """
    for module in ("torch", "matplotlib"):
        require_extra(module, extra="paper", capability="Learning curves")
    from hgclr.paper.curves import parse_sizes, run_curves

    quiet_libraries()
    drawn = run_curves(parse_sizes(sizes), experiment=shared.experiment(), **shared.running(seeds))
    print_written(shared.output / f"curves.{suffix}" for suffix in ("md", "json", *(["svg"] if drawn.panels else [])))
    _end([f"missing: {what}" for what in drawn.missing], bool(drawn.panels))


def _end(complaints: Sequence[str], any_figure: bool) -> None:
    """Say what could not be run; exit with 1 if no row has a figure."""
    for complaint in complaints:
        standard_error().print(complaint, style="yellow", markup=False, soft_wrap=True)
    if not any_figure:
        raise typer.Exit(1)


@contextmanager
def _watch(step: Step) -> Iterator[tuple[list[TrainingProgress], Callable[[int], None]]]:
    """Show which row of how many is run, with the bar and the scores of ``hgclr train``."""
    from hgclr.cli.progress import TrainingProgress

    title = f"row {step.number} of {step.total}, seed {step.seed}: {step.system}"
    with TrainingProgress(standard_error(), title) as progress:
        yield [progress], progress.on_documents
