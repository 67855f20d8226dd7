"""``hgclr reproduce``: rerun the rows of the paper's tables beside its numbers, and draw its figures."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hgclr.cli.console import (
    Console,
    counting,
    print_table,
    print_written,
    standard_error,
)
from hgclr.cli.options import Reading, Seed, Settings, folder, number_list, option, options_from, reading_options
from hgclr.errors import InputError, require_extra
from hgclr.files import check_output, json_bytes, write_files
from hgclr.paper.systems import TABLES

if TYPE_CHECKING:
    from hgclr.cli.progress import TrainingProgress
    from hgclr.paper.experiment import Experiment, Step
    from hgclr.paper.tables import Summary


HELP = """Rerun the rows of the paper's tables on your data, beside the paper's numbers, and draw its figures.

A table is a set of systems; each is trained with every seed, its best epoch is selected on dev, and test is scored
once. The tables share runs: what one has made in --output, the others use. An interrupted command continues when it is
given again; finished runs are not touched. A row that cannot be run is named with the reason, and the others continue;
the exit code is 1 if no row could be run.

**Example**, an evening on a small machine:

    hgclr reproduce table2 --data my-data --encoder all-MiniLM-L6-v2 --seeds 1,2,3 --output runs/paper \\
        --budget documents=1500,length=64,epochs=8
