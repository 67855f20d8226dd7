"""Measure torch.compile on training steps and predictions with batches of many lengths, and its warm-up.

    OMP_NUM_THREADS=1 python benchmarks/compile_speed.py --output benchmarks/results/compile-speed.json

A flat model on batches of random words, each of another length, as with batches by length. "Ours" trains with the
attention and dropout of hgclr on a CPU, "plain" with those of torch. Seconds are CPU seconds and include the compiler's
processes. Other lengths warm up first.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hgclr.models import FlatForSequenceClassification
from hgclr.models.base import load_tokenizer
from hgclr.taxonomy import Taxonomy
from hgclr.training.trainer import accelerate_on_cpu
from measuring import arguments_of, provenance, show, write

BATCH, LABELS = 12, 141
WARM = (64, 33, 90)
"""Lengths of the warm-up batches; from the third length on, torch compiles for all lengths."""


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds of a function, child processes included."""
    before = os.times()
    work()
    after = os.times()
    return sum(after[:4]) - sum(before[:4])


CONTENDERS: dict[str, dict[str, Any]] = {
    "training, ours": {"ours": True, "compiled": False, "training": True},
    "training, ours, compiled": {"ours": True, "compiled": True, "training": True},
    "training, plain": {"ours": False, "compiled": False, "training": True},
    "training, plain, compiled": {"ours": False, "compiled": True, "training": True},
    "prediction": {"ours": False, "compiled": False, "training": False},
    "prediction, compiled": {"ours": False, "compiled": True, "training": False},
}


def run(encoder: str, batches: int, rounds: int, names: list[str]) -> dict[str, Any]:
    """Return the seconds of warm-up and of each round of the named systems."""
    tree, tokenizer = Taxonomy([str(label) for label in range(LABELS)], [-1] * LABELS), load_tokenizer(encoder)
    random = np.random.default_rng(0)

    def texts(length: int) -> Tensor:
        return torch.from_numpy(random.integers(1000, len(tokenizer), (BATCH, length)))

    gold = (torch.rand(BATCH, LABELS) < 0.02).float()
    warm = [texts(length) for length in WARM]
    timed = [texts(length) for length in random.integers(16, 128, batches)]

    def contender(*, ours: bool, compiled: bool, training: bool) -> Callable[[list[Tensor]], None]:
        torch.manual_seed(0)
        model = FlatForSequenceClassification.from_encoder(encoder, tree, tokenizer).train(training)
        if ours:
            accelerate_on_cpu(model)
        called: Any = torch.compile(model, dynamic=None) if compiled else model
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

        def train(batches: list[Tensor]) -> None:
            for ids in batches:
                optimiser.zero_grad()
                called(ids, torch.ones_like(ids), gold).loss.backward()
                optimiser.step()

        @torch.inference_mode()
        def predict(batches: list[Tensor]) -> None:
            for ids in batches:
                called(ids, torch.ones_like(ids))

        return train if training else predict

    found: dict[str, Any] = {}
    works = {}
    for name in names:
        works[name] = contender(**CONTENDERS[name])
        try:
            found[name] = {"warm_up": cpu_seconds(lambda name=name: works[name](warm)), "rounds": []}  # type: ignore[misc]
        except Exception as error:  # torch.compile raises many kinds of errors
            found[name] = {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}
            del works[name]
    for _ in range(rounds):
        for name, work in works.items():
            found[name]["rounds"].append(cpu_seconds(lambda work=work: work(timed)))  # type: ignore[misc]
    for each in found.values():
        if "rounds" in each:
            each["median"] = statistics.median(each["rounds"])
    return found


def main() -> None:
    """Run the benchmark, write the result and print the table."""
    parser = arguments_of(__doc__)
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS), help="systems to measure")
    parser.add_argument("--output", type=Path, help="write the result to this JSON file")
    arguments = parser.parse_args()
    found = run(arguments.encoder, arguments.batches, arguments.rounds, arguments.only)
    setting = {"encoder": arguments.encoder, "batch": BATCH, "batches": arguments.batches, "rounds": arguments.rounds}
    write({"setting": setting, "contenders": found, **provenance()}, arguments.output)
    rows = []
    for name, each in found.items():
        if "failed" in each:
            rows.append((name, "fails", "", each["failed"][:60]))
            continue
        base = found.get("training, ours" if name.startswith("training") else "prediction", each)
        times = base["median"] / each["median"]
        rows.append((name, f"{each['median']:.2f} s", f"{times:.2f} x", f"{each['warm_up']:.1f} s"))
    show("torch.compile", ("", f"{arguments.batches} batches", "speed-up", "warm-up"), rows)


if __name__ == "__main__":
    main()
