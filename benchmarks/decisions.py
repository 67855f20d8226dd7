"""Compare decoding rules, tuned thresholds and calibration: fitted on dev, scored on test.

    python benchmarks/decisions.py --name clinc150 --data ../shared/data/clinc150 --models runs/1/model runs/2/model \
        --output benchmarks/results/decisions/clinc150.json

Give one model per seed. Numbers are mean and standard deviation over the models, F1 in points.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import DataFolder
from hgclr.decisions.decoding import RULES, Rule
from hgclr.decisions.settings import METHODS, Decisions, fit_calibration, sigmoid
from hgclr.decisions.thresholds import METRICS, SCOPES, ThresholdTuner
from hgclr.decisions.tuning import Outputs, calibrate
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.classifier import sampled
from hgclr.metrics.probabilities import CalibrationScores
from hgclr.metrics.scores import MultiLabelScores
from hgclr.taxonomy import Taxonomy
from measuring import arguments_of, provenance, show, write

RISKS = (0.1, 0.05, 0.02)
DEV_SIZES = (10, 30, 100, 300)
DRAWS = 10
"""Number of random samples of dev of each size."""
TUNED: Rule = "drop-orphans"
"""The rule with which thresholds are compared."""


def scored(predicted: NDArray[np.bool_], gold: NDArray[np.bool_], taxonomy: Taxonomy) -> dict[str, float]:
    """Return the scores of predicted labels, in points."""
    scores = MultiLabelScores(taxonomy)
    scores.update(predicted, gold)
    return {
        "micro_f1": 100 * scores.micro().f1,
        "macro_f1": 100 * scores.macro().f1,
        "hierarchical_f1": 100 * scores.hierarchical().f1,
        "orphans": 100 * scores.inconsistency_rate(),
        "exact": 100 * scores.subset_accuracy(),
    }


def of_rules(test: Outputs, taxonomy: Taxonomy) -> dict[str, dict[str, float]]:
    """Score every decoding rule, without calibration, at threshold 0.5."""
    probabilities = sigmoid(test.logits.copy())
    return {
        rule: scored(Decisions(taxonomy, rule, paths=2).decide(probabilities).predicted, test.gold, taxonomy)
        for rule in RULES
    }


def of_thresholds(dev: Outputs, test: Outputs, taxonomy: Taxonomy) -> dict[str, dict[str, float]]:
    """Score thresholds of every scope, tuned for every metric."""
    known, unknown = sigmoid(dev.logits.copy()), sigmoid(test.logits.copy())
    found = {"none": scored(Decisions(taxonomy, TUNED).decide(unknown).predicted, test.gold, taxonomy)}
    for metric in METRICS:
        tuner = ThresholdTuner(taxonomy, TUNED, metric)
        for scope in SCOPES:
            thresholds = tuner.tune([scope], known, dev.gold)[scope]
            given = Decisions(taxonomy, TUNED, thresholds).decide(unknown).predicted
            found[f"{scope}, for {metric}"] = scored(given, test.gold, taxonomy)
    return found


def of_calibrations(dev: Outputs, test: Outputs, taxonomy: Taxonomy) -> dict[str, dict[str, float]]:
    """Return the expected calibration error in points, and the Brier score times 1000, of each calibration."""
    ways = {"none": sigmoid(test.logits.copy())}
    ways |= {method: fit_calibration(method, dev.logits, dev.gold, taxonomy)(test.logits) for method in METHODS}
    found = {}
    for name, probabilities in ways.items():
        scores = CalibrationScores(taxonomy)
        scores.update(probabilities, test.gold)
        found[name] = {"ece": 100 * scores.ece(), "brier": 1000 * scores.brier()}
    return found


def of_all(dev: Outputs, test: Outputs, taxonomy: Taxonomy) -> dict[str, Any]:
    """Score the decisions of ``hgclr calibrate``, and count the labels that it withholds at each risk."""
    today = Decisions(taxonomy)
    found = calibrate(dev, today).decisions
    assert found.calibration is not None
    probabilities = found.calibration(test.logits)
    result: dict[str, Any] = {
        "rule": found.rule,
        "thresholds": found.provenance["thresholds"],
        "scores": scored(found.decide(probabilities).predicted, test.gold, taxonomy),
        "risks": {},
    }
    everything = found.decide(probabilities).predicted
    for risk in RISKS:
        certain = calibrate(dev, today, rule=found.rule, risk=risk).decisions.abstain_below
        given = replace(found, abstain_below=certain).decide(probabilities).predicted
        wrong = np.count_nonzero(given & ~test.gold) / max(1, np.count_nonzero(given))
        kept = np.count_nonzero(given) / max(1, np.count_nonzero(everything))
        result["risks"][str(risk)] = {"wrong": 100 * wrong, "kept": 100 * kept}
    return result


def of_dev_sizes(dev: Outputs, test: Outputs, taxonomy: Taxonomy) -> dict[str, dict[str, float]]:
    """Score threshold 0.5, and ``hgclr calibrate`` on samples of dev: mean and worst sample."""
    half = scored(Decisions(taxonomy).decide(sigmoid(test.logits.copy())).predicted, test.gold, taxonomy)
    found = {"threshold 0.5": half | {"lowest_micro_f1": half["micro_f1"], "lowest_macro_f1": half["macro_f1"]}}
    for size in (*(size for size in DEV_SIZES if size < len(dev.gold)), len(dev.gold)):
        scores = []
        for draw in range(DRAWS if size < len(dev.gold) else 1):
            chosen = np.random.default_rng(draw).choice(len(dev.gold), size, replace=False)
            decisions = calibrate(Outputs(dev.logits[chosen], dev.gold[chosen]), Decisions(taxonomy)).decisions
            given = decisions.decide(decisions.probabilities(test.logits.copy())).predicted
            scores.append(scored(given, test.gold, taxonomy))
        found[f"{size} documents"] = {
            **{name: statistics.mean(each[name] for each in scores) for name in half},
            **{f"lowest_{name}": min(each[name] for each in scores) for name in ("micro_f1", "macro_f1")},
        }
    return found


def measure(model: Path, folder: DataFolder, *, limit: int) -> dict[str, Any]:
    """Return all comparisons of one model."""
    classifier = HierarchicalClassifier.load(model)
    dev, test = (classifier.outputs(sampled(folder, split, limit)) for split in ("dev", "test"))
    taxonomy = classifier.taxonomy
    return {
        "documents": {"dev": len(dev.gold), "test": len(test.gold)},
        "rules": of_rules(test, taxonomy),
        "thresholds": of_thresholds(dev, test, taxonomy),
        "calibration": of_calibrations(dev, test, taxonomy),
        "calibrate": of_all(dev, test, taxonomy),
        "dev_sizes": of_dev_sizes(dev, test, taxonomy),
    }


def gathered(runs: Sequence[Any]) -> Any:
    """Return mean and standard deviation of numbers, and the list of texts, over all runs."""
    first = runs[0]
    if isinstance(first, Mapping):
        return {key: gathered([run[key] for run in runs]) for key in first}
    if isinstance(first, str):
        return list(runs)
    spread = statistics.stdev(runs) if len(runs) > 1 else 0.0
    return {"mean": round(statistics.mean(runs), 3), "sd": round(spread, 3)}


def _text(value: Mapping[str, float], digits: int = 1) -> str:
    return f"{value['mean']:.{digits}f} ± {value['sd']:.{digits}f}"


def main() -> None:
    """Run the benchmark, print the tables and write the result."""
    parser = arguments_of(__doc__)
    parser.add_argument("--name", required=True, help="name of the data set in the tables")
    parser.add_argument("--data", type=Path, required=True, help="data folder")
    parser.add_argument("--models", type=Path, nargs="+", required=True, help="model folders, one per seed")
    parser.add_argument("--limit", type=int, default=4000, help="maximum number of dev and of test documents")
    parser.add_argument("--output", type=Path, help="write the result to this JSON file")
    arguments = parser.parse_args()
    runs = [measure(model, DataFolder(arguments.data), limit=arguments.limit) for model in arguments.models]
    result = {"data": arguments.name, **provenance(), "models": len(runs), **gathered(runs), "runs": runs}
    for part in ("rules", "thresholds"):
        rows = [
            [name, _text(row["micro_f1"]), _text(row["macro_f1"]), _text(row["orphans"]), _text(row["exact"])]
            for name, row in result[part].items()
        ]
        show(f"{arguments.name}: {part}", ["", "Micro-F1", "Macro-F1", "orphans, %", "exact, %"], rows)
    rows = [[name, _text(row["ece"], 2), _text(row["brier"], 2)] for name, row in result["calibration"].items()]
    show(f"{arguments.name}: calibration", ["", "ECE, %", "Brier, x 1000"], rows)
    found = result["calibrate"]
    show(
        f"{arguments.name}: hgclr calibrate ({', '.join(found['rule'])}; {', '.join(found['thresholds'])})",
        ["", "Micro-F1", "Macro-F1", "exact, %"],
        [["as found", *(_text(found["scores"][name]) for name in ("micro_f1", "macro_f1", "exact"))]],
    )
    columns = ("micro_f1", "lowest_micro_f1", "macro_f1", "lowest_macro_f1", "exact")
    rows = [[size, *(_text(row[name]) for name in columns)] for size, row in result["dev_sizes"].items()]
    show(
        f"{arguments.name}: tuned on samples of dev, {DRAWS} per size",
        ["", "Micro-F1", "worst sample", "Macro-F1", "worst sample", "exact, %"],
        rows,
    )
    rows = [[risk, _text(row["wrong"]), _text(row["kept"])] for risk, row in found["risks"].items()]
    show(f"{arguments.name}: abstention", ["risk", "wrong, %", "labels kept, %"], rows)
    write(result, arguments.output)


if __name__ == "__main__":
    main()
