"""The tree's own answers, against networkx and against plain loops."""

from __future__ import annotations

import copy
import pickle
import random

import networkx as nx
import numpy as np
import pytest

from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy

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
    ("ids", "parents", "names", "message"),
    [
        ([], [], None, "the label tree is empty"),
        (["a", " "], [-1, 0], None, "label 1 has an empty id"),
        (["a", "b"], [-1, 0], ["A", ""], "label 'b' has an empty name"),
        (["a", "a"], [-1, 0], None, "the id 'a' is used twice"),
        (["a", "b"], [-1, 2], None, "label 1 has the parent 2"),
        (["a", "b"], [-1, -2], None, "label 1 has the parent -2"),
        (["a", "b"], [-1], None, "2 labels need 2 whole numbers"),
        (["a", "b"], [-1, 0.0], None, "whole numbers as parents, got float64"),
        (["a", "b"], [-1, 0], ["A"], "2 ids but 1 names"),
        (["a", "b"], [-1, -1], ["A", "A"], "the name 'A' is used twice at the top"),
        (["r", "a", "b"], [-1, 0, 0], ["R", "A", "A"], "the name 'A' is used twice under 'r'"),
        (["a", "b", "c", "d"], [-1, 2, 3, 1], None, "labels form a cycle: 'b' < 'c' < 'd' < 'b'"),
        (["a", "b"], [-1, 1], None, "labels form a cycle: 'b' < 'b'"),
        (["a", "tail", "c", "d"], [-1, 2, 3, 2], None, "labels form a cycle: 'c' < 'd' < 'c'"),
        (["a", "\ud83d"], [-1, -1], None, "not valid Unicode"),
    ],
)
def test_what_makes_no_tree_is_refused(ids, parents, names, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Taxonomy(ids, parents, names)
    assert message in str(caught.value)


def test_names_may_repeat_below_different_parents() -> None:
    taxonomy = Taxonomy(["a", "b", "a1", "b1"], [-1, -1, 0, 1], ["A", "B", "Other", "Other"])
    assert taxonomy.path_name(3) == "B > Other"


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
    with pytest.raises(InputError, match="not a label tree"):
        Taxonomy.from_json({"tree": []})
    with pytest.raises(InputError, match="the id of label 1 is missing"):
        Taxonomy.from_json({"labels": [{"name": "A"}]})
    with pytest.raises(InputError, match="'a' has two parents, the top and 'b'"):
        Taxonomy.from_json({"labels": [{"id": "a"}, {"id": "b"}, {"id": "a", "parent": "b"}]})
    with pytest.raises(InputError, match="the label tree is empty"):
        Taxonomy.from_json({"labels": []})


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
    assert tree.branch_sums(np.array([1, 10, 100, 1000])).tolist() == [1111, 110, 100, 1000]
