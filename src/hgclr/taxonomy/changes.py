"""What became of the labels of a tree in a newer version of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from typing import NamedTuple

from hgclr.errors import InputError
from hgclr.files import write_files
from hgclr.taxonomy.entries import Source
from hgclr.taxonomy.formats import parse_json
from hgclr.taxonomy.tree import Taxonomy

__all__ = ["Suggestions", "TreeChanges", "branches", "compare", "read_changes", "suggest", "write_changes"]

LISTED = 3
"""How many labels of a kind a summary names."""
HEADER = "old\tnew"
REMEDY = f'begin with the line {HEADER.replace(chr(9), "<TAB>")}, or write JSON: {{"old id": ["new id"]}}'

SIMILAR = 0.8
"""From here on two names are much alike: twice the characters in common over all characters."""
COMPARED = 40_000
"""Up to so many pairs of removed and added siblings are compared; among more, only names that are the same count."""


class Pair(NamedTuple):
    """An old label and the new label that it became, by index."""

    old: int
    new: int


@dataclass(frozen=True)
class TreeChanges:
    """Two label trees and how they hang together; all labels are indices into ``old`` and ``new``.

    A label that is one and the same in both trees is in ``kept`` if id, name and parent are the same, else in
    ``renamed`` (another id or name), in ``moved`` (another parent) or in both. An old label of several new ones is in
    ``split``, a new one of several old ones in ``merged``; where labels are exchanged, a label may be in both.

    Args:
        old, new: the trees.
        sources: for each new label, the old labels it comes from.
        targets: for each old label, the new labels it became.
        kept, renamed, moved: labels that are in both trees.
        merged: old labels, and the new one that they became.
        split: an old label, and the new ones that it became.
        added: new labels that come from none.
        removed: old labels that became none.
    """

    old: Taxonomy
    new: Taxonomy
    sources: tuple[tuple[int, ...], ...]
    targets: tuple[tuple[int, ...], ...]
    kept: tuple[Pair, ...]
    renamed: tuple[Pair, ...]
    moved: tuple[Pair, ...]
    merged: tuple[tuple[tuple[int, ...], int], ...]
    split: tuple[tuple[int, tuple[int, ...]], ...]
    added: tuple[int, ...]
    removed: tuple[int, ...]

    def __bool__(self) -> bool:
        """Tell whether anything differs but the order of the labels."""
        return len(self.kept) < max(len(self.old), len(self.new))

    def summary(self) -> str:
        """Return one line: how many labels of each kind, and the first that changed, a branch by its topmost label."""
        old, new = self.old.ids, self.new.ids
        kinds = [
            ("renamed", self.renamed, [_arrow([old[one]], [new[other]]) for (one, other), _ in self.renamed_heads]),
            ("moved", self.moved, [new[pair.new] for pair in self.moved]),
            ("merged", self.merged, [_arrow([old[one] for one in labels], [new[it]]) for labels, it in self.merged]),
            ("split", self.split, [_arrow([old[it]], [new[one] for one in labels]) for it, labels in self.split]),
            ("new", self.added, [new[label] for label, _ in branches(self.new, self.added)]),
            ("removed", self.removed, [old[label] for label, _ in branches(self.old, self.removed)]),
        ]
        parts = [f"{len(self.kept):,} labels kept as they were"]
        parts += [f"{len(changed):,} {kind}: {_listed(shown)}" for kind, changed, shown in kinds if changed]
        return "; ".join(parts)

    @property
    def renamed_heads(self) -> list[tuple[Pair, int]]:
        """The renamed labels, each with how many below it have only another id because it has."""
        pairs = {pair.new: pair for pair in self.renamed}
        following = {
            pair.new
            for pair in self.renamed
            if self.old.names[pair.old] == self.new.names[pair.new]
            and pairs.get(above := int(self.new.parents[pair.new])) == (int(self.old.parents[pair.old]), above)
        }
        heads = {label: 0 for label in pairs if label not in following}
        for label in following:
            while label in following:
                label = int(self.new.parents[label])
            heads[label] += 1
        return [(pairs[label], below) for label, below in heads.items()]

    def to_json(self) -> dict[str, object]:
        """Return all changes by ids and names, in plain Python types."""

        def described(tree: Taxonomy, label: int, *, place: bool = False) -> dict[str, str | None]:
            parent = int(tree.parents[label])
            above = {"parent": None if parent < 0 else tree.ids[parent]} if place else {}
            return {"id": tree.ids[label], "name": tree.names[label], **above}

        old, new = partial(described, self.old), partial(described, self.new)
        return {
            "labels": {"old": len(self.old), "new": len(self.new)},
            "kept": [self.new.ids[pair.new] for pair in self.kept],
            "renamed": [{"old": old(pair.old), "new": new(pair.new)} for pair in self.renamed],
            "moved": [{"old": old(pair.old, place=True), "new": new(pair.new, place=True)} for pair in self.moved],
            "merged": [{"old": list(map(old, labels)), "new": new(one)} for labels, one in self.merged],
            "split": [{"old": old(one), "new": list(map(new, labels))} for one, labels in self.split],
            "added": [new(label, place=True) for label in self.added],
            "removed": [old(label, place=True) for label in self.removed],
        }


def branches(tree: Taxonomy, labels: Iterable[int]) -> list[tuple[int, int]]:
    """Return those of some labels whose parent is not among them, each with how many of them are below it."""
    inside = set(labels)
    heads = {label: 0 for label in sorted(inside) if int(tree.parents[label]) not in inside}
    for label in inside - heads.keys():
        while label not in heads:
            label = int(tree.parents[label])
        heads[label] += 1
    return list(heads.items())


def compare(old: Taxonomy, new: Taxonomy, mapping: Mapping[str, Sequence[str]] | None = None) -> TreeChanges:
    """Find out which label of one tree is which of another.

    A label that ``mapping`` names became what stands there, and nothing else. Any other is the label of the same id in
    the new tree or, if there is none, the one of the same path of names, or else of the same name below what its parent
    became, unless that comes from another label already.

    Args:
        old: the tree as it was.
        new: the tree as it is.
        mapping: what two trees cannot show: the new labels that an old one became. Several old labels with one new
            label were merged, one with several was split. Labels are given by id, name or path.

    Raises:
        InputError: if the mapping names a label that is in no tree, or in several places of one.

    Example:
        >>> old = Taxonomy(["sports", "tennis", "golf"], [-1, 0, 0])
        >>> new = Taxonomy(["sports", "tennis", "chess"], [-1, 0, 0])
        >>> compare(old, new).summary()
        '2 labels kept as they were; 1 new: chess; 1 removed: golf'
    """
    targets = _targets(old, new, mapping or {})
    sources: list[list[int]] = [[] for _ in new.ids]
    for label, became in enumerate(targets):
        for target in became:
            sources[target].append(label)
    pairs = [
        Pair(came[0], label) for label, came in enumerate(sources) if len(came) == 1 and len(targets[came[0]]) == 1
    ]
    renamed = [
        pair for pair in pairs if (old.ids[pair.old], old.names[pair.old]) != (new.ids[pair.new], new.names[pair.new])
    ]
    moved = [pair for pair in pairs if not _same_place(old, new, sources, pair)]
    changed = {*renamed, *moved}
    return TreeChanges(
        old=old,
        new=new,
        sources=tuple(map(tuple, sources)),
        targets=tuple(map(tuple, targets)),
        kept=tuple(pair for pair in pairs if pair not in changed),
        renamed=tuple(renamed),
        moved=tuple(moved),
        merged=tuple((tuple(came), label) for label, came in enumerate(sources) if len(came) > 1),
        split=tuple((label, tuple(became)) for label, became in enumerate(targets) if len(became) > 1),
        added=tuple(label for label, came in enumerate(sources) if not came),
        removed=tuple(label for label, became in enumerate(targets) if not became),
    )


def _targets(old: Taxonomy, new: Taxonomy, mapping: Mapping[str, Sequence[str]]) -> list[list[int]]:
    """Return the new labels that each old one became."""
    targets: list[list[int]] = [[] for _ in old.ids]
    told = set()
    for before, became in mapping.items():
        told.add(index := old.resolve(before))
        targets[index] = sorted({*targets[index], *(new.resolve(target) for target in became)})
    by_id = {identifier: index for index, identifier in enumerate(new.ids)}
    for label, identifier in enumerate(old.ids):
        if label not in told and identifier in by_id:
            targets[label] = [by_id[identifier]]
    if left := [label for label, identifier in enumerate(old.ids) if label not in told and identifier not in by_id]:
        taken = {target for became in targets for target in became}
        by_path = {new.path_names(label): label for label in range(len(new)) if label not in taken}
        for label in left:
            if (same := by_path.get(old.path_names(label))) is not None:
                targets[label] = [same]
        _follow_parents(old, new, targets, left)
    return targets


def _follow_parents(old: Taxonomy, new: Taxonomy, targets: list[list[int]], left: Iterable[int]) -> None:
    """Give labels that are left the label of the same name below what their parent became, from the top down."""
    taken = {target for became in targets for target in became}
    free: dict[int, dict[str, list[int]]] = {}  # by new parent and name
    for label in sorted(left, key=old.depths.__getitem__):
        above = targets[int(old.parents[label])] if old.parents[label] >= 0 else []
        if targets[label] or len(above) != 1:
            continue
        if above[0] not in free:
            free[above[0]] = _by_name(new, set(new.children(above[0]).tolist()) - taken)
        if len(same := free[above[0]].get(old.names[label], [])) == 1:
            targets[label] = [same.pop()]


def _by_name(tree: Taxonomy, labels: Iterable[int]) -> dict[str, list[int]]:
    named: dict[str, list[int]] = {}
    for label in labels:
        named.setdefault(tree.names[label], []).append(label)
    return named


def _same_place(old: Taxonomy, new: Taxonomy, sources: Sequence[Sequence[int]], pair: Pair) -> bool:
    """Tell whether a label's new parent comes from its old one, or it has none in either tree."""
    above, below = int(old.parents[pair.old]), int(new.parents[pair.new])
    return above == below if -1 in (above, below) else above in sources[below]


