"""A training step on 1, 2 and 4 processes, beside what the cost model of docs/benchmarks/scaling.md says.

    python benchmarks/scaling.py --data ../shared/data/arxiv --output benchmarks/results/scaling.json

Each run is ``train`` under torchrun, one thread a process; a callback reads CPU time and the bytes that have gone
through the loopback device after every step. One process with batches of three sizes gives what a step costs by itself
and what each document adds; from these two the model says what several processes, which share a batch, will take.
Seconds are CPU seconds of one process: those of the clock say nothing where there are fewer cores than processes.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from measuring import arguments_of, provenance, show, write

BATCH = 12
PROCESSES = (2, 4)
BATCHES = (3, 6, 12)
"""Of one process: as many documents as each of four, of two and a single one has of a batch of twelve."""
WARM_UP = 2
"""Steps that are not counted."""


def received_bytes() -> int:
    """Return how many bytes the processes of this machine have sent each other since it was started."""
    devices = Path("/proc/net/dev").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in devices if line.strip().startswith("lo:"))


def train_as_rank(data: Path, architecture: str, batch: int, steps: int, length: int, output: Path) -> None:
    """Train as one of the processes that torchrun has started, and write down every step."""
    from transformers import TrainerCallback

    from hgclr.training import RunConfig, train

    marks: list[tuple[float, int]] = []
    parameters: list[int] = []

    class Steps(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, model: Any, **__: Any) -> None:
            marks.append((time.process_time(), received_bytes()))
            parameters[:] = [sum(p.numel() for p in model.parameters() if p.requires_grad)]

    settings = {
        "data": {"path": data, "limit": batch * steps, "dev_limit": 8, "label_documents": False},
        "model": {"architecture": architecture, "max_length": length},
        "training": {"epochs": 1, "batch_size": batch, "precision": "fp32", "batching": "uniform", "calibrate": False},
        "output": output / "run",
    }
    train(RunConfig.model_validate(settings), callbacks=[Steps()], score_test=False)
    seconds, received = (np.diff([mark[part] for mark in marks])[WARM_UP:].tolist() for part in (0, 1))
    result = {"seconds": seconds, "bytes": received, "parameters": parameters[0]}
    (output / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(result), encoding="utf-8")


def measure(data: Path, architecture: str, processes: int, batch: int, steps: int, length: int) -> dict[str, Any]:
    """Return CPU seconds of a process and bytes sent by all in a step, medians over steps and processes."""
    with tempfile.TemporaryDirectory() as folder:
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        script = [__file__, "--data", data, "--rank-of", architecture, "--batch", batch, "--steps", steps]
        command = [sys.executable, *torchrun, *map(str, script), "--length", str(length), "--output", folder]
        done = subprocess.run(
            command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(done.stderr[-3000:])
        ranks = [json.loads(file.read_text(encoding="utf-8")) for file in Path(folder).glob("rank-*.json")]
    return {
        "seconds": statistics.median(second for rank in ranks for second in rank["seconds"]),
        "bytes": statistics.median(ranks[0]["bytes"]),
        "parameters": ranks[0]["parameters"],
    }


def run(data: Path, *, steps: int, length: int) -> dict[str, Any]:
    """Return, for the flat encoder and for HGCLR, what a step takes and what the model expects."""
    systems = {}
    for architecture in ("flat", "hgclr"):
        alone = {batch: measure(data, architecture, 1, batch, steps, length) for batch in BATCHES}
        document, step = np.polyfit(BATCHES, [alone[batch]["seconds"] for batch in BATCHES], 1)
        rows = [{"processes": 1, "batch": batch, "seconds": alone[batch]["seconds"]} for batch in BATCHES]
        for processes in PROCESSES:
            measured = measure(data, architecture, processes, BATCH, steps, length)
            rows.append(
                {
                    "processes": processes,
                    "batch": BATCH,
                    "seconds": measured["seconds"],
                    "expected_seconds": step + document * BATCH / processes,
                    "bytes": measured["bytes"],
                    "expected_bytes": 2 * (processes - 1) * 4 * measured["parameters"],  # a ring, all links together
                }
            )
        systems[architecture] = {
            "seconds_per_step": step,
            "seconds_per_document": document,
            "parameters": alone[BATCH]["parameters"],
            "runs": rows,
        }
    return {"systems": systems, "setting": {"data": data.name, "tokens": length, "steps": steps}, **provenance()}


def main() -> None:
    """Measure, write the result and print the table; or be one of the processes."""
    parser = arguments_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="data folder, such as ../shared/data/arxiv")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--length", type=int, default=128, help="tokens that are read of a text")
    parser.add_argument("--output", type=Path, help="JSON file to write")
    parser.add_argument("--rank-of", help="used by the script itself: train this system as one process of several")
    parser.add_argument("--batch", type=int, default=BATCH, help="used by the script itself")
    arguments = parser.parse_args()
    data, steps, length = arguments.data, arguments.steps, arguments.length
    if arguments.rank_of:
        train_as_rank(data, arguments.rank_of, arguments.batch, steps, length, arguments.output)
        return
    result = run(data, steps=steps, length=length)
    write(result, arguments.output)
    for name, system in result["systems"].items():
        rows = [
            (
                f"{row['processes']} x {row['batch'] // row['processes']} documents",
                f"{row['seconds']:.2f}",
                f"{row.get('expected_seconds', row['seconds']):.2f}",
                f"{row.get('bytes', 0) / 1e6:.0f}",
                f"{row.get('expected_bytes', 0) / 1e6:.0f}",
            )
            for row in system["runs"]
        ]
        show(f"A step of {name}", ("", "CPU s of a process", "expected", "MB sent by all", "expected"), rows)


if __name__ == "__main__":
    main()
