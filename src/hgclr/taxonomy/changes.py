"""Labels kept, renamed, moved, merged, split, added and removed between two versions of a label tree."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from hgclr.errors import InputError
from hgclr.taxonomy.entries import Source
from hgclr.taxonomy.formats import parse_json
from hgclr.taxonomy.tree import Taxonomy

Key = TypeVar("Key", bound=Hashable)
LISTED = 3
"""Maximum number of labels that a summary names for each kind of change."""
HEADER = "old\tnew"
REMEDY = f'begin with the line {HEADER.replace(chr(9), "<TAB>")}, or write JSON: {{"old id": ["new id"]}}'


class Pair(NamedTuple):
    """An old label and the new label that it became, by index."""

    old: int
    new: int


@dataclass(frozen=True)
class TreeChanges:
    """The changes between two label trees; labels are indices into ``old`` and ``new``.

    A label of both trees is in ``kept`` if id, name and parent are equal, else in ``renamed`` (another id or name), in
    ``moved`` (another parent) or in both. An old label may be in ``split`` and in ``merged``.

    Args:
        old, new: the trees.
        sources: for each new label, the old labels it comes from.
        targets: for each old label, the new labels it became.
        kept, renamed, moved: labels that are in both trees.
        merged: several old labels and the new one that they became.
        split: an old label and the several new ones that it became.
        added: new labels without a source.
        removed: old labels without a target.
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
        """Return whether the trees differ, apart from the order of the labels."""
        return len(self.kept) < max(len(self.old), len(self.new))

    def summary(self) -> str:
        """Return one line: the count of each kind of change, and the first labels, topmost of their branches."""
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
        """The renamed labels, without those that only follow a renamed parent; each with the count of its followers."""
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
    """Return the given labels whose parent is not given, each with the number of given labels below it."""
    inside = set(labels)
    heads = {label: 0 for label in sorted(inside) if int(tree.parents[label]) not in inside}
    for label in inside - heads.keys():
        while label not in heads:
            label = int(tree.parents[label])
        heads[label] += 1
    return list(heads.items())


