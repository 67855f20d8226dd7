"""``hgclr evaluate``, ``compare``, ``audit``, ``watch`` and ``calibrate``: score models, check data, tune decisions."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hgclr.cli.console import (
    Console,
    counting,
    find_folder,
    open_classifier,
    print_written,
    progress_bar,
    results,
    write_result,
)
from hgclr.cli.options import (
    Data,
    Deciding,
    JsonFile,
    Model,
    Paths,
    Raw,
    Reading,
    Rule,
    Settings,
    SkipBadRows,
    TextColumn,
    deciding_options,
    file,
    folder,
    option,
    reading_options,
)
from hgclr.errors import InputError, require_extra
from hgclr.files import check_output, json_bytes, read_json, write_files

logger = logging.getLogger(__name__)


def pseudo_labels_of(model: str) -> dict[str, int] | None:
    """Return how many unlabelled texts of each label a model learned from, as its run recorded; None if none."""
    metrics = Path(model).resolve().parent / "metrics.json"
    if not metrics.is_file():
        return None
    with suppress(InputError, AttributeError):
        return read_json(metrics).get("unlabelled", {}).get("labels") or None
    return None


@reading_options
@deciding_options
def evaluate(
    model: Model,
    data: Data,
    reading: Reading,
    deciding: Deciding,
    split: Annotated[str, option("Split to score: train, dev or test.")] = "test",
    output: Annotated[Path | None, folder("Write report.html, its plots and report.json here.")] = None,
    json_file: JsonFile = None,
    limit: Annotated[int | None, option("Score a random sample of this many documents.", min=1)] = None,
    skip_bad_rows: SkipBadRows = False,
) -> None:
    """Score a model: Micro- and Macro-F1 over all labels and per level, and predicted labels without their parent.

    Labels are read with the model's label tree; a label that is not in it is an error. The report of --output has
    confidence intervals, the label tree coloured by F1, confused siblings, and documents with errors.

    Example: **hgclr evaluate runs/first/model my-data --output my-report**

    Next: **hgclr compare other-report my-report** or **hgclr audit runs/first/model my-data**
    """
    from hgclr.cli.tables import print_scores
    from hgclr.errors import as_written
    from hgclr.presentation import check_report
    from hgclr.provenance import command_line, machine

    if output is not None:
        check_report(output)
    classifier = open_classifier(model, data)
    decisions = deciding.changed(classifier.decisions)
    documents = reading.open(data, taxonomy=classifier.taxonomy, skip_bad_rows=skip_bad_rows)
    with counting(split) as progress:
        options: dict[str, Any] = {"decisions": decisions, "limit": limit, "progress": progress}
        if output is None:
            scores = classifier.evaluate(documents, split, **options).to_json()
        else:
            from hgclr.evaluation.report import report

            command = command_line(["hgclr", *sys.argv[1:]])
            options |= {"name": model, "command": command, "pseudo_labels": pseudo_labels_of(model)}
            scores = report(classifier, documents, split, output, **options)["scores"]
    if json_file is not None:
        content = {"model": model, "data": as_written(data), "split": split, "decisions": decisions.to_json()}
        write_result(json_file, content | {"scores": scores, "machine": machine()})
    console = results(json_file)
    title = f"{model} on {as_written(data)}, {scores['documents']:,} documents"
    print_scores(title, {split: scores}, console, decisions)
    if output is not None:
        print_written([output / "report.html"], console)


def compare(
    reports: Annotated[
        list[Path], typer.Argument(metavar="REPORT...", help="Folders that hgclr evaluate --output wrote.")
    ],
    output: Annotated[Path | None, folder("Write comparison.html, its plot and comparison.json here.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Compare reports with the first one, and test whether the differences are significant.

    The reports must have the same documents and the same label tree. **p** is from the paired bootstrap test: the
    probability of a difference as large as this one by chance.

    Example: **hgclr compare report-flat report-hgclr --output comparison**

    Next: open comparison/comparison.html
    """
    from hgclr.cli.tables import print_comparison
    from hgclr.evaluation.comparison import compare as compare_reports
    from hgclr.evaluation.comparison import write_comparison
    from hgclr.presentation import check_report
    from hgclr.provenance import command_line

    if output is not None:
        check_report(output)
    comparison = compare_reports(reports)
    write_result(json_file, comparison.to_json())
    console = results(json_file)
    print_comparison(comparison, console)
    if output is not None:
        page = write_comparison(output, comparison, command=command_line(["hgclr", *sys.argv[1:]]))
        print_written([page], console)


