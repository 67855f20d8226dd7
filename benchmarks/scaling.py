"""Measure a training step on 1, 2 and 4 processes and compare it with the cost model of docs/benchmarks/scaling.md.

    python benchmarks/scaling.py --data ../shared/data/arxiv --output benchmarks/results/scaling.json

Each run is ``train`` under torchrun with one thread per process. After every step a callback reads the CPU time and the
bytes through the loopback device. Runs of one process with three batch sizes give the cost of a step and of a document;
from these the model predicts several processes that share a batch. Seconds are CPU seconds of one process, because
wall-clock time means nothing with fewer cores than processes.
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
"""Batch sizes of one process: the shares of four, two and one process in a batch of twelve."""
WARM_UP = 2
"""First steps, which are not counted."""


def received_bytes() -> int:
    """Return the bytes through the loopback device since the machine started."""
    devices = Path("/proc/net/dev").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in devices if line.strip().startswith("lo:"))


def train_as_rank(data: Path, architecture: str, batch: int, steps: int, length: int, output: Path) -> None:
    """Train as one process under torchrun and record every step."""
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
    """Return CPU seconds per process and bytes sent by all per step, medians over steps and processes."""
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
    """Return the measured and the predicted cost of a step, for flat and for HGCLR."""
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
                    "expected_bytes": 2 * (processes - 1) * 4 * measured["parameters"],  # a ring; sum over all links
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
    """Run the benchmark, write the result and print the tables; with ``--rank-of``, run one process."""
    parser = arguments_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="data folder, such as ../shared/data/arxiv")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--length", type=int, default=128, help="tokens read per text")
    parser.add_argument("--output", type=Path, help="write the result to this JSON file")
    parser.add_argument("--rank-of", help="internal: train this architecture as one process of several")
    parser.add_argument("--batch", type=int, default=BATCH, help="internal: batch size")
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
        show(f"A step of {name}", ("", "CPU s per process", "predicted", "MB sent by all", "predicted"), rows)


if __name__ == "__main__":
    main()
