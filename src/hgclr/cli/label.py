"""``hgclr label``: label texts at the keyboard; state, export and import of the answers in a labelling folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from hgclr.cli.console import (
    Console,
    open_classifier,
    print_table,
    print_written,
    results,
    share_done,
    standard_error,
    write_result,
)
from hgclr.cli.options import Data, JsonFile, Seed, TextColumn, file, folder, option
from hgclr.errors import InputError, require_extra

if TYPE_CHECKING:
    from hgclr.labelling.interchange import Format, Suggestions
    from hgclr.labelling.store import Store

HELP = """Label texts on a page in the browser, with a model that learns meanwhile.

No labels are needed to begin. The model suggests paths of the label tree and chooses the texts from which it learns
most; a random sample of 15 % becomes dev and test. **hgclr label start --help** lists the options of the page.

Example: **hgclr label texts.csv --taxonomy tree.json --output my-labels**

Next: **hgclr label export my-labels --output my-data**
"""


class StartByDefault(TyperGroup):
    """A group whose command ``start`` is meant where no other command is named."""

    default = "start"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


label = typer.Typer(cls=StartByDefault, no_args_is_help=True, rich_markup_mode="markdown", help=HELP)

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder that hgclr label wrote.")]
FORMATS = "label-studio, argilla, prodigy, csv or xlsx"
SHOWN = 10
"""Maximum number of labels without a text that are printed."""


@label.command(hidden=True)
def start(
    output: Annotated[Path, folder("Folder for the answers; one of an earlier sitting is continued.")],
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXTS...", help="Files, folders, patterns or URLs; not needed to continue."),
    ] = None,
    taxonomy: Annotated[Path | None, file("The label tree; not needed to continue.")] = None,
    text_column: TextColumn = None,
    model: Annotated[Path | None, folder("Model that makes the first suggestions.")] = None,
    data: Annotated[Path | None, folder("Data folder with texts that are labelled already.")] = None,
    encoder: Annotated[str, option("Encoder that turns the texts into vectors.")] = "all-MiniLM-L6-v2",
    seed: Seed = 0,
    people: Annotated[
        str | None, option("Names of several people, each of whom gets a personal link.", metavar="A,B")
    ] = None,
    host: Annotated[str, option("Address to listen on; any but this machine's needs --people.")] = "127.0.0.1",
    port: Annotated[int, option("Port to listen on; 0 is any free port.", min=0, max=65535)] = 8001,
    browser: Annotated[bool, option("Open the page in the browser.", "--browser/--no-browser")] = True,
) -> None:
    """Open the page on which texts are labelled.

    Example: **hgclr label texts.csv --taxonomy tree.json --output my-labels**

    Next: **hgclr label status my-labels**
    """
    import socket
    import webbrowser
    from ipaddress import ip_address
    from threading import Timer

    for module in ("fastapi", "uvicorn", "prometheus_client", "torch", "sklearn"):
        require_extra(module, extra="label", capability="The labelling page")
    from rich.markup import escape
    from rich.panel import Panel

    from hgclr.labelling.app import create_app, read_people
    from hgclr.labelling.sitting import Sitting
    from hgclr.serving.monitoring import start_log
    from hgclr.serving.server import listen, run
    from hgclr.serving.service import Settings

    names = [name.strip() for name in (people or "").split(",") if name.strip()]
    start_log()
    errors = standard_error()
    with listen(host, port) as listener:  # a wrong address fails before the texts are read
        address, port = listener.getsockname()[:2]
        local = ip_address(address).is_loopback
        if not local and not names:
            raise InputError(f"everyone who reaches {host} could read the texts", remedy="give names with --people")
        with share_done("texts") as progress:
            sitting = Sitting.open(
                output,
                texts=texts or (),
                taxonomy=taxonomy,
                model=model,
                data=data,
                encoder=encoder,
                seed=seed,
                text_column=text_column,
                progress=progress,
            )
        for reason, count in (sitting.store.meta("left_out") or {}).items():
            errors.say(f"left out: {count:,} ({reason})", "yellow")
        tokens = read_people(output, names) if names else None
        app = create_app(sitting, output, people=tokens, hosts=(host,) if local else ("*",))
        name = socket.gethostname() if ip_address(address).is_unspecified else host
        url = f"http://{f'[{name}]' if ':' in name else name}:{port}/"
        links = {name: f"{url}?token={token}" for name, token in tokens.items()} if tokens else {"page": url}
        width = max(map(len, (*links, "stop")))
        lines = [f"{escape(name.ljust(width))}  {link}" for name, link in links.items()]
        title = f"hgclr label {escape(str(output))}"
        errors.print(Panel.fit("\n".join([*lines, f"{'stop'.ljust(width)}  Ctrl-C"]), title=title), soft_wrap=True)
        if browser:
            Timer(0.5, webbrowser.open, [next(iter(links.values()))]).start()
        run(app, listener, Settings())
    errors.print("stopped")


def open_store(folder: Path) -> Store:
    """Return the store of a labelling folder, which must exist."""
    from hgclr.labelling.store import FILE, Store

    if not (folder / FILE).is_file():
        raise InputError("no answers here", path=folder, remedy="give the folder that hgclr label wrote")
    return Store.open(folder)


def find_format(name: str | None, path: Path) -> Format:
    """Return the format with this name; that of a table may also be told from the name of the file."""
    from hgclr.labelling.interchange import SUFFIXES

    name = path.suffix.lower().removeprefix(".") if name is None else name
    for form in SUFFIXES:
        if form == name:
            return form
    raise InputError(f"unknown format {name!r}", path=path, remedy=f"give --format {FORMATS}")


@label.command("export")
def export_answers(
    folder: Folder,
    output: Annotated[Path, option("Data folder to write, or with --format the file.", metavar="PATH")],
    form: Annotated[str | None, option(f"Write all texts for another tool: {FORMATS}.", "--format")] = None,
    model: Annotated[
        str | None, option("With --format: model whose best path is suggested for texts without an answer.")
    ] = None,
    disagreements: Annotated[
        Path | None,
        file("Also write the texts on which people disagree, as .csv or .xlsx, with the columns of an audit."),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Write the answers as a data folder, or texts and answers for another tool.

    In the data folder, answers on the random slice are dev and test, half each; all others are train. Texts on which
    people disagree, partial answers, skipped texts and those that belong nowhere are left out and counted.

    With **--format**, all texts are written, answered or not. Import what the tool exports, or the table that you
    filled in, with **hgclr label import**. Texts of the random slice get no suggestion.

    Example: **hgclr label export my-labels --output my-data**

    Example: **hgclr label export my-labels --format label-studio --output tasks.json**

    Next: **hgclr train my-data**
    """
    from hgclr.files import table_writer
    from hgclr.labelling.export import COLUMNS, export
    from hgclr.labelling.export import disagreements as disagreement_rows
    from hgclr.labelling.interchange import export_tasks

    store, console = open_store(folder), results(json_file)
    if form is None and model is not None:
        raise InputError("--model is for --format", remedy="leave it out")
    if disagreements is not None and disagreements.suffix.lower() not in (".csv", ".xlsx"):
        raise InputError("unknown format", path=disagreements, remedy="write to a file that ends in .csv or .xlsx")
    if form is None:
        summary = export(store, store.taxonomy, output)
        content: dict[str, Any] = {"documents": summary.documents, "left_out": dict(summary.left_out)}
        written = [output]
        print_table(console, ("split", "documents"), [(name, f"{n:,}") for name, n in summary.documents.items()])
        for reason, count in summary.left_out.most_common():
            console.say(f"left out: {count:,} ({reason})", "yellow")
    else:
        suggestions = None if model is None else _suggest(store, model)
        name = Path(model).name if model else ""
        written = export_tasks(store, output, find_format(form, output), suggestions=suggestions, model=name)
        content = {"suggestions": len(suggestions or ())}
    if disagreements is not None:
        rows = disagreement_rows(store)
        with table_writer(disagreements, list(COLUMNS.values())) as table:
            table.writerow(COLUMNS)
            for row in rows:
                table.writerow(row.values())
        written.append(disagreements)
        content["disagreements"] = len(rows)
    print_written(written, console)
    write_result(json_file, content | {"written": list(map(str, written))})
    if form is None:
        console.say(f"next: hgclr train {output}")


