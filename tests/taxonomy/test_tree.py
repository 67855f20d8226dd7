"""The taxonomy: traversals against networkx and plain loops, labels by id, name and path, large and deep trees."""

from __future__ import annotations

import copy
import pickle
import random
import time
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.tree import SUGGESTED

# science(4) > physics(1) > optics(0); science > biology(3); law(2): parents come after their children.
SMALL = Taxonomy(["optics", "physics", "law", "biology", "science"], [1, 4, -1, 4, -1])


def random_taxonomy(count: int, seed: int, reach: int = 10**9) -> Taxonomy:
    """Return a random forest in shuffled order; a small ``reach`` makes it deep."""
    chance = random.Random(seed)
    parents = [chance.randint(max(-1, index - reach), index - 1) for index in range(count)]
    order = list(range(count))
    chance.shuffle(order)
    place = {old: new for new, old in enumerate(order)}
    return Taxonomy(
        [f"label {old}" for old in order], [-1 if parents[old] < 0 else place[parents[old]] for old in order]
    )


def test_shape_of_a_small_tree() -> None:
    assert len(SMALL) == 5
    assert SMALL.depth == 3
    assert SMALL.depths.tolist() == [3, 2, 1, 2, 1]
    assert [level.tolist() for level in SMALL.levels] == [[2, 4], [1, 3], [0]]
    assert SMALL.leaves.tolist() == [0, 2, 3]
    assert SMALL.children(4).tolist() == [1, 3]
    assert SMALL.children(-1).tolist() == [2, 4]
    assert SMALL.children(0).tolist() == []
    assert SMALL.ancestors(0).tolist() == [1, 4]
    assert SMALL.ancestors(2).tolist() == []
    assert SMALL.path(0).tolist() == [4, 1, 0]
    assert SMALL.path_name(0) == "science > physics > optics"
    assert SMALL.path_name(0, "/") == "science/physics/optics"
    assert SMALL.names == SMALL.ids


@pytest.mark.parametrize(("count", "reach"), [(1, 1), (2, 1), (60, 10**9), (60, 2), (64, 1)])
@pytest.mark.parametrize("seed", [0, 1])
def test_lca_and_distance_agree_with_networkx(count: int, reach: int, seed: int) -> None:
    taxonomy = random_taxonomy(count, seed, reach)
    graph = nx.DiGraph((int(parent), child) for child, parent in enumerate(taxonomy.parents))
    every = np.arange(-1, count)
    lowest = taxonomy.lca(every[:, None], every)
    expected = dict(nx.tree_all_pairs_lowest_common_ancestor(graph, root=-1))
    for (first, second), ancestor in expected.items():
        assert lowest[first + 1, second + 1] == lowest[second + 1, first + 1] == ancestor
    lengths = dict(nx.all_pairs_shortest_path_length(graph.to_undirected()))
    assert taxonomy.distance(every[:, None], every).tolist() == [[lengths[i][j] for j in every] for i in every]


def test_lca_and_distance_broadcast_and_keep_shape() -> None:
    assert SMALL.lca(0, 3).shape == ()
    assert int(SMALL.lca(0, 3)) == 4
    assert SMALL.lca([[0], [2]], [1, 3, 4]).tolist() == [[1, 4, 4], [-1, -1, -1]]
    assert SMALL.distance([[0], [2]], [1, 3, 4]).tolist() == [[1, 3, 2], [3, 3, 2]]
    assert SMALL.distance([], []).shape == (0,)
    assert int(SMALL.distance(-1, 0)) == 3


@pytest.mark.parametrize("reach", [10**9, 3])
def test_closure_and_close_agree_with_loops(reach: int) -> None:
    taxonomy = random_taxonomy(50, 4, reach)
    chosen = np.random.default_rng(2).random((30, 50)) < 0.08
    expected = chosen.copy()
    for row in expected:
        for label in np.flatnonzero(row):
            while (label := taxonomy.parents[label]) != -1:
                row[label] = True
    before = chosen.copy()
    assert np.array_equal(taxonomy.close(chosen), expected)
    assert np.array_equal(chosen, before), "the argument is left as it was"
    for row, closed in zip(chosen, expected, strict=True):
        assert taxonomy.closure(np.flatnonzero(row)).tolist() == np.flatnonzero(closed).tolist()
    assert taxonomy.closure([]).tolist() == []
    assert taxonomy.closure([]).dtype == np.int64
    assert taxonomy.close(np.zeros((0, 50), dtype=bool)).shape == (0, 50)


