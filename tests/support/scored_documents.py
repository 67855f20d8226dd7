"""Documents with gold labels and the probabilities of models that are as good as one likes; reports on them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgclr.decisions.decoding import Rule
from hgclr.decisions.settings import Decisions
from hgclr.evaluation.report import json_file, report_content
from hgclr.evaluation.report_data import Collector
from hgclr.files import write_files
from hgclr.taxonomy import Taxonomy


@dataclass(frozen=True)
class Scored:
    """Texts, probabilities and gold labels."""

    taxonomy: Taxonomy
    texts: list[str]
    probabilities: NDArray[np.float32]
    gold: NDArray[np.bool_]

    def collect(
        self, rule: Rule = "threshold", batch: int | None = None, resamples: int = 60, **settings: Any
    ) -> Collector:
        collected = Collector(Decisions(self.taxonomy, rule, **settings), resamples=resamples)
        size = batch or max(1, len(self.texts))
        for start in range(0, len(self.texts), size):
            rows = slice(start, start + size)
            collected.update(self.texts[rows], self.probabilities[rows], self.gold[rows])
        return collected

    def content(self, *, training_counts: NDArray[np.int64] | None = None, **settings: Any) -> dict[str, Any]:
        return content_of(self.collect(**settings), training_counts)


def content_of(collected: Collector, training_counts: NDArray[np.int64] | None = None) -> dict[str, Any]:
    return report_content(
        collected,
        model="a model",
        data="some data",
        split="test",
        command="hgclr evaluate",
        training_counts=training_counts,
    )


def score(taxonomy: Taxonomy, documents: int = 300, *, noise: float = 0.3, seed: int = 0, model: int = 0) -> Scored:
    """Return documents that depend on the seed, and probabilities of a model that is the worse the more noise it has.

    Probabilities are in the middle of a thousandth, so that none is on the edge of a bin.
    """
    random = np.random.default_rng(seed)
    gold = np.zeros((documents, len(taxonomy)), dtype=np.bool_)
    for row in gold:
        row[random.choice(len(taxonomy), size=1 + int(random.integers(2)), replace=False)] = True
    gold = taxonomy.close(gold)
    texts = [f"text {number} of {seed}" for number in range(documents)]
    errors = np.random.default_rng([seed, model]).random(gold.shape)
    probabilities = np.where(errors < noise, np.random.default_rng([seed, model, 1]).random(gold.shape), gold)
    thousandths = np.minimum(np.floor(probabilities * 1000), 999) + 0.5
    return Scored(taxonomy, texts, (thousandths / 1000).astype(np.float32), gold)


def write(folder: Path, content: dict[str, Any]) -> Path:
    write_files(folder, {"report.json": json_file(content)})
    return folder