def compare(old: Taxonomy, new: Taxonomy, mapping: Mapping[str, Sequence[str]] | None = None) -> TreeChanges:
    """Match the labels of an old tree with those of a new one.

    Labels in ``mapping`` became exactly the labels given there. Any other label is matched by id, then by its path of
    names, then by its name under the label that its parent became; each new label is matched by path or name once.

    Args:
        old: the tree as it was.
        new: the tree as it is.
        mapping: the new labels that each old one became, by id, name or path. Several old labels with the same new
            label were merged; an old label with several new ones was split.

    Raises:
        InputError: if a label in the mapping is unknown or ambiguous.

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
    moved = []  # the new parent does not come from the old one, or the further parents differ
    for pair in pairs:
        above, below = int(old.parents[pair.old]), int(new.parents[pair.new])
        further = {target for parent in old.more_parents[pair.old] for target in targets[parent]}
        moves = above != below if -1 in (above, below) else above not in sources[below]
        if moves or further != {*new.more_parents[pair.new]}:
            moved.append(pair)
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


def label_key(name: str) -> str:
    """Return a name normalised in case, spaces and the composition of characters."""
    return "".join(unicodedata.normalize("NFKC", name).casefold().split())


def with_old_ids(old: Taxonomy, new: Taxonomy, mapping: Mapping[str, Sequence[str]] | None = None) -> Taxonomy:
    """Return a new tree whose ids are paths, with the ids of the old labels that it still has.

    The ids of ``new`` are not compared: another label may have had that path. Labels in ``mapping`` became exactly the
    labels given there. Any other label is matched by its path, then by its name under the label that its parent became,
    then by its name, if only one label of each tree has it. Names may differ in case and spaces. Merged and split
    labels get new ids.

    Example:
        >>> old = Taxonomy.from_paths([("home", "garden", "roses"), ("home", "kitchen")])
        >>> new = Taxonomy.from_paths([("home", "kitchen"), ("leisure", "garden", "roses")])
        >>> with_old_ids(old, new).ids
        ('home', 'home > kitchen', 'leisure', 'home > garden', 'home > garden > roses')
    """
    targets = _targets(old, new, mapping or {}, by_id=False)
    sources = Counter(target for became in targets for target in became)
    ids = {became[0]: old.ids[label] for label, became in enumerate(targets) if len(became) == 1 == sources[became[0]]}
    before = dict(zip(old.ids, targets, strict=True))
    used = {*old.ids, *new.ids}
    for label, path in enumerate(new.ids):
        if label not in ids:  # 'a > b (2)' if the path is the id of another label
            free = label in before.get(path, [label])
            ids[label] = path if free else next(own for n in count(2) if (own := f"{path} ({n})") not in used)
    return Taxonomy([ids[label] for label in range(len(new))], new.parents, new.names, new.descriptions)


def _targets(
    old: Taxonomy, new: Taxonomy, mapping: Mapping[str, Sequence[str]], *, by_id: bool = True
) -> list[list[int]]:
    """Return the new labels that each old one became."""
    targets: list[list[int]] = [[] for _ in old.ids]
    mapped = set()
    for before, became in mapping.items():
        mapped.add(index := old.resolve(before))
        targets[index] = sorted({*targets[index], *(new.resolve(target) for target in became)})
    same_id = {identifier: index for index, identifier in enumerate(new.ids)} if by_id else {}
    left = []
    for label, identifier in enumerate(old.ids):
        if label not in mapped and identifier in same_id:
            targets[label] = [same_id[identifier]]
        elif label not in mapped:
            left.append(label)
    if not left:
        return targets
    left.sort(key=old.depths.__getitem__)
    taken = {target for became in targets for target in became}

    def match(label: int, found: int | None) -> None:
        if found is not None and found not in taken and not targets[label]:
            targets[label] = [found]
            taken.add(found)

    for key in (str,) if by_id else (str, label_key):
        places = _single((parent, key(name)) for parent, name in zip(new.parents.tolist(), new.names, strict=True))
        same_path = {-1: -1}
        for label in np.concatenate(old.levels).tolist():
            above = same_path.get(int(old.parents[label]))
            if above is not None and (found := places.get((above, key(old.names[label])))) is not None:
                same_path[label] = found
        for label in left:
            match(label, same_path.get(label))
    single = [] if by_id else [_single(map(label_key, tree.names)) for tree in (old, new)]
    for label in left:  # parents first
        parents, name = targets[old.parents[label]] if old.parents[label] >= 0 else [], key(old.names[label])
        match(label, places.get((parents[0], name)) if len(parents) == 1 else None)
        if single and name in single[0]:
            match(label, single[1].get(name))
    return targets


def _single(keys: Iterable[Key]) -> dict[Key, int]:
    """Return the positions of the keys that occur once."""
    counted = Counter(keys := list(keys))
    return {key: place for place, key in enumerate(keys) if counted[key] == 1}


def _arrow(old: Iterable[str], new: Iterable[str]) -> str:
    before, after = " + ".join(old), " + ".join(new)
    return before if before == after else f"{before} → {after}"


def _listed(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - LISTED:,} more" if len(labels) > LISTED else ""
    return ", ".join(labels[:LISTED]) + more


def read_changes(path: str | Path, old: Taxonomy, new: Taxonomy) -> dict[str, list[str]]:
    """Read the mapping for :func:`compare`: for the id of each old label, the ids of the new ones.

    The file is UTF-8 text: the header ``old<TAB>new``, then an old and a new label on each line; or a JSON object with
    a new label or a list of them for each old label. Labels are given by id, name or path.
    """
    source = Source.load(path)
    changes: dict[str, list[str]] = {}
    pairs: Iterator[tuple[str, str, int | None]]
    pairs = _json_pairs(source) if source.text.lstrip().startswith("{") else _table_pairs(source)
    for before, after, line in pairs:
        ids = []
        for which, tree, label in (("old", old, before), ("new", new, after)):
            try:
                ids.append(tree.ids[tree.resolve(label)])
            except InputError as error:
                raise source.error(f"{error.what} in the {which} tree", line, error.remedy) from None
        became, target = changes.setdefault(ids[0], []), ids[1]
        if target in became:
            raise source.error(f"the change {before!r} to {after!r} is listed twice", line, "delete one of the two")
        became.append(target)
    if not changes:
        raise source.error("the file lists no changes", remedy="add changes, or omit the file")
    return changes


def _table_pairs(source: Source) -> Iterator[tuple[str, str, int]]:
    lines = source.lines()
    number, first = next(lines, (1, ""))
    if [cell.strip() for cell in first.split("\t")] != HEADER.split("\t"):
        raise source.error(f"the first line, {first[:60]!r}, is not the header", number, REMEDY)
    for number, line in lines:
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) != 2 or not all(cells):
            raise source.error(f"expected an old and a new label, got {line[:60]!r}", number, "separate them by a tab")
        yield cells[0], cells[1], number


def _json_pairs(source: Source) -> Iterator[tuple[str, str, None]]:
    whole = parse_json(source)
    if not isinstance(whole, dict):  # it begins with a brace
        raise source.error("expected an object", 1, REMEDY)
    for old, value in whole.items():
        if value == []:
            remedy = "delete the entry: a label without an entry or a match counts as removed"
            raise source.error(f"{old!r} has an empty list of new labels", None, remedy)
        for one in value if isinstance(value, list) else [value]:
            if not isinstance(one, str):
                raise source.error(f"a new label of {old!r} is not a string", None, REMEDY)
            yield old, one, None
