"""Measure the seconds of each decoding rule on many documents.

    python benchmarks/decoding_speed.py --output benchmarks/results/decoding-speed.json

Probabilities and label tree are random; each label has its own threshold. The rules take turns. Making the
probabilities is not timed.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hgclr.decisions.decoding import RULES, Decoder
from measuring import arguments_of, in_turns, provenance, show, spread, write
from trees import random_tree

PATHS = 3


def run(*, documents: int = 100_000, labels: int = 1_000, rounds: int = 3) -> dict[str, Any]:
    """Return the seconds of every rule, and of the path rules with paths that end at a leaf.

    Args:
        documents: number of documents.
        labels: number of labels.
        rounds: number of timed rounds.
    """
    taxonomy, random = random_tree(labels), np.random.default_rng(0)
    probabilities = random.random((documents, labels), dtype=np.float32)
    thresholds = random.uniform(0.2, 0.8, labels)
    ways: dict[str, dict[str, Any]] = {rule: {"rule": rule} for rule in RULES}
    ways |= {
        f"{rule}, leaves only": {"rule": rule, "allow_inner_nodes": False}
        for rule in RULES
        if rule.endswith(("path", "paths"))
    }
    decoders = {name: Decoder(taxonomy, thresholds=thresholds, paths=PATHS, **way) for name, way in ways.items()}
    seconds = in_turns({name: partial(decoder, probabilities) for name, decoder in decoders.items()}, rounds)
    return {
        "seconds": {name: spread(values) for name, values in seconds.items()},
        "labels_given": {name: int(decoder(probabilities[:1000]).sum()) for name, decoder in decoders.items()},
        "setting": {
            "documents": documents,
            "labels": labels,
            "levels": [len(level) for level in taxonomy.levels],
            "paths": PATHS,
            "rounds": rounds,
        },
        **provenance(),
    }


def main() -> None:
    """Run the benchmark, write the result and print the table."""
    parser = arguments_of(__doc__)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--labels", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="write the result to this JSON file")
    arguments = parser.parse_args()
    result = run(documents=arguments.documents, labels=arguments.labels, rounds=arguments.rounds)
    write(result, arguments.output)
    rows = [
        (name, f"{values['median']:.2f} s", f"{values['lowest']:.2f} to {values['highest']:.2f} s")
        for name, values in result["seconds"].items()
    ]
    title = f"{arguments.documents:,} documents x {arguments.labels:,} labels"
    show(title, ("decoding rule", "seconds", "range"), rows)


if __name__ == "__main__":
    main()