@reading_options
def audit(
    reading: Reading,
    sources: Annotated[
        list[str], typer.Argument(metavar="[MODEL] DATA", help="Model folder, if wanted; data folder or CONFIG.yaml.")
    ],
    split: Annotated[str, option("Split to audit; MODEL judges dev and test.")] = "train",
    top: Annotated[int, option("Number of documents to list, the likeliest errors first.", min=1)] = 20,
    everything: Annotated[bool, option("List all documents with other predicted labels.", "--all")] = False,
    output: Annotated[Path | None, folder("Write audit.html, audit.csv and audit.json here.")] = None,
    json_file: JsonFile = None,
    folds: Annotated[
        int | None, option("Audit train in this many folds, each judged by the others; default: 5.", min=2)
    ] = None,
    effort: Annotated[
        Literal["head", "full"] | None,
        option("Trained for each fold: a head (default), or a whole model, which is slow.", metavar="EFFORT"),
    ] = None,
    settings: Settings = None,
    skip_bad_rows: SkipBadRows = False,
    raw: Raw = False,
) -> None:
    """List the documents whose gold labels are the likeliest errors, with the labels that a model predicts instead.

    The annotation is wrong, the tree is ambiguous, or the model is wrong: read and decide. The score tells by how many
    orders of magnitude the gold labels are less probable than usual; 1 is ten times less probable.

    A model knows the documents that it was trained on. So **train** is judged out of fold: the pretrained encoder of
    MODEL, or of the settings, encodes each document once, and each fold gets a head that is fitted to the other folds.
    **--effort full** trains a model for each fold instead, in **folds** in the output folder; run the command again to
    continue it.

    Example: **hgclr audit my-data --output my-audit**

    Example: **hgclr audit runs/first/model my-data --split test --top 100**

    Next: open audit.html, write your verdicts into audit.csv, correct the data, and train again
    """
    from hgclr.cli.tables import print_audit
    from hgclr.data.folder import CONTRADICTIONS
    from hgclr.data.readers import byte_lines
    from hgclr.errors import as_written
    from hgclr.evaluation.audit import audit as audit_split
    from hgclr.evaluation.audit import write_audit
    from hgclr.remote import local

    if output is not None:
        check_output(output)
    if len(sources) > 2:
        raise InputError(f"{len(sources)} arguments", remedy="give DATA, or MODEL and DATA")
    data, limit = Path(sources[-1]), None if everything else top
    if split != "train":
        if len(sources) < 2:
            raise InputError(f"no model to judge {split}", remedy=f"give MODEL DATA --split {split}")
        if folds is not None or effort is not None or settings:
            raise InputError("--folds, --effort and --set are for --split train", remedy="omit them")
        classifier = open_classifier(sources[0], data)
        documents = reading.open(data, taxonomy=classifier.taxonomy, skip_bad_rows=skip_bad_rows)
        with progress_bar() as bar:
            task = bar.add_task(split, total=None)
            found = audit_split(
                classifier,
                documents,
                split,
                top=limit,
                on_survey=lambda total: bar.update(task, total=total),
                progress=partial(bar.advance, task),
            )
    else:
        require_extra("torch", extra="train", capability="Training for each fold")
        from hgclr.training.run_checks import check_run
        from hgclr.training.settings import RunConfig

        if any(each.partition("=")[0].strip() == "training.effort" for each in settings or []):
            raise InputError("--set training.effort does not set the effort of an audit", remedy="give --effort")
        chosen = [*(settings or []), *(["training.effort=full"] if effort == "full" else [])]
        config = data if len(sources) == 1 else Path(sources[0]).parent / "config.yaml"
        if len(sources) == 2 and not config.is_file():
            raise InputError(
                "no settings of the model, which are needed to audit train",
                path=config,
                remedy="omit MODEL, or judge other documents with --split test",
            )
        run = RunConfig.read(config, chosen, output or Path("runs") / f"{data.resolve().stem}-audit")
        read = {name: value for name, value in asdict(reading).items() if value is not None}
        read |= {"skip_bad_rows": True} if skip_bad_rows else {}
        read |= {"path": data} if len(sources) == 2 else {}
        run = run.model_copy(update={"data": run.data.model_copy(update=read)})
        if effort == "full":
            check_output(run.output)
            check_run(run)
        from hgclr.cli.progress import fold_progress
        from hgclr.evaluation.folds import audit_folds

        count = folds or 5
        found = audit_folds(run, folds=count, effort=effort or "head", top=limit, watch=fold_progress(count))
        output = run.output if effort == "full" else output
    write_result(json_file, found.to_json())
    console = results(json_file)
    print_audit(found, console)
    # data import and label export write this file
    disputed = local(run.data.path if split == "train" else data) / CONTRADICTIONS
    if disputed.is_file() and (count := sum(1 for _ in byte_lines(disputed))):
        console.say(f"texts to which people gave different labels: {count:,}, in {as_written(disputed)}")
    if len(sources) == 2 and (pseudo := pseudo_labels_of(sources[0])) is not None:
        console.say(f"the model also learned from unlabelled texts, with {len(pseudo):,} labels; see its metrics.json")
    if output is not None:
        print_written(write_audit(output, found, raw=raw)[:1], console)


