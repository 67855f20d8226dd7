"""What a user would otherwise pick: TF-IDF under logistic regression, label by label or down the tree.

Both read the documents that the neural systems read, sampled alike, and leave a ``metrics.json`` of the same form.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import Document
from hgclr.errors import InputError, require_extra
from hgclr.evaluation.metrics import MultiLabelScores
from hgclr.files import atomic_file
from hgclr.hardware import machine
from hgclr.reproduction.tables.documents import read_splits
from hgclr.taxonomy import Taxonomy
from hgclr.training import RunConfig
from hgclr.training.preparing import data_folder

__all__ = ["STRENGTHS", "fit_hiclass", "fit_tfidf", "run_classical", "vectorizer"]

STRENGTHS = (1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4)
"""C of the logistic regression, the inverse of how strongly it is regularised; the best for dev Macro-F1 is taken.

The list is long because the best differs by data and system: 0.001 on 1,500 abstracts of arxiv, 100 on 1,500 utterances
of clinc150. All are tried, for on the way up the score does not rise steadily.
"""

TERMS = 100_000
"""The most frequent words and pairs of words that count; each label has a weight for each."""

THRESHOLD = 0.5
WINDOW = 1024

Predictor = Callable[[Any], NDArray[np.bool_]]
"""From TF-IDF rows (n, terms) to label sets, (n, K)."""


class _Fit(Protocol):
    def __call__(self, texts: Any, documents: Sequence[Document], taxonomy: Taxonomy, strength: float) -> Predictor: ...


@dataclass(frozen=True)
class _Trial:
    """A strength, and how it fared on dev."""

    strength: float
    scores: MultiLabelScores
    predict: Predictor

    @property
    def macro(self) -> float:
        return self.scores.macro().f1


def run_classical(
    kind: Literal["tfidf", "hiclass"], run: RunConfig, *, on_documents: Callable[[int], None] | None = None
) -> dict[str, Any]:
    """Fit on train, choose the strength on dev by Macro-F1, score dev and test, and write ``metrics.json``.

    Args:
        kind: one logistic regression for each label (``tfidf``), or for each parent a multinomial one of its children
            (``hiclass``).
        run: data, seed (it decides the sample of documents) and output; ``model.max_length``, where it is set, cuts
            the texts after so many tokens of ``model.encoder``.
        on_documents: called with the number of documents read, as it grows.

    Raises:
        InputError: if the data cannot be used, for ``hiclass`` also if a document has several paths.
        MissingExtraError: if scikit-learn or hiclass is not installed.
    """
    require_extra("sklearn", extra="paper", capability="TF-IDF with logistic regression")
    if kind == "hiclass":
        require_extra("hiclass", extra="paper", capability="The local classifier per parent node")
    started = time.monotonic()
    folder = data_folder(run, run.data.taxonomy)
    splits = read_splits(run, folder, on_documents)
    terms = vectorizer()
    try:
        train = terms.fit_transform([document.text for document in splits["train"]])
    except ValueError as error:  # no word in any text
        raise InputError(f"TF-IDF: {error}", path=folder.split_path("train")) from error
    fit: _Fit = fit_tfidf if kind == "tfidf" else fit_hiclass
    tried = []
    for strength in STRENGTHS:
        predict = fit(train, splits["train"], folder.taxonomy, strength)
        tried.append(_Trial(strength, _score(predict, terms, splits["dev"], folder.taxonomy), predict))
    best = max(tried, key=lambda trial: trial.macro)  # the first of equals
    seconds = time.monotonic() - started
    metrics = {
        "run": run.model_dump(mode="json", exclude_none=True, exclude={"model": {"architecture", "preset"}}),
        "recipe": {
            "classifier": kind,
            "strength": best.strength,
            "tried": [{"strength": trial.strength, "dev_macro_f1": trial.macro} for trial in tried],
            "terms": len(terms.vocabulary_),
        },
        "precision": "fp64",
        "documents": {name: len(documents) for name, documents in splits.items()},
        "labels": len(folder.taxonomy),
        "history": [],
        "seconds": round(seconds, 1),
        "machine": _machine(),
        "dev": best.scores.to_json(),
    }
    if "test" in splits:
        metrics["test"] = _score(best.predict, terms, splits["test"], folder.taxonomy).to_json()
    with atomic_file(run.output / "metrics.json") as path:
        path.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
    return metrics


def vectorizer() -> Any:
    """Return TF-IDF of words and pairs of words, with 1 + log tf."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, max_features=TERMS)


