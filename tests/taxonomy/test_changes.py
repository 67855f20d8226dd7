"""Trees compared, and files of changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.changes import TreeChanges, compare, read_changes, with_old_ids
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
    # The parent of Optics and Biology became a part of Nature, so neither has moved.
    assert ids(found, found.kept) == [("o", "o"), ("b", "b")]


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
    with pytest.raises(InputError, match="Phisics"):
        compare(OLD, OLD, {"Phisics": ["p"]})


@st.composite
def two_trees(draw) -> tuple[Taxonomy, Taxonomy]:
    trees = []
    for _ in range(2):
        labels = draw(st.permutations(range(8)))[: draw(st.integers(1, 8))]
        parents = [draw(st.integers(-1, place - 1)) for place in range(len(labels))]
        trees.append(Taxonomy([f"id {label}" for label in labels], parents))
    return trees[0], trees[1]


@settings(max_examples=30, deadline=None, derandomize=True)
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


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("k\tj\n", 1),
        ("", 1),
        ("old\tnew\n", None),
        ("{}", None),
        ("old\tnew\nk\n", 2),
        ("old\tnew\nk\tj\nk\tj\n", 3),
        ("old\tnew\n\nz\tj\n", 3),
        ("old\tnew\nk\tRocks\n", 2),
        ('{"k":\n ["j", 3]}', None),
        ('{"k": []}', None),
    ],
)
def test_broken_files_of_changes(tmp_path: Path, text: str, line: int | None) -> None:
    file = tmp_path / "changes.tsv"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read_changes(file, OLD, OLD)
    assert (caught.value.path, caught.value.line, bool(caught.value.remedy)) == (file, line, True)


def paths(*lines: str) -> Taxonomy:
    return Taxonomy.from_paths([tuple(line.split(" > ")) for line in lines])


def test_old_ids_stay_with_labels_not_with_paths() -> None:
    """The label at 'a > x' moved to 'b > x'; later another label has its first path."""
    second = with_old_ids(paths("a > x", "b > y"), paths("a", "b > x", "b > y"))
    assert second.ids == ("a", "b", "a > x", "b > y")
    third = with_old_ids(second, paths("a > x", "b > x", "b > y"))
    assert dict(zip(third.ids, map(third.path_name, range(5)), strict=True)) == {
        "a": "a",
        "a > x (2)": "a > x",
        "b": "b",
        "a > x": "b > x",
        "b > y": "b > y",
    }
    assert compare(second, third).added == (1,)
    assert with_old_ids(third, paths("a > x", "b > x", "b > y")) == third


def test_only_a_name_that_is_unique_in_both_trees_shows_a_move() -> None:
    old = paths("a > x", "a > z", "b > y")
    assert with_old_ids(old, paths("a > z", "b > x", "b > y")).ids == ("a", "a > z", "b", "a > x", "b > y")
    assert "a > x" not in with_old_ids(old, paths("a", "b > x", "c > x")).ids
    assert "a > x" not in with_old_ids(paths("a > x", "b > x"), paths("a", "b", "c > x")).ids


def test_old_ids_of_merged_split_and_differently_spelled_labels() -> None:
    old = paths("law", "tax", "Sport > Tennis", "sport > Golf")
    new = paths("civil law", "law", "Sport > TENNIS", "Sport > golf")
    found = with_old_ids(old, new, {"tax": ["law"], "law": ["law", "civil law"]})
    assert found.ids == ("Sport", "Sport > Tennis", "sport > Golf", "civil law", "law")
    assert compare(old, found, {"tax": ["law"], "law": ["law", "civil law"]}).added == ()


@given(two_trees(), st.randoms())
@settings(max_examples=60)
def test_old_ids_are_kept_by_any_new_tree(trees: tuple[Taxonomy, Taxonomy], random) -> None:
    """Names are ids in these trees, so a label is the same if its name is; ids of the new tree do not count."""
    old, new = trees
    order = random.sample(range(len(old)), len(old))
    old = Taxonomy([f"old {label}" for label in order], old.parents, old.names)
    found = with_old_ids(old, Taxonomy([new.path_name(label) for label in range(len(new))], new.parents, new.names))
    known = dict(zip(old.names, old.ids, strict=True))
    assert found.ids == tuple(known.get(name, new.path_name(label)) for label, name in enumerate(new.names))


def test_children_of_a_renamed_label_follow_it() -> None:
    """If ids are paths, one line of the mapping covers a whole branch."""
    below = [("Area", f"Topic {topic}") for topic in range(3)]
    old, new = (Taxonomy.from_paths([(top, *path) for path in below]) for top in ("Mental", "Cognition"))
    assert not compare(old, new).sources[0]
    found = compare(old, new, {"Mental": ["Cognition"]})
    assert found.added == found.removed == ()
    assert found.renamed_heads == [((0, 0), 4)]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"id2label": {"0": "a"}}',
        '{"id2label": {"1": "a"}, "label_parents": [-1], "label_names": null}',
        '{"id2label": {"0": "a"}, "label_parents": [0], "label_names": null}',
    ],
)
def test_a_folder_without_a_models_tree(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError) as error:
        read_model_tree(tmp_path)
    assert error.value.path == tmp_path / "config.json"
