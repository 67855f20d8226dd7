"""Measure the time and memory of a training step against the number of labels, on random trees.

    python benchmarks/label_scaling.py --data ../shared/data/arxiv --output benchmarks/results/label-scaling.json

Every tree runs in its own process, to measure its own peak memory. A step of HGCLR (default preset, batch 12, texts of
the data with random gold labels) takes turns with a step on 160 labels, because the speed of the machine changes by the
minute; times are ratios to that step. Memory beyond the encoder is the peak of the process minus the peak of a process
that trains flat on 160 labels.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hgclr.data import DataFolder
from hgclr.data.tokens import tokenize_split
from hgclr.models import architecture as find_architecture
from hgclr.models.base import load_tokenizer
from hgclr.training.trainer import Collator, accelerate_on_cpu
from measuring import arguments_of, one_round, peak_memory, provenance, show, spread, write
from trees import random_tree

LABELS = (100, 160, 1_000, 4_000, 10_000, 31_000, 100_000)
BASE = 160
BATCH = 12


class Stepper:
    """A model on a random tree, with a batch of texts of a data folder.

    Args:
        labels: number of labels.
        architecture: ``hgclr`` or ``flat``.
        data: data folder.
        encoder: name of the text encoder.
    """

    def __init__(self, labels: int, architecture: str, data: Path, encoder: str) -> None:
        tokenizer, tree = load_tokenizer(encoder), random_tree(labels)
        torch.manual_seed(0)
        model = find_architecture(architecture)
        self.model: Any = model.from_encoder(encoder, tree, tokenizer, max_length=512).train()
        accelerate_on_cpu(self.model)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=True)
        tokens = tokenize_split(DataFolder(data), "train", tokenizer, max_length=512, limit=600)
        middle = np.argsort(tokens["length"])[len(tokens) // 2 - BATCH // 2 :][:BATCH]
        random = np.random.default_rng(1)
        rows = [{**tokens[int(i)], "labels": tree.closure(random.integers(0, labels, 2))} for i in middle]
        self.batch: dict[str, Tensor] = Collator(labels, tokenizer.pad_token_id)(rows)

    def step(self) -> None:
        """Take one training step on the batch."""
        self.optimiser.zero_grad()
        self.model(**self.batch).loss.backward()
        self.optimiser.step()


def measure(labels: int, architecture: str, data: Path, encoder: str, rounds: int) -> dict[str, Any]:
    """Return peak memory and seconds of a step, in turns with steps on 160 labels."""
    own = Stepper(labels, architecture, data, encoder)
    first = one_round({"own": own.step})["own"]  # includes one-time computations
    own.step()
    memory = peak_memory()
    base = Stepper(BASE, "hgclr", data, encoder)
    base.step()
    turns = [one_round({"own": own.step, "base": base.step}) for _ in range(rounds)]
    return {
        "labels": labels,
        "depth": own.model.config.taxonomy.depth,
        "architecture": architecture,
        "peak_bytes": memory,
        "first_step_seconds": first,
        "step_seconds": spread([turn["own"] for turn in turns]),
        "ratio": spread([turn["own"] / turn["base"] for turn in turns]),
        "tokens": int(own.batch["attention_mask"].sum()),
    }


def run(
    data: Path, *, encoder: str = "all-MiniLM-L6-v2", labels: Sequence[int] = LABELS, rounds: int = 5
) -> dict[str, Any]:
    """Return the memory and time of each tree.

    Args:
        data: data folder.
        encoder: text encoder.
        labels: numbers of labels.
        rounds: number of timed rounds.
    """
    measured = []
    for architecture, count in [("flat", BASE), *(("hgclr", count) for count in labels)]:
        command = [sys.executable, __file__, "--data", str(data), "--encoder", encoder, "--rounds", str(rounds)]
        child = subprocess.run(
            [*command, "--one", architecture, str(count)], check=True, stdout=subprocess.PIPE, text=True
        )
        measured.append(json.loads(child.stdout))
    flat, *trees = measured
    for tree in trees:
        tree["bytes_beyond_encoder"] = tree["peak_bytes"] - flat["peak_bytes"]
    return {
        "flat": flat,
        "trees": trees,
        "setting": {"data": data.name, "encoder": encoder, "batch": BATCH, "preset": "default", "rounds": rounds},
        "threads": torch.get_num_threads(),
        **provenance(),
    }


def main() -> None:
    """Run the benchmark; with ``--one``, measure one tree in this process."""
    parser = arguments_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="data folder, such as ../shared/data/arxiv")
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--labels", type=int, nargs="+", default=LABELS, help="numbers of labels")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="write the result to this JSON file")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        architecture, labels = arguments.one
        print(json.dumps(measure(int(labels), architecture, arguments.data, arguments.encoder, arguments.rounds)))
        return
    result = run(arguments.data, encoder=arguments.encoder, labels=arguments.labels, rounds=arguments.rounds)
    write(result, arguments.output)
    rows = [
        (
            f"{tree['labels']:,}",
            str(tree["depth"]),
            f"{tree['step_seconds']['median']:.2f} s",
            f"{tree['ratio']['median']:.2f}",
            f"{tree['bytes_beyond_encoder'] / 1e9:.2f} GB",
        )
        for tree in result["trees"]
    ]
    show("Training step", ("labels", "depth", "time", f"relative to {BASE} labels", "memory beyond the encoder"), rows)


if __name__ == "__main__":
    main()
