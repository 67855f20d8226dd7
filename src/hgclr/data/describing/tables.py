"""The rows that the terminal and the HTML report show: statistics as text."""

from __future__ import annotations

import numpy as np

from hgclr.data.describing.statistics import Statistics

__all__ = ["fact_rows", "level_rows", "percent", "split_rows", "table1", "token_rows"]

Rows = list[tuple[str, ...]]
"""Rows of cells, the headings first."""

SPLITS = ("train", "dev", "test")


def table1(statistics: Statistics) -> list[tuple[str, str]]:
    """Return the columns of the paper's Table 1, each as value and name."""
    documents = {name: f"{split.documents:,}" for name, split in statistics.splits.items()}
    return [
        (f"{len(statistics.taxonomy):,}", "|Y|"),
        (f"{statistics.taxonomy.depth:,}", "Depth"),
        (f"{statistics.labels_per_document:.2f}", "Avg(|y|)"),
        *((documents.get(name, "—"), name.capitalize()) for name in SPLITS),
    ]


def split_rows(statistics: Statistics) -> Rows:
    """Return what each split holds: labels, paths, and lengths in words."""
    rows: Rows = [("split", "labels/doc", "paths/doc", "labels", "words", "median", "95 %", "max")]
    for name, split in statistics.splits.items():
        rows.append(
            (
                name,
                f"{split.labels.mean:.2f}",
                f"{split.paths.mean:.2f}",
                f"{np.count_nonzero(split.label_counts):,}",
                f"{split.words.mean:,.1f}",
                _half(split.words.quantile(0.5)),
                f"{split.words.quantile(0.95):,.0f}",
                f"{split.words.maximum:,}",
            )
        )
    return rows


def token_rows(statistics: Statistics) -> Rows:
    """Return the lengths of the texts of each split in tokens, and how many would be cut."""
    cuts = [f"cut at {limit:,}" for limit in statistics.limits]
    rows: Rows = [("split", "tokens", "median", "95 %", "max", *cuts)]
    for name, split in statistics.splits.items():
        rows.append(
            (
                name,
                f"{split.tokens.mean:,.1f}",
                _half(split.tokens.quantile(0.5)),
                f"{split.tokens.quantile(0.95):,.0f}",
                f"{split.tokens.maximum:,}",
                *(percent(split.tokens.above(limit), split.documents) for limit in statistics.limits),
            )
        )
    return rows


def level_rows(statistics: Statistics) -> Rows:
    """Return what each level of the tree holds."""
    rows: Rows = [("level", "labels", "leaves", "used", "documents", "largest", "median", "smallest")]
    for level in statistics.levels():
        rows.append(
            (
                f"{level.level}",
                f"{level.labels:,}",
                f"{level.leaves:,}",
                f"{level.used:,}",
                f"{level.documents:,}",
                f"{level.largest:,}",
                _half(level.median),
                f"{level.smallest:,}",
            )
        )
    return rows


def fact_rows(statistics: Statistics) -> list[tuple[str, str]]:
    """Return what is to be said of tree, labels and documents, each as name and text."""
    where = statistics.reference
    frequency, paths, documents = statistics.frequency(), statistics.together("paths"), statistics.documents
    median, below_10 = f"{_half(frequency.median)} at the median", f"{frequency.below_10:,} with fewer than 10"
    rarest = f"{frequency.smallest:,} for the rarest that has any ({frequency.imbalance:,.0f} : 1)"
    facts = {
        "tree": _tree(statistics),
        "frequency": f"{frequency.largest:,} documents in {where} for the most frequent label, {median}, {rarest}",
        "rare labels": f"{frequency.below_5:,} with fewer than 5 documents in {where}, {below_10}",
        "paths": f"{percent(paths.counts[1], documents)} of documents have one",
        "inner ends": f"{percent(statistics.above_leaf, documents)} of documents have a path that ends above a leaf",
    }
    if several := paths.above(1):
        facts["paths"] += f", {percent(several, documents)} several (up to {paths.maximum:,})"
    agreements = {name: statistics.agreement(name) for name in statistics.splits}
    distances = [
        f"{name} {agreement.distance:.3f} ({agreement.by_chance:.3f} by chance)"
        for name, agreement in agreements.items()
        if agreement is not None
    ]
    if distances:
        facts["from train"] = f"distance of label distributions, 0 to 1: {', '.join(distances)}"
    return list(facts.items())


def _tree(statistics: Statistics) -> str:
    taxonomy, children = statistics.taxonomy, statistics.children
    text = f"{len(taxonomy.levels[0]):,} top labels, {len(taxonomy.leaves):,} leaves"
    if children.total:
        text += f"; inner labels have {children.mean:.1f} children on average, {children.maximum:,} at most"
    return text


def percent(count: int, total: int) -> str:
    """Return a share in per cent; what is not nothing is not shown as nothing."""
    share = 100 * count / (total or 1)
    return "< 0.1 %" if 0 < share < 0.1 else "> 99.9 %" if 99.9 < share < 100 else f"{share:.1f} %"


def _half(median: float) -> str:
    """Return a median, which is a whole number or a half."""
    return f"{median:,.1f}".removesuffix(".0")