def _arrow(old: Iterable[str], new: Iterable[str]) -> str:
    before, after = " + ".join(old), " + ".join(new)
    return before if before == after else f"{before} → {after}"


def _listed(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - LISTED:,} more" if len(labels) > LISTED else ""
    return ", ".join(labels[:LISTED]) + more


def read_changes(path: str | Path, old: Taxonomy, new: Taxonomy) -> dict[str, list[str]]:
    """Read what became of labels, for :func:`compare`: the ids of the new labels by the id of each old one.

    The file is UTF-8 text with the line ``old<TAB>new`` and then one old and one new label a line, or a JSON object of
    old labels, each with a new one or a list of them. Several lines with one old label split it, several with one new
    label merge into it. Labels are given by id, name or path.
    """
    source = Source.load(path)
    changes: dict[str, list[str]] = {}
    pairs: Iterator[tuple[str, str, int | None]]
    pairs = _json_pairs(source) if source.text.lstrip().startswith("{") else _table_pairs(source)
    for before, after, line in pairs:
        became = changes.setdefault(_id(old, before, "old", source, line), [])
        target = _id(new, after, "new", source, line)
        if target in became:
            raise source.error(f"{before!r} with {after!r} is given twice", line, "delete one of the two")
        became.append(target)
    if not changes:
        raise source.error("there are no changes in it", remedy="add some, or leave the file out")
    return changes


