"""Parameters of a model that depend on the labels, carried over to another label tree."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hgclr.taxonomy.changes import TreeChanges


class LabelRows:
    """Compute the rows and columns of new labels from those of old labels; the trees share at least one label.

    With S(n) the old labels that n comes from and T(o) the new labels that o became:

    - :meth:`rows`, for parameters of the label itself: ``new_n = mean of old_o over S(n)``; if S(n) is empty, the
      parent's, and for a top label the mean of all top labels with a source;
    - :meth:`columns`, for parameters in a sum over labels: ``new_n = Σ old_o / |T(o)| over S(n)``, 0 if S(n) is empty.
      So new labels change no sum, and the parts of a split label add up to the old one.

    A label that is in both trees keeps its numbers bit by bit.
    """

    def __init__(self, changes: TreeChanges) -> None:
        self.changes = changes
        pairs = [(old, new) for new, came in enumerate(changes.sources) for old in came]
        self._old, self._new = (torch.tensor(column) for column in zip(*pairs, strict=True))
        self._share = 1 / torch.tensor([float(len(changes.sources[new])) for _, new in pairs])
        self._part = 1 / torch.tensor([float(len(changes.targets[old])) for old, _ in pairs])
        self._parents = torch.from_numpy(changes.new.parents.copy())
        added = np.zeros(len(changes.new), dtype=bool)
        added[list(changes.added)] = True
        self._fresh = [torch.from_numpy(level[added[level]]) for level in changes.new.levels]
        known_top = changes.new.levels[0][~added[changes.new.levels[0]]]
        self._typical = torch.from_numpy(known_top if len(known_top) else np.flatnonzero(~added))

    def rows(self, old: Tensor) -> Tensor:
        """Return rows of the new labels, (K', …), from rows of the old ones, (K, …)."""
        new = self._sum(old, self._share)
        top, *below = self._fresh
        new[top] = new[self._typical].mean(0)
        for level in below:  # the row of a new parent is already set
            new[level] = new[self._parents[level]]
        return new

    def columns(self, old: Tensor) -> Tensor:
        """Return columns of the new labels, (K', …), from columns of the old ones, (K, …)."""
        return self._sum(old, self._part)

    def row_blocks(self, old: Tensor) -> Tensor:
        """Return :meth:`rows` where each label has d of them, (K' d, …) from (K d, …)."""
        return self.rows(old.unflatten(0, (len(self.changes.old), -1))).flatten(0, 1)

    def column_blocks(self, old: Tensor) -> Tensor:
        """Return :meth:`columns` where each label has d columns of a matrix, (n, K' d) from (n, K d)."""
        blocks = old.unflatten(1, (len(self.changes.old), -1)).transpose(0, 1)
        return self.columns(blocks).transpose(0, 1).flatten(1)

    def tokens(self, old: Tensor, names: Tensor) -> Tensor:
        """Return the labels' name tokens, (K', T), from those of the old labels and of the new names.

        A label with an unchanged name keeps its tokens: those of imported checkpoints may differ from its tokenizer's.
        """
        width = max(old.shape[1], names.shape[1])
        old, tokens = (F.pad(part, (0, width - part.shape[1]), value=-1) for part in (old, names))
        for new, came in enumerate(self.changes.sources):
            if len(came) == 1 and self.changes.old.names[came[0]] == self.changes.new.names[new]:
                tokens[new] = old[came[0]]
        return tokens

    def _sum(self, old: Tensor, weights: Tensor) -> Tensor:
        weighted = old[self._old] * weights.to(old.dtype).view(-1, *[1] * (old.dim() - 1))
        return old.new_zeros(len(self.changes.new), *old.shape[1:]).index_add_(0, self._new, weighted)


class LabelSized:
    """A module that has parameters or buffers with an entry for each label."""

    def label_entries(self, rows: LabelRows) -> dict[str, Tensor]:
        """Return these, by name, as the new tree has them."""
        raise NotImplementedError
