"""Labels that perhaps are the same, or parts of each other, though their ids do not say so."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from hgclr.taxonomy.changes import Pair, TreeChanges
from hgclr.taxonomy.tree import Taxonomy

__all__ = ["Suggestions", "suggest"]

SIMILAR = 0.8
"""From here on two names are much alike: twice the characters in common over all characters."""
COMPARED = 40_000
"""Up to so many pairs of removed and added siblings are compared; among more, only names that are the same count."""


@dataclass(frozen=True)
class Suggestions:
    """Removed and added labels that perhaps belong together, as indices into the old and the new tree.

    Args:
        renamed: a removed label and an added one. Labels below it that have kept their names go with it.
        below: how many these are, for each of the renamed.
        merged: several removed labels and an added one.
        split: a removed label and several added ones.
    """

    renamed: tuple[Pair, ...]
    below: tuple[int, ...]
    merged: tuple[tuple[tuple[int, ...], int], ...]
    split: tuple[tuple[int, tuple[int, ...]], ...]

    def __bool__(self) -> bool:
        return bool(self.renamed or self.merged or self.split)

    def mapping(self, changes: TreeChanges) -> dict[str, list[str]]:
        """Return the suggestions in the form that :func:`~hgclr.taxonomy.changes.compare` takes."""
        pairs = [
            *self.renamed,
            *(Pair(old, new) for labels, new in self.merged for old in labels),
            *(Pair(old, new) for old, labels in self.split for new in labels),
        ]
        found: dict[str, list[str]] = {}
        for old, new in pairs:
            found.setdefault(changes.old.ids[old], []).append(changes.new.ids[new])
        return found

    def to_json(self, changes: TreeChanges) -> dict[str, object]:
        """Return the suggestions by ids, in plain Python types."""
        old, new = changes.old.ids, changes.new.ids
        return {
            "renamed": [
                {"old": old[pair.old], "new": new[pair.new], "below": below}
                for pair, below in zip(self.renamed, self.below, strict=True)
            ],
            "merged": [{"old": [old[label] for label in labels], "new": new[one]} for labels, one in self.merged],
            "split": [{"old": old[one], "new": [new[label] for label in labels]} for one, labels in self.split],
        }


def suggest(changes: TreeChanges) -> Suggestions:
    """Look among removed and added labels for those that perhaps belong together.

    From the top down, below parents that are the same or perhaps the same, in this order:

    - renamed: the same name, the same children, or mostly the same names of children;
    - merged: all words of two or more removed names are in an added one; split: the other way round;
    - renamed: names that are much alike, or all words of one name in the other.

    Last, wherever they are: renamed, where one removed and one added label alone have a name. What could be meant in
    several ways is left out. A renamed label with all below it is one suggestion.
    """
    return _Search(changes).run()


class _Search:
    """Removed and added labels that are not yet spoken for, and what was found."""

    def __init__(self, changes: TreeChanges) -> None:
        self.changes = changes
        self.old_words = [_words(name) for name in changes.old.names]
        self.new_words = [_words(name) for name in changes.new.names]
        self.removed, self.added = set(changes.removed), set(changes.added)
        self.renamed: dict[int, int] = {}  # new to old
        self.merged: list[tuple[tuple[int, ...], int]] = []
        self.split: list[tuple[int, tuple[int, ...]]] = []
        self.child_names: dict[tuple[bool, int], Counter[str]] = {}

    def run(self) -> Suggestions:
        """Search level by level, then everywhere."""
        new = self.changes.new
        for level in new.levels:
            families = dict.fromkeys(int(new.parents[label]) for label in level.tolist() if label in self.added)
            for parent in families:
                self.among(list(self._removed_below(parent)), self._free(new.children(parent).tolist(), self.added))
        self._rename_same_names(self.removed, self.added)
        below = Counter(self._head(after) for after in self.renamed)
        heads = sorted(Pair(self.renamed[after], after) for after in below)
        followers = tuple(below[pair.new] - 1 for pair in heads)
        return Suggestions(tuple(heads), followers, tuple(self.merged), tuple(self.split))

    def _head(self, label: int) -> int:
        """Return the added label whose renaming explains that of another, which may be that one itself."""
        old, new = self.changes.old, self.changes.new
        while (origin := self.renamed.get(parent := int(new.parents[label]))) is not None:
            before, name = self.renamed[label], new.names[label]
            if int(old.parents[before]) != origin or name != old.names[before]:
                break  # no more than `compare` sees by itself
            label = parent
        return label

    def among(self, removed: list[int], added: list[int]) -> None:
        """Search among the children of one parent."""
        old, new = self.changes.old, self.changes.new
        self._rename_same_names(removed, added)
        if len(removed) * len(added) > COMPARED:
            return
        self._rename(removed, added, self._same_children)
        self._rename(removed, added, self._children_of_the_same_names)
        for label in self._free(added, self.added):
            parts = [
                one for one in self._free(removed, self.removed) if _is_part(self.old_words[one], self.new_words[label])
            ]
            if len(parts) > 1:
                self.merged.append((tuple(parts), label))
                self.removed.difference_update(parts)
                self.added.discard(label)
        for label in self._free(removed, self.removed):
            parts = [
                one for one in self._free(added, self.added) if _is_part(self.new_words[one], self.old_words[label])
            ]
            if len(parts) > 1:
                self.split.append((label, tuple(parts)))
                self.added.difference_update(parts)
                self.removed.discard(label)
        self._rename(removed, added, lambda one, other: _alike(old.names[one], new.names[other]))
        self._rename(removed, added, self._contained)

    def _rename(self, removed: Iterable[int], added: Iterable[int], same: Callable[[int, int], bool]) -> None:
        """Take pairs of free labels for renamed that are the same, each to one other only."""
        free = self._free(added, self.added)
        by_old = {one: [other for other in free if same(one, other)] for one in self._free(removed, self.removed)}
        counts = Counter(other for others in by_old.values() for other in others)
        for one, others in by_old.items():
            if len(others) == 1 and counts[others[0]] == 1:
                self._take(one, others[0])

    def _rename_same_names(self, removed: Iterable[int], added: Iterable[int]) -> None:
        """Take free labels for renamed that alone among the removed and among the added have a name."""
        names: dict[str, tuple[list[int], list[int]]] = {}
        for label in self._free(removed, self.removed):
            names.setdefault(self.changes.old.names[label], ([], []))[0].append(label)
        for label in self._free(added, self.added):
            names.setdefault(self.changes.new.names[label], ([], []))[1].append(label)
        for before, after in names.values():
            if len(before) == len(after) == 1:
                self._take(before[0], after[0])

    def _take(self, one: int, other: int) -> None:
        self.renamed[other] = one
        self.removed.discard(one)
        self.added.discard(other)

    def _removed_below(self, parent: int) -> Iterator[int]:
        """Yield the free removed labels below what a new label is, or perhaps is, in the old tree."""
        above: tuple[int, ...] = (-1,)
        if parent >= 0:
            perhaps = self.renamed.get(parent)
            above = self.changes.sources[parent] if perhaps is None else (perhaps,)
        for one in above:
            yield from self._free(self.changes.old.children(one).tolist(), self.removed)

    def _same_children(self, one: int, other: int) -> bool:
        below = {target for child in self.changes.old.children(one).tolist() for target in self.changes.targets[child]}
        return bool(below) and below == set(self.changes.new.children(other).tolist())

    def _children_of_the_same_names(self, one: int, other: int) -> bool:
        """Tell whether at least two, and half of all, names of children are those of both."""
        first, second = self._child_names(self.changes.old, one), self._child_names(self.changes.new, other)
        common = first.keys() & second.keys()
        return len(common) > 1 and 2 * len(common) >= len(first.keys() | second.keys())

    def _contained(self, one: int, other: int) -> bool:
        first, second = self.old_words[one], self.new_words[other]
        return _is_part(first, second) or _is_part(second, first)

    def _child_names(self, tree: Taxonomy, label: int) -> Counter[str]:
        key = tree is self.changes.old, label
        if key not in self.child_names:
            self.child_names[key] = Counter(tree.names[child] for child in tree.children(label).tolist())
        return self.child_names[key]

    @staticmethod
    def _free(labels: Iterable[int], among: set[int]) -> list[int]:
        return sorted(label for label in labels if label in among)


def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W_]+", name.casefold()))


def _is_part(words: frozenset[str], of: frozenset[str]) -> bool:
    return bool(words) and words <= of


def _alike(one: str, other: str) -> bool:
    matcher = SequenceMatcher(None, one.casefold(), other.casefold(), autojunk=False)
    return matcher.real_quick_ratio() >= SIMILAR and matcher.quick_ratio() >= SIMILAR and matcher.ratio() >= SIMILAR
