"""Compare training with and without a pool of unlabelled texts, on a sample of train; the pool is the rest of it.

    OMP_NUM_THREADS=1 python benchmarks/unlabelled.py --name clinc150 --data ../shared/data/clinc150 --limit 300 \
        --pool 6000 --seeds 1,2,3 --set data.dev_limit=500 --set data.test_limit=2000 --set model.max_length=32 \
        --set training.epochs=6 --output benchmarks/results/unlabelled

One run gives both scores: the model before the pool, and the model that is kept. Finished seeds are read from
``--output``. ``--limit 0`` is the effort ``names``.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hgclr.cli.options import number_list
from hgclr.data.folder import DataFolder
from hgclr.data.tokens import sample_documents
from hgclr.training import RunConfig, train
from measuring import arguments_of, provenance, show, write


def write_pool(data: DataFolder, limit: int, seed: int, size: int, file: Path) -> int:
    """Write texts of train that are not in the sample of a seed, without their labels; return their number."""
    sample = {document.text for document in sample_documents(data, "train", (limit, seed))} if limit else set()
    rest = [document.text for document in data.documents("train") if document.text not in sample]
    chosen = np.random.default_rng(seed).permutation(len(rest))[:size]
    file.write_text("".join(json.dumps({"text": rest[place]}) + "\n" for place in chosen), encoding="utf-8")
    return len(chosen)


def f1(metrics: dict[str, Any]) -> list[float]:
    """Return Micro- and Macro-F1 on test, in points."""
    return [100 * metrics["test"][average]["f1"] for average in ("micro", "macro")]


def measure(settings: list[str], data: Path, limit: int, seed: int, size: int) -> dict[str, Any]:
    """Train once; return the scores and CPU seconds without and with the pool."""
    with tempfile.TemporaryDirectory(prefix="hgclr-") as folder:
        pool = Path(folder) / "pool.jsonl"
        chosen = [*settings, f"training.seed={seed}", f"data.unlabelled={pool}"]
        chosen.append(f"data.limit={limit}" if limit else "training.effort=names")
        run = RunConfig.read(data, chosen, Path(folder) / "run")
        texts = write_pool(DataFolder(run.data.path, taxonomy=run.data.taxonomy), limit, seed, size, pool)
        metrics = train(run).metrics
    found = metrics["unlabelled"]
    before = found.pop("before", metrics)
    return {
        "texts": texts,
        "without": f1(before),
        "with": f1(metrics),
        "cpu_seconds": [before["cpu_seconds"], metrics["cpu_seconds"]],
        **{name: found[name] for name in ("kept", "dev", "tried")},
        "labels_with_some": len(found["labels"]),
    }


def main() -> None:
    """Measure every seed and write the results."""
    parser = arguments_of(__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--limit", type=int, required=True, help="labelled documents; 0 is the effort names")
    parser.add_argument("--pool", type=int, default=6000, help="unlabelled texts")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--set", dest="settings", action="append", default=[])
    parser.add_argument("--output", type=Path, required=True, help="folder")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    file = arguments.output / f"{arguments.name}-{arguments.limit}.json"
    seeds = json.loads(file.read_text(encoding="utf-8"))["seeds"] if file.is_file() else {}
    for seed in number_list("--seeds", arguments.seeds, int):
        if str(seed) not in seeds:
            seeds[str(seed)] = measure(arguments.settings, arguments.data, arguments.limit, seed, arguments.pool)
        runs = list(seeds.values())
        summary = {}
        for name in ("without", "with"):
            for average, values in zip(("micro", "macro"), zip(*(run[name] for run in runs), strict=True), strict=True):
                deviation = statistics.stdev(values) if len(values) > 1 else 0.0
                summary[f"{average}, {name} the pool"] = {"mean": statistics.fmean(values), "sd": deviation}
        write({**provenance(), "seeds": seeds, "summary": summary}, file)
    show(file.stem, ("", "mean", "sd"), [(name, f"{v['mean']:.1f}", f"{v['sd']:.1f}") for name, v in summary.items()])


if __name__ == "__main__":
    main()