def test_misuse_is_refused() -> None:
    for wrong in (5, -2, [0, 5]):
        with pytest.raises(IndexError, match="5 labels"):
            SMALL.lca(wrong, 0)
    with pytest.raises(IndexError):
        SMALL.closure([7])
    with pytest.raises(TypeError, match="float64"):
        SMALL.distance(0.5, 1)
    with pytest.raises(ValueError, match=r"bool \(N, 5\), got float64 \(1, 5\)"):
        SMALL.close(np.zeros((1, 5)))
    with pytest.raises(ValueError, match=r"\(1, 4\)"):
        SMALL.close(np.zeros((1, 4), dtype=bool))


@pytest.mark.parametrize(
    ("ids", "parents", "names"),
    [
        ([], [], None),
        (["a", " "], [-1, 0], None),
        (["a", "b"], [-1, 0], ["A", ""]),
        (["a", "a"], [-1, 0], None),
        (["a", "b"], [-1, 2], None),
        (["a", "b"], [-1, -2], None),
        (["a", "b"], [-1], None),
        (["a", "b"], [-1, 0.0], None),
        (["a", "b"], [-1, 0], ["A"]),
        (["a", "b"], [-1, -1], ["A", "A"]),
        (["r", "a", "b"], [-1, 0, 0], ["R", "A", "A"]),
        (["a", "\ud83d"], [-1, -1], None),
    ],
)
def test_what_makes_no_tree_is_refused(ids, parents, names) -> None:
    with pytest.raises(InputError):
        Taxonomy(ids, parents, names)


@pytest.mark.parametrize(
    ("parents", "cycle"),
    [([-1, 2, 3, 1], "'b' < 'c' < 'd' < 'b'"), ([-1, 1, 0, 0], "'b' < 'b'"), ([-1, 2, 3, 2], "'c' < 'd' < 'c'")],
)
def test_the_labels_of_a_cycle_are_named(parents: list[int], cycle: str) -> None:
    with pytest.raises(InputError) as caught:
        Taxonomy(["a", "b", "c", "d"], parents)
    assert caught.value.what.endswith(cycle)


def test_taxonomy_is_immutable_and_copies_stay_so() -> None:
    given = np.array([1, 4, -1, 4, -1])
    taxonomy = Taxonomy(SMALL.ids, given)
    given[0] = 2
    assert taxonomy == SMALL
    for tree in (taxonomy, pickle.loads(pickle.dumps(taxonomy)), copy.deepcopy(taxonomy)):
        assert tree == SMALL
        assert hash(tree) == hash(SMALL)
        for array in (tree.parents, tree.depths, tree.leaves, tree.children(4), *tree.levels):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0
        with pytest.raises(AttributeError):
            tree.ids = ()


def test_equality_is_about_ids_names_and_parents() -> None:
    assert Taxonomy(["a", "b"], [-1, 0]) == Taxonomy(["a", "b"], np.array([-1, 0], dtype=np.int32))
    assert Taxonomy(["a", "b"], [-1, 0]) != Taxonomy(["a", "b"], [-1, -1])
    assert Taxonomy(["a", "b"], [-1, 0]) != Taxonomy(["a", "c"], [-1, 0])
    assert Taxonomy(["a", "b"], [-1, 0]) != Taxonomy(["a", "b"], [-1, 0], ["A", "B"])
    assert Taxonomy(["a", "b"], [-1, 0]) != "a"
    assert repr(SMALL) == "Taxonomy(5 labels, depth 3)"


def test_json_form_round_trips_and_refuses_what_is_not_it() -> None:
    named = Taxonomy(SMALL.ids, SMALL.parents, ["Optics", "Physics", "Law", "Biology", "Science"])
    assert Taxonomy.from_json(named.to_json()) == named
    assert named.to_json()["labels"][2] == {"id": "law", "name": "Law", "parent": None}
    two_parents = [{"id": "a"}, {"id": "b"}, {"id": "a", "parent": "b"}]
    for wrong in ({"tree": []}, {"labels": [{"name": "A"}]}, {"labels": two_parents}, {"labels": []}):
        with pytest.raises(InputError):
            Taxonomy.from_json(wrong)


def test_where_the_paths_of_a_document_end() -> None:
    tree = Taxonomy(["a", "b", "c", "d"], [-1, 0, 1, 0])  # a > b > c, a > d
    for labels, ends, inside in (
        ([0, 1, 2, 3], [2, 3], False),
        ([0, 1, 3], [1, 3], True),
        ([3, 0], [3], False),
        ([0], [0], True),
        ([], [], False),
    ):
        assert tree.path_ends(labels) == ends
        assert tree.ends_inside(labels) == inside
        row = np.zeros((1, 4), dtype=bool)
        row[0, labels] = True
        assert np.flatnonzero(tree.path_end_matrix(row)[0]).tolist() == ends
        assert np.flatnonzero(row[0]).tolist() == sorted(labels)
    assert tree.path_names(2) == ("a", "b", "c")
    assert tree.branch_sizes.tolist() == [4, 2, 1, 1]


