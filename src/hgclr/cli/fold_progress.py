"""Show the training of one model for each fold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from hgclr.auditing.folds import FoldWatch
from hgclr.cli.console import standard_error
from hgclr.cli.training_progress import TrainingProgress

__all__ = ["fold_progress"]


def fold_progress(folds: int) -> Callable[[int], AbstractContextManager[FoldWatch]]:
    """Return what shows the training of a fold, for as many folds as there are."""

    @contextmanager
    def watch(fold: int) -> Iterator[FoldWatch]:
        with TrainingProgress(standard_error(), f"fold {fold} of {folds}") as progress:
            yield FoldWatch([progress], progress.on_documents)

    return watch
