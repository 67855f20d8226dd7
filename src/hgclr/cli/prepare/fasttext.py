"""``hgclr data prepare fasttext``."""

from __future__ import annotations

from typing import Annotated

import typer

from hgclr.cli.options import AddAncestors
from hgclr.cli.prepare.format_options import DevFile, FormatSource, Output, TaxonomyFile, TestFile, TrainFile
from hgclr.cli.prepare.showing import prepare_with_bar, show_summary

__all__ = ["fasttext"]


def fasttext(
    output: Output,
    source: FormatSource = None,
    train: TrainFile = None,
    dev: DevFile = None,
    test: TestFile = None,
    taxonomy: TaxonomyFile = None,
    path_separator: Annotated[
        str, typer.Option(help="Between the names of a label that is a path; 'none' if labels are plain names.")
    ] = "/",
    label_prefix: Annotated[str, typer.Option(help="What marks a word as a label.")] = "__label__",
    add_ancestors: AddAncestors = False,
) -> None:
    """Read fastText's lines (\\_\\_label\\_\\_A/B text).

    Without a label tree, the tree is drawn from the paths of all splits.
    """
    from hgclr.corpora.formats import prepare_fasttext

    summary = prepare_with_bar(
        "lines",
        lambda progress: prepare_fasttext(
            source,
            output,
            train=train,
            dev=dev,
            test=test,
            taxonomy=taxonomy,
            path_separator=None if path_separator == "none" else path_separator,
            label_prefix=label_prefix,
            add_ancestors=add_ancestors,
            progress=progress,
        ),
    )
    show_summary(summary)
