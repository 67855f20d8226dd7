"""Parameters with an entry for each label, taken from one label tree over to another."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hgclr.taxonomy.changes import TreeChanges

__all__ = ["LabelRows"]


class LabelRows:
    """Turn what is kept by old labels into what is kept by new ones.

    With S(n) the old labels that n comes from and T(o) the new labels that o became:

    - :meth:`rows`, what a label itself has: ``new_n = mean of old_o over S(n)``; of a label that comes from none, that
      of its parent, and of a top label the mean of all top labels that come from some;
    - :meth:`columns`, what a label gives to a sum over labels: ``new_n = Σ old_o / |T(o)| over S(n)``; 0 of a label
      that comes from none. Such a label changes no sum, and the parts of one that was split add up to what it was.

    Of a label that is one in both trees, both are the old numbers, bit by bit.

    Args:
        changes: the two trees, at least one label of which is in both.
    """

    def __init__(self, changes: TreeChanges) -> None:
        pairs = [(old, new) for new, came in enumerate(changes.sources) for old in came]
        self.old, self.new = (torch.tensor(column) for column in zip(*pairs, strict=True))
        self.labels = len(changes.new)
        self._share = 1 / torch.tensor([float(len(changes.sources[new])) for _, new in pairs])
        self._part = 1 / torch.tensor([float(len(changes.targets[old])) for old, _ in pairs])
        self._parents = torch.from_numpy(changes.new.parents.copy())
        added = np.zeros(len(changes.new), dtype=bool)
        added[list(changes.added)] = True
        self._fresh = [torch.from_numpy(level[added[level]]) for level in changes.new.levels]
        known_top = changes.new.levels[0][~added[changes.new.levels[0]]]
        self._typical = torch.from_numpy(known_top if len(known_top) else np.flatnonzero(~added))

    def rows(self, old: Tensor) -> Tensor:
        """Return what the new labels have themselves, (K', …), from what the old ones had, (K, …)."""
        new = self._sum(old, self._share)
        top, *below = self._fresh
        new[top] = new[self._typical].mean(0)
        for level in below:  # a parent that is new itself has got its row before
            new[level] = new[self._parents[level]]
        return new

    def columns(self, old: Tensor) -> Tensor:
        """Return what the new labels give to a sum, (K', …), from what the old ones gave, (K, …)."""
        return self._sum(old, self._part)

    def _sum(self, old: Tensor, weights: Tensor) -> Tensor:
        weighted = old[self.old] * weights.to(old.dtype).view(-1, *[1] * (old.dim() - 1))
        return old.new_zeros(self.labels, *old.shape[1:]).index_add_(0, self.new, weighted)