def write_changes(path: str | Path, changes: Mapping[str, Sequence[str]]) -> None:
    """Write a table that :func:`read_changes` reads, whole or not at all."""
    rows = [(old, target) for old, became in changes.items() for target in became]
    for label in (label for row in rows for label in row):
        if any(character in label for character in "\t\r\n"):
            raise InputError(f"the id {label!r} holds a tab or a line end", path=path, remedy="write JSON by hand")
    text = "".join(f"{line}\n" for line in (HEADER, *("\t".join(row) for row in rows)))
    write_files(Path(path).parent, {Path(path).name: text.encode()})


def _table_pairs(source: Source) -> Iterator[tuple[str, str, int]]:
    lines = source.lines()
    number, first = next(lines, (1, ""))
    if [cell.strip() for cell in first.split("\t")] != HEADER.split("\t"):
        raise source.error(f"the first line is {first[:60]!r}", number, REMEDY)
    for number, line in lines:
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) != 2 or not all(cells):
            raise source.error(f"expected an old and a new label, got {line[:60]!r}", number, "put one tab between two")
        yield cells[0], cells[1], number


def _json_pairs(source: Source) -> Iterator[tuple[str, str, None]]:
    whole = parse_json(source)
    if not isinstance(whole, dict):  # it begins with a brace
        raise source.error("expected an object", 1, REMEDY)
    for old, value in whole.items():
        if value == []:
            remedy = "leave a label out that is in the old tree only: it was removed"
            raise source.error(f"{old!r} became nothing", None, remedy)
        for one in value if isinstance(value, list) else [value]:
            if not isinstance(one, str):
                raise source.error(f"{old!r} became something that is no label", None, REMEDY)
            yield old, one, None


