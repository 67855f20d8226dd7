"""Near-twins: labels that differ in case and spaces alone, at any depth."""

from __future__ import annotations

from hgclr.taxonomy.paths import merge_twins, near_twins


def test_only_the_top_most_spellings_are_named() -> None:
    paths = {("Law", "Courts"): 5, ("law ", "Courts"): 2, ("law ", "Tax"): 1, ("Law", "courts", "High"): 1}
    found = [{path for path, _ in twins.paths} for twins in near_twins(paths)]
    assert found == [{("Law",), ("law ",)}, {("Law", "Courts"), ("law ", "Courts"), ("Law", "courts")}]


def test_merged_paths_have_the_most_frequent_spelling_of_each_name() -> None:
    paths = {("Law", "Courts"): 5, ("law", "COURTS"): 2, ("law", "Tax"): 1, ("LAW", "courts", "High"): 1, ("Sport",): 1}
    merged = merge_twins(paths)
    assert merged == {
        ("Law", "Courts"): ("Law", "Courts"),
        ("law", "COURTS"): ("Law", "Courts"),
        ("law", "Tax"): ("Law", "Tax"),
        ("LAW", "courts", "High"): ("Law", "Courts", "High"),
        ("Sport",): ("Sport",),
    }
    assert near_twins(dict.fromkeys(merged.values(), 1)) == []


def test_a_path_in_one_name_is_a_twin_of_the_path() -> None:
    (twins,) = near_twins({("Law>Tax",): 1, ("Law", "Tax"): 3})
    assert twins.summary() == "'Law > Tax' (3) and 'Law>Tax' (1)"


def test_other_differences_are_none() -> None:
    assert near_twins({("Law", "Tax"): 1, ("Law", "Taxi"): 1, ("Tax", "Law"): 1, ("Law-Tax",): 1}) == []
