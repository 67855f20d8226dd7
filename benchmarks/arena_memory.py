"""Measure the memory that onnxruntime keeps after large batches, with and without its arena allocator.

    OMP_NUM_THREADS=1 python benchmarks/arena_memory.py --output benchmarks/results/arena-memory.json

Each variant runs in its own process on the same batches of random words: small ones, then small ones with a larger one
in between, up to the 1,024 tokens of a prediction batch, then small ones again. The script reports the memory after
each part and the CPU seconds of a repetition.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgclr.inference.backends import import_onnxruntime, session_options
from hgclr.taxonomy import Taxonomy
from measuring import arguments_of, memory, provenance, show, write

VARIANTS = ("arena", "arena, as requested", "arena, shrunk after each run", "no arena")
SMALL = [(texts, length) for texts in (1, 2, 4, 8) for length in (9, 12, 17)]
LARGER = [(4, 64), (8, 64), (16, 48), (4, 200), (8, 120), (2, 512)]
"""Texts and tokens of the batches. Each is larger than all before; the last has the maximum size."""


def batches(shapes: list[tuple[int, int]]) -> list[dict[str, NDArray[np.int64]]]:
    """Return batches of random words."""
    random = np.random.default_rng(0)
    ids = [random.integers(1000, 20000, shape) for shape in shapes]
    return [{"input_ids": each, "attention_mask": np.ones_like(each)} for each in ids]


def measure(graph: Path, variant: str, rounds: int) -> dict[str, Any]:
    """Return the memory of this process after each part, and the CPU seconds of a round over all batches."""
    onnxruntime = import_onnxruntime()
    options = session_options()
    run_options = onnxruntime.RunOptions()
    if variant == "arena, as requested":
        place = onnxruntime.OrtMemoryInfo(
            "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
        )
        onnxruntime.create_and_register_allocator(place, onnxruntime.OrtArenaCfg({"arena_extend_strategy": 1}))
        options.add_session_config_entry("session.use_env_allocators", "1")
    elif variant == "arena, shrunk after each run":
        run_options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    options.enable_cpu_mem_arena = variant != "no arena"
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def run(given: list[dict[str, NDArray[np.int64]]]) -> None:
        for batch in given:
            session.run(["logits"], batch, run_options)

    small, larger = batches(SMALL), batches(LARGER)
    held = {"loaded": memory()}
    run(small)
    held["small"] = memory()
    for (texts, length), batch in zip(LARGER, larger, strict=True):
        run([batch, *small])
        held[f"{texts} x {length}"] = memory()
    for _ in range(5):
        run(small)
    held["small again"] = memory()
    seconds: dict[str, list[float]] = {"small": [], "larger": []}
    for _ in range(rounds):
        for name, given in (("small", small), ("larger", larger)):
            started = time.process_time()
            run(given)
            seconds[name].append(time.process_time() - started)
    held["at the end"] = memory()
    return {"bytes": held, "cpu_seconds": {name: min(values) for name, values in seconds.items()}}


def new_graph(encoder: str, folder: Path) -> Path:
    """Export a model with a random head and return the path of its graph."""
    from hgclr.export.onnx import export_onnx
    from untrained import write_untrained

    taxonomy = Taxonomy([str(label) for label in range(100)], [-1] * 100)
    export_onnx(write_untrained(encoder, taxonomy, folder / "torch"), folder / "onnx")
    return folder / "onnx" / "model.onnx"


def main() -> None:
    """Measure each variant in a new process, write the result and print the table."""
    parser = arguments_of(__doc__)
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--graph", type=Path, help="graph of an exported model; default: export one with a random head")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--variant", choices=VARIANTS, help="measure only this variant, in this process, and print JSON"
    )
    parser.add_argument("--output", type=Path, help="write the result to this JSON file")
    arguments = parser.parse_args()
    if arguments.variant:
        print(json.dumps(measure(arguments.graph, arguments.variant, arguments.rounds)))
        return
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        graph = arguments.graph or new_graph(arguments.encoder, Path(scratch))
        for variant in VARIANTS:
            given = ["--graph", str(graph), "--rounds", str(arguments.rounds), "--variant", variant]
            answer = subprocess.run([sys.executable, __file__, *given], check=True, capture_output=True, text=True)
            found[variant] = json.loads(answer.stdout)
    write({"setting": {"encoder": arguments.encoder}, "variants": found, **provenance()}, arguments.output)
    parts = list(next(iter(found.values()))["bytes"])
    rows = [(part, *(f"{each['bytes'][part] / 1e6:.0f} MB" for each in found.values())) for part in parts]
    rows += [
        (f"CPU s, {name}", *(f"{each['cpu_seconds'][name]:.3f}" for each in found.values()))
        for name in ("small", "larger")
    ]
    show("Memory of an onnxruntime session", ("", *found), rows)


if __name__ == "__main__":
    main()
