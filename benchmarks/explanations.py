"""Test explanations: the probability of a label with its strongest words alone, and without them.

    python benchmarks/explanations.py --name icd10cm --data data/icd10cm --model runs/first/model \
        --output benchmarks/results/explanations/icd10cm.json

Numbers are means over the predicted labels of test texts with at least three words, in percent. Good words alone keep
the probability high, compared with as many random words, and their removal lowers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hgclr.data.folder import DataFolder
from hgclr.data.tokens import sample_documents
from hgclr.evaluation.explanation import Method
from hgclr.inference import HierarchicalClassifier
from measuring import arguments_of, provenance, show, write

METHODS: tuple[Method, ...] = ("integrated", "occlusion")


def measure(classifier: HierarchicalClassifier, texts: Sequence[str], method: Method) -> dict[str, float]:
    """Return the mean probabilities with and without the strongest words, for one method."""
    values, same = [], []
    for text in texts:
        explanation = classifier.explain(text, method=method)
        if len(explanation.words) < 3 or explanation.labels[0].status != "predicted":
            continue
        same.append(explanation.stability.same)
        values += [
            (label.label.probability, label.only_kept, label.only_random, label.without_kept)
            for label in explanation.labels
        ]
    whole, only, random, without = (100 * np.mean(values, axis=0)).round(2).tolist()
    return {
        "texts": len(same),
        "labels": len(values),
        "whole_text": whole,
        "only_these_words": only,
        "as_many_at_random": random,
        "without_them": without,
        "same_label_set": round(100 * float(np.mean(same)), 2),
    }


def main() -> None:
    """Run the benchmark, print the table and write the result."""
    parser = arguments_of(__doc__)
    parser.add_argument("--name", required=True, help="name of the data set in the table")
    parser.add_argument("--data", type=Path, required=True, help="data folder")
    parser.add_argument("--model", type=Path, required=True, help="model folder")
    parser.add_argument("--texts", type=int, default=40, help="number of test texts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, help="write the result to this JSON file")
    arguments = parser.parse_args()
    classifier = HierarchicalClassifier.load(arguments.model)
    folder = DataFolder(arguments.data, taxonomy=classifier.taxonomy)
    texts = [document.text for document in sample_documents(folder, "test", (arguments.texts, arguments.seed))]
    found = {method: measure(classifier, texts, method) for method in METHODS}
    columns = ("whole_text", "only_these_words", "as_many_at_random", "without_them", "same_label_set")
    rows = [[name, *(f"{row[column]:.1f}" for column in columns)] for name, row in found.items()]
    show(arguments.name, ["", *(column.replace("_", " ") for column in columns)], rows)
    write({"data": arguments.name, "seed": arguments.seed, **provenance(), "methods": found}, arguments.output)


if __name__ == "__main__":
    main()
