"""The statistics of a data folder as plain values for a JSON file."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from hgclr.data.describing.statistics import Statistics

__all__ = ["statistics_json"]


def statistics_json(statistics: Statistics) -> dict[str, Any]:
    """Return everything that `Statistics` knows, and how often each label occurs."""
    taxonomy, frequency = statistics.taxonomy, statistics.frequency()
    counts = {name: split.label_counts.tolist() for name, split in statistics.splits.items()}
    return {
        "table1": {
            "labels": len(taxonomy),
            "depth": taxonomy.depth,
            "labels_per_document": statistics.labels_per_document,
            "documents": {name: split.documents for name, split in statistics.splits.items()},
        },
        "tree": {
            "top_labels": len(taxonomy.levels[0]),
            "leaves": len(taxonomy.leaves),
            "children": statistics.children.summary(),
            "only_children": statistics.children.counts[1],
        },
        "levels": [asdict(level) for level in statistics.levels()],
        "documents": {
            "paths": statistics.together("paths").to_json(),
            "labels": statistics.together("labels").to_json(),
            "ending_above_a_leaf": statistics.above_leaf,
        },
        "label_frequency": {
            "split": statistics.reference,
            **asdict(frequency),
            "imbalance": frequency.imbalance,
        },
        "encoder": statistics.encoder,
        "max_length": statistics.max_length,
        "splits": {name: _split(statistics, name) for name in statistics.splits},
        "labels": [
            {"id": identifier, "path": taxonomy.path_name(index), "level": int(taxonomy.depths[index])}
            | {name: values[index] for name, values in counts.items()}
            for index, identifier in enumerate(taxonomy.ids)
        ],
    }


def _split(statistics: Statistics, name: str) -> dict[str, Any]:
    split, agreement = statistics.splits[name], statistics.agreement(name)
    values: dict[str, Any] = {
        "documents": split.documents,
        "labels_per_document": split.labels.mean,
        "paths_per_document": split.paths.mean,
        "labels_used": int(np.count_nonzero(split.label_counts)),
        "ending_above_a_leaf": split.above_leaf,
        "words": split.words.summary(),
        "labels_compared_with_train": asdict(agreement) if agreement else None,
    }
    if statistics.encoder is not None:
        cut = {str(limit): split.tokens.share_above(limit) for limit in statistics.limits}
        values["tokens"] = {**split.tokens.summary(), "share_cut_at": cut}
    return values
