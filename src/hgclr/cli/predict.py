"""``hgclr predict``, ``review`` and ``explain``: label texts, queue them for review, show the words behind a label."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hgclr.cli.console import (
    Console,
    counting,
    find_folder,
    open_classifier,
    print_table,
    print_written,
    progress_bar,
    results,
    standard_error,
    write_result,
)
from hgclr.cli.options import (
    Deciding,
    Encoding,
    Engine,
    JsonFile,
    Model,
    Raw,
    SkipBadRows,
    TextColumn,
    deciding_options,
    file,
    folder,
    option,
    ray_address_option,
)
from hgclr.errors import InputError
from hgclr.files import write_files

if TYPE_CHECKING:
    from hgclr.bulk.files import Chunk

_bulk = partial(option, rich_help_panel="Bulk prediction: many files into a folder")


@deciding_options
def predict(
    model: Model,
    deciding: Deciding,
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Texts to label.")] = None,
    sources: Annotated[
        list[str] | None,
        file("File, or URL, with texts; '-': standard input. In bulk: files, folders, patterns.", "--input"),
    ] = None,
    output: Annotated[
        str | None, option("File for the results, its format by its ending; in bulk: a folder.", metavar="FILE|DIR")
    ] = None,
    text_column: TextColumn = None,
    encoding: Encoding = None,
    file_format: Annotated[
        Literal["jsonl", "csv", "parquet", "xlsx"] | None,
        option("Format of the results; default: by --output.", "--format"),
    ] = None,
    leaf_paths: Annotated[bool, option("In tables: add the paths of the deepest labels.", "--leaf-paths")] = False,
    skip_bad_rows: Annotated[bool, option("Give bad rows an error instead of labels.", "--skip-bad-rows")] = False,
    raw: Raw = False,
    show: Annotated[Literal["auto", "tree", "json"], option("auto: a tree in a terminal, else JSON.")] = "auto",
    engine: Annotated[Engine | None, _bulk("local: all cores of this machine; ray: Ray, here or on a cluster.")] = None,
    workers: Annotated[int | None, _bulk("Number of processes; default: one per core or GPU.", min=1)] = None,
    ray_address: Annotated[
        str | None, ray_address_option(rich_help_panel="Bulk prediction: many files into a folder")
    ] = None,
    overwrite: Annotated[bool, _bulk("Label everything again instead of continuing a run.", "--overwrite")] = False,
) -> None:
    """Label texts: as JSON lines in a pipe or file, as a tree with probabilities in a terminal, or files in bulk.

    Inputs are .jsonl, .csv, .tsv (also .gz), .xlsx or .parquet with a text column, or any other file with one text per
    line. Every output row is the input row with a field **prediction**: **labels** (id, path, probability),
    **abstained**, **truncated** and, for a text that is blank or unlike the training texts, a **note**; in CSV and
    .xlsx, columns **labels** and **probabilities**, with --skip-bad-rows also **error** for bad rows and notes. CSV
    from CSV keeps its delimiter, encoding and line ends.

    In bulk (several inputs, or a folder as --output) each file becomes a file of the same name in that folder. A run
    that was stopped continues when you give the command again.

    Example: **cat phrases.txt | hgclr predict runs/first/model --rule closure > labelled.jsonl**

    Example: **hgclr predict runs/first/model --input 'part-*.parquet' --output labelled/**

    Next: **hgclr explain runs/first/model "a text"**
    """
    names = sources or []
    if texts and names:
        raise InputError(
            "texts are given both as arguments and by --input",
            remedy="give one of them; a pattern of several files must be in quotes: --input 'part-*.parquet'",
        )
    for_bulk = {"engine": engine, "workers": workers, "ray_address": ray_address, "overwrite": overwrite}
    if _is_bulk(names, output, engine):
        if output is None or "-" in names or show == "tree":
            remedy = "give files as --input, a folder as --output, and no --show tree"
            raise InputError("bulk prediction reads files and writes files", remedy=remedy)
        if ray_address is not None and engine != "ray":
            raise InputError("--ray-address is for the engine ray", remedy="add --engine ray")
        for_bulk |= {"engine": engine or "local", "text_column": text_column, "file_format": file_format}
        for_bulk |= {"leaf_paths": leaf_paths, "skip_bad_rows": skip_bad_rows, "raw": raw, "encoding": encoding}
        _predict_in_bulk(model, names, output, **for_bulk, **vars(deciding))
        return
    if unused := next((name for name, value in for_bulk.items() if value), None):
        name = f"--{unused.replace('_', '-')}"
        raise InputError(f"{name} is for bulk prediction only", remedy="give files as --input and a folder as --output")
    from hgclr.bulk.files import Columns, format_of, line_chunks, read_chunks, write_file
    from hgclr.bulk.run import text_columns_of
    from hgclr.cli.tables import prediction_tree
    from hgclr.data.readers import TextForm, in_utf8, limited_lines
    from hgclr.inference import HierarchicalClassifier
    from hgclr.remote import kind_of

    target = None if output is None else Path(output)
    kind = file_format or ("jsonl" if target is None or not target.suffix else format_of(target))
    if kind in ("parquet", "xlsx") and target is None:
        raise InputError(f"{kind} is not written to standard output", remedy="name a file with --output")
    form = TextForm(encoding)
    from_file = bool(names) and names != ["-"]
    source = Path(names[0]) if from_file else Path("standard input")
    if from_file and kind_of(source) is None:
        raise InputError("no such file", path=source)
    folder = find_folder(model)
    columns = ["text"] if texts else text_columns_of(folder, text_column)
    if from_file:
        chunks = read_chunks(source, columns, form)
    else:
        if not texts and sys.stdin.isatty():
            sys.stderr.write("one text a line; end with Ctrl-D\n")
        lines = texts or in_utf8(limited_lines(sys.stdin.buffer, source, form), source, form)
        chunks = line_chunks(lines, source, columns[0])
    first = next(chunks, None)
    if first is None or not first.texts:
        raise InputError("no text to label: the input is empty", path=source)
    classifier = HierarchicalClassifier.load(folder)
    decisions = deciding.changed(classifier.decisions)
    on_terminal = target is None and sys.stdout.isatty()
    in_tree = show == "tree" or (show == "auto" and on_terminal and file_format is None)

    def labelled() -> Iterator[tuple[Chunk, list[dict[str, Any]]]]:
        for chunk in chain([first], chunks):
            if chunk.problems and not skip_bad_rows:
                raise chunk.problems[0].error()
            predictions = list(classifier.stream(chunk.usable_texts, decisions))
            if in_tree:
                for text, prediction in zip(chunk.usable_texts, predictions, strict=True):
                    Console().print(prediction_tree(text, prediction))
            yield chunk, chunk.answers(prediction.to_json() for prediction in predictions)

    several = not decisions.taxonomy.is_tree
    added = Columns(leaf_paths, bool(decisions.abstain_below), skip_bad_rows, raw, several)
    bad, notes = 0, Counter[str]()
    with progress_bar() as bar:
        bar.disable = bar.disable or on_terminal
        task = bar.add_task("texts", total=None)
        for chunk, answers in labelled() if in_tree else write_file(labelled(), target, kind, added):
            bad += len(chunk.problems)
            notes.update(answer["note"] for answer in answers if "note" in answer)
            bar.advance(task, len(chunk.texts))
    if not in_tree:
        _say_notes(bad, notes)


def _is_bulk(names: Sequence[str], output: str | None, engine: str | None) -> bool:
    """Tell whether several files are meant, or at least a folder of results."""
    from hgclr.data.texts import is_pattern
    from hgclr.remote import kind_of

    if not names or list(names) == ["-"]:
        return False
    if len(names) > 1 or engine is not None:
        return True
    into_folder = output is not None and (output.endswith(("/", "\\")) or kind_of(output) == "folder")
    return into_folder or kind_of(names[0]) == "folder" or is_pattern(names[0])


def _predict_in_bulk(model: str, names: Sequence[str], output: str, **options: Any) -> None:
    from hgclr.bulk import predict_files

    # The nodes of a cluster need not have the folder: they look the name up themselves.
    place = model if options["engine"] == "ray" else find_folder(model)
    with progress_bar() as bar:
        task = bar.add_task("rows", total=None)

        def show(file: Path, rows: int) -> None:
            bar.update(task, completed=rows, description=file.name)

        result = predict_files(place, names, output, progress=show, **options)
    counts = {"files labelled": len(result.written), "files finished before": len(result.kept), "rows": result.rows}
    counted = ", ".join(f"{what}: {count:,}" for what, count in counts.items())
    standard_error().say(f"written: {output}; {counted}")
    _say_notes(result.bad_rows, result.notes)


def _say_notes(bad: int, notes: Mapping[str, int]) -> None:
    """Print how many rows have an error, and how many have each note."""
    for note, count in [("no usable text, see 'error'", bad)] * bool(bad) + list(notes.items()):
        standard_error().say(f"{count:,} {'row' if count == 1 else 'rows'}: {note}", "yellow")


def review(
    model: Model,
    source: Annotated[Path, typer.Argument(metavar="FILE", help="File with texts, as for hgclr predict, or its URL.")],
    output: Annotated[Path, file("Review file to write: .xlsx or .csv.")],
    data: Annotated[
        Path | None, folder("Data folder to compare texts with; default: that of the training, if it is here.")
    ] = None,
    top: Annotated[int | None, option("Number of rows to write; default: all.", min=1, metavar="N")] = None,
    text_column: TextColumn = None,
    skip_bad_rows: SkipBadRows = False,
    json_file: JsonFile = None,
) -> None:
    """Sort the texts of a file by how much a review would help, and suggest labels.

    A text comes first if a label is **near the threshold**, if **parent and child disagree** (a label passes its
    threshold, its parent does not), or if it is **far from all training texts**. The columns are those of the file, the
    three best paths with probabilities, the reason, and an empty column **label**.

    Write into the column label: **1**, **2** or **3** for a suggested path, or an id, a name or a path "A > B" of any
    label in the tree; separate several by ";". Leave a row empty to skip it.

    Example: **hgclr review runs/first/model new.csv --output review.xlsx --top 200**

    Next: **hgclr data add my-data review.xlsx**
    """
    from hgclr.bulk.review import training_data, write_review
    from hgclr.bulk.run import text_columns_of
    from hgclr.data import DataFolder
    from hgclr.inference import HierarchicalClassifier
    from hgclr.inference.loading import is_onnx
    from hgclr.remote import kind_of

    if kind_of(source) != "file":
        raise InputError("no such file", path=source)
    place = find_folder(model, data)
    training = None if data is None else DataFolder(data, skip_bad_rows=True)
    if training is not None:
        training.split_path("train")
    classifier = HierarchicalClassifier.load(place)
    without = "the model is an ONNX export" if is_onnx(place) else "name the data folder with --data"
    if is_onnx(place):
        training = None
    elif training is None:
        training = training_data(place, classifier.taxonomy)
    with counting("texts") as progress:
        result = write_review(
            classifier,
            source,
            output,
            training=training,
            text_columns=text_columns_of(place, text_column),
            top=top,
            skip_bad_rows=skip_bad_rows,
            progress=progress,
        )
    write_result(json_file, result.to_json())
    console = results(json_file)
    if result.compared and training is not None:
        console.say(f"compared with {result.compared:,} training texts of {training.path}")
    else:
        console.say(f"not compared with the training texts: {without}", "cyan")
    for count, what in ((result.bad, "unusable rows"), (result.blank, "blank texts"), (result.left_out, "other texts")):
        if count:
            console.say(f"left out: {count:,} {what}")
    print_table(console, ("reason", "rows"), [(reason, f"{count:,}") for reason, count in result.reasons.items()])
    print_written([output], console)
    folder_name = data or (training.path if training is not None else "my-data")
    console.say(f"next: fill in the column 'label', then run hgclr data add {folder_name} {output}")


@deciding_options
def explain(
    model: Model,
    deciding: Deciding,
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Texts to explain.")] = None,
    source: Annotated[Path | None, file("File with one text per line; '-': standard input.", "--input")] = None,
    method: Annotated[
        Literal["auto", "integrated", "occlusion"], option("How words are scored; see above.", metavar="METHOD")
    ] = "auto",
    labels: Annotated[
        list[str] | None, option("Label to explain, an id or a path; default: those predicted.", "--label")
    ] = None,
    keep: Annotated[
        float | None,
        option("Share of the words to test alone (default 0.3), or of the tokens in the positive sample."),
    ] = None,
    positive: Annotated[
        bool, option("Show the tokens that HGCLR keeps in training instead; see above.", "--positive-sample")
    ] = False,
    html: Annotated[Path | None, file("Write an HTML page to this file; '-': to standard output.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Show the words that carry each label of a text, and whether these words alone would get the same labels.

    In a terminal, words that speak for a label are blue, words against it orange. **integrated**: integrated gradients,
    parts of the label's logit. **occlusion**: leave each word out; works with any model. **auto**: integrated, or
    occlusion for ONNX.

    **--positive-sample** shows instead which tokens of the text HGCLR would keep for its labels in training, from the
    training-model beside the model: one draw, and how often many draws keep each word.

    Example: **hgclr explain runs/first/model "type 2 diabetes with damage to the retina" --html why.html**

    Example: **hgclr explain runs/first/model "a text" --positive-sample --label Physics**
    """
    from hgclr.bulk.files import line_chunks
    from hgclr.cli.tables import print_explanations, print_positive_samples
    from hgclr.data.readers import BadRow, TextForm, byte_lines, in_utf8, limited_lines
    from hgclr.evaluation.explanation import explanation_page, read_text
    from hgclr.evaluation.positive_samples import keep_rule, load_label_side, positive_sample, positive_sample_page

    if positive and method != "auto":
        raise InputError("--method is for the words that carry labels", remedy="leave it out with --positive-sample")
    if bool(texts) == (source is not None):
        given = "both as arguments and by --input" if texts else "neither as arguments nor by --input"
        raise InputError(f"texts are given {given}", remedy="give one of them")
    chosen: list[tuple[str, int | None]] = [(text, None) for text in texts or []]
    if source is not None:
        form = TextForm()
        lines = limited_lines(sys.stdin.buffer, source, form) if str(source) == "-" else byte_lines(source, form)
        chunks = line_chunks(in_utf8(lines, source, form), source, "text")
        for number, text in enumerate(chain.from_iterable(chunk.texts for chunk in chunks), 1):
            if isinstance(text, BadRow):
                raise text.error()
            chosen += [(text, number)] * bool(text.strip())
        if not chosen:
            raise InputError("no text in it", path=source, remedy="write one text per line")
    classifier = open_classifier(model)
    decisions = deciding.changed(classifier.decisions)
    for text, line in chosen:  # before the work on those before it
        try:
            read_text(classifier, text)
        except InputError as error:
            raise InputError(error.what, path=source, line=line, remedy=error.remedy) from None
    content: dict[str, Any] = {"model": model}
    options: dict[str, Any] = {"labels": labels or None, "decisions": decisions}
    console = results(json_file) if str(html) != "-" else Console(quiet=True)
    if positive:
        network = load_label_side(find_folder(model), keep)
        rule = keep_rule(network.config)
        samples = [positive_sample(classifier, network, text, **options) for text, _ in chosen]
        page = partial(positive_sample_page, samples, model=model, rule=rule)
        print_positive_samples(samples, rule, console)
        content |= {"rule": rule, "positive_samples": [sample.to_json() for sample in samples]}
    else:
        with standard_error().status("reading the text with some of its words …"):
            options |= {"method": method, "keep": 0.3 if keep is None else keep}
            explanations = [classifier.explain(text, **options) for text, _ in chosen]
        page = partial(explanation_page, explanations, model=model)
        print_explanations(explanations, console)
        content["explanations"] = [explanation.to_json() for explanation in explanations]
    if html is not None:
        if str(html) == "-":
            sys.stdout.write(page())
        else:
            write_files(html.parent, {html.name: page().encode()})
            standard_error().say(f"written: {html}")
    write_result(json_file, content)
