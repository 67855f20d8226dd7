"""Explain a text: decide, ask how much each word matters, and read the text again with the words that do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hgclr.decisions.decoding import Rule
from hgclr.decisions.settings import Decided, Decisions
from hgclr.errors import InputError
from hgclr.explaining.attention import AttentionRelevance
from hgclr.explaining.explanation import ExplainedLabel, Explanation, Stability, Status
from hgclr.explaining.reading import logits_of, read_text
from hgclr.explaining.relevance import GradientRelevance, OcclusionRelevance, Relevance
from hgclr.inference import HierarchicalClassifier, PredictedLabel
from hgclr.inference.backends import TorchBackend
from hgclr.inference.classifier import sigmoid
from hgclr.taxonomy import Taxonomy

__all__ = ["Method", "explain"]

Method = Literal["auto", "integrated", "gradient", "occlusion"]
MOST_LABELS = 12
"""Labels that are explained if nobody says which: each costs as much as some readings of the text."""
RANDOM_DRAWS = 10
"""Draws of random words that the words of a label are compared with."""


def explain(
    classifier: HierarchicalClassifier,
    text: str,
    *,
    method: Method | AttentionRelevance = "auto",
    labels: Iterable[str] | None = None,
    keep: float = 0.3,
    threshold: float | None = None,
    decode: Rule | None = None,
    paths: int | None = None,
    sure: float | None = None,
) -> Explanation:
    """Tell which words of a text carry its labels, and whether those words alone would do.

    Args:
        classifier: the model; nothing in it is changed.
        text: the text.
        method: ``integrated`` and ``gradient`` need a model in torch (:class:`GradientRelevance`), ``occlusion`` takes
            any (:class:`OcclusionRelevance`); ``auto``: the first if the model allows it, else the last. The attention
            of a training model: an :class:`AttentionRelevance`.
        labels: ids, names or paths of the labels to explain, whether the text is given them or not. By default those
            that it is given or only for doubt is not, the most probable :data:`MOST_LABELS`; if there is none, the most
            probable label.
        keep: share of the words that are kept to see whether they would do, at least one.
        threshold: see :meth:`HierarchicalClassifier.predict`, as for the following.
        decode: the decoding rule.
        paths: how many paths ``top-k-paths`` gives.
        sure: stop at the parent of a label that is less probable than this.

    Raises:
        InputError: if the text has no words, there is no such label, a number is out of range, or the method does not
            fit the model.

    Example:
        >>> explanation = explain(classifier, "a broken wrist")  # doctest: +SKIP
        >>> best, _ = explanation.strongest(explanation.labels[0], 1)  # doctest: +SKIP
        >>> explanation.word(best[0])  # doctest: +SKIP
        'wrist'
    """
    if not 0 < keep <= 1:
        raise InputError(f"the share of words to keep is {keep}", remedy="give a share above 0, up to 1")
    relevance_of = _relevance(classifier, method)
    decisions = classifier.decisions.changed(rule=decode, threshold=threshold, paths=paths, sure=sure)
    read = read_text(classifier, text)
    whole = _decide(classifier, decisions, [read.ids.tolist()])
    found = _found(whole) if labels is None else [classifier.taxonomy.resolve(label) for label in labels]
    chosen = found[:MOST_LABELS] if labels is None else found
    chosen = sorted(set(chosen), key=lambda label: _path(classifier.taxonomy, label))
    if not chosen:
        raise InputError("no labels are given to explain", remedy="give some, or leave them out")
    relevance = relevance_of(read, chosen)  # (n, W)
    # What is kept for all labels together goes by the sum, as the tokens of a positive sample do (paper, Eq. 9).
    kept = np.stack([_strongest(row, keep) for row in (*relevance, relevance.sum(0))])  # (n + 1, W)
    again = _decide(classifier, decisions, [read.only(words) for words in _variants(kept)])
    only, without, random = np.split(again.probabilities, (len(kept), 2 * len(kept) - 1))
    explained = tuple(
        ExplainedLabel(
            _label(classifier.taxonomy, label, whole.probabilities[0]),
            _status(whole, label),
            tuple(relevance[row].tolist()),
            _indices(kept[row]),
            only_kept=float(only[row, label]),
            only_random=float(random[:, label].mean()),
            without_kept=float(without[row, label]),
        )
        for row, label in enumerate(chosen)
    )
    stability = _stability(classifier.taxonomy, kept[-1], whole.given[0], again.given[len(chosen)], only[-1])
    return Explanation(
        text=text,
        method=relevance_of.name,
        neutral=relevance_of.neutral,
        words=read.words,
        unread=read.unread,
        labels=explained,
        unexplained=len(found) - len(chosen) if labels is None else 0,
        keep=keep,
        stability=stability,
    )


def _relevance(classifier: HierarchicalClassifier, method: Method | AttentionRelevance) -> Relevance:
    """Return what computes the relevance of words."""
    if isinstance(method, AttentionRelevance):
        if method.taxonomy != classifier.taxonomy:
            raise InputError(
                "the training model has another label tree than the classifier", remedy="give both of one run"
            )
        return method
    backend = classifier.backend
    if method == "auto":
        method = "integrated" if isinstance(backend, TorchBackend) else "occlusion"
    if method == "occlusion":
        return OcclusionRelevance(classifier)
    if method not in ("integrated", "gradient"):
        raise InputError(
            f"unknown method {method!r}",
            remedy="choose one of auto, integrated, gradient, occlusion, or give an AttentionRelevance",
        )
    if not isinstance(backend, TorchBackend):
        raise InputError(
            "an ONNX model has no gradients",
            remedy="choose the method occlusion, or give the model that it was exported from",
        )
    return GradientRelevance(backend, integrated=method == "integrated")


def _decide(classifier: HierarchicalClassifier, decisions: Decisions, texts: Sequence[Sequence[int]]) -> Decided:
    """Decide about texts given as token ids."""
    logits = logits_of(classifier, texts)
    return decisions.decide(sigmoid(logits) if decisions.calibration is None else decisions.calibration(logits))


def _found(whole: Decided) -> list[int]:
    """Return the labels to explain where nobody has said which, the most probable first."""
    order = np.argsort(-whole.probabilities[0], kind="stable")
    found: list[int] = order[(whole.given[0] | whole.doubtful[0])[order]].tolist()
    return found or [int(order[0])]


def _strongest(relevance: NDArray[np.float64], keep: float) -> NDArray[np.bool_]:
    """Return which words have the largest values, (W,); of equal ones the first."""
    count = ceil(round(keep * len(relevance), 9))  # 0.55 * 100 is a little more than 55
    strongest = np.zeros(len(relevance), dtype=np.bool_)
    strongest[np.argsort(-relevance, kind="stable")[:count]] = True
    return strongest


def _variants(kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the texts to read again as rows of words: kept ones only, all but those of each label, random ones."""
    random = np.random.default_rng(0)
    as_many = np.sort(kept[0])  # every row keeps so many; sorted, the draws are the same whatever the method
    draws = [random.permutation(as_many) for _ in range(RANDOM_DRAWS)]
    return np.concatenate([kept, ~kept[:-1], draws])


