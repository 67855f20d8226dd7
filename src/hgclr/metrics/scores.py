"""Scores of predicted against gold labels, overall and by label frequency, counted in batches in O(labels) memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hgclr.taxonomy import Taxonomy

BLOCK = 2**18
"""Decisions (documents times labels) counted at once; they fit into a CPU cache."""
WORD = 8
"""Bytes in a word of packed bits."""
BANDS = {"unseen": 0, "1-5": 5, "6-20": 20}
"""Maximum training documents of a label in each band; labels with more are in the band `MORE`."""
MORE = "more than 20"
Bits = NDArray[np.uint64]
Counts = NDArray[np.int64]
Groups = dict[str, Counts]


@dataclass(frozen=True)
class Score:
    """Precision, recall and F1, as fractions."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class GroupScores:
    """Counts and scores of a group of labels, or of paths."""

    labels: int
    gold: int
    predicted: int
    true_positives: int
    micro: Score
    macro: Score


@dataclass(frozen=True)
class LabelScores:
    """Counts and scores of each label; all arrays have the shape (K,)."""

    true_positives: Counts
    predicted: Counts
    gold: Counts
    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    f1: NDArray[np.float64]


def score_pool(true: int, predicted: int, gold: int) -> Score:
    """Return the scores of pooled counts; 0 where a denominator is 0."""
    return Score(ratio(true, predicted), ratio(true, gold), ratio(2 * true, predicted + gold))


def score_labels(true: Counts, predicted: Counts, gold: Counts) -> LabelScores:
    """Return the scores of each label; 0 where a denominator is 0."""
    # If a denominator is 0, so is its numerator; dividing by 1 instead gives 0.
    precision = true / np.maximum(predicted, 1)
    recall = true / np.maximum(gold, 1)
    return LabelScores(true, predicted, gold, precision, recall, f1_of(true, predicted + gold))


def f1_of(true: NDArray[Any], given: NDArray[Any]) -> NDArray[np.float64]:
    """Return 2 TP / (P + G) from TP and P + G; 0 where no label is predicted or gold."""
    f1: NDArray[np.float64] = 2 * true / np.maximum(given, 1)
    return f1


def score_group(true: Counts, predicted: Counts, gold: Counts) -> GroupScores:
    """Return the scores of labels as one pool (micro) and as the mean of the scores of each (macro)."""
    pool = int(true.sum()), int(predicted.sum()), int(gold.sum())
    each = score_labels(true, predicted, gold)
    macro = Score(*(float(values.mean()) if len(true) else 0.0 for values in (each.precision, each.recall, each.f1)))
    return GroupScores(len(true), pool[2], pool[1], pool[0], score_pool(*pool), macro)


def ratio(part: float, whole: float) -> float:
    """Return ``part / whole``, or 0 if ``whole`` is 0."""
    return part / whole if whole else 0.0


def check_decisions(taxonomy: Taxonomy, predicted: NDArray[np.bool_], gold: NDArray[np.bool_]) -> None:
    """Raise a ValueError unless predicted and gold labels are two boolean arrays (N, K)."""
    _check_shapes(taxonomy, predicted.shape, gold.shape)
    if predicted.dtype != np.bool_ or gold.dtype != np.bool_:
        raise ValueError(f"expected booleans, got {predicted.dtype} and {gold.dtype}: apply a threshold")


def check_probabilities(taxonomy: Taxonomy, probabilities: NDArray[np.floating], gold: NDArray[np.bool_]) -> None:
    """Raise a ValueError unless the arrays are probabilities from 0 to 1 and boolean gold labels, both (N, K)."""
    _check_shapes(taxonomy, probabilities.shape, gold.shape)
    if probabilities.dtype.kind != "f" or gold.dtype != np.bool_:
        raise ValueError(f"expected probabilities and booleans, got {probabilities.dtype} and {gold.dtype}")
    # Negated, because comparisons with NaN are False.
    if probabilities.size and not (probabilities.min() >= 0 and probabilities.max() <= 1):
        raise ValueError("a probability is not between 0 and 1: give probabilities, not logits")


def _check_shapes(taxonomy: Taxonomy, given: tuple[int, ...], gold: tuple[int, ...]) -> None:
    if len(given) != 2 or given != gold or given[1] != len(taxonomy):
        raise ValueError(f"expected two arrays (N, {len(taxonomy)}), got {given} and {gold}")