def _id(tree: Taxonomy, label: str, which: str, source: Source, line: int | None) -> str:
    try:
        return tree.ids[tree.resolve(label)]
    except InputError as error:
        raise source.error(f"{error.what} in the {which} tree", line, error.remedy) from None


@dataclass(frozen=True)
class Suggestions:
    """Removed and added labels that perhaps belong together, as indices into the old and the new tree.

    With a renamed label go those below it that have kept their names; ``below`` says how many.
    """

    renamed: tuple[Pair, ...]
    below: tuple[int, ...]
    merged: tuple[tuple[tuple[int, ...], int], ...]
    split: tuple[tuple[int, tuple[int, ...]], ...]

    def __bool__(self) -> bool:
        return bool(self.renamed or self.merged or self.split)

    def mapping(self, changes: TreeChanges) -> dict[str, list[str]]:
        """Return the suggestions in the form that :func:`compare` takes."""
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
        self.child_names: dict[tuple[bool, int], set[str]] = {}

    def run(self) -> Suggestions:
        new = self.changes.new
        for level in new.levels:
            families = dict.fromkeys(int(new.parents[label]) for label in level.tolist() if label in self.added)
            for parent in families:
                self.among(list(self._removed_below(parent)), _free(new.children(parent).tolist(), self.added))
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
        old_words, new_words = self.old_words, self.new_words
        for label in _free(added, self.added):
            parts = [one for one in _free(removed, self.removed) if _is_part(old_words[one], new_words[label])]
            if len(parts) > 1:
                self.merged.append((tuple(parts), label))
                self.removed.difference_update(parts)
                self.added.discard(label)
        for label in _free(removed, self.removed):
            parts = [one for one in _free(added, self.added) if _is_part(new_words[one], old_words[label])]
            if len(parts) > 1:
                self.split.append((label, tuple(parts)))
                self.added.difference_update(parts)
                self.removed.discard(label)
        self._rename(removed, added, lambda one, other: _alike(old.names[one], new.names[other]))
        self._rename(removed, added, self._contained)

    def _rename(self, removed: Iterable[int], added: Iterable[int], same: Callable[[int, int], bool]) -> None:
        """Take pairs of free labels for renamed that are the same, each to one other only."""
        free = _free(added, self.added)
        by_old = {one: [other for other in free if same(one, other)] for one in _free(removed, self.removed)}
        counts = Counter(other for others in by_old.values() for other in others)
        for one, others in by_old.items():
            if len(others) == 1 and counts[others[0]] == 1:
                self._take(one, others[0])

    def _rename_same_names(self, removed: Iterable[int], added: Iterable[int]) -> None:
        """Take free labels for renamed that alone among the removed and among the added have a name."""
        after = _by_name(self.changes.new, _free(added, self.added))
        for name, before in _by_name(self.changes.old, _free(removed, self.removed)).items():
            if len(before) == len(after.get(name, ())) == 1:
                self._take(before[0], after[name][0])

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
            yield from _free(self.changes.old.children(one).tolist(), self.removed)

    def _same_children(self, one: int, other: int) -> bool:
        below = {target for child in self.changes.old.children(one).tolist() for target in self.changes.targets[child]}
        return bool(below) and below == set(self.changes.new.children(other).tolist())

    def _children_of_the_same_names(self, one: int, other: int) -> bool:
        """Tell whether at least two, and half of all, names of children are those of both."""
        first, second = self._child_names(self.changes.old, one), self._child_names(self.changes.new, other)
        common = first & second
        return len(common) > 1 and 2 * len(common) >= len(first | second)

    def _contained(self, one: int, other: int) -> bool:
        first, second = self.old_words[one], self.new_words[other]
        return _is_part(first, second) or _is_part(second, first)

    def _child_names(self, tree: Taxonomy, label: int) -> set[str]:
        key = tree is self.changes.old, label
        if key not in self.child_names:
            self.child_names[key] = {tree.names[child] for child in tree.children(label).tolist()}
        return self.child_names[key]


def _free(labels: Iterable[int], among: set[int]) -> list[int]:
    return sorted(label for label in labels if label in among)


def _words(name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W_]+", name.casefold()))


def _is_part(words: frozenset[str], of: frozenset[str]) -> bool:
    return bool(words) and words <= of


def _alike(one: str, other: str) -> bool:
    matcher = SequenceMatcher(None, one.casefold(), other.casefold(), autojunk=False)
    return matcher.real_quick_ratio() >= SIMILAR and matcher.quick_ratio() >= SIMILAR and matcher.ratio() >= SIMILAR
