"""Properties of every tree, tested on random trees in shuffled order."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.tree import MOST_PATHS

repeatable = settings(derandomize=True, deadline=None, max_examples=40)
# Anything but an unpaired surrogate, including spaces, tabs, line ends and the separator.
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6).filter(str.strip)

descriptions = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@st.composite
def forests(draw: st.DrawFn, labels: st.SearchStrategy[str] = texts) -> Taxonomy:
    """Draw a forest of up to 24 labels whose parents may come before or after their children."""
    ids = draw(st.lists(labels, min_size=1, max_size=24, unique=True))
    grown = [draw(st.integers(-1, index - 1)) for index in range(len(ids))]
    order = draw(st.permutations(range(len(ids))))
    place = {old: new for new, old in enumerate(order)}
    return Taxonomy([ids[old] for old in order], [-1 if grown[old] < 0 else place[grown[old]] for old in order])


@st.composite
def graphs(draw: st.DrawFn) -> Taxonomy:
    """Draw a forest, or a graph: further parents come from the levels above, so that there is no cycle."""
    taxonomy = draw(forests())
    further: list[list[int]] = []
    for label, parent in enumerate(taxonomy.parents.tolist()):
        above = np.flatnonzero((taxonomy.depths < taxonomy.depths[label]) & (np.arange(len(taxonomy)) != parent))
        several = st.lists(st.sampled_from(above.tolist()), max_size=3, unique=True) if above.size else st.just([])
        further.append(draw(several) if parent >= 0 else [])
    return Taxonomy(taxonomy.ids, taxonomy.parents, more_parents=further)


def every_path(taxonomy: Taxonomy, label: int) -> list[list[int]]:
    """Return all paths to a label, by recursion, main one first."""
    if taxonomy.parents[label] < 0:
        return [[label]]
    return [[*path, label] for parent in taxonomy.parents_of(label) for path in every_path(taxonomy, parent)]


@st.composite
def graphs_with_rows(draw: st.DrawFn) -> tuple[Taxonomy, NDArray[np.bool_]]:
    """Draw a forest or graph and a label matrix for it."""
    taxonomy = draw(graphs())
    row = st.lists(st.booleans(), min_size=len(taxonomy), max_size=len(taxonomy))
    rows = draw(st.lists(row, min_size=1, max_size=4))
    return taxonomy, np.array(rows, dtype=bool)


@repeatable
@given(graphs_with_rows())
def test_closure_is_idempotent_and_the_matrix_form_agrees(case: tuple[Taxonomy, NDArray[np.bool_]]) -> None:
    taxonomy, rows = case
    closed = taxonomy.close(rows)
    assert (closed >= rows).all()
    assert np.array_equal(taxonomy.close(closed), closed)
    labels, parents = taxonomy.edges[:, taxonomy.edges[1] >= 0]
    assert (closed[:, parents] >= closed[:, labels]).all(), "every label has its parents"
    for row, closed_row in zip(rows, closed, strict=True):
        assert taxonomy.closure(np.flatnonzero(row)).tolist() == np.flatnonzero(closed_row).tolist()


@repeatable
@given(graphs_with_rows())
def test_closure_adds_nothing_but_ancestors_and_is_monotone(case: tuple[Taxonomy, NDArray[np.bool_]]) -> None:
    taxonomy, rows = case
    some, more = rows[0], rows[0] | rows[-1]
    small, large = (set(taxonomy.closure(np.flatnonzero(chosen)).tolist()) for chosen in (some, more))
    assert small <= large
    needed = {node for index in np.flatnonzero(some) for path in every_path(taxonomy, int(index)) for node in path}
    assert small == needed


@repeatable
@given(graphs())
def test_paths_begin_with_the_main_one(taxonomy: Taxonomy) -> None:
    for label in range(len(taxonomy)):
        paths = every_path(taxonomy, label)[:MOST_PATHS]
        assert [list(names) for names in taxonomy.all_path_names(label)] == [
            [taxonomy.ids[node] for node in path] for path in paths
        ]
        assert taxonomy.path(label).tolist() == paths[0]
        assert (label in taxonomy.leaves) == (label not in taxonomy.edges[1])


@repeatable
@given(graphs())
def test_distance_is_a_metric_and_fits_the_lowest_common_ancestor(taxonomy: Taxonomy) -> None:
    every = np.arange(-1, len(taxonomy))
    distance = taxonomy.distance(every[:, None], every)
    assert np.array_equal(distance, distance.T)
    assert np.array_equal(distance == 0, np.eye(len(every), dtype=bool))
    assert (distance[:, None, :] <= distance[:, :, None] + distance[None, :, :]).all()
    assert distance[0, 1:].tolist() == taxonomy.depths.tolist()
    lowest = taxonomy.lca(every[:, None], every)
    through = taxonomy.distance(every[:, None], lowest) + taxonomy.distance(lowest, every)
    assert np.array_equal(through, distance)


@repeatable
@given(forests())
def test_levels_children_and_leaves_fit_together(taxonomy: Taxonomy) -> None:
    assert sorted(np.concatenate(taxonomy.levels).tolist()) == list(range(len(taxonomy)))
    for index in range(len(taxonomy)):
        path = taxonomy.path(index).tolist()
        assert path[::-1] == [index, *taxonomy.ancestors(index).tolist()]
        assert len(path) == taxonomy.depths[index]
        assert index in taxonomy.levels[len(path) - 1]
        assert taxonomy.children(index).tolist() == [
            child for child in range(len(taxonomy)) if taxonomy.parents[child] == index
        ]
        assert (index in taxonomy.leaves) == (taxonomy.children(index).size == 0)


@repeatable
@given(graphs_with_rows(), st.randoms(use_true_random=False))
def test_permuting_the_labels_permutes_every_answer(case, chance) -> None:
    taxonomy, rows = case
    order = list(range(len(taxonomy)))
    chance.shuffle(order)
    old = np.array(order)  # old[new index] = old index
    new = np.append(np.argsort(old), -1)  # new[old index] = new index; the virtual root stays -1
    further = [new[list(taxonomy.more_parents[index])].tolist() for index in order]
    permuted = Taxonomy([taxonomy.ids[index] for index in order], new[taxonomy.parents[old]], more_parents=further)
    assert np.array_equal(permuted.depths, taxonomy.depths[old])
    assert np.array_equal(
        permuted.lca(np.arange(len(old))[:, None], np.arange(len(old))), new[taxonomy.lca(old[:, None], old)]
    )
    assert np.array_equal(permuted.close(rows[:, old]), taxonomy.close(rows)[:, old])
    assert sorted(old[permuted.leaves].tolist()) == taxonomy.leaves.tolist()
    for index in order:
        assert permuted.resolve(taxonomy.ids[index]) == new[index]


@repeatable
@given(graphs(), st.data())
def test_json_file_keeps_everything(taxonomy: Taxonomy, data: st.DataObject) -> None:
    names = [f"{data.draw(texts)}{index}" for index in range(len(taxonomy))]
    named = Taxonomy(
        **taxonomy.arguments() | {"names": names, "descriptions": [data.draw(descriptions) for _ in names]}
    )
    with tempfile.TemporaryDirectory() as folder:
        named.write(Path(folder) / "tree.json")
        again = Taxonomy.read(Path(folder) / "tree.json")
    for tree in (again, Taxonomy.from_json(named.to_json())):
        assert tree == named
        assert tree.descriptions == named.descriptions


@repeatable
@given(forests(texts.filter(lambda text: text != "Root" and text == text.strip() and "\r" not in text)), st.data())
def test_table_keeps_everything(taxonomy: Taxonomy, data: st.DataObject) -> None:
    names = [f"{index}{data.draw(texts)}{index}".replace("\r", " ") for index in range(len(taxonomy))]
    named = Taxonomy(taxonomy.ids, taxonomy.parents, names, [data.draw(descriptions) for _ in names])
    with tempfile.TemporaryDirectory() as folder:
        named.write(Path(folder) / "tree.csv")
        again = Taxonomy.read(Path(folder) / "tree.csv")
    assert again == named
    assert again.descriptions == named.descriptions


@pytest.mark.slow
@repeatable
@given(forests(texts.filter(lambda text: text != "Root" and not set(text) & set("\t\n\r"))))
def test_tab_file_keeps_ids_and_structure(taxonomy: Taxonomy) -> None:
    with tempfile.TemporaryDirectory() as folder:
        taxonomy.write(Path(folder) / "tree.tsv")
        again = Taxonomy.read(Path(folder) / "tree.tsv")
        again.write(Path(folder) / "again.tsv")
        assert (Path(folder) / "again.tsv").read_bytes() == (Path(folder) / "tree.tsv").read_bytes()
    families = [
        {(tree.ids[child], None if parent < 0 else tree.ids[parent]) for child, parent in enumerate(tree.parents)}
        for tree in (taxonomy, again)
    ]
    assert families[0] == families[1]


@repeatable
@given(forests())
def test_the_walk_goes_down_before_it_goes_on(taxonomy: Taxonomy) -> None:
    walk: list[int] = []

    def visit(label: int) -> None:
        walk.append(label)
        for child in taxonomy.children(label).tolist():
            visit(child)

    for top in taxonomy.children(-1).tolist():
        visit(top)
    assert taxonomy.walk.tolist() == walk
