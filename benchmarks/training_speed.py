"""Documents a second in training: the published way of working, ours, and ours with the processor's fast paths.

    python benchmarks/training_speed.py --data ../shared/data/arxiv --output benchmarks/results/training-speed.json

All contenders train the same model (``published`` preset, batch 12, full length) and take turns in one process, because
the machine's speed changes by the minute; each round also times a plain matrix product. Reported are medians over the
rounds, their spread, and ratios. The share of the matrix product's speed counts work on real tokens only: padding,
dropout, activations, the label side and the optimiser are all overhead.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import transformers
from torch import Tensor

from hgclr.config import PRESETS
from hgclr.data import DataFolder
from hgclr.data.tokens import tokenize_split
from hgclr.hardware import machine
from hgclr.models import HGCLRModel
from hgclr.models.saving import load_tokenizer
from hgclr.training.acceleration import accelerate_on_processor
from hgclr.training.trainer import Collator
from published_style import PublishedStyle, pad_to_512

BATCH = 12
Batch = dict[str, Tensor]


def real_work(batch: Batch, model: HGCLRModel) -> float:
    """Return the floating-point operations of a training step on the real tokens of both views of a batch."""
    config = model.config.text_encoder
    embeddings = sum(p.numel() for p in model.encoder.embeddings.parameters())
    weights = sum(p.numel() for p in model.encoder.parameters()) - embeddings
    n = batch["attention_mask"].sum(1).double()
    forward = 2 * weights * n + 4 * config.num_hidden_layers * config.hidden_size * n**2
    return float(forward.sum()) * 3 * 2  # the backward pass costs twice the forward pass; text and positive sample


def matrix_product() -> float:
    """Return the floating-point operations a second of a product of two large matrices."""
    matrix = torch.randn(2048, 2048)
    torch.mm(matrix, matrix)
    started = time.perf_counter()
    for _ in range(5):
        torch.mm(matrix, matrix)
    return 5 * 2 * 2048**3 / (time.perf_counter() - started)


def contender(model: HGCLRModel, loss: Callable[[Batch], Tensor]) -> Callable[[list[Batch]], float]:
    """Return a function that trains on batches and gives the seconds it took."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def train(batches: list[Batch]) -> float:
        started = time.perf_counter()
        for batch in batches:
            optimiser.zero_grad()
            loss(batch).backward()
            optimiser.step()
        return time.perf_counter() - started

    return train


def main() -> None:
    """Run the rounds and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="data folder, such as ../shared/data/arxiv")
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--documents", type=int, default=600, help="sample to draw the batches from")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, required=True, help="JSON file to write")
    arguments = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()

    folder, tokenizer = DataFolder(arguments.data), load_tokenizer(arguments.encoder)
    tokens = tokenize_split(folder, "train", tokenizer, max_length=512, limit=arguments.documents)
    labels, pad = len(folder.taxonomy), tokenizer.pad_token_id
    collate = Collator(labels, pad)

    def new() -> HGCLRModel:
        torch.manual_seed(0)
        return HGCLRModel.from_encoder(
            arguments.encoder, folder.taxonomy, tokenizer, **PRESETS["published"], max_length=512
        ).train()

    published, plain, fast = new(), new(), new()
    accelerate_on_processor(fast, fast.encoder)
    yardstick = PublishedStyle(published)
    trainers = {
        "published style": contender(published, lambda batch: yardstick(**batch)),
        "ours, plain": contender(plain, lambda batch: plain(**batch).loss),
        "ours": contender(fast, lambda batch: fast(**batch).loss),
    }
    # Length buckets as in training: neighbours in length share a batch. A round takes one bucket from the middle of
    # each sixth of the lengths, so that its texts are as long on average as all are.
    random = np.random.default_rng(0)
    buckets = np.argsort(tokens["length"])[: len(tokens) // BATCH * BATCH].reshape(-1, BATCH)
    rates: dict[str, list[float]] = {name: [] for name in trainers}
    shares: list[float] = []
    lengths: list[int] = []
    for number in range(arguments.rounds + 1):
        middles = (np.arange(6) + 0.5) / 6 * len(buckets) + random.integers(-2, 3)
        chosen = [[tokens[int(i)] for i in bucket] for bucket in buckets[middles.astype(int)]]
        padded = [pad_to_512([tokens[int(i)] for i in random.choice(len(tokens), BATCH)], labels, pad)]
        batches = [collate(rows) for rows in chosen]
        lengths += [len(row["input_ids"]) for rows in chosen for row in rows]
        peak = matrix_product()
        for name, train in trainers.items():
            given = padded if name == "published style" else batches
            seconds = train(given)
            if number:  # the first round warms up
                rates[name].append(BATCH * len(given) / seconds)
                if name == "ours":
                    shares.append(sum(real_work(batch, fast) for batch in batches) / seconds / peak)

    base = statistics.median(rates["published style"])
    result = {
        "documents_per_second": {
            name: {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}
            for name, values in rates.items()
        },
        "ratio_to_published_style": {name: statistics.median(values) / base for name, values in rates.items()},
        "share_of_matrix_product": {
            "median": statistics.median(shares),
            "lowest": min(shares),
            "highest": max(shares),
        },
        "setting": {"data": arguments.data.name, "encoder": arguments.encoder, "batch": BATCH, "rounds": len(shares)},
        "tokens_per_document": {"measured": statistics.mean(lengths), "all": float(np.mean(tokens["length"]))},
        "threads": torch.get_num_threads(),
        "machine": machine(),
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    for name, values in rates.items():
        print(f"{name:16} {statistics.median(values):6.2f} documents/s  {statistics.median(values) / base:5.2f} x")
    print(f"work on real tokens: {statistics.median(shares):.0%} of a plain matrix product's speed")


if __name__ == "__main__":
    main()
