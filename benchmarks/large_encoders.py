"""Time and peak memory of a training step: as it is, with gradient checkpointing, with LoRA, with both.

    OMP_NUM_THREADS=1 python benchmarks/large_encoders.py --output benchmarks/results/large-encoders.json

Texts of random words, all of the same length, 141 labels, flat. Each contender has a process of its own, because a peak
is that of a process; its memory is what the process holds at most beyond what it held before the model was made. Times
are of the CPU, of which a step uses one thread, medians over steps after the first.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from measuring import arguments_of, memory, peak_memory, provenance, show, spread, write

LABELS = 141
CONTENDERS = {
    "as it is": {},
    "gradient checkpointing": {"checkpointing": True},
    "LoRA": {"lora": True},
    "LoRA, gradient checkpointing": {"lora": True, "checkpointing": True},
}


def measure(
    encoder: str, batch: int, length: int, steps: int, *, lora: bool = False, checkpointing: bool = False
) -> dict[str, Any]:
    """Return the seconds of steps, and what memory this process has taken for them at most, in bytes."""
    import torch

    from hgclr.cli.console import quiet_libraries
    from hgclr.models import FlatForSequenceClassification
    from hgclr.models.base import load_tokenizer
    from hgclr.nn.draws import drawn_for
    from hgclr.taxonomy import Taxonomy
    from hgclr.training.large_encoders import add_adapters, checkpoint_layers
    from hgclr.training.settings import LoraSettings
    from hgclr.training.trainer import accelerate_on_cpu

    quiet_libraries()
    tree = Taxonomy([str(label) for label in range(LABELS)], [-1] * LABELS)
    tokenizer = load_tokenizer(encoder)
    torch.nn.Linear(8, 8)(torch.ones(1, 8)).sum().backward()  # kernels are loaded
    before = memory()
    torch.manual_seed(0)
    model = FlatForSequenceClassification.from_encoder(encoder, tree, tokenizer).train()
    if lora:
        add_adapters(model.encoder, LoraSettings())
    accelerate_on_cpu(model, model.encoder)
    if checkpointing:
        checkpoint_layers(model.encoder)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=1e-5, fused=True)
    ids = torch.randint(1000, len(tokenizer), (batch, length))
    gold = (torch.rand(batch, LABELS) < 0.02).float()
    seconds = []
    for step in range(steps + 1):
        started = time.process_time()
        optimiser.zero_grad()
        with drawn_for(range(batch), 0, step):
            model(ids, torch.ones_like(ids), gold).loss.backward()
        optimiser.step()
        seconds.append(time.process_time() - started)
    return {
        "seconds": spread(seconds[1:]),
        "bytes": peak_memory() - before,
        "trained_parameters": sum(parameter.numel() for parameter in trained),
    }


def main() -> None:
    """Measure each contender, or, in its process, one."""
    parser = arguments_of(__doc__)
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--only", choices=CONTENDERS, help="measure one contender in this process, and print JSON")
    parser.add_argument("--output", type=Path, help="JSON file to write")
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
    base = contenders["as it is"]
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
    show("A training step", ("", "a step", "of the first", "memory at most", "trained parameters"), rows)


if __name__ == "__main__":
    main()
