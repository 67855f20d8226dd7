"""A tree of 100,000 labels and 1,000 levels is read and checked in under three seconds in every format."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import numpy as np
import pytest

from hgclr.taxonomy import Taxonomy

LABELS, DEPTH = 100_000, 1_000
FEWER = 20_000
"""Labels where the time does not count."""
SECONDS = 3.0


@pytest.fixture(scope="module")
def parents() -> list[int]:
    """A chain of 1,000 labels; the others hang anywhere below the chain's first ten and each other."""
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


def flat_json(parents: list[int]) -> str:
    labels = [
        {"id": f"n{index}", "parent": None if parent < 0 else f"n{parent}"} for index, parent in enumerate(parents)
    ]
    random.Random(3).shuffle(labels)
    return json.dumps({"labels": labels}, indent=1)


def nested_json(parents: list[int]) -> str:
    """Return nested objects, written without the standard library because that recurses."""
    children: dict[int, list[int]] = {}
    for index, parent in enumerate(parents):
        children.setdefault(parent, []).append(index)
    parts: list[str] = []
    stack: list[int | str] = ["}", *([0] if parents else []), "{"]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            parts.append(item)
            continue
        below = children.get(item, [])
        parts.append(f'"n{item}":\n')
        stack.append("}")
        for position, child in enumerate(reversed(below)):
            stack.extend([child] if position == 0 else [",", child])
        stack.append("{")
    return "".join(parts)


def node_lists(parents: list[int]) -> str:
    """Return the nested objects as lists of nodes with a name and children."""
    text = nested_json(parents)
    text = text.replace("}", "]}").replace(":\n{", ',\n"children":[').replace('"n', '{"name":"n')
    return "[" + text[1:-2] + "]"


def paths(parents: list[int]) -> str:
    full: list[str] = []
    for index, parent in enumerate(parents):
        full.append(f"n{index}" if parent < 0 else f"{full[parent]} > n{index}")
    return "\n".join(full)


@pytest.mark.slow
@pytest.mark.parametrize("form", [literature, table, flat_json, nested_json, node_lists, paths])
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


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".json", ".tsv"])
def test_large_and_deep_tree_round_trips(suffix: str, parents: list[int], tmp_path: Path) -> None:
    parents = parents[:FEWER]  # which come before their children, and the chain first
    ids = [f"n{index}" for index in range(FEWER)]
    order = np.random.default_rng(5).permutation(FEWER)
    position = np.empty(FEWER, dtype=np.int64)
    position[order] = np.arange(FEWER)
    shuffled = [-1 if parents[old] < 0 else int(position[parents[old]]) for old in order]
    taxonomy = Taxonomy([ids[old] for old in order], shuffled)
    taxonomy.write(tmp_path / f"tree{suffix}")
    again = Taxonomy.read(tmp_path / f"tree{suffix}")
    parent_of = {
        label: None if parent < 0 else again.ids[parent] for label, parent in zip(again.ids, again.parents, strict=True)
    }
    assert parent_of == {label: None if parent < 0 else ids[parent] for label, parent in zip(ids, parents, strict=True)}
    assert (again == taxonomy) == (suffix == ".json")


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
