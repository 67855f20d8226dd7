"""``hgclr explain``: the words that carry each label of a text."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hgclr.cli.options import AbstainBelow, Decode, Model, Paths, Threshold

if TYPE_CHECKING:
    from hgclr.inference import HierarchicalClassifier

__all__ = ["explain"]


def explain(
    model: Model,
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Texts to explain.")] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--input", metavar="FILE", help="Read the texts from a file, one per line; '-' reads standard input."
        ),
    ] = None,
    method: Annotated[
        Literal["auto", "integrated", "gradient", "occlusion", "attention"],
        typer.Option(
            help="integrated: gradient × input, averaged on the way from an empty text, which sums to the logit;"
            " gradient: gradient × input at the text alone, fast and often misleading; occlusion: leave each word out,"
            " for any model; attention: the token-label attention of HGCLR, MODEL being its folder 'training-model'."
            " auto: integrated, or occlusion for ONNX."
        ),
    ] = "auto",
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            help="Explain this label (an id or a path), predicted or not; default: the predicted labels, up to 12.",
        ),
    ] = None,
    keep: Annotated[
        float, typer.Option(help="Share of the words to keep when testing whether they alone give the same labels.")
    ] = 0.3,
    threshold: Threshold = None,
    decode: Decode = None,
    paths: Paths = None,
    abstain_below: AbstainBelow = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an HTML page.")] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Write everything as JSON; '-' writes to standard output."),
    ] = None,
) -> None:
    """Show the words that carry each label of a text, and whether those words alone would be given the same labels.

    In a terminal the words that speak for a label are blue, those against it orange; the strongest are listed with
    their numbers. For each label, its probability with its strongest words only stands beside that with as many random
    words, and that without them.

    Example: **hgclr explain runs/first/model "type 2 diabetes with damage to the retina" --html why.html**
    """
    from hgclr.cli.console import Console, open_classifier, standard_error
    from hgclr.cli.tables import show_explanations
    from hgclr.errors import InputError
    from hgclr.evaluation.explanation import explain as explain_text
    from hgclr.evaluation.explanation import explanation_page
    from hgclr.evaluation.relevance import AttentionRelevance
    from hgclr.files import json_text

    if bool(texts) == (source is not None):
        given = "both as arguments and by --input" if texts else "neither as arguments nor by --input"
        raise InputError(f"texts are given {given}", remedy="give one of them")
    chosen = [(text, None) for text in texts] if texts else list(_lines(source))
    classifier = open_classifier(model)
    decisions = classifier.decisions.changed(rule=decode, threshold=threshold, paths=paths, abstain_below=abstain_below)
    how = AttentionRelevance.from_pretrained(model) if method == "attention" else method
    _check(chosen, classifier, source)
    with standard_error().status("reading the text with some of its words …"):
        explanations = [
            explain_text(classifier, text, method=how, labels=labels or None, keep=keep, decisions=decisions)
            for text, _ in chosen
        ]
    if str(json_file) != "-":
        show_explanations(explanations, Console(highlight=False))
    if html is not None:
        _write(html, explanation_page(explanations, model=model))
    if json_file is not None:
        report = {"model": model, "explanations": [explanation.to_json() for explanation in explanations]}
        _write(json_file, json_text(report, indent=2) + "\n")


def _lines(source: Path | None) -> Iterator[tuple[str, int | None]]:
    """Yield the lines of a file with their numbers; empty ones are left out."""
    from hgclr.data.readers import byte_lines, limited_lines
    from hgclr.errors import InputError

    if source is None:
        return
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
        raise InputError("no texts here", path=source)


def _check(texts: Iterable[tuple[str, int | None]], classifier: HierarchicalClassifier, source: Path | None) -> None:
    """Refuse a text without words, with its place, before the work on those before it."""
    from hgclr.errors import InputError
    from hgclr.evaluation.relevance import read_text

    for text, line in texts:
        try:
            read_text(classifier, text)
        except InputError as error:
            raise InputError(error.what, path=source, line=line, remedy=error.remedy) from None


def _write(target: Path, content: str) -> None:
    """Write a file whole or not at all, or to standard output."""
    from hgclr.cli.console import standard_error
    from hgclr.files import write_files

    if str(target) == "-":
        sys.stdout.write(content)
        return
    write_files(target.parent, {target.name: content.encode()})
    standard_error().print(f"written: {target}", markup=False, soft_wrap=True)