def fit_tfidf(texts: Any, documents: Sequence[Document], taxonomy: Taxonomy, strength: float) -> Predictor:
    """Fit a logistic regression for each label; one that no document has, or all have, is a constant.

    Examples count by how rare their class is. Without such weights a regression for a label with few examples hardly
    ever says more than 0.5, and the baseline would look worse than it is.

    Args:
        texts: TF-IDF rows of the training documents, sparse, (n, terms).
        documents: the training documents.
        taxonomy: the label tree.
        strength: C.
    """
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    # Not a smaller type: scikit-learn numbers the labels in it, and int8 mixes them up from the 129th on.
    gold = csr_matrix(_matrix([document.labels for document in documents], len(taxonomy)), dtype=np.int64)
    model = OneVsRestClassifier(LogisticRegression(C=strength, solver="liblinear", class_weight="balanced"))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Label .* is present in all training examples")
        model.fit(texts, gold)
    return lambda rows: np.asarray(model.predict_proba(rows)) > THRESHOLD


def fit_hiclass(texts: Any, documents: Sequence[Document], taxonomy: Taxonomy, strength: float) -> Predictor:
    """Fit hiclass' local classifier per parent node: at each label on the way down, choose one of its children.

    Args:
        texts: TF-IDF rows of the training documents, sparse, (n, terms).
        documents: the training documents, each with one path of labels.
        taxonomy: the label tree.
        strength: C.

    Raises:
        InputError: if a document has several paths; hiclass 5 predicts one.
    """
    from hiclass import LocalClassifierPerParentNode
    from sklearn.linear_model import LogisticRegression

    depths = taxonomy.depths
    paths = [sorted(document.labels, key=lambda label: int(depths[label])) for document in documents]
    for path in paths:
        if len({int(depths[label]) for label in path}) < len(path):
            names = "; ".join(taxonomy.path_name(label) for label in path)
            raise InputError(
                f"hiclass gives a text one path of labels, and a training document has several: {names}",
                remedy="leave the row hiclass out for such data",
            )
    levels = max(map(len, paths))
    # Shorter paths are filled up with "", which hiclass takes for their end; labels go by their index.
    targets = np.array([[*map(str, path), *[""] * (levels - len(path))] for path in paths])
    model = LocalClassifierPerParentNode(local_classifier=LogisticRegression(C=strength, max_iter=1000))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The number of unique classes is greater than 50%")
        model.fit(texts, targets)

    def predict(rows: Any) -> NDArray[np.bool_]:
        predicted = np.asarray(model.predict(rows)).reshape(rows.shape[0], -1)
        return _matrix([[int(label) for label in path if label != ""] for path in predicted.tolist()], len(taxonomy))

    return predict


def _score(predict: Predictor, terms: Any, documents: Sequence[Document], taxonomy: Taxonomy) -> MultiLabelScores:
    scores = MultiLabelScores(taxonomy)
    for start in range(0, len(documents), WINDOW):
        batch = documents[start : start + WINDOW]
        gold = _matrix([document.labels for document in batch], len(taxonomy))
        scores.update(predict(terms.transform([document.text for document in batch])), gold)
    return scores


def _matrix(label_sets: Sequence[Sequence[int]], labels: int) -> NDArray[np.bool_]:
    """Return label sets as rows, (n, K)."""
    matrix = np.zeros((len(label_sets), labels), dtype=np.bool_)
    for row, label_set in enumerate(label_sets):
        matrix[row, list(label_set)] = True
    return matrix


def _machine() -> Mapping[str, object]:
    """Return what results depend on, with the packages that these systems are made of."""
    from importlib.metadata import PackageNotFoundError, version

    versions: dict[str, str | None] = {}
    for package in ("scikit-learn", "scipy", "hiclass"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    facts = machine()
    packages = facts["packages"]
    assert isinstance(packages, dict)
    return facts | {"packages": packages | versions}
