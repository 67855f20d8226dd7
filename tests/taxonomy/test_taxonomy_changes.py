"""What became of labels: trees compared, files of changes, suggestions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.changes import TreeChanges, compare, read_changes, suggest, write_changes
from hgclr.taxonomy.tree import read_model_tree


def tree(text: str) -> Taxonomy:
    """Read 'id parent name' by lines, '-' for no parent; the name may be left out."""
    rows = [line.split(maxsplit=2) for line in text.strip().splitlines()]
    ids = [row[0] for row in rows]
    parents = [-1 if row[1] == "-" else ids.index(row[1]) for row in rows]
    return Taxonomy(ids, parents, [row[2] if len(row) > 2 else row[0] for row in rows])


OLD = tree(
    """
    s - Science
    p s Physics
    o p Optics
    b s Biology
    m - Music
    k m Rock
    j m Jazz
    """
)


def ids(changes: TreeChanges, pairs) -> list[tuple[str, str]]:
    return [(changes.old.ids[pair.old], changes.new.ids[pair.new]) for pair in pairs]


def test_every_kind_of_change() -> None:
    new = tree(
        """
        j m Jazz
        m - Music
        s - Science
        p s Natural physics
        o s Optics
        q p Quanta
        f m Folk
        """
    )
    found = compare(OLD, new)
    assert ids(found, found.kept) == [("j", "j"), ("m", "m"), ("s", "s")]
    assert ids(found, found.renamed) == [("p", "p")]
    assert ids(found, found.moved) == [("o", "o")]
    assert [new.ids[label] for label in found.added] == ["q", "f"]
    assert [OLD.ids[label] for label in found.removed] == ["b", "k"]
    assert found.merged == found.split == ()
    assert found.summary() == ("3 labels kept as they were; 1 renamed: p; 1 moved: o; 2 new: q, f; 2 removed: b, k")
    written = json.loads(json.dumps(found.to_json()))
    assert written["labels"] == {"old": 7, "new": 7}
    assert written["renamed"] == [
        {"old": {"id": "p", "name": "Physics"}, "new": {"id": "p", "name": "Natural physics"}}
    ]
    assert written["moved"] == [
        {
            "old": {"id": "o", "name": "Optics", "parent": "p"},
            "new": {"id": "o", "name": "Optics", "parent": "s"},
        }
    ]
    assert written["added"][0] == {"id": "q", "name": "Quanta", "parent": "p"}
    assert [label["id"] for label in written["removed"]] == ["b", "k"]


def test_merged_split_and_a_changed_id() -> None:
    new = tree(
        """
        n - Nature
        o n Optics
        b n Biology
        pop - Popular
        x pop Old
        y pop New
        """
    )
    found = compare(OLD, new, {"s": ["n"], "p": ["n"], "m": ["pop"], "j": ["x", "y"], "k": ["y"]})
    at = {identifier: index for index, identifier in enumerate(OLD.ids)}
    assert found.merged == (((at["s"], at["p"]), 0), ((at["k"], at["j"]), 5))
    assert found.split == ((at["j"], (4, 5)),)
    assert ids(found, found.renamed) == [("m", "pop")]
    assert found.sources == ((at["s"], at["p"]), (at["o"],), (at["b"],), (at["m"],), (at["j"],), (at["k"], at["j"]))
    # Optics was under what became a part of Nature, Biology too: neither has moved.
    assert ids(found, found.kept) == [("o", "o"), ("b", "b")]
    assert "2 merged: s + p → n, k + j → y; 1 split: j → x + y" in found.summary()


def test_a_label_that_is_listed_became_only_what_the_list_says() -> None:
    swapped = compare(OLD, OLD, {"k": ["j"], "j": ["k"]})
    assert ids(swapped, swapped.renamed) == [("j", "k"), ("k", "j")]
    absorbed = compare(OLD, OLD, {"k": ["j"]})
    assert [OLD.ids[label] for label in absorbed.added] == ["k"]
    assert [[OLD.ids[label] for label in labels] for labels, _ in absorbed.merged] == [["k", "j"]]


def test_other_ids_with_the_same_paths_are_the_same_labels() -> None:
    new = Taxonomy([f"#{label}" for label in range(len(OLD))], OLD.parents, OLD.names)
    found = compare(OLD, new)
    assert ids(found, found.renamed) == [(old, f"#{index}") for index, old in enumerate(OLD.ids)]
    assert found.moved == found.added == found.removed == ()
    # An id that is in both trees counts more than a path.
    crossed = compare(tree("a - One\nb - Two"), tree("b - One\nc - Two"))
    assert ids(crossed, crossed.renamed) == [("b", "b")]
    assert (crossed.added, crossed.removed) == ((1,), (0,))


def test_unknown_labels_in_a_mapping_are_refused() -> None:
    with pytest.raises(InputError, match=r"unknown label 'Phisics'; did you mean 'Physics'\?"):
        compare(OLD, OLD, {"Phisics": ["p"]})


@st.composite
def two_trees(draw) -> tuple[Taxonomy, Taxonomy]:
    trees = []
    for _ in range(2):
        labels = draw(st.permutations(range(8)))[: draw(st.integers(1, 8))]
        parents = [draw(st.integers(-1, place - 1)) for place in range(len(labels))]
        trees.append(Taxonomy([f"id {label}" for label in labels], parents))
    return trees[0], trees[1]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(two_trees(), st.data())
def test_every_label_is_of_exactly_one_kind(trees: tuple[Taxonomy, Taxonomy], data) -> None:
    old, new = trees
    mapping = data.draw(
        st.dictionaries(st.sampled_from(old.ids), st.lists(st.sampled_from(new.ids), min_size=1, unique=True))
    )
    found = compare(old, new, mapping)
    for label, came in enumerate(found.sources):
        assert came == tuple(one for one in range(len(old)) if label in found.targets[one])
    one_to_one = {*found.kept, *found.renamed, *found.moved}
    merged = {label for _, label in found.merged}
    parts = {label for _, labels in found.split for label in labels}
    assert len(found.added) + len({pair.new for pair in one_to_one} | merged | parts) == len(new)
    assert not {pair.new for pair in one_to_one} & (merged | parts)
    assert not {*found.kept} & {*found.renamed, *found.moved}
    for one, other in found.kept:
        assert (old.ids[one], old.names[one]) == (new.ids[other], new.names[other])
    back = compare(new, old)
    plain = compare(old, new)
    assert (len(back.added), len(back.removed), len(back.moved)) == (
        len(plain.removed),
        len(plain.added),
        len(plain.moved),
    )
    assert bool(compare(old, old)) is False


@pytest.mark.parametrize(
    "text",
    ["old\tnew\nRock\tPop\nm\tMusic\nj\tk\nj\tPop\n", '{"Rock": "Pop",\n "m": ["Music"], "j": ["k", "Pop"]}'],
)
def test_files_of_changes(tmp_path: Path, text: str) -> None:
    new = tree("m - Music\nk m Rock\npop m Pop")
    file = tmp_path / "changes"
    file.write_text(text)
    found = read_changes(file, OLD, new)
    assert found == {"k": ["pop"], "m": ["m"], "j": ["k", "pop"]}
    write_changes(tmp_path / "again.tsv", found)
    assert read_changes(tmp_path / "again.tsv", OLD, new) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("k\tj\n", r":1: the first line is 'k\\tj'; begin with the line old<TAB>new, or write JSON"),
        ("", ":1: the first line is ''; begin with"),
        ("old\tnew\n", ": there are no changes in it; add some"),
        ("{}", ": there are no changes in it; add some"),
        ("old\tnew\nk\n", ":2: expected an old and a new label, got 'k'; put one tab between two"),
        ("old\tnew\nk\tj\nk\tj\n", ":3: 'k' with 'j' is given twice; delete one"),
        ("old\tnew\n\nz\tj\n", ":3: unknown label 'z' in the old tree; correct it"),
        ("old\tnew\nk\tRocks\n", r":2: unknown label 'Rocks' in the new tree; did you mean 'Rock'\?"),
        ('{"k":\n ["j", 3]}', ": 'k' became something that is no label"),
        ('{"k": []}', ": 'k' became nothing; leave a label out"),
    ],
)
def test_broken_files_of_changes(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "changes.tsv"
    file.write_text(text)
    with pytest.raises(InputError, match=r"changes\.tsv" + message):
        read_changes(file, OLD, OLD)


def test_a_table_cannot_hold_every_id(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the id 'a\\tb' holds a tab"):
        write_changes(tmp_path / "changes.tsv", {"a\tb": ["c"]})


def named(old: str, new: str) -> dict[str, list[str]]:
    changes = compare(tree(old), tree(new))
    return suggest(changes).mapping(changes)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("a - Sports\nb a Tennis", "a - Sports\nc a Tennis!", {"b": ["c"]}),  # much alike
        ("a - Sports\nb a Tennis", "a - Sports\nc a Golf", {}),
        ("a - Law", "b - Law and order", {"a": ["b"]}),  # all words in the other
        ("a - Up\nb a X", "c - Down\nb c X", {"a": ["c"]}),  # the same children
        ("a - Rock\nb - Pop", "c - Rock & pop", {"a": ["c"], "b": ["c"]}),  # merged
        ("c - rock_pop", "a - Rock\nb - Pop", {"c": ["a", "b"]}),  # split
        ("a - A\nb a Tennis", "a - A\nc - C\nd c Tennis", {"b": ["d"]}),  # moved, with an id that is a path
        ("a - A\nb a Tennis\nc - C\nd c Tennis", "a - A\nc - C\ne - E\nf e Tennis", {}),  # either of two
        ("a - Sports\nb a Tennis", "c - Sport\nd c Tennis?", {"a": ["c"], "b": ["d"]}),  # below a suggestion
        ("a - X\nb a P\nc a Q", "d - Y\ne d P\nf d Q", {"a": ["d"]}),  # children of the same names, which go with it
        ("a - +\nb - Pop", "c - Pop -", {"b": ["c"]}),  # a name without words is part of nothing
    ],
)
def test_suggestions(old: str, new: str, expected: dict[str, list[str]]) -> None:
    assert named(old, new) == expected


def test_suggestions_name_removed_and_added_labels_once() -> None:
    random = np.random.default_rng(0)
    words = ["rock", "pop", "jazz", "folk", "old", "new"]
    for _ in range(50):
        trees = []
        for kind in "on":
            names = sorted({" ".join(random.choice(words, random.integers(1, 4), replace=False)) for _ in range(8)})
            trees.append(Taxonomy([f"{kind}{i}" for i in range(len(names))], [-1] * len(names), names))
        changes = compare(*trees)
        found = suggest(changes)
        old = [pair.old for pair in found.renamed] + [o for labels, _ in found.merged for o in labels]
        new = [pair.new for pair in found.renamed] + [n for _, labels in found.split for n in labels]
        old += [label for label, _ in found.split]
        new += [label for _, label in found.merged]
        assert len(old) == len(set(old))
        assert set(old) <= set(changes.removed)
        assert len(new) == len(set(new))
        assert set(new) <= set(changes.added)
        assert all(len(labels) > 1 for labels, _ in found.merged)
        assert all(len(labels) > 1 for _, labels in found.split)


@pytest.mark.slow
def test_wide_families_take_no_time() -> None:
    """Of 5,000 removed and as many added siblings only names are looked at: 25 million pairs would take minutes."""
    old = Taxonomy([f"o{i}" for i in range(5000)], [-1] * 5000, [f"the old name {i}" for i in range(5000)])
    new = Taxonomy([f"n{i}" for i in range(5000)], [-1] * 5000, [f"the new name {i}" for i in range(5000)])
    assert not suggest(compare(old, new))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON: "),
        ("[]", "holds no label tree; give a folder that hgclr train"),
        ('{"id2label": {"0": "a"}}', "holds no label tree"),
        ('{"id2label": {"1": "a"}, "label_parents": [-1], "label_names": null}', "holds no label tree"),
        ('{"id2label": {"0": "a"}, "label_parents": [0], "label_names": null}', "labels form a cycle"),
    ],
)
def test_a_folder_without_a_models_tree(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError, match=message) as error:
        read_model_tree(tmp_path)
    assert error.value.path == tmp_path / "config.json"
