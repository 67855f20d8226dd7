"""Put the scores of several seeds of several systems side by side: mean ± standard deviation, as Markdown and JSON.

    python benchmarks/summarise.py --output benchmarks/results/clinc150-small.json \
        flat='runs/flat-*/metrics.json' hgclr='runs/hgclr-*/metrics.json'

The JSON keeps what each number depends on: settings, seeds, commit, versions, machine.
"""

from __future__ import annotations

import glob
import json
import statistics
from pathlib import Path
from typing import Any

from measuring import arguments_of

SCORES = [(split, average) for split in ("dev", "test") for average in ("micro", "macro")]


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one system's scores over its seeds, in percent, with all that they depend on.

    Raises:
        ValueError: if the runs differ in anything but the seed.
    """
    settings = [{**run["run"], "training": {**run["run"]["training"], "seed": None}, "output": None} for run in runs]
    if any(other != settings[0] for other in settings):
        raise ValueError("the runs of one system must differ in nothing but the seed")
    summary: dict[str, Any] = {"seeds": [run["run"]["training"]["seed"] for run in runs]}
    for split, average in SCORES:
        values = [round(100 * run[split][average]["f1"], 2) for run in runs]
        summary[f"{split}_{average}_f1"] = {
            "values": values,
            "mean": round(statistics.mean(values), 2),
            "sd": round(statistics.stdev(values), 2) if len(values) > 1 else None,
        }
    summary["seconds"] = round(statistics.mean(run["seconds"] for run in runs), 1)
    summary["kept"] = runs[0]["history"][-1].get("kept")
    summary["documents"], summary["labels"] = runs[0]["documents"], runs[0]["labels"]
    summary["settings"] = {name: settings[0][name] for name in ("data", "model", "training")}
    summary["recipe"], summary["machine"] = runs[0]["recipe"], runs[0]["machine"]
    return summary


def table(systems: dict[str, dict[str, Any]]) -> str:
    """Return a Markdown table with one row per system."""
    lines = [
        "| | dev Micro-F1 | dev Macro-F1 | test Micro-F1 | test Macro-F1 | training |",
        "|---|---|---|---|---|---|",
    ]
    for name, summary in systems.items():
        scores = [summary[f"{split}_{average}_f1"] for split, average in SCORES]
        cells = [f"{score['mean']:.1f}" + ("" if score["sd"] is None else f" ± {score['sd']:.1f}") for score in scores]
        lines.append(f"| {name} | {' | '.join(cells)} | {summary['seconds']:.0f} s |")
    return "\n".join(lines)


def main() -> None:
    """Read the runs named on the command line."""
    parser = arguments_of(__doc__)
    parser.add_argument("systems", nargs="+", metavar="NAME=GLOB", help="a system and the metrics.json of its seeds")
    parser.add_argument("--output", type=Path, required=True, help="JSON file to write")
    arguments = parser.parse_args()
    systems = {}
    for system in arguments.systems:
        name, _, pattern = system.partition("=")
        files = sorted(glob.glob(pattern))  # noqa: PTH207, a pattern may be absolute
        if not files:
            parser.error(f"no file matches {pattern!r}")
        systems[name] = summarise([json.loads(Path(file).read_text(encoding="utf-8")) for file in files])
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(systems, indent=2) + "\n", encoding="utf-8")
    print(table(systems))


if __name__ == "__main__":
    main()
