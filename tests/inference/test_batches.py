"""Batches: who goes with whom, padding, and the thread that prepares the next ones."""

from __future__ import annotations

import subprocess
import sys
import threading
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.inference.backends import PADDING, batches_by_length, longest_first, one_ahead, pad, windows

FAST = settings(max_examples=60, deadline=None, derandomize=True)
LENGTHS = st.lists(st.integers(1, 90), max_size=60)
PATIENCE = 20


def ahead_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("one_ahead")]


@FAST
@given(LENGTHS, st.integers(1, 300))
def test_every_text_is_in_one_batch_within_both_limits(lengths: list[int], budget: int) -> None:
    batches = list(batches_by_length(lengths, budget))
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[index] for index in batch)
        assert len(batch) == 1 or len(batch) * longest <= budget
        assert sum(longest - lengths[index] for index in batch) <= budget // PADDING
    assert [lengths[index] for batch in batches for index in batch] == sorted(lengths, reverse=True)


@FAST
@given(LENGTHS)
def test_a_batch_ends_only_where_it_must(lengths: list[int]) -> None:
    batches = list(batches_by_length(lengths, 200))
    for batch, following in pairwise(batches):
        merged = [lengths[index] for index in (*batch, following[0])]
        assert len(merged) * max(merged) > 200 or len(merged) * max(merged) - sum(merged) > 200 // PADDING


@FAST
@given(LENGTHS)
def test_the_longest_come_first_and_ties_keep_their_order(lengths: list[int]) -> None:
    assert longest_first(lengths) == sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))


@FAST
@given(st.lists(st.lists(st.integers(0, 9), max_size=7), min_size=1, max_size=9), st.integers(0, 9))
def test_padding_is_on_the_right_and_masked(texts: list[list[int]], token: int) -> None:
    ids, mask = pad(texts, token)
    texts = [text or [token] for text in texts]  # one without tokens would leave an encoder nothing to look at
    longest = max(map(len, texts))
    assert ids.dtype == mask.dtype == np.int64
    assert ids.tolist() == [text + [token] * (longest - len(text)) for text in texts]
    assert mask.tolist() == [[1] * len(text) + [0] * (longest - len(text)) for text in texts]


def test_windows_are_consecutive() -> None:
    assert list(windows(range(5), 2)) == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_what_is_made_ahead_comes_in_order(count: int) -> None:
    assert list(one_ahead(lambda number: number * 2, range(count))) == [2 * number for number in range(count)]
    assert not ahead_threads()


def test_the_next_is_made_while_the_caller_works() -> None:
    made = [threading.Event() for _ in range(3)]

    def make(number: int) -> int:
        made[number].set()
        return number

    for number in one_ahead(make, range(3)):
        if number < 2:
            assert made[number + 1].wait(PATIENCE)
        assert not any(event.is_set() for event in made[number + 2 :])  # one ahead, no more


def test_one_item_needs_no_thread() -> None:
    (where,) = one_ahead(lambda _: threading.current_thread(), [0])
    assert where is threading.current_thread()


def test_an_error_takes_the_place_of_its_result() -> None:
    def make(number: int) -> int:
        if number == 2:
            raise ValueError("two")
        return number

    made = one_ahead(make, range(5))
    assert [next(made), next(made)] == [0, 1]
    with pytest.raises(ValueError, match="two"):
        next(made)
    assert not ahead_threads()


def test_the_thread_ends_when_the_caller_stops_early() -> None:
    made = one_ahead(lambda number: number, range(100))
    assert next(made) == 0
    assert ahead_threads()
    made.close()
    assert not ahead_threads()


def test_an_abandoned_generator_does_not_hold_up_the_interpreter() -> None:
    code = "from hgclr.inference.backends import one_ahead\nmade = one_ahead(str, range(100))\nprint(next(made))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("0\n", "")
