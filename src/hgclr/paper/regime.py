"""HGCLR against the flat model and the controls between them, trained as in the paper: one sample, several seeds."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

import numpy as np

from hgclr.data.folder import SPLITS, DataFolder, Document, remembered, write_corpus
from hgclr.data.tokens import sample_documents
from hgclr.errors import InputError
from hgclr.files import json_bytes, sha256, write_files
from hgclr.paper.experiment import Budget, Experiment, Watch, check_runs, run_systems, unwatched
from hgclr.paper.systems import TABLES
from hgclr.paper.tables import Summary, markdown, rounded, summarise
from hgclr.provenance import first_difference
from hgclr.training.run_checks import data_folder

FIRST = ("bert", "hgclr")
"""Arms that are run with every seed before the others."""
EPOCHS = 30
"""Epochs at most under the recipe ``default``; the paper's has its own."""
TRAINING = ("training.batch_size=12", "training.patience_metrics=[macro_f1]", "training.calibrate=true")
"""Settings of every arm where its preset or the recipe may have others."""
SAMPLE_SEED = 0
"""Decides which documents are drawn; training seeds do not."""


def shared_sample(experiment: Experiment, per_leaf: int | None = None) -> Experiment:
    """Write the documents that all runs share as a data folder, and return the experiment in the paper's regime on it.

    The budget's sizes choose dev, test and, without ``per_leaf``, train. With it, train has so many documents of each
    leaf, or all where there are fewer; the leaf of a document is its deepest label, the first of several.

    Raises:
        InputError: if the data lacks a split, or the output folder holds another sample.
    """
    base = experiment.base()
    source = data_folder(base, base.data.taxonomy)
    tree = source.taxonomy
    budget = experiment.budget or Budget()
    chosen = base.data.model_copy(update=budget.settings()["data"])
    limits = {"train": chosen.limit, "dev": chosen.dev_limit, "test": chosen.test_limit}
    if per_leaf is not None and limits["train"] is not None:
        raise InputError("both --per-leaf and the documents of --budget choose train", remedy="leave one of them out")
    settings = {
        "files": {split: sha256(source.split_path(split)) for split in SPLITS},
        "tree": hashlib.sha256(json_bytes([tree.ids, tree.names, tree.parents.tolist()])).hexdigest(),
        "reading": asdict(source.form),
        "per_leaf": per_leaf,
        "limits": limits,
        "seed": SAMPLE_SEED,
    }
    target = experiment.output / "data" / source.path.name
    if not (made := remembered(target, "settings")):
        with write_corpus(target, name="regime", settings=settings) as writer:
            writer.taxonomy = tree
            for split, limit in limits.items():
                sample = None if limit is None else (limit, SAMPLE_SEED)
                drawn = sample_documents(source, split, sample)
                if split == "train" and per_leaf is not None:
                    drawn = _leaf_sample(source, per_leaf)
                for document in drawn:
                    writer.add(split, document.text, [tree.ids[label] for label in document.labels])
    elif difference := first_difference(made, settings):
        place, before, now = difference
        raise InputError(
            f"holds another sample: {place} is {before!r:.80} there and {now!r:.80} here",
            path=target,
            remedy="give another --output",
        )
    recipe = experiment.recipe or "default"
    epochs = budget.epochs or (EPOCHS if recipe == "default" else None)
    # How documents are read and chosen has made the sample, and does not fit it.
    sampling = [f"data.{name}" for name in type(base.data).model_fields if name != "label_documents"]
    others = [each for each in experiment.overrides if each.partition("=")[0].strip() not in sampling]
    return replace(
        experiment,
        data=target,
        preset="paper",
        recipe=recipe,
        budget=Budget(length=budget.length, epochs=epochs),
        overrides=(*TRAINING, *others),
        keep_predictions=True,
    )


def _leaf_sample(source: DataFolder, per_leaf: int) -> Iterator[Document]:
    """Yield so many random documents of each leaf, in the order of train."""
    depths, places = source.taxonomy.depths, defaultdict[int, list[int]](list)
    for place, document in enumerate(source.usable("train")):
        places[max(document.labels, key=lambda label: depths[label])].append(place)
    random = np.random.default_rng(SAMPLE_SEED)
    chosen: set[int] = set()
    for _, each in sorted(places.items()):
        chosen.update(random.permutation(each)[:per_leaf].tolist())
    for place, document in enumerate(source.usable("train")):
        if place in chosen:
            yield document


def run_regime(
    seeds: Sequence[int],
    experiment: Experiment,
    *,
    per_leaf: int | None = None,
    rows: Sequence[str] | None = None,
    command: str = "",
    watch: Watch = unwatched,
) -> Summary:
    """Run the arms and write ``regime.json``, ``.md`` and ``.svg`` after each run: flat and HGCLR with all seeds first.

    The arguments are those of :func:`~hgclr.paper.tables.reproduce`; ``per_leaf`` is that of :func:`shared_sample`.
    Finished runs stay, killed ones are resumed.
    """
    table = TABLES["regime"]
    arms = table.choose(rows)
    experiment = shared_sample(experiment, per_leaf)
    systems = check_runs(table, seeds, experiment, rows)
    refused: dict[tuple[str, int], str] = {}

    def written() -> Summary:
        summary = replace(summarise(table, arms, seeds, experiment, refused, command), name="regime")
        files = {"regime.md": markdown(summary).encode(), "regime.json": json_bytes(rounded(asdict(summary)))}
        write_files(experiment.output, files)
        return summary

    for wave in (True, False):
        some = [system for system in systems if (system.key in FIRST) == wave]
        for _ in run_systems(some, seeds, experiment, watch, refused):
            written()
    return written()
