"""Measure start-up time: ``hgclr --help``, and the first prediction of an exported model.

    python benchmarks/startup.py --data ../shared/data/clinc150 --output benchmarks/results/startup.json

Each command runs in its own process, several times in turns. One more run checks whether torch is imported.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hgclr.data import DataFolder
from measuring import arguments_of, in_turns, provenance, show, spread, write

HELP, PREDICT = "hgclr --help", "hgclr predict, onnxruntime"
TEXT = "please move money between my accounts"
START = "from hgclr.cli.app import app; app()"
HEAVY = ("torch", "transformers", "datasets", "onnxruntime")


def command(arguments: Sequence[str]) -> Callable[[], str]:
    """Return a function that runs ``hgclr`` in a new process and returns its output."""

    def start() -> str:
        done = subprocess.run([sys.executable, "-c", START, *arguments], capture_output=True, text=True, check=True)
        return done.stdout

    return start


def imported(arguments: Sequence[str]) -> list[str]:
    """Return the heavy packages that a command imports."""
    started = [sys.executable, "-X", "importtime", "-c", START, *arguments]
    done = subprocess.run(started, capture_output=True, text=True, check=True)
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    return [package for package in HEAVY if package in modules]


def run(data: Path, *, model: Path | None = None, encoder: str = "all-MiniLM-L6-v2", rounds: int = 5) -> dict[str, Any]:
    """Return the seconds of both commands and the heavy packages that they import.

    Args:
        data: data folder, for the label tree of the model with a random head.
        model: folder of a trained model; default: a random head.
        encoder: encoder of the model with a random head.
        rounds: number of timed rounds.

    Raises:
        ValueError: if the command prints no prediction.
    """
    from hgclr.export.onnx import export_onnx
    from untrained import write_untrained

    with tempfile.TemporaryDirectory() as scratch:
        source = model or write_untrained(encoder, DataFolder(data).taxonomy, Path(scratch, "torch"))
        export_onnx(source, Path(scratch, "int8"), int8=True)
        arguments = {HELP: ["--help"], PREDICT: ["predict", str(Path(scratch, "int8")), TEXT, "--show", "json"]}
        row = json.loads(command(arguments[PREDICT])())
        if row["text"] != TEXT or "prediction" not in row:
            raise ValueError(f"the command printed no prediction: {row}")
        seconds = in_turns({name: command(given) for name, given in arguments.items()}, rounds)
        packages = {name: imported(given) for name, given in arguments.items()}
    return {
        "seconds": {name: spread(values) for name, values in seconds.items()},
        "imports": packages,
        "setting": {"model": source.name if model else f"untrained head on {encoder}", "rounds": rounds},
        **provenance(),
    }


def main() -> None:
    """Run the benchmark, write the result and print the table."""
    parser = arguments_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="data folder, such as ../shared/data/clinc150")
    parser.add_argument("--model", type=Path, help="folder of a trained model; default: a random head")
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2", help="encoder of the model with a random head")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="write the result to this JSON file")
    arguments = parser.parse_args()
    result = run(arguments.data, model=arguments.model, encoder=arguments.encoder, rounds=arguments.rounds)
    write(result, arguments.output)
    rows = [
        (
            name,
            f"{value['median']:.2f} s ({value['lowest']:.2f}-{value['highest']:.2f})",
            ", ".join(result["imports"][name]),
        )
        for name, value in result["seconds"].items()
    ]
    show("Start-up", ("", "seconds", "imports"), rows)


if __name__ == "__main__":
    main()