def pack(matrix: NDArray[np.bool_]) -> Bits:
    """Return the bits of a label matrix, (N, K), by label, (K, ⌈N / 64⌉); unused bits are 0."""
    by_label = np.packbits(np.ascontiguousarray(matrix.T), axis=1)
    words = -(-by_label.shape[1] // WORD)
    padded = np.zeros((len(by_label), words * WORD), dtype=np.uint8)
    padded[:, : by_label.shape[1]] = by_label
    return padded.view(np.uint64)


def count_bits(bits: Bits) -> NDArray[np.int64]:
    """Return the number of documents in each row, (K,)."""
    counts: NDArray[np.int64] = np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
    return counts


class MultiLabelScores:
    """Precision, recall and F1 of predicted labels, counted over any number of batches.

    With ``TP_k``, ``P_k``, ``G_k`` the number of documents for which label ``k`` is right, predicted, gold::

        precision_k = TP_k / P_k      recall_k = TP_k / G_k      F1_k = 2 TP_k / (P_k + G_k)

    and 0 if the denominator is 0. Micro scores use the sums over the labels in these formulas; macro scores are means
    over the labels.

    Args:
        taxonomy: the label tree; column ``k`` of every batch is its label ``k``.

    Example:
        >>> scores = MultiLabelScores(Taxonomy(["science", "physics", "law"], [-1, 0, -1]))
        >>> scores.update(np.array([[True, True, False]]), np.array([[True, False, False]]))
        >>> scores.micro()
        Score(precision=0.5, recall=1.0, f1=0.6666666666666666)
    """

    def __init__(self, taxonomy: Taxonomy) -> None:
        self.taxonomy = taxonomy
        # Documents of each label where it is right, predicted, gold, and right together with all its ancestors.
        self._true, self._predicted, self._gold, self._constrained = np.zeros((4, len(taxonomy)), dtype=np.int64)
        self._predicted_paths, self._gold_paths = np.zeros((2, len(taxonomy.leaves)), dtype=np.int64)
        self._closed = np.zeros(3, dtype=np.int64)  # right, predicted, gold after adding all ancestors
        self._orphans = 0  # predicted labels with a parent that is not predicted
        self._exact = 0  # documents whose label set is right
        self._documents = 0
        self._below_top = np.flatnonzero(taxonomy.parents >= 0)
        self._edges = taxonomy.edges[:, taxonomy.edges[1] >= 0]

    def update(self, predicted: NDArray[np.bool_], gold: NDArray[np.bool_]) -> None:
        """Count one batch: predicted and gold labels of the documents, both bool (N, K)."""
        check_decisions(self.taxonomy, predicted, gold)
        size = max(64, BLOCK // len(self.taxonomy))
        for start in range(0, len(predicted), size):
            self._count(predicted[start : start + size], gold[start : start + size])

    def _count(self, predicted_labels: NDArray[np.bool_], gold_labels: NDArray[np.bool_]) -> None:
        predicted, gold = pack(predicted_labels), pack(gold_labels)
        right = predicted & gold
        self._true += count_bits(right)
        self._predicted += count_bits(predicted)
        self._gold += count_bits(gold)
        self._documents += len(predicted_labels)
        wrong = np.bitwise_or.reduce(predicted ^ gold, axis=0)
        self._exact += len(predicted_labels) - int(np.bitwise_count(wrong).sum())
        labels, parents = self._edges
        orphans = predicted[labels] & ~predicted[parents]
        if not self.taxonomy.is_tree:
            orphans = np.bitwise_or.reduceat(orphans, np.searchsorted(labels, self._below_top))
        self._orphans += int(np.bitwise_count(orphans).sum())
        order = self.taxonomy.order

        def whole(bits: Bits) -> Bits:
            """Keep a label only if all its ancestors are present."""
            arranged = order.arrange(bits.T)
            order.carry_down(arranged, np.bitwise_and)
            return order.restore(arranged).T

        self._constrained += count_bits(whole(right))
        self._predicted_paths += count_bits(whole(predicted)[self.taxonomy.leaves])
        self._gold_paths += count_bits(whole(gold)[self.taxonomy.leaves])
        predicted, gold = (order.carried_up(bits.T, np.bitwise_or) for bits in (predicted, gold))  # with all ancestors
        self._closed += [int(np.bitwise_count(bits).sum()) for bits in (predicted & gold, predicted, gold)]

    def counters(self) -> dict[str, Any]:
        """Return the counts, for :meth:`add` in another process."""
        return {name: value for name, value in vars(self).items() if name not in ("taxonomy", "_below_top", "_edges")}

    def add(self, counters: Mapping[str, Any]) -> None:
        """Add the :meth:`counters` of another process."""
        for name, value in counters.items():
            setattr(self, name, getattr(self, name) + value)

    def micro(self, depth: int | None = None) -> Score:
        """Return scores of the pooled decisions on all labels, or on those of ``depth`` (top labels: 1)."""
        return self._scores(self._level(depth)).micro

    def macro(self, depth: int | None = None) -> Score:
        """Return mean scores over **all** labels, or all of ``depth``; an undefined score counts as 0."""
        return self._scores(self._level(depth)).macro

    def macro_present(self) -> Score:
        """Return mean scores over the labels that are gold or predicted somewhere, a common variant."""
        return self._scores(self._present()).macro

    def group(self, labels: ArrayLike) -> GroupScores:
        """Return scores of some labels, given by distinct indices; 0 for no labels."""
        indices = np.asarray(labels)
        if not indices.size:
            indices = indices.astype(np.int64)
        if indices.ndim != 1 or indices.dtype.kind not in "iu" or len(np.unique(indices)) != len(indices):
            raise ValueError(f"expected distinct label indices, got {labels!r}")
        if indices.size and not 0 <= indices.min() <= indices.max() < len(self.taxonomy):
            raise ValueError(f"a label index is not between 0 and {len(self.taxonomy) - 1}")
        return self._scores(indices)

    def per_label(self) -> LabelScores:
        """Return counts and scores of every label, in the order of the taxonomy."""
        return score_labels(self._true.copy(), self._predicted.copy(), self._gold.copy())

    def path_constrained(self) -> GroupScores:
        """Return scores in which a label is right only if it **and all its ancestors** are right (C-F1).

        Equal to :meth:`micro` and :meth:`macro` if prediction and gold contain every ancestor.
        """
        return score_group(self._constrained, self._predicted, self._gold)

    def paths(self) -> GroupScores:
        """Return scores of paths from the top to a leaf instead of labels (P-F1).

        A path is predicted, or gold, if all its labels are; of a leaf with several paths all count as one. Macro
        averages over **all** leaves; an undefined score counts as 0.
        """
        return score_group(self._constrained[self.taxonomy.leaves], self._predicted_paths, self._gold_paths)

    def hierarchical(self) -> Score:
        """Return scores of label sets with all ancestors added (Kiritchenko et al.).

        ``hP = Σ|anc(P_i) ∩ anc(G_i)| / Σ|anc(P_i)|``, and ``hR`` likewise over ``Σ|anc(G_i)|``, where ``anc``
        excludes the virtual root. Equal to :meth:`micro` if prediction and gold contain every ancestor.
        """
        true, predicted, gold = self._closed.tolist()
        return score_pool(true, predicted, gold)

    def inconsistency_rate(self) -> float:
        """Return the share of predicted labels below the top with a parent that is not predicted."""
        return ratio(self._orphans, int(self._predicted[self._below_top].sum()))

    def subset_accuracy(self) -> float:
        """Return the share of documents whose label set is exactly right."""
        return ratio(self._exact, self._documents)

    def hamming_loss(self) -> float:
        """Return the share of wrong decisions; there is one decision per document and label."""
        wrong = int((self._predicted + self._gold - 2 * self._true).sum())
        return ratio(wrong, self._documents * len(self.taxonomy))

    def to_json(self) -> dict[str, Any]:
        """Return all scores, as fractions, and the counts behind them, in plain Python types."""
        return {
            "documents": self._documents,
            **asdict(self._scores(self._level(None))),
            "macro_present": {"labels": int(self._present().sum()), **asdict(self.macro_present())},
            "path_constrained": asdict(self.path_constrained()),
            "paths": asdict(self.paths()),
            "hierarchical": asdict(self.hierarchical()),
            "inconsistency_rate": self.inconsistency_rate(),
            "subset_accuracy": self.subset_accuracy(),
            "hamming_loss": self.hamming_loss(),
            "levels": [
                {"depth": depth, **asdict(self._scores(level))}
                for depth, level in enumerate(self.taxonomy.levels, start=1)
            ],
        }

    def _scores(self, chosen: NDArray[np.int64] | NDArray[np.bool_] | slice) -> GroupScores:
        return score_group(self._true[chosen], self._predicted[chosen], self._gold[chosen])

    def _level(self, depth: int | None) -> NDArray[np.int64] | slice:
        if depth is None:
            return slice(None)
        if not 1 <= depth <= len(self.taxonomy.levels):
            raise ValueError(f"no label has depth {depth}; depths go from 1 to {len(self.taxonomy.levels)}")
        return self.taxonomy.levels[depth - 1]

    def _present(self) -> NDArray[np.bool_]:
        present: NDArray[np.bool_] = self._predicted + self._gold > 0
        return present


def frequency_bands(counts: ArrayLike) -> Groups:
    """Group the labels by their number of training documents, (K,): none, 1 to 5, 6 to 20, more.

    Example:
        >>> {name: labels.tolist() for name, labels in frequency_bands([0, 50, 7, 2, 7]).items()}
        {'unseen': [0], '1-5': [3], '6-20': [2, 4], 'more than 20': [1]}
    """
    band = np.searchsorted(list(BANDS.values()), _counts(counts))
    return {name: np.flatnonzero(band == place) for place, name in enumerate([*BANDS, MORE])}


def frequency_thirds(counts: ArrayLike) -> Groups:
    """Group the labels into thirds by their number of training documents, (K,).

    Among the S labels with training documents, a label has the rank ``r = m + e / 2``, where ``m`` labels are more
    frequent and ``e`` equally frequent (itself included). The head has ``r < S / 3``, the tail ``r > 2 S / 3``. Labels
    of equal frequency stay together, so a group may be empty.

    Example:
        >>> {name: labels.tolist() for name, labels in frequency_thirds([0, 50, 7, 2, 7]).items()}
        {'head': [1], 'middle': [2, 4], 'tail': [3], 'unseen': [0]}
    """
    numbers = _counts(counts)
    seen = numbers > 0
    ordered = np.sort(numbers[seen])
    more = len(ordered) - np.searchsorted(ordered, numbers, side="right")
    not_fewer = len(ordered) - np.searchsorted(ordered, numbers, side="left")
    places = 3 * (more + not_fewer)  # six times r, to compare integers
    groups = {
        "head": seen & (places < 2 * len(ordered)),
        "middle": seen & (places >= 2 * len(ordered)) & (places <= 4 * len(ordered)),
        "tail": seen & (places > 4 * len(ordered)),
        "unseen": ~seen,
    }
    return {name: np.flatnonzero(chosen) for name, chosen in groups.items()}


def by_frequency(
    scores: MultiLabelScores, counts: ArrayLike, groups: Callable[[ArrayLike], Groups] = frequency_bands
) -> dict[str, dict[str, Any]]:
    """Return scores of labels grouped by their number of training documents.

    ``macro`` averages over **all** labels of the group, and a label without gold documents counts as 0, so that the
    mean of the groups' Macro-F1, weighted by their labels, is the overall Macro-F1. ``macro_gold`` averages over the
    labels of the group that have gold documents; it is None if no label has.

    ``counts`` are the training documents of each label, (K,), ancestors included, label documents excluded. The result
    has, for each group with labels, ``fewest`` and ``most`` training documents of a label, ``labels_with_gold``, the
    fields of :class:`GroupScores`, and ``macro_gold``.
    """
    numbers, gold = _counts(counts), scores.per_label().gold
    if len(numbers) != len(gold):
        raise ValueError(f"expected the number of documents of each of {len(gold)} labels, got {len(numbers)}")
    scored = {}
    for name, labels in groups(numbers).items():
        if not len(labels):
            continue
        present = labels[gold[labels] > 0]
        scored[name] = {
            "fewest": int(numbers[labels].min()),
            "most": int(numbers[labels].max()),
            "labels_with_gold": len(present),
            **asdict(scores.group(labels)),
            "macro_gold": asdict(scores.group(present).macro) if len(present) else None,
        }
    return scored


def _counts(counts: ArrayLike) -> NDArray[np.int64]:
    numbers = np.asarray(counts)
    if numbers.ndim != 1 or (numbers.size and (numbers.dtype.kind not in "iu" or int(numbers.min()) < 0)):
        raise ValueError(f"expected the number of documents of each label, got {numbers.dtype} {numbers.shape}")
    return numbers.astype(np.int64)
