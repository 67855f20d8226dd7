"""Project the cost of training and prediction from documents, tokens, labels and processes.

    python benchmarks/cost_model.py
    python benchmarks/cost_model.py --gpu-flops 400e12 --share 0.4 --gpu-hour 3

The model counts multiplications and additions of matrix products, bytes of gradients, and messages;
docs/benchmarks/scaling.md has the formulas. The output is a projection, not a measurement. Only the speed of prediction
was measured; it is read from ``benchmarks/results``.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from measuring import arguments_of, show

RESULTS = Path(__file__).parent / "results"
BUCKET = 25 * 2**20
"""Bytes of gradients that DistributedDataParallel sends in one message."""


@dataclass(frozen=True)
class Encoder:
    """The sizes of an encoder that decide its cost.

    Args:
        parameters: number of parameters.
        layers: number of layers.
        width: width of a token's vector.
        weights: number of weights that every token is multiplied with.
    """

    parameters: int
    layers: int
    width: int
    weights: int

    def forward(self, tokens: float) -> float:
        """Return the operations of a forward pass of one text."""
        return 2 * self.weights * tokens + 4 * self.layers * self.width * tokens**2


BERT_BASE = Encoder(parameters=109_482_240, layers=12, width=768, weights=12 * (12 * 768**2 + 13 * 768))


def training_step(encoder: Encoder, documents: int, tokens: float, labels: int, *, views: int) -> tuple[float, float]:
    """Return the operations of a training step: those that processes share, and those that each repeats.

    Args:
        encoder: the encoder.
        documents: documents in the batch of all processes.
        tokens: tokens per text.
        labels: number of labels, K.
        views: 2 for HGCLR, which also encodes positive samples; 1 for flat.
    """
    width = encoder.width
    shared = 3 * views * documents * encoder.forward(tokens)  # the backward pass costs twice the forward pass
    if views == 1:
        return shared, 0.0
    shared += 3 * documents * tokens * (2 * width**2 + 2 * width * labels)  # token-label attention
    alone = 3 * labels * (8 * width**2 + 4 * width * labels)  # the Graphormer layer
    return shared, alone


def messages(parameters: int, documents: int, width: int, processes: int) -> tuple[float, int]:
    """Return the bytes and the messages that a process sends per step: gradients, and the vectors of NT-Xent."""
    gradients = 4 * parameters
    vectors = 2 * 4 * 2 * documents * width  # gathered forward, added up backward
    share = (processes - 1) / processes
    count = 2 * (processes - 1) * (math.ceil(gradients / BUCKET) + 2)
    return 2 * share * gradients + share * vectors, count


CORPORA = {"WOS": (30_070, 141), "NYT": (23_345, 166), "RCV1": (20_833, 103)}
"""Training documents and labels of the paper's corpora."""
TOKENS = 512
"""Tokens per text, the maximum."""


def main() -> None:
    """Print the projections for the paper's corpora and for a large prediction."""
    parser = arguments_of(__doc__)
    parser.add_argument("--gpu-flops", type=float, default=312e12, help="operations per second of a GPU in bf16")
    parser.add_argument("--share", type=float, default=0.35, help="share of these operations that training reaches")
    parser.add_argument("--link", type=float, default=100e9, help="bytes per second between GPUs")
    parser.add_argument("--latency", type=float, default=20e-6, help="seconds per message")
    parser.add_argument("--gpu-hour", type=float, default=2.0, help="price of a GPU hour")
    parser.add_argument("--core-hour", type=float, default=0.04, help="price of a CPU core hour")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--documents", type=float, default=100e6, help="number of documents to predict")
    parser.add_argument("--cores", type=int, default=256, help="number of CPU cores that predict")
    arguments = parser.parse_args()

    rate, rows = arguments.gpu_flops * arguments.share, []
    for name, (documents, labels) in CORPORA.items():
        for gpus, batch in ((1, 12), (8, 16)):
            shared, alone = training_step(BERT_BASE, batch, TOKENS, labels, views=2)
            sent, count = messages(BERT_BASE.parameters, batch, BERT_BASE.width, gpus) if gpus > 1 else (0.0, 0)
            step = (shared / gpus + alone) / rate + sent / arguments.link + count * arguments.latency
            hours = step * documents / batch * arguments.epochs / 3600
            price = hours * gpus * arguments.gpu_hour
            rows.append((f"{name}, {gpus} GPU", f"{1000 * step:.1f}", f"{60 * hours:.0f}", f"{price:.2f}"))
    show(f"Projection: HGCLR on BERT-base, {arguments.epochs} epochs", ("", "ms per step", "minutes", "price"), rows)

    abstracts = json.loads((RESULTS / "prediction-speed.json").read_text(encoding="utf-8"))
    rows = []
    for name, spread in abstracts["documents_per_second"].items():
        if name.startswith("ours"):
            core = spread["median"] / abstracts["setting"]["threads"]
            hours = arguments.documents / core / arguments.cores / 3600
            rows.append((name, f"{core:.1f}", f"{hours:.1f}", f"{hours * arguments.cores * arguments.core_hour:.0f}"))
    title = f"Projection: {arguments.documents:,.0f} abstracts on {arguments.cores} cores, MiniLM-L6"
    show(title, ("", "documents per second and core", "hours", "price"), rows)


if __name__ == "__main__":
    main()
