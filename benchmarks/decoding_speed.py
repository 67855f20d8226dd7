"""Decoding rules on as many documents as a night's work brings: seconds of each.

    python benchmarks/decoding_speed.py --output benchmarks/results/decoding-speed.json

Random probabilities and a random tree; one threshold for each label. The rules take turns, and making the probabilities
is not timed.
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
    """Return the seconds of every rule, and of paths that must end at a leaf.

    Args:
        documents: how many.
        labels: how many.
        rounds: how often each is timed.
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
    """Decode, write the result and print the table."""
    parser = arguments_of(__doc__)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--labels", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    result = run(documents=arguments.documents, labels=arguments.labels, rounds=arguments.rounds)
    write(result, arguments.output)
    rows = [
        (name, f"{values['median']:.2f} s", f"{values['lowest']:.2f} to {values['highest']:.2f} s")
        for name, values in result["seconds"].items()
    ]
    title = f"{arguments.documents:,} documents x {arguments.labels:,} labels"
    show(title, ("decoding rule", "seconds", "lowest to highest"), rows)


if __name__ == "__main__":
    main()
