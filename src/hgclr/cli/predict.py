"""``hgclr predict`` and ``hgclr explain``: label texts, and show the words that carry a label."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
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
from hgclr.errors import InputError
from hgclr.files import write_files

if TYPE_CHECKING:
    from hgclr.bulk.files import Chunk, Format


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
            "Do not stop at rows without a usable text: they get an error instead of labels.",
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
        option("local: all cores of this machine; ray: Ray, here or on a cluster.", rich_help_panel=BULK),
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
    names = sources or []
    if texts and names:
        raise InputError(
            "texts are given both as arguments and by --input",
            remedy="give one of them; a pattern of several files must be in quotes: --input 'part-*.parquet'",
        )
    how: dict[str, Any] = {"leaf_paths": leaf_paths, "skip_bad_rows": skip_bad_rows, "raw": raw}
    for_bulk = {"engine": engine, "workers": workers, "ray_address": ray_address, "overwrite": overwrite}
    if _is_bulk(names, output, engine):
        if output is None or "-" in names or show == "tree":
            remedy = "give files as --input, a folder as --output, and no --show tree"
            raise InputError("bulk prediction reads files and writes files", remedy=remedy)
        if ray_address is not None and engine != "ray":
            raise InputError("--ray-address is for the engine ray", remedy="add --engine ray")
        how |= vars(deciding) | for_bulk | {"engine": engine or "local"}
        _predict_in_bulk(model, names, output, text_column=text_column, file_format=file_format, **how)
        return
    if unused := next((name for name, value in for_bulk.items() if value), None):
        name = f"--{unused.replace('_', '-')}"
        raise InputError(f"{name} is for bulk prediction only", remedy="give files as --input and a folder as --output")
    in_tree = show == "tree" or (show == "auto" and output is None and file_format is None and sys.stdout.isatty())
    _predict_one(
        model,
        texts or [],
        Path(names[0]) if names and names != ["-"] else None,
        None if output is None else Path(output),
        deciding,
        text_column=text_column,
        file_format=file_format,
        in_tree=in_tree,
        **how,
    )


def _is_bulk(names: Sequence[str], output: str | None, engine: str | None) -> bool:
    """Tell whether several files are meant, or at least a folder of results."""
    from hgclr.bulk.files import is_pattern
    from hgclr.remote import kind_of

    if not names or list(names) == ["-"]:
        return False
    if len(names) > 1 or engine is not None:
        return True
    into_folder = output is not None and (output.endswith(("/", "\\")) or kind_of(output) == "folder")
    return into_folder or kind_of(names[0]) == "folder" or is_pattern(names[0])


def _predict_one(
    model: str,
    texts: Sequence[str],
    source: Path | None,
    output: Path | None,
    deciding: Deciding,
    *,
    text_column: str | None,
    file_format: Format | None,
    in_tree: bool,
    leaf_paths: bool,
    skip_bad_rows: bool,
    raw: bool,
) -> None:
    """Label texts, a file or standard input, into one file, to standard output or on the terminal."""
    from hgclr.bulk.files import ROWS, Columns, format_of, line_rows, make_chunk, read_chunks
    from hgclr.bulk.run import refuse_separators, text_columns_of, write_file
    from hgclr.cli.tables import prediction_tree
    from hgclr.data.readers import limited_lines
    from hgclr.inference import HierarchicalClassifier
    from hgclr.inference.backends import windows
    from hgclr.remote import kind_of

    kind = file_format or ("jsonl" if output is None or not output.suffix else format_of(output))
    if kind == "parquet" and output is None:
        raise InputError("Parquet is not written to standard output", remedy="name a file with --output")
    place = source or Path("standard input")
    if source is not None and kind_of(source) is None:
        raise InputError("no such file", path=source)
    folder = find_folder(model)
    columns = ["text"] if texts else text_columns_of(folder, text_column)
    if source is not None:
        chunks = read_chunks(source, columns)
    else:
        if not texts and sys.stdin.isatty():
            sys.stderr.write("one text a line; end with Ctrl-D\n")
        rows = line_rows(texts or limited_lines(sys.stdin.buffer, place), place, columns[0])
        chunks = (make_chunk(some, place, columns) for some in windows(rows, ROWS))
    first = next(chunks, None)
    if first is None or not first.numbers:
        raise InputError("no text to label: the input is empty", path=place)
    classifier = HierarchicalClassifier.load(folder)
    decisions = deciding.changed(classifier.decisions)
    refuse_separators(classifier.taxonomy, kind, output, leaf_paths=leaf_paths)
    bad = blank = 0
    if in_tree:
        for chunk in chain([first], chunks):
            for problem in filter(None, chunk.problems if not skip_bad_rows else ()):
                raise problem.error()
            for text, prediction in zip(
                chunk.usable_texts, classifier.stream(chunk.usable_texts, decisions), strict=True
            ):
                Console().print(prediction_tree(text, prediction))
        return

    def labelled() -> Iterator[tuple[Chunk, list[dict[str, Any]]]]:
        for chunk in chain([first], chunks):
            predictions = classifier.stream(chunk.usable_texts, decisions)
            yield chunk, chunk.answers(prediction.to_json() for prediction in predictions)

    added = Columns(leaf_paths, bool(decisions.abstain_below), skip_bad_rows, raw)
    with progress_bar() as bar:
        bar.disable = bar.disable or (output is None and sys.stdout.isatty())
        task = bar.add_task("texts", total=None)
        for chunk, answers in write_file(labelled(), output, kind, added):
            bad += len(chunk.numbers) - len(chunk.usable_texts)
            blank += sum("note" in answer for answer in answers)
            bar.advance(task, len(chunk.numbers))
    if notes := _unlabelled(bad, blank):
        standard_error().say("; ".join(notes))


def _predict_in_bulk(model: str, names: Sequence[str], output: str, **options: Any) -> None:
    from hgclr.bulk import Progress, predict_files

    # The nodes of a cluster need not have the folder: they look the name up themselves.
    place = model if options["engine"] == "ray" else find_folder(model)
    with progress_bar() as bar:
        task = bar.add_task("rows", total=None)

        def show(progress: Progress) -> None:
            place = f"{progress.file.name} ({progress.number} of {progress.files})"
            total = progress.expected and max(progress.rows, progress.expected)
            bar.update(task, completed=progress.rows, total=total, description=place)

        result = predict_files(place, names, output, progress=show, **options)
    parts = [f"{_counted(result.rows, 'row')} of {_counted(len(result.written), 'file')} labelled into {output}"]
    if result.kept:
        parts.append(f"{_counted(len(result.kept), 'file')} had been finished before")
    standard_error().say("; ".join(parts + _unlabelled(result.bad_rows, result.blank_rows)))


def _unlabelled(bad: int, blank: int) -> list[str]:
    notes = [f"{_counted(bad, 'row')} without a usable text, see 'error'"] if bad else []
    return notes + ([f"{_counted(blank, 'empty or blank text')} without a label"] if blank else [])


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


@deciding_options
def explain(
    model: Model,
    deciding: Deciding,
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Texts to explain.")] = None,
    source: Annotated[
        Path | None, file("Read the texts from this file, one per line; '-': from standard input.", "--input")
    ] = None,
    method: Annotated[
        Literal["auto", "integrated", "occlusion"],
        option(
            "integrated: integrated gradients, parts of the label's logit; occlusion: leave each word out, for any"
            " model; auto: integrated, or occlusion for ONNX."
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
    numbers. For each label, the output compares its probability with only its strongest words, with as many random
    words, and without the strongest.

    Example: **hgclr explain runs/first/model "type 2 diabetes with damage to the retina" --html why.html**
    """
    from hgclr.cli.tables import show_explanations
    from hgclr.evaluation.explanation import explanation_page, read_text

    texts = texts or []
    if bool(texts) == (source is not None):
        given = "both as arguments and by --input" if texts else "neither as arguments nor by --input"
        raise InputError(f"texts are given {given}", remedy="give one of them")
    chosen = [(text, None) for text in texts] if source is None else list(text_lines(source))
    classifier = open_classifier(model)
    decisions = deciding.changed(classifier.decisions)
    for text, line in chosen:  # before the work on those before it
        try:
            read_text(classifier, text)
        except InputError as error:
            raise InputError(error.what, path=source, line=line, remedy=error.remedy) from None
    with standard_error().status("reading the text with some of its words …"):
        explanations = [
            classifier.explain(text, method=method, labels=labels or None, keep=keep, decisions=decisions)
            for text, _ in chosen
        ]
    if str(html) != "-":
        show_explanations(explanations, results(json_file))
    if html is not None:
        page = explanation_page(explanations, model=model)
        if str(html) == "-":
            sys.stdout.write(page)
        else:
            write_files(html.parent, {html.name: page.encode()})
            standard_error().say(f"written: {html}")
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
