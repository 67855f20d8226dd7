"""Measure the seconds and memory of the metrics at the size of RCV1-V2's test set.

    python benchmarks/evaluation_speed.py --output benchmarks/results/evaluation-speed.json

Random decisions stream through :class:`~hgclr.metrics.scores.MultiLabelScores` block by block. Making them is not
timed. "Peak" is the memory of counting a block beyond the block itself, "held" the memory of the counts between blocks.
"""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgclr.metrics.scores import MultiLabelScores
from hgclr.taxonomy import Taxonomy
from measuring import arguments_of, provenance, show, spread, write
from trees import random_tree

BLOCK = 2048
MADE = 16

Matrix = NDArray[np.bool_]


def random_decisions(taxonomy: Taxonomy, seed: int) -> tuple[Matrix, Matrix]:
    """Return a block of predicted labels, mostly right, and of gold labels with their ancestors."""
    random = np.random.default_rng(seed)
    shape = (BLOCK, len(taxonomy))
    gold = taxonomy.close(random.random(shape) < 1 / len(taxonomy))
    return gold ^ (random.random(shape) < 0.5 / len(taxonomy)), gold


def count(taxonomy: Taxonomy, blocks: list[tuple[Matrix, Matrix]], documents: int) -> MultiLabelScores:
    """Return the scores of ``documents`` documents, taken from the blocks in turn."""
    scores = MultiLabelScores(taxonomy)
    for start in range(0, documents, BLOCK):
        predicted, gold = blocks[start // BLOCK % len(blocks)]
        scores.update(predicted[: documents - start], gold[: documents - start])
    return scores


def run(*, documents: int = 781_265, labels: int = 103, rounds: int = 3) -> dict[str, Any]:
    """Return the seconds and the memory of scoring.

    Args:
        documents: number of documents.
        labels: number of labels.
        rounds: number of timed rounds.
    """
    taxonomy = random_tree(labels)
    blocks = [random_decisions(taxonomy, seed) for seed in range(MADE)]
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        scores = count(taxonomy, blocks, documents).to_json()
        seconds.append(time.perf_counter() - started)
    memory = {}
    for part in (documents // 100, documents // 10):
        tracemalloc.start()
        kept = count(taxonomy, blocks, part)
        held, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        memory[f"{part} documents"] = {"held": held, "peak": peak}
        del kept
    return {
        "seconds": spread(seconds),
        "decisions_per_second": documents * labels / spread(seconds)["median"],
        "bytes": {"block": 2 * BLOCK * labels, **memory},
        "micro_f1": scores["micro"]["f1"],
        "setting": {"documents": documents, "labels": labels, "block": BLOCK, "rounds": rounds},
        **provenance(),
    }


def main() -> None:
    """Run the benchmark, write the result and print the table."""
    parser = arguments_of(__doc__)
    parser.add_argument("--documents", type=int, default=781_265)
    parser.add_argument("--labels", type=int, default=103)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="write the result to this JSON file")
    arguments = parser.parse_args()
    result = run(documents=arguments.documents, labels=arguments.labels, rounds=arguments.rounds)
    write(result, arguments.output)
    rows = [
        (name, f"{values['held'] / 1e3:.0f} kB", f"{values['peak'] / 1e3:.0f} kB")
        for name, values in result["bytes"].items()
        if name != "block"
    ]
    title = f"{arguments.documents:,} x {arguments.labels} decisions: {result['seconds']['median']:.2f} s"
    show(title, ("memory of", "held", "peak"), rows)


if __name__ == "__main__":
    main()
