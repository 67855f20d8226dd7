"""``hgclr data prepare hiagm``."""

from __future__ import annotations

from hgclr.cli.options import AddAncestors
from hgclr.cli.prepare.format_options import DevFile, FormatSource, Output, TaxonomyFile, TestFile, TrainFile
from hgclr.cli.prepare.showing import prepare_with_bar, show_summary

__all__ = ["hiagm"]


def hiagm(
    output: Output,
    source: FormatSource = None,
    train: TrainFile = None,
    dev: DevFile = None,
    test: TestFile = None,
    taxonomy: TaxonomyFile = None,
    add_ancestors: AddAncestors = False,
) -> None:
    """Read HiAGM's JSON lines (token, label) and .taxonomy file.

    Also reads the variant with doc_token and doc_label. Labels are ids or names of the label tree.
    """
    from hgclr.corpora.formats import prepare_hiagm

    summary = prepare_with_bar(
        "lines",
        lambda progress: prepare_hiagm(
            source,
            output,
            train=train,
            dev=dev,
            test=test,
            taxonomy=taxonomy,
            add_ancestors=add_ancestors,
            progress=progress,
        ),
    )
    show_summary(summary)