#  0 n (News)     1 n/s (Sports)    2 n/s/r (Reviews)
#  3 a (Arts)     4 a/m (Music)     5 a/m/r (Reviews)
NEWS = Taxonomy(
    ["n", "n/s", "n/s/r", "a", "a/m", "a/m/r"],
    [-1, 0, 1, -1, 3, 4],
    ["News", "Sports", "Reviews", "Arts", "Music", "Reviews"],
)


def test_every_id_and_every_path_is_found() -> None:
    for index in range(len(NEWS)):
        assert NEWS.resolve(NEWS.ids[index]) == index
        assert NEWS.resolve(NEWS.path_name(index)) == index
        assert NEWS.resolve(NEWS.path_name(index, "::"), separator="::") == index
    assert NEWS.resolve("Music") == 4
    assert Taxonomy(["x", "y"], [-1, 0], ["y", "z"]).resolve("y") == 1, "an id comes before a name"


def test_a_name_that_several_labels_have_is_ambiguous() -> None:
    with pytest.raises(InputError) as caught:
        NEWS.resolve("Reviews")
    assert "'n/s/r' (News > Sports > Reviews), 'a/m/r' (Arts > Music > Reviews)" in caught.value.what
    assert NEWS.candidates("Reviews") == [2, 5]
    taxonomy = Taxonomy(["1", "2", "3"], [-1, -1, 1], ["Health", "News", "Health"])
    with pytest.raises(InputError):
        taxonomy.resolve("Health")
    assert taxonomy.resolve("News > Health") == 2


@pytest.mark.parametrize("label", ["Musik", "music", "Music ", "qqqqqqqq", "", "x" * 10_000, "News > Music", " > News"])
def test_an_unknown_label_comes_with_near_ones(label: str) -> None:
    with pytest.raises(InputError) as caught:
        NEWS.resolve(label)
    assert repr(label) in caught.value.what
    assert ("'Music'" in str(caught.value.remedy)) == (label.strip().casefold() in ("musik", "music"))


def test_a_flood_of_unknown_labels_is_refused_without_near_ones() -> None:
    taxonomy, remedies = Taxonomy(["Music"], [-1]), []
    for number in range(SUGGESTED + 1):
        with pytest.raises(InputError) as caught:
            taxonomy.resolve(f"Musik{number}")
        remedies.append(str(caught.value.remedy))
    assert "'Music'" in remedies[SUGGESTED - 1]
    assert "'Music'" not in remedies[SUGGESTED]


LABELS, DEPTH, SECONDS = 100_000, 1_000, 3.0


@pytest.fixture(scope="module")
def parents() -> list[int]:
    """A chain of 1,000 labels; the others are anywhere below the chain's first ten and each other."""
    chance = random.Random(7)
    parents = [index - 1 for index in range(DEPTH)]
    shallow = list(range(10))
    for index in range(DEPTH, LABELS):
        parents.append(chance.choice(shallow))
        if index % 50 == 0:
            shallow.append(index)
    return parents


def literature(parents: list[int]) -> str:
    children: dict[int, list[int]] = {}
    for index, parent in enumerate(parents):
        children.setdefault(parent, []).append(index)
    rows = [
        ["Root" if parent < 0 else f"n{parent}", *(f"n{child}" for child in below)]
        for parent, below in children.items()
    ]
    first, *others = rows
    random.Random(3).shuffle(others)
    return "\n".join("\t".join(row) for row in [first, *others])


def table(parents: list[int]) -> str:
    rows = [f"n{index},{'' if parent < 0 else f'n{parent}'},name {index}" for index, parent in enumerate(parents)]
    random.Random(3).shuffle(rows)
    return "\n".join(["child,parent,name", *rows])


def paths(parents: list[int]) -> str:
    full: list[str] = []
    for index, parent in enumerate(parents):
        full.append(f"n{index}" if parent < 0 else f"{full[parent]} > n{index}")
    return "\n".join(full)


@pytest.mark.slow
@pytest.mark.parametrize("form", [literature, table, paths])
def test_large_and_deep_tree_is_read_in_time(form, parents: list[int], tmp_path: Path, in_time) -> None:
    file = tmp_path / "tree"
    file.write_text(form(parents), encoding="utf-8")
    start = time.process_time()  # not the wall clock: other tests run beside this one
    taxonomy = Taxonomy.read(file)
    seconds = time.process_time() - start

    assert len(taxonomy) == LABELS
    assert taxonomy.depth == DEPTH
    deepest = int(np.argmax(taxonomy.depths))
    last_segment = taxonomy.ids[deepest].rpartition(" > ")[2]
    assert last_segment == f"n{DEPTH - 1}"
    assert in_time(seconds, SECONDS)


