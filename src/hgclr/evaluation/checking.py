"""What must hold for a batch before it is counted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hgclr.taxonomy import Taxonomy

__all__ = ["check_decisions", "check_probabilities"]


def check_decisions(taxonomy: Taxonomy, predicted: NDArray[np.bool_], gold: NDArray[np.bool_]) -> None:
    """Refuse predicted and gold labels that are not two boolean arrays (N, K).

    Raises:
        ValueError: if an array is not boolean, or the shapes do not fit the taxonomy or each other.
    """
    _check_shapes(taxonomy, predicted.shape, gold.shape)
    if predicted.dtype != np.bool_ or gold.dtype != np.bool_:
        raise ValueError(f"expected booleans, got {predicted.dtype} and {gold.dtype}: apply a threshold")


def check_probabilities(taxonomy: Taxonomy, probabilities: NDArray[np.floating], gold: NDArray[np.bool_]) -> None:
    """Refuse what are not probabilities (N, K) and boolean gold labels (N, K).

    Raises:
        ValueError: if the types or shapes are wrong, or a probability is not between 0 and 1.
    """
    _check_shapes(taxonomy, probabilities.shape, gold.shape)
    if probabilities.dtype.kind != "f" or gold.dtype != np.bool_:
        raise ValueError(f"expected probabilities and booleans, got {probabilities.dtype} and {gold.dtype}")
    # Not "any outside": a comparison with NaN is False.
    if probabilities.size and not (probabilities.min() >= 0 and probabilities.max() <= 1):
        raise ValueError("a probability is not between 0 and 1: give probabilities, not logits")


def _check_shapes(taxonomy: Taxonomy, given: tuple[int, ...], gold: tuple[int, ...]) -> None:
    if len(given) != 2 or given != gold or given[1] != len(taxonomy):
        raise ValueError(f"expected two arrays (N, {len(taxonomy)}), got {given} and {gold}")
