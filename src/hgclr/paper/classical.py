"""Classical baselines: TF-IDF with a logistic regression per label, or with one per parent label.

Both read the same documents as the neural systems, and write a ``metrics.json`` of the same form. The regularisation is
chosen on dev. The first has its decisions tuned there, like the neural systems; the second predicts labels without
probabilities, so there is nothing to tune.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from hgclr.data.folder import DataFolder, Document, empty_split
from hgclr.data.split import hold_out
from hgclr.data.tokens import sample_documents
from hgclr.decisions.settings import Decisions
from hgclr.decisions.tuning import ENTRIES, Calibrated, Outputs, calibrate
from hgclr.errors import InputError, require_extra
from hgclr.files import write_json
from hgclr.inference.backends import windows
from hgclr.metrics.scores import MultiLabelScores, by_frequency
from hgclr.models.base import load_tokenizer
from hgclr.provenance import Stopwatch, machine
from hgclr.taxonomy import Taxonomy
from hgclr.training import RunConfig
from hgclr.training.head import LEAST
from hgclr.training.run_checks import check_splits, data_folder

STRENGTHS = (1.0, 10.0, 100.0)
"""C of the logistic regression, the inverse of the regularisation."""
TERMS = 50_000
"""Number of features: the most frequent words and pairs of words."""
SEARCHED = 4_000
"""With more training documents, all settings are compared on a random sample of this size."""
FINALISTS = 2
"""Settings that are then compared on all documents; with 58,000 documents, one takes minutes."""
TOLERANCE = 0.01
"""Tolerance of liblinear; a hundredth of it takes longer and changes no reported score."""
Kind = Literal["tfidf", "hiclass"]
Model = Callable[[Any], NDArray[Any]]
"""A function from TF-IDF rows, sparse, (n, terms), to logits or, without probabilities, label sets, (n, K)."""
WINDOW = 1024
"""Documents read or scored at a time."""


@dataclass(frozen=True)
class Setting:
    """Settings chosen on dev: C, and whether examples are weighted by the rarity of their class."""

    strength: float
    balanced: bool = False


@dataclass(frozen=True, eq=False)
class _Trial:
    """A setting, the model fitted with it, and its scores on dev: at 0.5, and with tuned decisions."""

    setting: Setting
    documents: int
    model: Model
    scores: MultiLabelScores
    tuned: Calibrated | None

    @property
    def value(self) -> tuple[float, float]:
        """Mean of Micro- and Macro-F1 on dev: with out-of-fold tuned decisions if possible, then at 0.5."""
        at_half = (self.scores.micro().f1 + self.scores.macro().f1) / 2
        return (at_half if self.tuned is None else self.tuned.after.by("both")), at_half

    def to_json(self) -> dict[str, Any]:
        tuned, at_half = self.value
        return asdict(self.setting) | {"documents": self.documents, "dev_tuned": tuned, "dev_at_0.5": at_half}


def run_classical(kind: Kind, run: RunConfig, *, on_documents: Callable[[int], None] | None = None) -> dict[str, Any]:
    """Fit on train, choose the setting and tune decisions on dev, score dev and test, and write ``metrics.json``.

    Args:
        kind: one logistic regression for each label (``tfidf``), or a multinomial one for the children of each parent
            (``hiclass``).
        run: data, seed of the sample of documents, and output; ``model.max_length``, if set, truncates the texts after
            so many tokens of ``model.encoder``.
        on_documents: called with the number of documents read since the last call.
    """
    require_extra("sklearn", extra="paper", capability="TF-IDF with logistic regression")
    if kind == "hiclass":
        require_extra("hiclass", extra="paper", capability="The local classifier per parent node")
    from sklearn.feature_extraction.text import TfidfVectorizer

    stopwatch = Stopwatch()
    folder = data_folder(run, run.data.taxonomy)
    splits, taxonomy = read_splits(run, folder, on_documents), folder.taxonomy
    terms = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, max_features=TERMS)
    try:
        terms.fit([document.text for document in splits["train"]])
    except ValueError as error:  # no word in any text
        raise InputError(f"TF-IDF: {error}", path=folder.split_path("train")) from error
    train, dev = (_Split.of(splits[name], terms, taxonomy) for name in ("train", "dev"))
    best, tried = _search(kind, train, dev, run.training.seed)
    counts = train.gold.sum(axis=0)
    metrics: dict[str, Any] = {
        "run": run.model_dump(mode="json", exclude_none=True, exclude={"model": {"architecture", "preset"}}),
        "recipe": {
            "classifier": kind,
            **asdict(best.setting),
            "tried": [trial.to_json() for trial in tried],
            "terms": len(terms.vocabulary_),
        },
        "precision": "fp64",
        "documents": {name: len(documents) for name, documents in splits.items()},
        "label_documents": 0,
        "labels": len(taxonomy),
        "history": [],
        "machine": machine("scikit-learn", "scipy", "hiclass"),
    }
    decisions = {"": Decisions(taxonomy), "_at_0.5": Decisions(taxonomy)}
    if best.tuned is not None:  # in the form that training writes
        decisions[""] = best.tuned.decisions
        metrics["tuned"] = {
            "rule": best.tuned.decisions.rule,
            "thresholds": best.tuned.decisions.provenance["thresholds"],
            "dev": {"before": asdict(best.tuned.before), "after": asdict(best.tuned.after)},
        }
    for name in ("dev", "test"):
        if name in splits:
            split = dev if name == "dev" else _Split.of(splits[name], terms, taxonomy)
            for suffix, scores in zip(decisions, _score(best.model, split, list(decisions.values())), strict=True):
                metrics[name + suffix] = {**scores.to_json(), "by_frequency": by_frequency(scores, counts)}
    metrics |= stopwatch.read()
    write_json(run.output / "metrics.json", metrics)
    return metrics


def settings_of(kind: Kind) -> list[Setting]:
    """Return the settings to try; ``hiclass`` has no weighting."""
    weighting = (False, True) if kind == "tfidf" else (False,)
    return [Setting(strength, balanced) for strength in STRENGTHS for balanced in weighting]


@dataclass(frozen=True, eq=False)
class _Split:
    """Documents as TF-IDF rows, sparse, (n, terms), and their gold labels, (n, K)."""

    rows: Any
    gold: NDArray[np.bool_]
    taxonomy: Taxonomy

    @classmethod
    def of(cls, documents: Sequence[Document], terms: Any, taxonomy: Taxonomy) -> _Split:
        gold = _matrix([document.labels for document in documents], len(taxonomy))
        return cls(terms.transform(document.text for document in documents), gold, taxonomy)

    def __len__(self) -> int:
        return len(self.gold)

    def some(self, number: int, seed: int) -> _Split:
        places = np.sort(np.random.default_rng(seed).choice(len(self), number, replace=False))
        return _Split(self.rows[places], self.gold[places], self.taxonomy)


def _search(kind: Kind, train: _Split, dev: _Split, seed: int) -> tuple[_Trial, list[_Trial]]:
    """Return the best trial on all documents, and all trials; with many documents, most use a sample."""
    settings, tried = settings_of(kind), list[_Trial]()
    if len(train) > SEARCHED:
        some = train.some(SEARCHED, seed)
        tried = [_try(kind, setting, some, dev, seed) for setting in settings]
        best = sorted(tried, key=lambda trial: trial.value, reverse=True)[:FINALISTS]
        settings = [trial.setting for trial in best]
    last = [_try(kind, setting, train, dev, seed) for setting in settings]
    return max(last, key=lambda trial: trial.value), [*tried, *last]  # ties: the first


def _try(kind: Kind, setting: Setting, train: _Split, dev: _Split, seed: int) -> _Trial:
    fitted = _fit_tfidf(train, setting) if kind == "tfidf" else _fit_hiclass(train, setting)
    decisions, most = Decisions(dev.taxonomy), max(LEAST, ENTRIES // len(dev.taxonomy))
    (scores,) = _score(fitted, dev, [decisions])
    tuned = None
    if kind == "tfidf" and len(dev) >= LEAST:
        sample = dev if len(dev) <= most else dev.some(most, seed)
        tuned = calibrate(Outputs(fitted(sample.rows), sample.gold), decisions, seed=seed)
    return _Trial(setting, len(train), fitted, scores, tuned)


def _fit_tfidf(train: _Split, setting: Setting) -> Model:
    """Fit a logistic regression for each label; a label of no document or of all documents gets a constant."""
    from sklearn.linear_model import LogisticRegression

    weights = np.zeros((train.rows.shape[1], len(train.taxonomy)), dtype=np.float32)
    documents = train.gold.sum(axis=0)
    biases = np.log((documents + 0.5) / (len(train) - documents + 0.5)).astype(np.float32)
    balanced = "balanced" if setting.balanced else None
    for label in np.flatnonzero((documents > 0) & (documents < len(train))):
        model = LogisticRegression(C=setting.strength, solver="liblinear", class_weight=balanced, tol=TOLERANCE)
        model.fit(train.rows, train.gold[:, label])
        weights[:, label], biases[label] = model.coef_[0], model.intercept_[0]
    return lambda rows: np.asarray(rows @ weights, dtype=np.float32) + biases


def _fit_hiclass(train: _Split, setting: Setting) -> Model:
    """Fit hiclass' local classifier per parent node: at each label on the way down, it chooses one of the children.

    A document with several paths is an error: hiclass 5 predicts a single path.
    """
    from hiclass import LocalClassifierPerParentNode
    from sklearn.linear_model import LogisticRegression

    taxonomy, depths = train.taxonomy, train.taxonomy.depths
    paths = [sorted(np.flatnonzero(labels).tolist(), key=lambda label: int(depths[label])) for labels in train.gold]
    for path in paths:
        if len({int(depths[label]) for label in path}) < len(path):
            names = "; ".join(taxonomy.path_name(label) for label in path)
            raise InputError(
                f"hiclass predicts a single path, but a training document has several: {names}",
                remedy="omit the system hiclass for this data",
            )
    levels = max(map(len, paths))
    # hiclass reads "" as the end of a path; labels are given by index.
    targets = np.array([[*map(str, path), *[""] * (levels - len(path))] for path in paths])
    model = LocalClassifierPerParentNode(local_classifier=LogisticRegression(C=setting.strength, max_iter=1000))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The number of unique classes is greater than 50%")
        model.fit(train.rows, targets)

    def predict(rows: Any) -> NDArray[np.bool_]:
        predicted = np.asarray(model.predict(rows)).reshape(rows.shape[0], -1)
        return _matrix([[int(label) for label in path if label != ""] for path in predicted.tolist()], len(taxonomy))

    return predict


def _score(model: Model, split: _Split, decisions: Sequence[Decisions]) -> list[MultiLabelScores]:
    """Return the scores with each of the decisions, which a model without probabilities does not need."""
    scores = [MultiLabelScores(split.taxonomy) for _ in decisions]
    for start in range(0, len(split), WINDOW):
        place = slice(start, start + WINDOW)
        output = model(split.rows[place])
        decided = output.dtype == np.bool_
        for one, each in zip(scores, decisions, strict=True):
            one.update(output if decided else each.decide(each.probabilities(output)).predicted, split.gold[place])
    return scores


def _matrix(label_sets: Sequence[Sequence[int]], labels: int) -> NDArray[np.bool_]:
    matrix = np.zeros((len(label_sets), labels), dtype=np.bool_)
    for row, label_set in enumerate(label_sets):
        matrix[row, list(label_set)] = True
    return matrix


def read_splits(
    run: RunConfig, folder: DataFolder, on_documents: Callable[[int], None] | None = None
) -> dict[str, list[Document]]:
    """Return the documents that a neural run with these settings reads, in the same samples and equally truncated.

    Raises:
        InputError: if a split is empty or has a bad row, or there is no train or dev.
    """
    limits = {"train": run.data.limit, "dev": run.data.dev_limit, "test": run.data.test_limit}
    check_splits(run, folder)
    length = run.model.overrides.get("max_length")
    tokenizer = None if length is None else load_tokenizer(run.model.encoder)
    splits: dict[str, list[Document]] = {}
    for name in folder.splits:
        limit, splits[name] = limits[name], []
        sample = None if limit is None else (limit, run.training.seed)
        for batch in windows(sample_documents(folder, name, sample), WINDOW):
            splits[name] += batch if tokenizer is None else _cut(tokenizer, length, batch)
            if on_documents is not None:
                on_documents(len(batch))
        if not splits[name]:
            raise empty_split(folder.split_path(name), 0)
    if "dev" not in splits:
        documents = splits["train"]
        parts = hold_out(len(documents), run.data.dev_share or 0, run.training.seed)
        for name, places in zip(("train", "dev"), parts, strict=True):
            splits[name] = [documents[place] for place in places]
    return splits


def _cut(tokenizer: PreTrainedTokenizerBase, length: int | None, documents: Sequence[Document]) -> list[Document]:
    """Return documents with their texts truncated after ``length`` tokens."""
    texts = [document.text for document in documents]
    encoded = tokenizer(texts, truncation=True, max_length=length, return_offsets_mapping=True)
    shortened = []
    for document, offsets in zip(documents, encoded["offset_mapping"], strict=True):
        spans = [(start, end) for start, end in offsets if end > start] or [(0, 0)]  # without special tokens
        text = document.text[min(start for start, _ in spans) : max(end for _, end in spans)]
        shortened.append(Document(text, document.labels))
    return shortened