def test_questions_to_a_large_and_deep_tree(parents: list[int]) -> None:
    taxonomy = Taxonomy([f"n{index}" for index in range(LABELS)], parents)
    bottom = DEPTH - 1
    assert taxonomy.closure([bottom]).tolist() == list(range(DEPTH))
    assert taxonomy.path(bottom).tolist() == list(range(DEPTH))
    assert taxonomy.resolve(" > ".join(f"n{index}" for index in range(DEPTH))) == bottom
    one, other = np.random.default_rng(1).integers(0, LABELS, (2, 1000))
    for first, second, lowest in zip(one, other, taxonomy.lca(one, other), strict=True):
        above = set(taxonomy.path(int(first)).tolist())
        node = int(second)
        while node not in above:
            node = parents[node]
        assert lowest == node


# lens below physics and, beside it, below crafts; optics is the code of physics and another name of lens.
GRAPH = Taxonomy(
    ["s", "p", "c", "l"],
    [-1, 0, -1, 1],
    ["science", "physics", "crafts", "lens"],
    alternatives=[(), ("optics", "force"), (), ("optics", "glass", "crafts")],
    codes=["", "53", "7", "glass"],
    more_parents=[(), (), (), (2,)],
)


def test_several_parents_and_new_fields_survive_json_pickle_and_copies(tmp_path: Path) -> None:
    file = tmp_path / "tree.json"
    GRAPH.write(file)
    for other in (Taxonomy.read(file), Taxonomy.from_json(GRAPH.to_json()), pickle.loads(pickle.dumps(GRAPH))):
        assert other == GRAPH
        assert other.arguments().keys() == GRAPH.arguments().keys()
        for name, value in GRAPH.arguments().items():
            assert np.array_equal(getattr(other, name), value) if name == "parents" else getattr(other, name) == value
    assert not GRAPH.is_tree
    assert SMALL.is_tree
    tree = Taxonomy(**GRAPH.arguments() | {"more_parents": None})
    assert tree.is_tree
    assert tree != GRAPH


def test_nested_json_has_the_same_fields(tmp_path: Path) -> None:
    file = tmp_path / "tree.json"
    file.write_text(
        """[{"id": "s", "name": "science", "children": [{"id": "p", "name": "physics", "code": "53",
        "alt_labels": ["optics", "force"], "children": [{"id": "l", "name": "lens", "code": "glass",
        "parents": ["p", "c"], "alt_labels": ["optics", "glass", "crafts"]}]}]},
        {"id": "c", "name": "crafts", "code": "7"}]"""
    )
    read = Taxonomy.read(file)
    assert {label["id"]: label for label in read.to_json()["labels"]} == {  # type: ignore[attr-defined]
        label["id"]: label
        for label in GRAPH.to_json()["labels"]  # type: ignore[attr-defined]
    }


@pytest.mark.parametrize(
    ("label", "index"),
    [("l", 3), ("glass", 3), ("53", 1), ("force", 1), ("science > physics > lens", 3), ("crafts > lens", 3)],
)
def test_labels_are_found_by_code_alternative_name_and_any_path(label: str, index: int) -> None:
    assert GRAPH.resolve(label) == index
    assert GRAPH.candidates(label) == [index]


def test_a_name_wins_over_an_alternative_name_and_ambiguous_ones_are_listed() -> None:
    assert GRAPH.resolve("crafts") == 2
    assert GRAPH.candidates("optics") == [1, 3]
    with pytest.raises(InputError) as error:
        GRAPH.resolve("optics")
    assert "'p' (science > physics)" in error.value.what
    assert "'l' (science > physics > lens)" in error.value.what


@pytest.mark.parametrize(
    "fields",
    [
        {"more_parents": [(), (), (), (1,)]},  # the main parent
        {"more_parents": [(), (), (), (2, 2)]},
        {"more_parents": [(), (), (3,), ()]},  # more parents for a top label
        {"more_parents": [(), (3,), (), ()]},  # a cycle through a further parent
        {"more_parents": [(), (1,), (), ()]},
        {"more_parents": [(), (), (), (4,)]},
        {"more_parents": [(), (), (), (-1,)]},
        {"more_parents": [()]},
        {"names": ["science", "physics", "crafts", "physics"], "more_parents": [(), (), (), (0,)]},  # siblings
        {"alternatives": [(), (), (), (1,)]},
        {"codes": ["", "", "", 1]},
        {"codes": ["", "", "", "\ud800"]},
    ],
)
def test_impossible_parents_names_and_codes_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Taxonomy(**GRAPH.arguments() | fields)


def test_a_cycle_through_a_further_parent_is_written_out() -> None:
    with pytest.raises(InputError, match=r"'d' < 'b' < 'd'|'b' < 'd' < 'b'"):
        Taxonomy(["a", "b", "c", "d", "e"], [-1, 0, 1, 1, 3], more_parents=[(), (3,), (), (), ()])
