"""A simulated sitting: an oracle answers from gold, and strategies of choice are compared."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache as remember
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import DataFolder
from hgclr.data.readers import stable_hash, text_hash
from hgclr.data.tokens import sample_documents
from hgclr.decisions.review import margins, tree_scores
from hgclr.encoders import DEFAULT_ENCODER
from hgclr.errors import as_written
from hgclr.files import json_bytes, write_files
from hgclr.inference.classifier import gold_rows
from hgclr.labelling.choice import Pool, Strategy, choose, cluster_count, kmeans
from hgclr.labelling.learning import RETRAIN, Encoder, Head, encode_texts, learn, tuned
from hgclr.labelling.store import RANDOM_SHARE
from hgclr.metrics.scores import MultiLabelScores
from hgclr.presentation import COLOURS, draw, legend_above
from hgclr.provenance import machine, portable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEXTS = 10_000
"""Texts of train in the pool, unless chosen otherwise."""


@dataclass(frozen=True)
class SimulatedRow:
    """Mean and standard deviation over seeds of the scores on test after some answers."""

    strategy: Strategy
    answers: int
    seeds: int
    macro_f1: float
    macro_f1_sd: float
    micro_f1: float
    micro_f1_sd: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def simulate(
    data: DataFolder,
    *,
    strategies: Sequence[Strategy] = ("random", "tree"),
    answers: int = 300,
    seeds: int = 5,
    encoder: str = DEFAULT_ENCODER,
    texts: int = TEXTS,
    cache: Path | None = None,
    progress: Callable[[str, int, int | None], None] | None = None,
) -> list[SimulatedRow]:
    """Return scores on test after every 25 answers of an oracle that knows the gold labels, for several strategies.

    The texts are those of train. 15 % of the answers come from a random slice, with every strategy; they tune the
    decisions, and the others train the head, as in a :class:`~hgclr.labelling.sitting.Sitting`. All texts are encoded
    once.

    Args:
        data: a data folder with train and test.
        strategies: see :func:`~hgclr.labelling.choice.choose`.
        answers: number of answers.
        seeds: number of runs; each has its own slice, clusters and random order.
        encoder: name or folder of the encoder.
        texts: take a random sample of train of this size if it is larger.
        cache: folder that keeps the vectors for another simulation.
        progress: called with a stage and the work done and, if known, in all.
    """
    documents = {text_hash(each.text): each for each in sample_documents(data, "train", (texts, 0))}
    pool, test = list(documents.values()), list(data.documents("test"))
    gold, test_gold = (gold_rows(part, len(data.taxonomy)) for part in (pool, test))
    known = Encoder.load(data.taxonomy, encoder)
    with tempfile.TemporaryDirectory(prefix="hgclr-") as temporary:

        def encode(name: str, part: Sequence[str]) -> NDArray[np.float32]:
            def report(done: int, total: int | None) -> None:
                if progress is not None:
                    progress(f"encoding {name}", done, total)

            file = (cache or Path(temporary)) / f"{name}-{stable_hash(known.name, *part):016x}.npy"
            return np.array(encode_texts(known, part, file, report))

        vectors = encode("train", [each.text for each in pool])
        test_vectors = encode("test", [each.text for each in test])

    scored: dict[tuple[Strategy, int], list[tuple[float, float]]] = {}
    for seed in range(seeds):
        clusters = remember(lambda count, seed=seed: kmeans(vectors, count, seed=seed))
        for place, strategy in enumerate(strategies):
            for done, head, on_slice in _sitting(known, vectors, gold, strategy, answers, seed, clusters):
                scores = MultiLabelScores(data.taxonomy)
                decisions = tuned(head.logits(vectors[on_slice]), gold[on_slice], data.taxonomy, seed)
                probabilities = decisions.probabilities(head.logits(test_vectors))
                scores.update(decisions.decide(probabilities).predicted, test_gold)
                scored.setdefault((strategy, done), []).append((scores.macro().f1, scores.micro().f1))
            if progress is not None:
                progress("simulating", seed * len(strategies) + place + 1, seeds * len(strategies))
    rows = []
    for (strategy, done), runs in sorted(scored.items(), key=lambda item: (strategies.index(item[0][0]), item[0][1])):
        (macro, micro), (macro_sd, micro_sd) = np.mean(runs, axis=0), np.std(runs, axis=0, ddof=min(1, seeds - 1))
        rows.append(SimulatedRow(strategy, done, seeds, *map(float, (macro, macro_sd, micro, micro_sd))))
    return rows


def _sitting(
    encoder: Encoder,
    vectors: NDArray[np.float32],
    gold: NDArray[np.bool_],
    strategy: Strategy,
    answers: int,
    seed: int,
    clusters: Callable[[int], tuple[NDArray[np.int64], NDArray[np.float32]]],
) -> Iterator[tuple[int, Head, NDArray[np.int64]]]:
    """Yield the number of answers, the head and the answered texts of the random slice after each training."""
    generator, count, leaves = np.random.default_rng(seed), len(vectors), len(encoder.taxonomy.leaves)
    in_slice = np.zeros(count, dtype=np.bool_)
    in_slice[generator.permutation(count)[: round(RANDOM_SHARE * count)]] = True
    order, taken = generator.random(count), np.zeros(count, dtype=np.bool_)

    def train() -> Head:
        learned, scored = np.flatnonzero(taken & ~in_slice), np.flatnonzero(taken & in_slice)
        return learn(encoder, vectors[learned], gold[learned].astype(np.float32), vectors[scored], gold[scored])

    head = train()
    for done in range(answers):
        if done % RETRAIN == 0:
            own, distances = clusters(cluster_count(int((taken & ~in_slice).sum()) + RETRAIN, leaves, count))
            doubt = margins(tree_scores(head.logits(vectors), encoder.taxonomy))
            pool = Pool(in_slice, order, own, distances, doubt, leaves, RANDOM_SHARE)
        chosen = choose(pool, taken, ~taken, strategy)
        if chosen is None:
            return
        taken[chosen] = True
        if (done + 1) % RETRAIN == 0:
            head = train()
            yield done + 1, head, np.flatnonzero(taken & in_slice)


def answers_needed(rows: Sequence[SimulatedRow], answers: int = 300) -> dict[str, float | None]:
    """Return, for each strategy, the answers needed for the mean Macro-F1 that random choice has after ``answers``.

    Between two trainings the score is interpolated linearly. None if it is not reached.
    """
    goal = next((row.macro_f1 for row in rows if row.strategy == "random" and row.answers == answers), None)
    needed: dict[str, float | None] = {}
    for strategy in dict.fromkeys(row.strategy for row in rows):
        needed[strategy], before = None, (0, 0.0)
        for row in (row for row in rows if row.strategy == strategy):
            if goal is not None and row.macro_f1 >= goal:
                part = (goal - before[1]) / (row.macro_f1 - before[1])
                needed[strategy] = before[0] + part * (row.answers - before[0])
                break
            before = (row.answers, row.macro_f1)
    return needed


def write_simulation(
    output: Path, rows: Sequence[SimulatedRow], *, data: Path, settings: dict[str, Any], command: str
) -> list[Path]:
    """Write the rows as ``simulate.json``, ``simulate.md`` and ``simulate.svg``, and return the paths."""
    runs = {
        strategy: [row for row in rows if row.strategy == strategy]
        for strategy in dict.fromkeys(row.strategy for row in rows)
    }

    def fill(figure: Figure) -> str:
        axes = figure.add_subplot()
        for colour, (strategy, own) in zip(cycle(COLOURS), runs.items(), strict=False):
            at = [row.answers for row in own]
            mean, sd = (100 * np.array([getattr(row, name) for row in own]) for name in ("macro_f1", "macro_f1_sd"))
            axes.plot(at, mean, color=colour, label=strategy)
            axes.fill_between(at, mean - sd, mean + sd, color=colour, alpha=0.15, linewidth=0)
        axes.set(title=f"Labelling {data.resolve().name}", xlabel="answers", ylabel="Macro-F1 on test")
        axes.grid(axis="y")
        legend_above(axes, len(runs))
        return f"Macro-F1 after each number of answers: {', '.join(runs)}."

    lines = ["| strategy | answers | Macro-F1 | sd | Micro-F1 | sd |", "|---|---:|---:|---:|---:|---:|"]
    for row in rows:
        scores = (row.macro_f1, row.macro_f1_sd, row.micro_f1, row.micro_f1_sd)
        lines.append(f"| {row.strategy} | {row.answers} | {' | '.join(f'{100 * score:.1f}' for score in scores)} |")
    content = {
        "command": command,
        "data": portable(as_written(data)),
        "settings": settings,
        "rows": [row.to_json() for row in rows],
        "answers_needed": answers_needed(rows, settings["answers"]),
        "machine": machine("scikit-learn"),
    }
    files = {
        "simulate.json": json_bytes(content),
        "simulate.md": ("\n".join(lines) + "\n").encode(),
        "simulate.svg": draw("simulate", fill).svg,
    }
    return write_files(output, files)