def _suggest(store: Store, model: str) -> Suggestions:
    """Return the best paths of a model for the texts without an answer, outside of the random slice."""
    from hgclr.decisions.review import best_paths

    answered = {answer.document for answer in store.current()}
    texts = [text for text in store.documents() if not text.random and text.id not in answered]
    classifier, found, start = open_classifier(model), dict[int, list[tuple[str, float]]](), 0
    if classifier.taxonomy.ids != store.taxonomy.ids:
        raise InputError("the model has another label tree than the answers", path=model, remedy="choose another model")
    with share_done("texts") as progress:
        for window in classifier.probabilities(text.text for text in texts):
            for text, paths in zip(texts[start:], best_paths(window, classifier.decisions.decoder, 5), strict=False):
                found[text.id] = [(store.taxonomy.ids[end], round(probability, 4)) for end, probability in paths]
            start += len(window)
            progress(start, len(texts))
    return found


@label.command("import")
def import_file(
    folder: Folder,
    source: Annotated[Path, typer.Argument(metavar="FILE", help="File that the tool exported, or a table.")],
    form: Annotated[str | None, option(f"{FORMATS}; default for tables: by the file's name.", "--format")] = None,
    user: Annotated[str, option("Name for answers of which the file does not say whose they are.")] = "import",
    json_file: JsonFile = None,
) -> None:
    """Add the answers of Label Studio, Argilla, Prodigy or a table to a labelling folder.

    Texts are found by their number or their content. All rows are checked first. An answer replaces an earlier one of
    the same user to the same text; answers that are there already are not added again.

    In a table, write into the column **labels** ids, names or paths "A > B", separated by ";", or **none** or **skip**
    into the column **kind**.

    Example: **hgclr label import my-labels project-1.json --format label-studio**

    Next: **hgclr label status my-labels**
    """
    from hgclr.labelling.interchange import import_answers

    if not user.strip():
        raise InputError("--user is empty", remedy="give a name")
    found = import_answers(open_store(folder), source, find_format(form, source), user=user)
    write_result(json_file, found.to_json())
    console = results(json_file)
    counts = f"{found.added:,} added, {found.unchanged:,} are here already"
    console.say(f"read {found.rows:,} rows; answers: {counts}")
    for reason, count in found.left_out.most_common():
        console.say(f"left out: {count:,} ({reason})", "yellow")


