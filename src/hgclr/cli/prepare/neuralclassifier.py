"""``hgclr data prepare neuralclassifier``."""

from __future__ import annotations

from hgclr.cli.options import AddAncestors
from hgclr.cli.prepare.format_options import DevFile, FormatSource, Output, TaxonomyFile, TestFile, TrainFile
from hgclr.cli.prepare.showing import prepare_with_bar, show_summary

__all__ = ["neuralclassifier"]


def neuralclassifier(
    output: Output,
    source: FormatSource = None,
    train: TrainFile = None,
    dev: DevFile = None,
    test: TestFile = None,
    taxonomy: TaxonomyFile = None,
    add_ancestors: AddAncestors = False,
) -> None:
    """Read NeuralClassifier's JSON lines (doc_token, doc_label with A--B--C).

    Without a label tree, the tree is drawn from the paths of all splits.
    """
    from hgclr.corpora.formats import prepare_neuralclassifier

    summary = prepare_with_bar(
        "lines",
        lambda progress: prepare_neuralclassifier(
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