"""

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", help=HELP)


@dataclass(frozen=True)
class Shared:
    """The options of every table and of the curves."""

    data: Annotated[Path, folder("Data folder with train, dev, test and a taxonomy.")]
    encoder: Annotated[str, option("Pretrained encoder; see hgclr encoders list.", metavar="NAME")]
    output: Annotated[Path, folder("Folder for tables and runs; finished runs in it are used again.")]
    rows: Annotated[
        str | None,
        option("Run only these rows, also extra ones; their keys are listed above.", metavar="KEY,KEY,…"),
    ] = None
    budget: Annotated[
        str | None,
        option(
            "Scale all rows down alike: documents=1500,length=64,epochs=8. dev= and test= set how many documents"
            " are scored, by default as many as documents. The title of the table says so.",
            metavar="KEY=N,…",
        ),
    ] = None
    precision: Annotated[
        Literal["auto", "fp32", "bf16", "fp16"], option("Precision of training, the same for all rows.")
    ] = "fp32"
    recipe: Annotated[
        Literal["default", "paper"] | None,
        option(
            "Optimisation recipe; default: the paper's under the paper's presets, which needs tens of thousands of"
            " documents."
        ),
    ] = None
    settings: Settings = None

    def experiment(self, **choices: Any) -> Experiment:
        """Return what all rows share."""
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
        seeds = re.sub(
            r"(\d+)-(\d+)", lambda ends: ",".join(map(str, range(int(ends[1]), int(ends[2]) + 1))), seeds
        )  # 1-3 is 1,2,3
        return {"seeds": number_list("--seeds", seeds, int), "rows": rows, "command": command, "watch": _watch}


def _table_command(name: str, what: str) -> Callable[..., None]:
    """Return the command that makes one table, with the keys of its rows in its help."""

    def command(
        shared: Shared,
        seeds: Annotated[str, option("Seeds; the table shows mean ± sd over them.", metavar="N,N,…")] = "1,2,3",
        preset: Annotated[
            Literal["default", "paper", "published"],
            option(
                "Ours, the paper's text, or its authors' program: decides for all rows alike where heads start,"
                " pooling, loss, documents of the label tree, decisions and recipe."
            ),
        ] = "default",
        corpus: Annotated[
            Literal["wos", "nyt", "rcv1"] | None,
            option(
                "Show the paper's numbers for this corpus beside yours, and use its λ and γ; default: none, and"
                " the λ and γ of WOS."
            ),
        ] = None,
        keep_models: Annotated[bool, option("Keep the trained models in the runs' folders.", "--keep-models")] = False,
    ) -> None:
        require_extra("torch", extra="train", capability="Training")
        if name == "systems" and preset != "default":
            raise InputError("each row of systems has its own preset", remedy=f"use --rows hgclr-{preset}")
        from hgclr.paper.tables import reproduce

        experiment = shared.experiment(preset=preset, corpus=corpus, keep_models=keep_models)
        _report(reproduce(TABLES[name], experiment=experiment, **shared.running(seeds)), shared.output)

    rows = [row for row in TABLES[name].rows if not row.printed]
    extra = ", ".join(row.system for row in rows if row.extra)
    only = f" Only with --rows: {extra}." if extra else ""
    example = f"hgclr reproduce {name} --data my-data --encoder all-MiniLM-L6-v2 --output runs/paper"
    listed = f"Rows: {', '.join(row.system for row in rows if not row.extra)}.{only}"
    command.__doc__ = f"{what}\n\n{listed}\n\nExample: **{example}**"
    return options_from(Shared, "shared", first=True)(command)


_WHAT = {
    "table2": "Compare HGCLR on test with its encoder alone, and HiAGM, HTCInfoMax and HiMatch on it and on TextRCNN.",
    "table3": "Replace or remove components of HGCLR, scored on dev.",
    "table4": "Take parts of Graphormer away, scored on dev.",
    "table5": "Make positive samples in other ways, scored on dev.",
    "systems": "Compare our default and the presets of HGCLR on test with what a user might pick instead.",
}
for _name, _what in _WHAT.items():
    app.command(_name)(_table_command(_name, _what))


@app.command("table1")
def table1(
    output: Annotated[Path, folder("Folder for table1.md and .json; other files in it are kept.")],
    wos: Annotated[Path | None, folder("Data folder of Web of Science.")] = None,
    nyt: Annotated[Path | None, folder("Data folder of the New York Times.")] = None,
    rcv1: Annotated[Path | None, folder("Data folder of RCV1-V2.")] = None,
) -> None:
    """Count the paper's corpora in data folders: labels, depth, labels of a document, sizes of the splits.

    Each row is below the paper's own. A note names a folder that hgclr data prepare made with other options than those
    of the published numbers (--text, --labels). Give one folder or several.

    Example: **hgclr reproduce table1 --wos data/wos --nyt data/nyt --rcv1 data/rcv1 --output runs/paper**
    """
    from hgclr.paper.tables import count_corpus, figure_cells, other_than_literature, write_table1
    from hgclr.provenance import command_line

    folders = {corpus: place for corpus, place in (("wos", wos), ("nyt", nyt), ("rcv1", rcv1)) if place is not None}
    if not folders:
        raise InputError("no data folder is given", remedy="give --wos, --nyt or --rcv1, or several of them")
    check_output(output)
    counted, notes = {}, {}
    for corpus, place in folders.items():
        with counting(corpus) as progress:
            counted[corpus] = count_corpus(place, progress)
        notes[corpus] = other_than_literature(place)
        for note in notes[corpus]:
            standard_error().say(f"{place}: {note}", "yellow")
    head, *rows = figure_cells(counted)
    print_table(Console(), head, rows)
    print_written(write_table1(counted, notes, output, command_line(["hgclr", *sys.argv[1:]])))


@app.command("curves")
@options_from(Shared, "shared", first=True)
def curves(
    shared: Shared,
    sizes: Annotated[
        str, option("Sizes of the training sample; all is every document.", metavar="N,N,…")
    ] = "300,1000,4000,all",
    seeds: Annotated[
        str,
        option("Seeds of sizes up to 5,000; larger ones are run with the first alone.", metavar="N,N,…"),
    ] = "1,2,3",
) -> None:
    """Draw learning curves: the table systems at several sizes of the training sample.

    Writes **curves.json**, **curves.md** and **curves.svg** after each run, and the table of each size into its own
    folder. The plot shows test Macro-F1 over all labels, over each level and over rare labels, with decisions tuned on
    dev (solid) and at 0.5 (dashed). Finished runs are not repeated, and are shown whatever rows and sizes you ask for;
    missing ones are named.

    Rows are those of **systems**, by default tfidf, names, head, flat-cls, flat-random-head, flat, default and hgclr.
    The budget names no documents, as in length=64,epochs=8,dev=1000,test=2000; without dev and test, these splits
    are scored whole.

    Example: **hgclr reproduce curves --data my-data --encoder all-MiniLM-L6-v2 --sizes 300,1000,all --output curves**
    """
    for module in ("torch", "matplotlib"):
        require_extra(module, extra="paper", capability="Learning curves")
    from hgclr.paper.curves import parse_sizes, run_curves

    drawn = run_curves(parse_sizes(sizes), experiment=shared.experiment(), **shared.running(seeds))
    print_written(shared.output / f"curves.{suffix}" for suffix in ("md", "json", *(["svg"] if drawn.panels else [])))
    _end([f"missing: {what}" for what in drawn.missing], bool(drawn.panels))


@app.command("regime")
@options_from(Shared, "shared", first=True)
def regime(
    shared: Shared,
    seeds: Annotated[str, option("Seeds, the same for all arms.", metavar="N-N|N,N,…")] = "1-5",
    per_leaf: Annotated[
        int | None,
        option("Train on so many documents of each leaf, or all where there are fewer; default: all of train.", min=1),
    ] = None,
    preset: Annotated[
        Literal["paper", "default"],
        option("The paper's: a random head on the first token; or the default of hgclr train, without and with HGCLR."),
    ] = "paper",
) -> None:
    """Compare HGCLR with the flat model, both trained until dev stops rising, as in the paper.

    Arms: bert (the flat model), hgclr, then two-passes, random, no-contrastive, hgclr-published, which tell a second
    pass, masking, the label tree and the contrastive loss apart. All but the last have the preset paper and batches of
    12 documents, and all stop after six epochs without a better dev Macro-F1 at 0.5. bert and hgclr are run first, with
    every seed. With **--preset default**, bert is the model of hgclr train, hgclr that of hgclr train --preset hgclr.

    The documents are drawn once, for all arms and seeds: train by --per-leaf, or documents of --budget; dev and test by
    dev and test of --budget. The recipe is **default** with at most 30 epochs, which suits samples; full corpora take
    **--recipe paper**, with its 100 epochs.

    The estimated hours are printed first. After each run, **regime.md**, **regime.json** and **regime.svg** are written
    (**regime-default.md** and so on with --preset default): scores at 0.5 and tuned, paired differences with 95 %
    intervals over seeds and documents, the verdict, and dev Macro-F1 by epoch. A mean Macro-F1 gain of hgclr over bert
    of at least 2 with an interval above 0 confirms the paper; an interval within ±1 is no useful effect at this size;
    otherwise it is undecided, and the number of seeds that would decide it is given. Runs keep the labels predicted on
    test, not the models.

    Example: **hgclr reproduce regime --data my-data --encoder all-MiniLM-L6-v2 --per-leaf 8 --seeds 1-5 --budget
    length=64,dev=1000,test=1000 --output runs/regime**
    """
    for module in ("torch", "matplotlib"):
        require_extra(module, extra="paper", capability="The experiment")
    from hgclr.paper.regime import Estimate, answer_line, run_regime

    def print_estimate(estimates: list[Estimate]) -> None:
        if estimates:
            sources = {True: "a few steps, times all epochs", False: "finished runs"}
            rows = [
                [each.arm, f"{each.runs}", f"{each.hours:.1f}", f"{each.cpu_hours:.1f}", sources[each.measured]]
                for each in estimates
            ]
            title = f"Estimated time: {sum(each.hours for each in estimates):.1f} hours at the present load"
            print_table(standard_error(), ["arm", "runs", "hours", "CPU hours", "measured by"], rows, title=title)

    experiment, running = shared.experiment(preset=preset), shared.running(seeds)
    made = run_regime(experiment=experiment, per_leaf=per_leaf, on_estimate=print_estimate, **running)
    suffixes = ("md", "json", "svg") if made.dev_macro_f1 else ("md", "json")
    _report(made.summary, shared.output, suffixes, answer_line(made))


def _report(
    summary: Summary, output: Path, suffixes: Sequence[str] = ("md", "json"), answer: str | None = None
) -> None:
    """Print a table, the answer it gives, and the files; list what could not be run."""
    from hgclr.paper.tables import table_cells

    console = Console()
    # Micro above Macro: a terminal is narrower than a page.
    head, *rows = ([cell.replace(" / ", "\n") for cell in row] for row in table_cells(summary))
    print_table(console, head, rows, title=summary.title)
    console.say(summary.setting, "dim")
    if answer is not None:
        console.say(answer, "bold")
    print_written(output / f"{summary.name}.{suffix}" for suffix in suffixes)
    refused = [(line.title, reason) for line in summary.lines for reason in set(line.refused.values())]
    _end([f"{title} could not be run: {reason}" for title, reason in refused], any(x.ours for x in summary.lines))


def _end(complaints: Sequence[str], any_score: bool) -> None:
    """List what could not be run; exit with 1 if no row has a score."""
    for complaint in complaints:
        standard_error().say(complaint, "yellow")
    if not any_score:
        raise typer.Exit(1)


@contextmanager
def _watch(step: Step) -> Iterator[tuple[list[TrainingProgress], Callable[[int], None]]]:
    """Show which row of how many is run, with the bar and the scores of ``hgclr train``."""
    from hgclr.cli.progress import TrainingProgress

    title = f"row {step.number} of {step.total}, seed {step.seed}: {step.system}"
    with TrainingProgress(standard_error(), title) as progress:
        yield [progress], progress.on_documents


FigureOutput = Annotated[Path, folder("Folder to write to; other files in it are kept.")]


@app.command("figure5")
def figure5(
    flat: Annotated[Path, folder("Folder 'model' of a run with architecture flat.")],
    hgclr: Annotated[Path, folder("Folder 'model' of a run with architecture hgclr.")],
    output: FigureOutput,
    seed: Seed = 0,
) -> None:
    """Map the label vectors of the flat model and of HGCLR side by side, coloured by parent.

    Writes **figure5.png**, **figure5.svg** and **figure5.json**: a t-SNE of the rows of each model's linear head, and
    two numbers, each beside its value for parents assigned at random. The silhouette by parent (-1 to 1, high is good)
    tells whether siblings lie together and families apart. The mean rank of the parent is its place among all other
    labels, the nearest first (1 is best).

    Heads that start from the labels' names know the families before training. To see what training itself does, take
    models whose heads started from random weights, as under the paper's presets: **hgclr reproduce table2 --preset
    published --rows bert,hgclr --keep-models**.

    Example: **hgclr reproduce figure5 --flat runs-published/bert-1/model --hgclr runs-published/hgclr-1/model --output
    figures**
    """
    for module in ("torch", "sklearn", "matplotlib"):
        require_extra(module, extra="paper", capability="Figure 5")
    from hgclr.paper.label_map import map_models, write_label_maps
    from hgclr.provenance import machine

    check_output(output)
    folders = {"flat": flat, "HGCLR": hgclr}
    with standard_error().status("mapping the label vectors"):
        maps = map_models(folders, seed=seed)
        report = {
            "models": {name: "/".join(place.resolve().parts[-2:]) for name, place in folders.items()},
            "machine": machine(),
        }
        files = write_label_maps(maps, output, report)
    rows = []
    for name, one in maps.items():
        silhouette, rank = one.silhouette, one.parent_rank
        cells = ("—", "—") if silhouette is None else (f"{silhouette.value:.3f}", silhouette.shuffled(3))
        rows.append([name, *cells, f"{rank.value:.1f} of {len(one.taxonomy) - 1}", rank.shuffled(1)])
    head = ["", "silhouette by parent", "shuffled", "mean rank of the parent", "shuffled"]
    print_table(Console(), head, rows, title="Do the label vectors show the tree?")
    print_written(files)


@app.command("figure3")
@reading_options
def figure3(
    model: Annotated[Path, folder("Folder 'model' or 'training-model' of a run of HGCLR.")],
    output: FigureOutput,
    reading: Reading,
    data: Annotated[Path, folder("Data folder to take documents from.")],
    split: Annotated[str, option("Split to take them from, train, dev or test.")] = "test",
    documents: Annotated[int, option("How many to draw at random.", min=1)] = 5,
    keep: Annotated[
        float | None, option("Keep this share of the tokens instead of what the model was trained to keep.")
    ] = None,
    seed: Seed = 0,
) -> None:
    """Mark the tokens that HGCLR keeps for the gold labels of random documents.

    Writes **figure3.html** and **figure3.json**. For a text of your own: **hgclr explain --positive-sample**.

    Example: **hgclr reproduce figure3 --model runs/hgclr/training-model --data my-data --output figures**
    """
    require_extra("torch", extra="train", capability="Figure 3")
    check_output(output)
    from hgclr.cli.tables import print_positive_samples
    from hgclr.data.folder import empty_split
    from hgclr.data.tokens import sample_documents
    from hgclr.evaluation.positive_samples import keep_rule, load_label_side, positive_sample, positive_sample_page
    from hgclr.inference import HierarchicalClassifier
    from hgclr.provenance import machine

    network, name = load_label_side(model, keep), "/".join(model.resolve().parts[-2:])
    classifier, taxonomy, rule = HierarchicalClassifier.load(model), network.config.taxonomy, keep_rule(network.config)
    source = reading.open(data, taxonomy=taxonomy)
    chosen = list(sample_documents(source, split, (documents, seed)))
    if not chosen:
        raise empty_split(source.split_path(split), 0)
    samples = [
        positive_sample(classifier, network, one.text, labels=[taxonomy.ids[label] for label in one.labels], seed=seed)
        for one in chosen
    ]
    content = {
        "machine": machine(),
        "model": name,
        "rule": rule,
        "seed": seed,
        "documents": [sample.to_json() for sample in samples],
    }
    page = positive_sample_page(samples, model=name, rule=rule)
    files = write_files(output, {"figure3.html": page.encode(), "figure3.json": json_bytes(content)})
    print_positive_samples(samples, rule, Console())
    print_written(files)