@label.command()
def status(folder: Folder, json_file: JsonFile = None) -> None:
    """Show how far the labelling is: answers, coverage of the labels, agreement, the newest model's score, advice.

    Example: **hgclr label status my-labels**

    Next: **hgclr label export my-labels --output my-data**
    """
    from hgclr.labelling.sitting import read_progress

    store = open_store(folder)
    state, tree = read_progress(store), store.taxonomy
    missing = {tree.resolve(one) for one in state.labels_without_text}
    agreement = state.people_agreement or [None] * tree.depth
    levels = [
        {"labels": len(level), "covered": len(level) - len(missing.intersection(level.tolist())), "agreement": value}
        for level, value in zip(tree.levels, agreement, strict=True)
    ]
    write_result(json_file, state.to_json() | {"levels": levels})
    _print_status(results(json_file), store, state, levels)


def _print_status(console: Console, store: Store, state: Any, levels: list[dict[str, Any]]) -> None:
    rows = []
    for number, level in enumerate(levels, 1):
        agreement = "" if level["agreement"] is None else f"{level['agreement']:.2f}"
        share = f"{level['covered'] / level['labels']:.0%}"
        rows.append((str(number), f"{level['labels']:,}", f"{level['covered']:,}", share, agreement))
    people = ", ".join(f"{user} {count:,}" for user, count in state.people.items())
    console.say(f"answers: {state.answers:,} of {state.documents:,} texts; skipped: {state.skipped:,}", "bold")
    if people:
        console.say(f"people: {people}")
    print_table(console, ("level", "labels", "covered", "share", "agreement"), rows)
    if state.people_agreement is not None:
        console.say("agreement: Cohen's kappa on texts with answers of two people")
    if state.disagreements:
        console.say(f"texts on which people disagree: {state.disagreements:,}", "yellow")
    if missing := state.labels_without_text:
        shown = [store.taxonomy.path_name(store.taxonomy.resolve(one)) for one in missing[:SHOWN]]
        more = f" and {len(missing) - SHOWN:,} more" if len(missing) > SHOWN else ""
        console.say(f"labels without a text: {len(missing):,}: {'; '.join(shown)}{more}", "yellow")
    if state.curve:
        answers, score, low, high = state.curve[-1]
        interval = f"95 % interval {100 * low:.1f} to {100 * high:.1f}"
        console.say(
            f"Macro-F1 of the newest model, over the labels in the random slice: {100 * score:.1f}, {interval};"
            f" {answers:,} answers"
        )
    console.say(state.advice)


