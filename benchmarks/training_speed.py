"""Compare training speed, in documents per CPU second: the published style, hgclr plain, and hgclr.

    python benchmarks/training_speed.py --data ../shared/data/arxiv --output benchmarks/results/training-speed.json

All systems train the same model (preset ``published``, batch 12, full length) on one thread and take turns in one
process. "Plain" has torch's dropout and attention, "ours" those of hgclr for a CPU. They get the same documents, drawn
at random as the preset says; "by length" gets batches of texts of similar length, as in training by default. Numbers
are medians over the rounds, with ranges and ratios, in CPU seconds. Each round also times a matrix product. The share
of its speed counts work on real tokens only: padding, dropout, activations, the label side and the optimiser count as
overhead.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cost_model import Encoder
from hgclr.config import PRESETS
from hgclr.data import DataFolder
from hgclr.data.tokens import tokenize_split
from hgclr.models import HGCLRForSequenceClassification
from hgclr.models.base import load_tokenizer
from hgclr.training.trainer import Collator, accelerate_on_cpu
from measuring import arguments_of, one_round, provenance, show, spread, write
from published_style import PublishedStyle, pad_to_512

BATCH = 12
PUBLISHED, PLAIN, OURS = "published style", "ours, plain", "ours"
BY_LENGTH = "ours, batches by length"
CONTENDERS = (PUBLISHED, PLAIN, OURS, BY_LENGTH)

Batch = dict[str, Tensor]


def real_work(batch: Batch, model: HGCLRForSequenceClassification) -> float:
    """Return the floating-point operations of a training step on the real tokens of texts and positive samples."""
    config, layers = model.config.text_encoder, model.config.text_encoder.num_hidden_layers
    parameters = sum(p.numel() for p in model.encoder.parameters())
    weights = parameters - sum(p.numel() for p in model.encoder.embeddings.parameters())
    encoder = Encoder(parameters, layers, config.hidden_size, weights=weights)
    lengths = batch["attention_mask"].sum(1).tolist()
    return 3 * 2 * sum(map(encoder.forward, lengths))  # the backward pass costs twice the forward pass; two views


def matrix_product() -> float:
    """Return the floating-point operations per second of a large matrix product."""
    matrix = torch.randn(2048, 2048)
    torch.mm(matrix, matrix)
    started = time.process_time()
    for _ in range(5):
        torch.mm(matrix, matrix)
    return 5 * 2 * 2048**3 / (time.process_time() - started)


def contender(model: HGCLRForSequenceClassification, loss: Callable[[Batch], Tensor]) -> Callable[[list[Batch]], None]:
    """Return a function that takes a training step on each batch."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def train(batches: list[Batch]) -> None:
        for batch in batches:
            optimiser.zero_grad()
            loss(batch).backward()
            optimiser.step()

    return train