def _status(whole: Decided, label: int) -> Status:
    if whole.given[0, label]:
        return "given"
    return "doubtful" if whole.doubtful[0, label] else "not given"


def _stability(
    taxonomy: Taxonomy,
    kept: NDArray[np.bool_],
    before: NDArray[np.bool_],
    after: NDArray[np.bool_],
    probabilities: NDArray[np.float32],
) -> Stability:
    """Compare the labels of the whole text with those of the kept words; the probabilities are the latter's."""
    lost, gained = (
        tuple(sorted((_label(taxonomy, label, probabilities) for label in found), key=lambda label: label.path))
        for found in (np.flatnonzero(before & ~after).tolist(), np.flatnonzero(after & ~before).tolist())
    )
    return Stability(_indices(kept), lost, gained)


def _label(taxonomy: Taxonomy, label: int, probabilities: NDArray[np.float32]) -> PredictedLabel:
    return PredictedLabel(taxonomy.ids[label], _path(taxonomy, label), float(probabilities[label]))


def _path(taxonomy: Taxonomy, label: int) -> tuple[str, ...]:
    return tuple(taxonomy.names[node] for node in taxonomy.path(label).tolist())


def _indices(words: NDArray[np.bool_]) -> tuple[int, ...]:
    found: list[int] = np.flatnonzero(words).tolist()
    return tuple(found)