@label.command()
def simulate(
    data: Data,
    output: Annotated[Path, folder("Folder to write simulate.json, simulate.md and simulate.svg.")],
    answers: Annotated[int, option("Number of answers.", min=25)] = 300,
    seeds: Annotated[int, option("Number of runs of each strategy.", min=1)] = 5,
    strategies: Annotated[
        str, option("Strategies to compare: tree, margin, clusters, random.", metavar="A,B")
    ] = "random,tree",
    texts: Annotated[int, option("Take a random sample of train of this size if it is larger.", min=1)] = 10_000,
    encoder: Annotated[str, option("Encoder that turns the texts into vectors.")] = "all-MiniLM-L6-v2",
) -> None:
    """Simulate labelling of a labelled data folder: Macro-F1 on test after every 25 answers, for several strategies.

    An oracle gives the gold labels of the texts that a strategy chooses from train. It shows how many answers your kind
    of texts and your label tree need.

    Example: **hgclr label simulate my-data --output my-simulation**

    Next: open my-simulation/simulate.svg
    """
    for module in ("torch", "sklearn"):
        require_extra(module, extra="label", capability="The simulation")
    from typing import get_args

    from hgclr.cli.console import progress_bar
    from hgclr.data import DataFolder
    from hgclr.labelling.choice import Strategy
    from hgclr.labelling.simulate import simulate as run_simulation
    from hgclr.labelling.simulate import write_simulation
    from hgclr.presentation import check_report
    from hgclr.provenance import command_line

    chosen: list[Any] = list(dict.fromkeys(name.strip() for name in strategies.split(",")))
    if unknown := [name for name in chosen if name not in get_args(Strategy)]:
        raise InputError(f"unknown strategy {unknown[0]!r}", remedy=f"choose from {', '.join(get_args(Strategy))}")
    check_report(output)
    with progress_bar() as bar:
        tasks: dict[str, Any] = {}

        def progress(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)

        settings: dict[str, Any] = {"answers": answers, "seeds": seeds, "texts": texts, "encoder": encoder}
        rows = run_simulation(DataFolder(data), strategies=chosen, progress=progress, **settings)
    command = command_line(["hgclr", *sys.argv[1:]])
    written = write_simulation(output, rows, data=data, settings=settings, command=command)
    console = results(None)
    cells = [
        (
            row.strategy,
            str(row.answers),
            *(f"{100 * value:.1f}" for value in (row.macro_f1, row.macro_f1_sd, row.micro_f1)),
        )
        for row in rows
        if row.answers % 100 == 0 or row.answers == rows[-1].answers
    ]
    print_table(console, ("strategy", "answers", "Macro-F1", "sd", "Micro-F1"), cells)
    print_written(written, console)