def watch(
    model: Model,
    data: Data,
    sources: Annotated[
        list[str],
        file("File, folder, pattern or URL with new texts, as for hgclr predict; '-': standard input.", "--input"),
    ],
    split: Annotated[str, option("Split to compare with: dev or test, which the model was not trained on.")] = "dev",
    text_column: TextColumn = None,
    output: Annotated[Path | None, folder("Write drift.svg and drift.json here.")] = None,
    json_file: JsonFile = None,
    skip_bad_rows: SkipBadRows = False,
) -> None:
    """Compare the predictions on new texts with those on dev: which labels grew or shrank, and how sure the model is.

    New texts need no labels. Predictions are compared with predictions, because a model's errors are on both sides.
    Shares are compared by Fisher's exact test, corrected for the number of tests: a difference marked with * is
    significant at 5 % over all tests together.

    Example: **hgclr watch runs/first/model my-data --input last-week.csv --output drift**

    Next: label some of the new texts, and train again
    """
    from hgclr.bulk.files import line_chunks, read_chunks
    from hgclr.bulk.run import text_columns_of
    from hgclr.cli.tables import print_drift
    from hgclr.data import DataFolder
    from hgclr.data.readers import limited_lines
    from hgclr.data.texts import find_inputs
    from hgclr.evaluation.drift import Observed, compare_predictions, drift_plot
    from hgclr.inference import HierarchicalClassifier
    from hgclr.presentation import check_report

    if output is not None:
        check_report(output)
    files = find_inputs([name for name in sources if name != "-"])
    place = find_folder(model, data)
    columns = text_columns_of(place, text_column)
    classifier = HierarchicalClassifier.load(place)
    documents = DataFolder(data, taxonomy=classifier.taxonomy, skip_bad_rows=skip_bad_rows)
    documents.split_path(split)

    def texts() -> Iterator[str]:
        chunks = [read_chunks(path, columns) for path in files]
        if "-" in sources:
            chunks.append(line_chunks(limited_lines(sys.stdin.buffer, Path("-")), Path("-"), columns[0]))
        for chunk in chain.from_iterable(chunks):
            if chunk.problems and not skip_bad_rows:
                raise chunk.problems[0].error()
            if chunk.problems:
                logger.warning("skipped %d bad rows of %s", len(chunk.problems), chunk.path)
            yield from chunk.usable_texts

    with counting("new texts") as progress:
        now = Observed.of(classifier.stream(texts()), progress)
    with counting(split) as progress:
        before = Observed.of(classifier.stream(document.text for document in documents.documents(split)), progress)
    found = compare_predictions(classifier.taxonomy, before, now)
    content = found.to_json() | {"model": model, "data": str(data), "split": split, "input": sources}
    write_result(json_file, content)
    console = results(json_file)
    print_drift(found, split, console)
    if output is not None:
        written = write_files(output, {"drift.svg": drift_plot(found), "drift.json": json_bytes(content)})
        print_written(written, console)


