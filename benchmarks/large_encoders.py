"""Measure the time and peak memory of a training step with gradient checkpointing, LoRA, both and neither.

    OMP_NUM_THREADS=1 python benchmarks/large_encoders.py --output benchmarks/results/large-encoders.json

Flat with random weights, texts of random words of one length, 141 labels. Each variant runs in its own process. Memory
is the peak of the process minus its memory before the model is built, after one step of a tiny model. Seconds are CPU
seconds, medians over the steps after the first.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, PreTrainedConfig, PreTrainedTokenizerBase

from hgclr.models import FlatForSequenceClassification
from hgclr.models.base import load_tokenizer
from hgclr.models.pretrained import load_encoder_config
from hgclr.taxonomy import Taxonomy
from hgclr.training.fitting import add_adapters, checkpoint_layers
from hgclr.training.settings import LoraSettings
from hgclr.training.trainer import accelerate_on_cpu
from measuring import arguments_of, memory, peak_memory, provenance, show, spread, write

LABELS = 141
CONTENDERS = {
    "neither": {"lora": False, "checkpointing": False},
    "gradient checkpointing": {"lora": False, "checkpointing": True},
    "LoRA": {"lora": True, "checkpointing": False},
    "LoRA, gradient checkpointing": {"lora": True, "checkpointing": True},
}


def take_steps(
    config: PreTrainedConfig,
    tokenizer: PreTrainedTokenizerBase,
    batch: int,
    length: int,
    steps: int,
    *,
    lora: bool,
    checkpointing: bool,
) -> tuple[list[float], int]:
    """Return the CPU seconds of each step of a new model, and the number of its trained parameters."""
    tree = Taxonomy([str(label) for label in range(LABELS)], [-1] * LABELS)
    torch.manual_seed(0)
    model = FlatForSequenceClassification.from_encoder_config(config, tree, tokenizer).train()
    if lora:
        add_adapters(model.encoder, LoraSettings())
    accelerate_on_cpu(model)
    if checkpointing:
        checkpoint_layers(model.encoder)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=1e-5, fused=True)
    ids = torch.randint(1000, len(tokenizer), (batch, length))
    gold = (torch.rand(batch, LABELS) < 0.02).float()
    seconds = []
    for _ in range(steps):
        started = time.process_time()
        optimiser.zero_grad()
        model(ids, torch.ones_like(ids), gold).loss.backward()
        optimiser.step()
        seconds.append(time.process_time() - started)
    return seconds, sum(parameter.numel() for parameter in trained)


def measure(encoder: str, batch: int, length: int, steps: int, **how: bool) -> dict[str, Any]:
    """Return the seconds of the steps and the peak memory that they add, in bytes."""
    tokenizer, config = load_tokenizer(encoder), load_encoder_config(encoder)
    small = AutoConfig.for_model(config.model_type, vocab_size=len(tokenizer), hidden_size=12, num_hidden_layers=1)
    take_steps(small, tokenizer, 2, 8, 1, **how)  # libraries allocate their own memory here
    before = memory()
    seconds, trained = take_steps(config, tokenizer, batch, length, steps + 1, **how)
    return {"seconds": spread(seconds[1:]), "bytes": peak_memory() - before, "trained_parameters": trained}


def main() -> None:
    """Measure each variant in its own process; with ``--only``, one in this process."""
    parser = arguments_of(__doc__)
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--only", choices=CONTENDERS, help="measure only this variant, in this process, and print JSON")
    parser.add_argument("--output", type=Path, help="write the result to this JSON file")
    arguments = parser.parse_args()
    sizes = (arguments.encoder, arguments.batch, arguments.length, arguments.steps)
    if arguments.only is not None:
        print(json.dumps(measure(*sizes, **CONTENDERS[arguments.only])))
        return
    contenders = {}
    for name in CONTENDERS:
        command = [sys.executable, __file__, *sys.argv[1:], "--only", name]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        contenders[name] = json.loads(done.stdout.splitlines()[-1])
    setting = dict(zip(("encoder", "batch", "length", "steps"), sizes, strict=True))
    write({"setting": setting, "contenders": contenders, **provenance()}, arguments.output)
    base = contenders["neither"]
    rows = [
        (
            name,
            f"{each['seconds']['median']:.2f} s",
            f"{each['seconds']['median'] / base['seconds']['median']:.2f} x",
            f"{each['bytes'] / 1e6:,.0f} MB",
            f"{each['trained_parameters'] / 1e6:.2f} M",
        )
        for name, each in contenders.items()
    ]
    show("A training step", ("", "time", "relative to neither", "peak memory", "trained parameters"), rows)


if __name__ == "__main__":
    main()
