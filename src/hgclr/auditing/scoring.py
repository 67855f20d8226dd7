"""How strongly a model contradicts the labels that a document is given: the one formula, and kinds of contradiction."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from hgclr.auditing.differences import Differences

__all__ = ["KINDS", "Kind", "contradictions", "document_scores", "kinds", "level_weights"]

Kind = Literal["other path", "missing label", "extra label", "too shallow", "too deep"]
KINDS: tuple[Kind, ...] = get_args(Kind)

SMALLEST = 1e-4
"""No probability counts as less: of what happens once in 10,000 documents, no model knows how rare it is."""

Floats = NDArray[np.float64]


def level_weights(depths: NDArray[np.int64]) -> Floats:
    """Return w_k = (2 + 1 / depth) / 3: 1 for a top label, down towards two thirds."""
    weights: Floats = (2 + 1 / depths) / 3
    return weights


def contradictions(differences: Differences, usual: Floats) -> Floats:
    """Return how strongly each entry is contradicted, (E,).

        c_ik = w_k max(0, log10 m_k(g) / max(a_ik, 0.0001))

    with the agreement a_ik, its mean m_k(g) of :class:`~hgclr.auditing.agreement.Agreement`, and the weight w_k of the
    label's level. A contradiction of 2 at a top label says: the model finds this decision of the annotation 100 times
    less probable than such decisions about this label usually are. A label of which the model is never sure is
    contradicted only where it is even less sure than usual.

    Args:
        differences: the entries; those that annotation and model agree on are not contradicted, 0.
        usual: m_k(g), (2, K).
    """
    agreement = np.where(differences.given, differences.probabilities, 1 - differences.probabilities)
    usually = usual[differences.given.astype(np.int64), differences.labels]
    orders = np.log10(np.maximum(usually, SMALLEST) / np.maximum(agreement, SMALLEST))
    weights = level_weights(differences.taxonomy.depths[differences.labels])
    differ = differences.given != differences.suggested
    strength: Floats = np.where(differ, weights * np.maximum(orders, 0), 0.0)
    return strength


def document_scores(differences: Differences, strengths: Floats) -> Floats:
    """Return the score of each document, (D,).

        score_i = max over extra branches b of mean_{k in b} c_ik  +  the same over missing branches

    A branch is a label that is given and not suggested (extra), or suggested and not given (missing), whose parent is
    not, and all such labels below it. The labels of a branch say the same thing, so that their mean counts; of several
    branches the worst counts, so that one sure error among many labels is not lost.

    Args:
        differences: the documents.
        strengths: of the contradiction of each entry, from :func:`contradictions`, (E,).
    """
    scores = np.zeros(len(differences.rows))
    tops, count = differences.branches, len(strengths)
    sizes = np.maximum(np.bincount(tops, minlength=count), 1)
    means = np.bincount(tops, weights=strengths, minlength=count) / sizes
    for side in (differences.extra, differences.missing):
        worst = np.zeros(len(differences.rows))
        np.maximum.at(worst, differences.documents[side], means[tops[side]])
        scores += worst
    return scores


def kinds(differences: Differences) -> list[Kind]:
    """Return in which way each document is contradicted, D of them.

    - ``other path``: some labels are extra and others missing;
    - ``too shallow``: labels are missing, all of them below the end of a given path;
    - ``missing label``: labels are missing, and some begin a path of their own;
    - ``too deep``: labels are extra, all of them below the end of a suggested path;
    - ``extra label``: labels are extra, and some begin a path of their own.
    """
    extra, missing = (_occurs(differences, side) for side in (differences.extra, differences.missing))
    shallow, deep = (
        ~_occurs(differences, _own_path(differences, *sides))
        for sides in ((differences.missing, differences.given), (differences.extra, differences.suggested))
    )
    found = np.select(
        [extra & missing, missing & shallow, missing, deep],
        [KINDS.index("other path"), KINDS.index("too shallow"), KINDS.index("missing label"), KINDS.index("too deep")],
        KINDS.index("extra label"),
    )
    return [KINDS[number] for number in found.tolist()]


def _occurs(differences: Differences, entries: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Tell which documents have one of some entries, (D,)."""
    return np.bincount(differences.documents[entries], minlength=len(differences.rows)) > 0


def _own_path(differences: Differences, side: NDArray[np.bool_], others: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark the top-most entries of a side that do not go on from the end of a path of the others, (E,)."""
    above, count = differences.parents, len(side)
    goes_on = np.bincount(above[others & (above >= 0)], minlength=count) > 0  # an entry with a child among the others
    tops = side & (differences.branches == np.arange(count))
    own: NDArray[np.bool_] = tops & ((above < 0) | goes_on[above])
    return own