@reading_options
def calibrate(
    model: Model,
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="Data folder, or its URL, with documents that were not trained on.")
    ],
    reading: Reading,
    split: Annotated[str, option("Split to tune on: dev, never test.")] = "dev",
    metric: Annotated[Literal["both", "micro", "macro"], option("F1 to maximise; both: their mean.")] = "both",
    max_loss: Annotated[
        float, option("Reject rules that cost more than X points of either F1.", min=0, max=100, metavar="X")
    ] = 1.0,
    method: Annotated[
        Literal["temperature", "isotonic", "none"],
        option("temperature, isotonic (needs more documents) or none.", metavar="METHOD"),
    ] = "temperature",
    thresholds: Annotated[
        Literal["auto", "global", "level", "label", "none"],
        option("auto, none, or a threshold: global, per level, or per label.", metavar="SCOPE"),
    ] = "auto",
    rule: Annotated[
        Literal["auto", Rule], option("auto: the best rule that predicts labels with their parents.", metavar="RULE")
    ] = "auto",
    paths: Paths = None,
    risk: Annotated[
        float | None, option("Abstain so that at most this share of labels is wrong.", min=0, max=1, metavar="X")
    ] = None,
    folds: Annotated[int | None, option("Also tune on train, in this many folds with a model each.", min=2)] = None,
    config: Annotated[
        Path | None, option("With --folds: settings; default: config.yaml beside MODEL.", metavar="CONFIG.yaml")
    ] = None,
    output: Annotated[Path | None, folder("With --folds: folder for the models; default: beside MODEL.")] = None,
    skip_bad_rows: SkipBadRows = False,
) -> None:
    """Tune decisions on dev: calibrate probabilities, choose the decoding rule, tune thresholds.

    hgclr writes them to **decisions.json** in the model folder, which predict and evaluate use; delete it to undo this.
    Printed scores are out of fold. Run the command again to continue an interrupted run with --folds.

    Example: **hgclr calibrate runs/first/model my-data**

    Next: **hgclr evaluate runs/first/model my-data**
    """
    from hgclr.cli.tables import print_calibrated, print_candidates
    from hgclr.decisions.tuning import ENTRIES, Outputs
    from hgclr.inference.classifier import sampled
    from hgclr.model_files import DECISIONS

    if split == "test":
        raise InputError("tuning on test would make its scores optimistic", remedy="give --split dev")
    if split == "train":
        logger.warning("scores on training data are optimistic")
    if not Path(model).is_dir():
        raise InputError(
            "the model is not a local folder, to which decisions.json could be written",
            path=model,
            remedy="download the model, calibrate it, and upload its decisions.json",
        )
    if folds is None and (config is not None or output is not None):
        raise InputError("--config and --output need --folds", remedy="add --folds 5, or omit them")
    if folds is not None and split == "train":
        raise InputError("--folds already tunes on train", remedy="omit --split train")
    check_output(Path(model))
    if output is not None:
        check_output(output)
    classifier = open_classifier(model, data)
    documents = reading.open(data, taxonomy=classifier.taxonomy, skip_bad_rows=skip_bad_rows)
    most = max(1, ENTRIES // ((folds or 0) + 1) // len(classifier.taxonomy))
    parts: list[Outputs] = []
    if folds is not None:
        require_extra("torch", extra="train", capability="Training a model for each fold")
        import numpy as np

        from hgclr.training import RunConfig

        config = config or Path(model).parent / "config.yaml"
        if not config.is_file():
            raise InputError("no such file with settings for --folds", path=config, remedy="give --config FILE")
        run = RunConfig.read(config, output=output or Path(model).parent / "calibration")
        read = {"path": data, "skip_bad_rows": skip_bad_rows, **asdict(reading)}
        run = run.model_copy(update={"data": run.data.model_copy(update=read)})
        from hgclr.cli.progress import fold_progress
        from hgclr.evaluation.folds import train_folds
        from hgclr.training.run_checks import data_folder

        train = data_folder(run, classifier.taxonomy)
        for seed, fold in enumerate(train_folds(run, train, folds, watch=fold_progress(folds))):
            kept = set(np.random.default_rng(seed).permutation(fold.documents)[:most].tolist())
            parts.append(fold.classifier.outputs(row for number, row in enumerate(fold.rows) if number in kept))
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
    print_written([Path(model) / DECISIONS])
