"""Trees drawn from the paths that documents have, and labels in them that are one label written in two ways."""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from hgclr.errors import InputError
from hgclr.taxonomy.tree import Taxonomy

__all__ = ["NamePath", "Twins", "check_names", "draw_tree", "label_key", "merge_twins", "near_twins"]

NamePath = tuple[str, ...]
"""The names from the top down to a label."""


def check_names(names: NamePath, separator: str) -> None:
    """Refuse names that no path can be made of."""
    if not separator:
        raise InputError("path_separator is empty", remedy="use for example ' > '")
    for name in names:
        if name != name.strip() or not name:
            what = "an empty name" if not name.strip() else f"a name with space around it, {name!r}"
            remedy = f"the names are set apart by {separator!r}"
            raise InputError(f"the path {separator.join(names)!r} has {what}", remedy=remedy)
        if separator in name:
            raise InputError(f"the name {name!r} holds {separator!r}", remedy="give another path_separator")


def draw_tree(paths: Iterable[NamePath], separator: str = " > ") -> Taxonomy:
    """Return the tree of all beginnings of the paths, in the order of their names; a label's id is its path.

    Example:
        >>> draw_tree([("science", "physics"), ("law",)]).ids
        ('law', 'science', 'science > physics')
    """
    ordered = sorted({path[:depth] for path in paths for depth in range(1, len(path) + 1)})
    index = {path: place for place, path in enumerate(ordered)}
    return Taxonomy(
        [separator.join(path) for path in ordered],
        [index.get(path[:-1], -1) for path in ordered],
        [path[-1] for path in ordered],
    )


class Twins(NamedTuple):
    """Labels that differ only in case or spaces: their paths with how often each occurs, the most frequent first.

    Of a label that stands in a tree that was given, it is not counted how often it occurs.
    """

    paths: tuple[tuple[NamePath, int | None], ...]

    def summary(self, separator: str = " > ") -> str:
        """Return the labels in a line."""
        return " and ".join(
            f"{separator.join(path)!r} ({'in the tree' if count is None else f'{count:,}'})"
            for path, count in self.paths
        )


def label_key(*names: str) -> str:
    """Return what is left of a path when case, spaces and the composition of characters do not count."""
    return "".join(unicodedata.normalize("NFKC", ">".join(names)).casefold().split())


def near_twins(paths: Mapping[NamePath, int]) -> list[Twins]:
    """Find labels that differ only in case or spaces, most of which are one label written in two ways.

    Only the top-most are named: what hangs under two spellings of a label is not listed again.

    Args:
        paths: the paths of documents, with the number of documents that have each.

    Example:
        >>> found = near_twins({("Mental Health",): 9, ("mental  health", "stress"): 1})
        >>> found[0].summary()
        "'Mental Health' (9) and 'mental  health' (1)"
    """
    groups = _groups(paths)
    twins = [Twins(tuple(group.most_common())) for group in groups.values() if len({path[-1] for path in group}) > 1]
    return sorted(twins, key=lambda found: found.paths[0][0])


def merge_twins(paths: Mapping[NamePath, int]) -> dict[NamePath, NamePath]:
    """Return each path with the names by which it goes once twins are one label: the most frequent spelling of each.

    Example:
        >>> merge_twins({("Mental Health",): 9, ("mental  health", "stress"): 1})[("mental  health", "stress")]
        ('Mental Health', 'stress')
    """
    spelled = {key: group.most_common(1)[0][0] for key, group in _groups(paths).items()}
    merged = {}
    for path in paths:
        chosen = spelled[label_key(*path)]
        merged[path] = tuple(spelled[label_key(*chosen[:depth])][-1] for depth in range(1, len(chosen) + 1))
    return merged


def _groups(paths: Mapping[NamePath, int]) -> dict[str, Counter[NamePath]]:
    """Return all labels on the paths by their keys, with how many documents have each."""
    groups: defaultdict[str, Counter[NamePath]] = defaultdict(Counter)
    for path, count in paths.items():
        for depth in range(1, len(path) + 1):
            groups[label_key(*path[:depth])][path[:depth]] += count
    return groups