def run(
    data: Path,
    *,
    encoder: str = "all-MiniLM-L6-v2",
    documents: int = 600,
    rounds: int = 5,
    only: Sequence[str] = CONTENDERS,
) -> dict[str, Any]:
    """Return documents per CPU second, ratios, and the share of a matrix product's speed.

    Args:
        data: data folder.
        encoder: text encoder.
        documents: size of the sample that batches are drawn from.
        rounds: number of timed rounds.
        only: systems to measure; must include published style, ours and by length.
    """
    torch.set_num_threads(1)
    folder, tokenizer = DataFolder(data), load_tokenizer(encoder)
    tokens = tokenize_split(folder, "train", tokenizer, max_length=512, limit=documents)
    labels, pad = len(folder.taxonomy), tokenizer.pad_token_id
    collate = Collator(labels, pad)

    def new() -> HGCLRForSequenceClassification:
        torch.manual_seed(0)
        return HGCLRForSequenceClassification.from_encoder(
            encoder, folder.taxonomy, tokenizer, **PRESETS["published"], max_length=512
        ).train()

    published, plain, fast = new(), new(), new()
    accelerate_on_cpu(fast)
    baseline = PublishedStyle(published)
    train_fast = contender(fast, lambda batch: fast(**batch).loss)
    trainers = {
        PUBLISHED: contender(published, lambda batch: baseline(**batch)),
        PLAIN: contender(plain, lambda batch: plain(**batch).loss),
        OURS: train_fast,
        BY_LENGTH: train_fast,
    }
    trainers = {name: train for name, train in trainers.items() if name in only}
    # Texts of similar length share a bucket. A round takes one bucket from the middle of each third of the lengths, so
    # that its texts are of average length.
    random = np.random.default_rng(0)
    buckets = np.argsort(tokens["length"])[: len(tokens) // BATCH * BATCH].reshape(-1, BATCH)
    rates: dict[str, list[float]] = {name: [] for name in trainers}
    shares: list[float] = []
    lengths: list[int] = []
    kept: list[float] = []
    for number in range(rounds + 1):
        middles = (np.arange(3) + 0.5) / 3 * len(buckets) + random.integers(-2, 3)
        similar = [collate([tokens[int(i)] for i in bucket]) for bucket in buckets[middles.astype(int)]]
        drawn = [tokens[int(i)] for i in random.choice(len(tokens), BATCH, replace=False)]
        lengths += [len(row["input_ids"]) for row in drawn]
        peak = matrix_product()
        given = {name: [collate(drawn)] for name in trainers}
        given |= {PUBLISHED: [pad_to_512(drawn, labels, pad)], BY_LENGTH: similar}
        work = {name: partial(train, given[name]) for name, train in trainers.items()}
        seconds = one_round(work, time.process_time)
        print(
            f"round {number} of {rounds}:", *(f"{name} {taken:.1f} s;" for name, taken in seconds.items()), flush=True
        )
        if number:  # the first round warms up
            for name in trainers:
                rates[name].append(BATCH * len(given[name]) / seconds[name])
            with torch.no_grad():
                kept.append(float(fast(**given[OURS][0]).terms["kept"]))
            shares.append(sum(real_work(batch, fast) for batch in similar) / seconds[BY_LENGTH] / peak)

    base = statistics.median(rates[PUBLISHED])
    return {
        "documents_per_cpu_second": {name: spread(values) for name, values in rates.items()},
        "ratio_to_published_style": {name: statistics.median(values) / base for name, values in rates.items()},
        "ratio_by_round": {
            name: spread([a / b for a, b in zip(values, rates[PUBLISHED], strict=True)])
            for name, values in rates.items()
        },
        "rounds": rates,
        "share_of_matrix_product": spread(shares),
        "share_of_tokens_kept": spread(kept),
        "setting": {"data": data.name, "encoder": encoder, "batch": BATCH, "rounds": len(shares)},
        "tokens_per_document": {"measured": statistics.mean(lengths), "all": float(np.mean(tokens["length"]))},
        "threads": torch.get_num_threads(),
        **provenance(),
    }


def main() -> None:
    """Run the benchmark, write the result and print the table."""
    parser = arguments_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="data folder, such as ../shared/data/arxiv")
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--documents", type=int, default=600, help="size of the sample that batches are drawn from")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS), help="systems to measure")
    parser.add_argument("--output", type=Path, help="write the result to this JSON file")
    arguments = parser.parse_args()
    result = run(
        arguments.data,
        encoder=arguments.encoder,
        documents=arguments.documents,
        rounds=arguments.rounds,
        only=arguments.only,
    )
    write(result, arguments.output)
    rows = [
        (name, f"{rate['median']:.2f}", f"{result['ratio_to_published_style'][name]:.2f} x")
        for name, rate in result["documents_per_cpu_second"].items()
    ]
    share = result["share_of_matrix_product"]["median"]
    title = f"Training; work on real tokens: {share:.0%} of a matrix product's speed"
    show(title, ("", "documents per CPU second", "x published style"), rows)


if __name__ == "__main__":
    main()
