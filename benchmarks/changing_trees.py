"""Compare two ways to add labels to a trained model: continue training, or train from scratch.

    python benchmarks/changing_trees.py --data ../shared/data/clinc150 --max-length 64 \
        --output benchmarks/results/changing-trees.json

A first model is trained without some leaves and without the documents that have them. Then, on all documents and
labels: (a) the first model is trained for a few more epochs, (b) a new model is trained for all epochs, (c) a new model
is trained for as few epochs as (a). Scores are Macro-F1 on test at threshold 0.5: over all labels, over the added ones,
and over the others. The seed decides which labels are added, and everything else that is random.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hgclr.data.folder import DataFolder
from hgclr.data.tokens import sample_documents
from hgclr.inference import HierarchicalClassifier
from hgclr.taxonomy import Taxonomy
from hgclr.training import RunConfig, TrainingResult, train
from measuring import arguments_of, provenance, show, spread, write

BEFORE, CONTINUED = "before the change", "training continued"
SCRATCH, SCRATCH_SHORT = "from scratch", "from scratch, as few epochs"
GROUPS = ("all", "added", "others")


def without(tree: Taxonomy, labels: Sequence[int]) -> Taxonomy:
    """Return the tree without some leaves."""
    left = [label for label in range(len(tree)) if label not in set(labels)]
    place = {label: index for index, label in enumerate(left)}
    parents = [place.get(int(tree.parents[label]), -1) for label in left]
    return Taxonomy([tree.ids[label] for label in left], parents, [tree.names[label] for label in left])


def write_folder(
    data: DataFolder, target: Path, held_back: Sequence[int], *, documents: int | None, scored: int | None, seed: int
) -> DataFolder:
    """Write a data folder without some labels and without the documents that have them.

    Args:
        data: source.
        target: folder to write.
        held_back: leaves to leave out; empty for all documents.
        documents: size of the sample of train, drawn before labels are left out.
        scored: size of the samples of dev and test.
        seed: seed of the samples.
    """
    target.mkdir()
    without(data.taxonomy, held_back).write(target / "taxonomy.json")
    for split in data.splits:
        limit = documents if split == "train" else scored
        with (target / f"{split}.jsonl").open("w", encoding="utf-8") as file:
            for document in sample_documents(data, split, None if limit is None else (limit, seed)):
                if not set(held_back) & set(document.labels):
                    labels = [data.taxonomy.ids[label] for label in document.labels]
                    file.write(json.dumps({"text": document.text, "labels": labels}) + "\n")
    return DataFolder(target)


def label_f1(model: Path, data: DataFolder) -> dict[str, float]:
    """Return the test F1 of each label of the model, by id; 0 where F1 is undefined."""
    classifier = HierarchicalClassifier.load(model)
    test = list(data.documents("test"))
    gold = np.zeros((len(test), len(data.taxonomy)), dtype=bool)
    for row, document in enumerate(test):
        gold[row, list(document.labels)] = True
    given = classifier.predict_proba([document.text for document in test]) > 0.5
    scores = {}
    for column, label in enumerate(classifier.taxonomy.ids):
        right = gold[:, data.taxonomy.resolve(label)]
        found = given[:, column]
        scores[label] = 2 * float((right & found).sum()) / max(1, int(right.sum() + found.sum()))
    return scores


def report(result: TrainingResult, data: DataFolder, held_back: Sequence[str]) -> dict[str, Any]:
    """Return seconds, epochs and scores of a run on the test documents of ``data``."""
    scores = label_f1(result.model, data)
    everywhere = {label: scores.get(label, 0.0) for label in data.taxonomy.ids}  # an unknown label counts 0
    groups = {
        "all": list(everywhere.values()),
        "added": [everywhere[label] for label in held_back],
        "others": [score for label, score in everywhere.items() if label not in held_back],
    }
    return {
        "macro_f1": {name: 100 * float(np.mean(values)) for name, values in groups.items()},
        "seconds": result.metrics["seconds"],
        "epochs": len(result.metrics["history"]),
        "documents": result.metrics["documents"]["train"],
    }


def one_seed(
    data: DataFolder,
    seed: int,
    *,
    held_back: int,
    model: dict[str, Any],
    epochs: int,
    more_epochs: int,
    documents: int | None,
    scored: int | None,
    training: dict[str, Any],
) -> dict[str, Any]:
    """Train all models with one seed and return their scores."""
    leaves = np.random.default_rng(seed).choice(data.taxonomy.leaves, held_back, replace=False).tolist()
    names = sorted(data.taxonomy.ids[label] for label in leaves)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        sizes = {"documents": documents, "scored": scored, "seed": seed}
        whole = write_folder(data, place / "whole", [], **sizes)
        smaller = write_folder(data, place / "smaller", leaves, **sizes)

        def trained(kind: str, folder: DataFolder, settings: dict[str, Any], number: int) -> TrainingResult:
            return train(
                RunConfig.model_validate(
                    {
                        "data": {"path": folder.path},
                        "model": settings,
                        "training": {**training, "epochs": number, "patience": number, "seed": seed},
                        "output": place / kind,
                    }
                ),
                score_test=False,
            )

        before = trained(BEFORE, smaller, model, epochs)
        start = {"start": before.training_model, "architecture": model["architecture"]}
        results = {
            BEFORE: before,
            CONTINUED: trained(CONTINUED, whole, start, more_epochs),
            SCRATCH: trained(SCRATCH, whole, model, epochs),
            SCRATCH_SHORT: trained(SCRATCH_SHORT, whole, model, more_epochs),
        }
        return {"seed": seed, "held_back": names} | {
            kind: report(result, whole, names) for kind, result in results.items()
        }


def run(data: Path, *, seeds: Sequence[int], **settings: Any) -> dict[str, Any]:
    """Return the scores of all seeds and their medians; ``settings`` are arguments of :func:`one_seed`."""
    folder = DataFolder(data)
    runs = [one_seed(folder, seed, **settings) for seed in seeds]
    kinds = (BEFORE, CONTINUED, SCRATCH, SCRATCH_SHORT)
    return {
        "macro_f1": {
            kind: {group: spread([run[kind]["macro_f1"][group] for run in runs]) for group in GROUPS} for kind in kinds
        },
        "seconds": {kind: spread([run[kind]["seconds"] for run in runs]) for kind in kinds},
        "share_of_seconds_from_scratch": spread([run[CONTINUED]["seconds"] / run[SCRATCH]["seconds"] for run in runs]),
        "runs": runs,
        "setting": {"data": data.name, "labels": len(folder.taxonomy), "seeds": list(seeds), **settings},
        **provenance(),
    }


def main() -> None:
    """Run the benchmark, write the result and print the table."""
    parser = arguments_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="data folder, such as ../shared/data/clinc150")
    parser.add_argument("--held-back", type=int, default=10, help="number of leaves that are added later")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=8, help="epochs of the first model and of a model from scratch")
    parser.add_argument("--more-epochs", type=int, default=2, help="epochs of continued training")
    parser.add_argument("--documents", type=int, help="size of the training sample; default: all")
    parser.add_argument("--scored", type=int, help="size of the dev and test samples; default: all")
    parser.add_argument("--architecture", default="flat", choices=["flat", "hgclr"])
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--max-length", type=int, default=256)
    parser.add_argument("--output", type=Path, help="write the result to this JSON file")
    arguments = parser.parse_args()
    result = run(
        arguments.data,
        seeds=arguments.seeds,
        held_back=arguments.held_back,
        model={
            "architecture": arguments.architecture,
            "encoder": arguments.encoder,
            "max_length": arguments.max_length,
        },
        epochs=arguments.epochs,
        more_epochs=arguments.more_epochs,
        documents=arguments.documents,
        scored=arguments.scored,
        training={"precision": "fp32"},
    )
    write(result, arguments.output)
    rows = [
        (
            kind,
            *(f"{scores[group]['median']:.2f}" for group in GROUPS),
            f"{result['seconds'][kind]['median']:.0f} s",
        )
        for kind, scores in result["macro_f1"].items()
    ]
    title = f"{arguments.held_back} labels added: test Macro-F1 (medians of {len(arguments.seeds)} seeds)"
    show(title, ("", *GROUPS, "training"), rows)


if __name__ == "__main__":
    main()
