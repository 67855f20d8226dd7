"""``hgclr predict`` and ``hgclr explain``: label texts, and show the words that carry a label."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hgclr.cli.console import (
    Console,
    find_folder,
    open_classifier,
    progress_bar,
    results,
    standard_error,
    write_result,
)
from hgclr.cli.options import Deciding, Engine, JsonFile, Model, Raw, deciding_options, file, option, ray_address_option
from hgclr.errors import InputError, require_extra
from hgclr.files import write_files

if TYPE_CHECKING:
    from hgclr.bulk import BulkResult, Progress
    from hgclr.bulk.inputs import Chunk, FileFormat, Survey
    from hgclr.inference import HierarchicalClassifier


BULK = "Bulk prediction: many files into a folder"


@deciding_options
def predict(
    model: Model,
    deciding: Deciding,
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Texts to label.")] = None,
    sources: Annotated[
        list[str] | None,
        file(
            "Texts to label: .jsonl, .csv, .tsv (also .gz) or .parquet with a text column; a file with any other ending"
            " has one text per line. '-' or nothing: lines from standard input. In bulk: files (repeat the option),"
            " folders, or a pattern in quotes: 'part-*.parquet'. Any of these may be a URL, such as"
            " s3://bucket/texts/.",
            "--input",
        ),
    ] = None,
    output: Annotated[
        str | None,
        option(
            "Write to this file instead of to standard output, in the format of its ending: .jsonl, .csv, .tsv"
            " (also .gz) or .parquet; JSON lines if it has none. In bulk: the folder for the results. Either may be a"
            " URL.",
            metavar="FILE|DIR",
        ),
    ] = None,
    text_column: Annotated[
        str | None,
        option("Column with the text; default: 'text', or the one of the table that was trained on."),
    ] = None,
    file_format: Annotated[
        Literal["jsonl", "csv", "parquet"] | None,
        option("Format of the results; default: by --output, in bulk that of each input.", "--format"),
    ] = None,
    leaf_paths: Annotated[
        bool,
        option(
            "In CSV and TSV: a column 'paths' with the names down to the deepest labels, 'Science > Physics'.",
            "--leaf-paths",
        ),
    ] = False,
    skip_bad_rows: Annotated[
        bool,
        option(
            "Do not stop at rows without a usable text: they get no labels, and the reason in a column 'error'.",
            "--skip-bad-rows",
        ),
    ] = False,
    raw: Raw = False,
    show: Annotated[
        Literal["auto", "tree", "json"],
        option("How to show results; auto: a tree in a terminal, else JSON."),
    ] = "auto",
    engine: Annotated[
        Engine | None,
        option("local: all cores of this machine; ray: Ray Data, here or on a cluster.", rich_help_panel=BULK),
    ] = None,
    workers: Annotated[
        int | None,
        option(
            "Number of processes, each with the model in memory; default: one per core or GPU.",
            min=1,
            rich_help_panel=BULK,
        ),
    ] = None,
    ray_address: Annotated[str | None, ray_address_option(rich_help_panel=BULK)] = None,
    overwrite: Annotated[
        bool,
        option(
            "Label everything again, instead of continuing where an earlier run stopped.",
            "--overwrite",
            rich_help_panel=BULK,
        ),
    ] = False,
) -> None:
    """Label texts: as JSON lines in a pipe or file, as a tree with probabilities in a terminal, or files in bulk.

    Every output row is the input row with all its columns and a field **prediction** with **labels** (a list of
    {id, path, probability}, parents first), **abstained** (labels less probable than --abstain-below), **truncated**
    and, for an empty or blank text, a **note**; in CSV, columns **labels** and **probabilities**. Input is streamed:
    memory stays flat however long it is.

    In bulk (several inputs, or a folder as --output) each file becomes a file of the same name in that folder. A run
    that was stopped continues when you give the command again.

    Example: **cat phrases.txt | hgclr predict runs/first/model --rule closure > labelled.jsonl**

    Example: **hgclr predict runs/first/model --input 'part-*.parquet' --output labelled/**

    Example: **hgclr predict s3://bucket/model --input 's3://bucket/texts/*.jsonl' --output s3://bucket/labelled/**

    Next: **hgclr explain** shows why a text got its labels.
    """
    if texts and sources:
        raise InputError(
            "texts are given both as arguments and by --input",
            remedy="give one of them; a pattern of several files must be in quotes: --input 'part-*.parquet'",
        )
    _check_sources(sources or [])
    text_column = text_column or _text_column(model, sources or [])
    for_bulk = {"engine": engine, "workers": workers, "ray_address": ray_address, "overwrite": overwrite}
    how: dict[str, Any] = {"file_format": file_format, "leaf_paths": leaf_paths}
    how |= {"skip_bad_rows": skip_bad_rows, "raw": raw}
    if is_bulk(sources or [], output, engine):
        if show == "tree":
            raise InputError("bulk prediction shows no trees", remedy="leave out --show tree")
        for_bulk["engine"] = engine or "local"
        options = vars(deciding) | how | for_bulk
        _predict_in_bulk(model, sources or [], output, text_column=text_column, **options)
        return
    if unused := next((name for name, value in for_bulk.items() if value), None):
        name = f"--{unused.replace('_', '-')}"
        raise InputError(f"{name} is for bulk prediction only", remedy="give files as --input and a folder as --output")
    show_tree = show == "tree" or (show == "auto" and output is None and file_format is None and sys.stdout.isatty())
    _predict_one(
        model,
        texts or [],
        Path(sources[0]) if sources and sources != ["-"] else None,
        "text" if texts else text_column,
        None if output is None else Path(output),
        deciding,
        show_tree=show_tree,
        **how,
    )


def _predict_one(
    model: str,
    texts: Sequence[str],
    source: Path | None,
    text_column: str,
    output: Path | None,
    deciding: Deciding,
    *,
    file_format: FileFormat | None,
    leaf_paths: bool,
    skip_bad_rows: bool,
    raw: bool,
    show_tree: bool,
) -> None:
    """Label texts, a file or standard input, into one file, to standard output or on the terminal."""
    from hgclr.bulk.engine import spread
    from hgclr.bulk.inputs import output_format, stop_at
    from hgclr.bulk.outputs import AddedColumns, open_writer
    from hgclr.bulk.run import places_named, refuse_separators
    from hgclr.cli.tables import prediction_tree

    kind = output_format(output, file_format)
    place = source or Path("standard input")
    facts, chunks = _read(texts, source, text_column, strict=not skip_bad_rows, types=kind.name == "parquet")
    if (first := next(chunks, None)) is None:
        raise InputError("no text to label: the input is empty", path=place)
    classifier = open_classifier(model)
    decisions = deciding.changed(classifier.decisions)
    console, blank, bad = Console(), 0, 0
    with ExitStack() as stack:
        stack.enter_context(places_named(place, output))
        write = None
        if not show_tree:
            refuse_separators(classifier.taxonomy, kind.name, output, leaf_paths=leaf_paths)
            added = AddedColumns(bool(decisions.abstain_below), skip_bad_rows, raw=raw, leaf_paths=leaf_paths)
            write = stack.enter_context(open_writer(output, facts, added, kind))
        bar = stack.enter_context(progress_bar())
        bar.disable = bar.disable or show_tree or (output is None and sys.stdout.isatty())
        task = bar.add_task("texts", total=facts.rows or None)
        for chunk in chain([first], chunks):
            problems = [problem for problem in chunk.problems if problem is not None]
            if problems and not skip_bad_rows:
                raise stop_at(problems[0])
            predictions = list(classifier.stream(chunk.usable_texts, decisions))
            if write is not None:
                write(chunk, spread(chunk, [prediction.to_json() for prediction in predictions]))
            else:
                for text, prediction in zip(chunk.usable_texts, predictions, strict=True):
                    console.print(prediction_tree(text, prediction))
            blank += sum(prediction.note is not None for prediction in predictions)
            bad += len(problems)
            bar.advance(task, len(chunk.numbers))
    if (notes := _unlabelled(bad, blank)) and not show_tree:
        standard_error().say("; ".join(notes))


def _check_sources(sources: Sequence[str]) -> None:
    """Refuse files that are not there, before the seconds that loading a model takes."""
    from hgclr.bulk.inputs import is_pattern
    from hgclr.remote import exists

    for name in sources:
        if name != "-" and not is_pattern(name) and not exists(name):
            raise InputError("no such file or folder", path=name)


def _text_column(model: str, sources: Sequence[str]) -> str:
    """Return the text column of the first table: text, or, with a word, the one that the model's documents had."""
    from hgclr.bulk.inputs import find_inputs
    from hgclr.data.readers import SUFFIXES, read_rows
    from hgclr.data.rows import BadRow
    from hgclr.inference.loading import find_model, trained_text_column

    for path in find_inputs([name for name in sources if name != "-"])[:1]:
        if path.name.lower().endswith(SUFFIXES) and (known := trained_text_column(find_model(model))):
            row = next(iter(read_rows(path, (), all_columns=True)), None)
            if row is not None and not isinstance(row, BadRow) and "text" not in row.values and known in row.values:
                standard_error().say(f"text column: {known!r}, as in training")
                return known
    return "text"


def _read(
    texts: Sequence[str], source: Path | None, text_column: str, *, strict: bool, types: bool
) -> tuple[Survey, Iterator[Chunk]]:
    """Return what is known of the texts to label, and the texts."""
    from hgclr.bulk.inputs import Survey, line_chunks, read_chunks, survey
    from hgclr.data.readers import SUFFIXES, limited_lines
    from hgclr.remote import open_file

    if source is not None and source.name.lower().endswith(SUFFIXES):
        return survey(source, text_column, strict=strict, types=types), read_chunks(source, text_column)
    schema = None
    if types:
        require_extra("pyarrow", extra="parquet", capability="Parquet")
        import pyarrow

        schema = pyarrow.schema([(text_column, pyarrow.string())])
    lines: Iterable[str] | Iterable[bytes] = texts
    if source is not None:
        try:
            lines = limited_lines(open_file(source), source)
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=source) from None
    elif not texts:
        lines = limited_lines(sys.stdin.buffer, Path("standard input"))
        if sys.stdin.isatty():
            sys.stderr.write("one text a line; end with Ctrl-D\n")
    return Survey([text_column], 0, schema), line_chunks(lines, source or Path("standard input"), text_column)


def is_bulk(sources: Sequence[str], output: str | None, engine: str | None) -> bool:
    """Tell whether many files are meant, or at least a folder of results."""
    from hgclr.bulk.inputs import is_pattern
    from hgclr.remote import is_dir

    if not sources or list(sources) == ["-"]:
        return False
    if len(sources) > 1 or engine is not None:
        return True
    into_folder = output is not None and (output.endswith(("/", "\\")) or is_dir(output))
    return into_folder or is_dir(sources[0]) or is_pattern(sources[0])


def _predict_in_bulk(model: str, sources: Sequence[str], output: str | None, **options: Any) -> None:
    from hgclr.bulk import predict_files

    if output is None:
        raise InputError("the results of bulk prediction go to a folder", remedy="name one with --output")
    if "-" in sources:
        raise InputError("standard input is no file", remedy="give files, folders or patterns as --input")
    if options["ray_address"] is not None and options["engine"] != "ray":
        raise InputError("--ray-address is for the engine ray", remedy="add --engine ray")
    folder = find_folder(model)
    with progress_bar() as bar:
        task = bar.add_task("rows", total=None)

        def show(progress: Progress) -> None:
            place = f"{progress.file.name} ({progress.number} of {progress.files})"
            bar.update(task, completed=progress.rows, total=max(progress.rows, progress.expected), description=place)

        # The nodes of a cluster need not have the folder: they look the name up themselves.
        place = folder if options["engine"] == "local" else model
        result = predict_files(place, sources, output, progress=show, **options)
    standard_error().say(_summary(result, output))


def _summary(result: BulkResult, output: str) -> str:
    parts = [f"{result.rows:,} row{'s' * (result.rows != 1)} of {_files(len(result.written))} labelled into {output}"]
    if result.kept:
        parts.append(f"{_files(len(result.kept))} had been finished before")
    return "; ".join(parts + _unlabelled(result.bad_rows, result.blank_rows))


def _unlabelled(bad: int, blank: int) -> list[str]:
    said = []
    if bad:
        said.append(f"{bad:,} row{'s' * (bad != 1)} without a usable text, see the column 'error'")
    if blank:
        said.append(f"{blank:,} empty or blank text{'s' * (blank != 1)} without a label")
    return said


def _files(count: int) -> str:
    return f"{count:,} file{'s' * (count != 1)}"


@deciding_options
def explain(
    model: Model,
    deciding: Deciding,
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Texts to explain.")] = None,
    source: Annotated[
        Path | None, file("Read the texts from this file, one per line; '-': from standard input.", "--input")
    ] = None,
    method: Annotated[
        Literal["auto", "integrated", "gradient", "occlusion", "attention"],
        option(
            "integrated: gradient × input, averaged on the way from an empty text, which sums to the logit;"
            " gradient: gradient × input at the text alone, fast and often misleading; occlusion: leave each word out,"
            " for any model; attention: the token-label attention of HGCLR, where MODEL is its folder 'training-model';"
            " auto: integrated, or occlusion for ONNX."
        ),
    ] = "auto",
    labels: Annotated[
        list[str] | None,
        option(
            "Explain this label (an id or a path), predicted or not; default: the predicted labels, up to 12.",
            "--label",
        ),
    ] = None,
    keep: Annotated[
        float, option("Share of the words to keep when testing whether they alone give the same labels.")
    ] = 0.3,
    html: Annotated[
        Path | None, file("Write the result as an HTML page to this file; '-': to standard output.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Show the words that carry each label of a text, and whether these words alone would get the same labels.

    In a terminal, words that speak for a label are blue, words against it orange; the strongest are listed with their
    numbers. For each label, its probability with only its strongest words stands beside its probability with as many
    random words, and without the strongest.

    Example: **hgclr explain runs/first/model "type 2 diabetes with damage to the retina" --html why.html**
    """
    from hgclr.cli.tables import show_explanations
    from hgclr.evaluation.explanation import explanation_page
    from hgclr.evaluation.relevance import AttentionRelevance

    texts = texts or []
    if bool(texts) == (source is not None):
        given = "both as arguments and by --input" if texts else "neither as arguments nor by --input"
        raise InputError(f"texts are given {given}", remedy="give one of them")
    chosen = [(text, None) for text in texts] if source is None else list(text_lines(source))
    classifier = open_classifier(model)
    decisions = deciding.changed(classifier.decisions)
    how = AttentionRelevance.from_pretrained(model) if method == "attention" else method
    _check(chosen, classifier, source)
    with standard_error().status("reading the text with some of its words …"):
        explanations = [
            classifier.explain(text, method=how, labels=labels or None, keep=keep, decisions=decisions)
            for text, _ in chosen
        ]
    if str(html) != "-":
        show_explanations(explanations, results(json_file))
    if html is not None:
        _write_page(html, explanation_page(explanations, model=model))
    write_result(json_file, {"model": model, "explanations": [explanation.to_json() for explanation in explanations]})


def text_lines(source: Path) -> Iterator[tuple[str, int]]:
    """Yield the lines of a file, or of standard input for ``-``, with their numbers; empty ones are left out."""
    from hgclr.data.readers import byte_lines, limited_lines

    found = False
    lines = limited_lines(sys.stdin.buffer, source) if str(source) == "-" else byte_lines(source)
    for number, line in enumerate(lines, 1):
        try:
            text = line.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise InputError("not UTF-8", path=source, line=number, remedy="save the file as UTF-8") from error
        if text.strip():
            found = True
            yield text, number
    if not found:
        raise InputError("no text in it", path=source, remedy="write one text per line")


def _check(texts: Iterable[tuple[str, int | None]], classifier: HierarchicalClassifier, source: Path | None) -> None:
    """Refuse a text without words, with its place, before the work on those before it."""
    from hgclr.evaluation.relevance import read_text

    for text, line in texts:
        try:
            read_text(classifier, text)
        except InputError as error:
            raise InputError(error.what, path=source, line=line, remedy=error.remedy) from None


def _write_page(target: Path, page: str) -> None:
    if str(target) == "-":
        sys.stdout.write(page)
        return
    write_files(target.parent, {target.name: page.encode()})
    standard_error().say(f"written: {target}")
