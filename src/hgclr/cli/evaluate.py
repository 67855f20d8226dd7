"""``hgclr evaluate``, ``compare``, ``audit`` and ``calibrate``: score a model, find wrong labels, tune decisions."""

from __future__ import annotations

import logging
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hgclr.cli.console import (
    Console,
    counting,
    open_classifier,
    print_written,
    progress_bar,
    quiet_libraries,
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
    deciding_options,
    folder,
    option,
    reading_options,
)
from hgclr.errors import InputError, require_extra
from hgclr.files import check_output

logger = logging.getLogger(__name__)


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
    """Score a model: Micro- and Macro-F1 over all labels and per level, and how often a label lacks its parent.

    Labels are read with the model's own tree; a label that the model does not know is an error. The report of --output
    has confidence intervals, the label tree coloured by F1, confused siblings, and documents that went wrong.

    Example: **hgclr evaluate runs/first/model my-data --output my-report**

    Next: **hgclr compare other-report my-report** or **hgclr audit runs/first/model my-data**
    """
    from hgclr.cli.tables import print_scores
    from hgclr.errors import as_written
    from hgclr.provenance import command_line, machine

    if output is not None:
        from hgclr.presentation import check_report

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
            scores = report(classifier, documents, split, output, name=model, command=command, **options)["scores"]
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
    """Compare reports with the first of them: is the difference more than chance?

    The reports must be of the same documents and the same label tree. **p** is of the paired bootstrap test: the
    probability that chance alone makes a difference as large as this one.

    Example: **hgclr compare report-flat report-hgclr --output comparison**
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
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="Model that was not trained on the split: folder, URL or name."),
    ] = None,
    data: Annotated[
        Path | None, typer.Argument(metavar="DATA", help="Data folder with the documents to audit, or its URL.")
    ] = None,
    split: Annotated[str | None, option("Split to audit; default: dev, with --folds train.")] = None,
    top: Annotated[int, option("How many documents to list, the most contradicted first.", min=1)] = 50,
    output: Annotated[
        Path | None, folder("Write audit.html, audit.csv and audit.json here; default with --folds: runs/NAME-audit.")
    ] = None,
    json_file: JsonFile = None,
    folds: Annotated[
        int | None, option("Audit train in so many folds, each by a model trained on the others.", min=2)
    ] = None,
    config: Annotated[
        Path | None, option("With --folds: data and settings, as for hgclr train.", metavar="CONFIG.yaml")
    ] = None,
    settings: Settings = None,
    skip_bad_rows: SkipBadRows = False,
    raw: Raw = False,
) -> None:
    """List the documents whose labels a model contradicts most, with the labels it predicts instead.

    In each of them the annotation is wrong, the tree is ambiguous, or the model is wrong: read, then decide. The score
    is in orders of magnitude: how much less probable the document's labels are than labels usually are. With --folds,
    an interrupted audit continues where it stopped.

    Example: **hgclr audit runs/first/model my-data --split test --output my-audit**

    Example: **hgclr audit --folds 5 --config my-data.yaml --output my-audit**

    Next: open audit.html, write your verdicts into audit.csv, correct the data and train again.
    """
    from hgclr.cli.tables import print_audit
    from hgclr.evaluation.audit import audit as audit_split
    from hgclr.evaluation.audit import write_audit

    if output is not None:
        check_output(output)
    if folds is None:
        if config is not None or settings:
            raise InputError("--config and --set are for training models", remedy="add --folds 5, or leave them out")
        if model is None or data is None:
            raise InputError("no model or no data is given", remedy="give MODEL and DATA, or --folds and --config")
        classifier = open_classifier(model, data)
        documents = reading.open(data, taxonomy=classifier.taxonomy, skip_bad_rows=skip_bad_rows)
        with progress_bar() as bar:
            task = bar.add_task(split or "dev", total=None)
            found = audit_split(
                classifier,
                documents,
                split or "dev",
                top=top,
                on_survey=lambda total: bar.update(task, total=total),
                progress=partial(bar.advance, task),
            )
    else:
        if model is not None or data is not None or reading != Reading() or skip_bad_rows:
            raise InputError(
                "with --folds, model and data come from the configuration",
                remedy="give --folds and --config alone; --set data.path=DIR names other data",
            )
        if split not in (None, "train"):
            raise InputError(f"--folds audits train, not {split}", remedy=f"give MODEL DATA --split {split} instead")
        if config is None:
            raise InputError("--folds trains models", remedy="name the settings: --config CONFIG.yaml")
        output = output or Path("runs") / f"{config.stem}-audit"
        check_output(output)
        require_extra("torch", extra="train", capability="Training a model for each fold")
        from hgclr.training.run_checks import check_run
        from hgclr.training.settings import RunConfig

        run = RunConfig.read(config, settings, output)
        check_run(run)
        from hgclr.cli.progress import fold_progress
        from hgclr.evaluation.folds import audit_folds

        quiet_libraries()
        found = audit_folds(run, folds=folds, top=top, watch=fold_progress(folds))
    write_result(json_file, found.to_json())
    console = results(json_file)
    print_audit(found, console)
    if output is not None:
        print_written(write_audit(output, found, raw=raw)[:1], console)


@reading_options
def calibrate(
    model: Model,
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="Data folder, or its URL, with documents not trained on.")
    ],
    reading: Reading,
    split: Annotated[str, option("Split to tune on: dev; never test.")] = "dev",
    metric: Annotated[Literal["both", "micro", "macro"], option("F1 to tune for; both: their mean.")] = "both",
    max_loss: Annotated[
        float, option("Points of Micro- or Macro-F1 that may be lost for the other.", min=0, max=100, metavar="X")
    ] = 1.0,
    method: Annotated[
        Literal["temperature", "isotonic", "none"],
        option("temperature, isotonic (needs more documents) or none.", metavar="METHOD"),
    ] = "temperature",
    thresholds: Annotated[
        Literal["auto", "global", "level", "label", "none"],
        option("auto, or one threshold: global, for each level, label, or none.", metavar="SCOPE"),
    ] = "auto",
    rule: Annotated[
        Literal["auto", Rule], option("auto: the best of those that keep parents.", metavar="RULE")
    ] = "auto",
    paths: Paths = None,
    risk: Annotated[
        float | None, option("Abstain so that at most this share of labels is wrong.", min=0, max=1, metavar="X")
    ] = None,
    folds: Annotated[int | None, option("Also tune on train, in so many folds, each by a new model.", min=2)] = None,
    config: Annotated[
        Path | None, option("With --folds: settings; default: config.yaml beside MODEL.", metavar="CONFIG.yaml")
    ] = None,
    output: Annotated[Path | None, folder("With --folds: folder for the models; default: beside MODEL.")] = None,
    skip_bad_rows: SkipBadRows = False,
) -> None:
    """Calibrate probabilities, choose the decoding rule and tune thresholds on dev; predict and evaluate then use them.

    The result is written to **decisions.json** in the model's folder; deleting that file undoes it. All scores shown
    are of documents that the choice was not fitted to. Where nothing is better without harm, decisions stay as they
    were. An interrupted command with --folds continues where it stopped.

    Example: **hgclr calibrate runs/first/model my-data**

    Next: **hgclr evaluate runs/first/model my-data**
    """
    from hgclr.cli.tables import print_calibrated, print_candidates
    from hgclr.decisions.tuning import ENTRIES, Outputs
    from hgclr.inference.classifier import sampled
    from hgclr.model_files import DECISIONS

    if split == "test":
        raise InputError("nothing is ever tuned on test: its scores would mean nothing", remedy="give --split dev")
    if split == "train":
        logger.warning("scores on training data are optimistic: on other texts the model will do worse")
    if not Path(model).is_dir():
        raise InputError(
            "not a local folder, and decisions.json is written into the model's folder",
            path=model,
            remedy="calibrate a copy, and upload its decisions.json",
        )
    if folds is None and (config is not None or output is not None):
        raise InputError("--config and --output are for training models", remedy="add --folds 5, or leave them out")
    if folds is not None and split == "train":
        raise InputError("--folds tunes on train with models trained for it", remedy="leave out --split train")
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
            raise InputError("no settings to train the models of the folds", path=config, remedy="give --config FILE")
        run = RunConfig.read(config, output=output or Path(model).parent / "calibration")
        read = {"path": data, "skip_bad_rows": skip_bad_rows, **asdict(reading)}
        run = run.model_copy(update={"data": run.data.model_copy(update=read)})
        from hgclr.cli.progress import fold_progress
        from hgclr.evaluation.folds import train_folds
        from hgclr.training.run_checks import data_folder

        quiet_libraries()
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
