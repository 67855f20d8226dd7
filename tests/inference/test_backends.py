"""Backends: threads, errors, memory; batches by length, padding, and the thread that prepares the next ones."""

from __future__ import annotations

import os
import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.errors import InputError
from hgclr.inference.backends import PADDING, OnnxBackend, batches_by_length, longest_first, one_ahead, pad

FAST = settings(max_examples=60, deadline=None, derandomize=True)
LENGTHS = st.lists(st.integers(1, 90), max_size=60)
PATIENCE = 20


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A graph in the place of a model: a text's logits are the sum of its real tokens and its length."""
    body = """
        <ir_version: 10, opset_import: ["" : 23]>
        agraph (int64[batch, length] input_ids, int64[batch, length] attention_mask) => (float[batch, 2] logits) {
            axis = Constant <value_ints = [1]> ()
            real = Mul (input_ids, attention_mask)
            total = ReduceSum (real, axis)
            count = ReduceSum (attention_mask, axis)
            both = Concat <axis = 1> (total, count)
            logits = Cast <to = 1> (both)
        }
    """
    onnx.save(onnx.parser.parse_model(body), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_ids_and_mask_go_in_and_logits_come_out(graph: Path) -> None:
    backend = OnnxBackend(graph)
    logits = backend.logits(np.array([[5, 7, 9], [3, 8, 8]]), np.array([[1, 1, 1], [1, 0, 0]]))
    assert logits.dtype == np.float32
    assert logits.tolist() == [[21, 3], [3, 1]]
    assert backend.label_count == 2


def test_threads_are_those_asked_for(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def threads(asked: int | None = None) -> int:
        return OnnxBackend(graph, asked).session.get_session_options().intra_op_num_threads

    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads() == 3
    assert threads(2) == 2
    for value in ("0", "many", ""):
        monkeypatch.setenv("OMP_NUM_THREADS", value)
        assert 1 <= threads() <= (os.cpu_count() or 1)
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    assert threads() == 1


def test_a_broken_graph_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no graph")
    for path in (tmp_path / "model.onnx", tmp_path / "missing.onnx"):
        with pytest.raises(InputError) as caught:
            OnnxBackend(path)
        assert (caught.value.path, bool(caught.value.remedy)) == (path, True)


def ahead_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("one_ahead")]


@FAST
@given(LENGTHS, st.integers(1, 300))
def test_every_text_is_in_one_batch_within_both_limits(lengths: list[int], budget: int) -> None:
    batches = list(batches_by_length(lengths, budget))
    order = [index for batch in batches for index in batch]
    assert order == longest_first(lengths)
    assert order == sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    for batch in batches:
        longest = lengths[batch[0]]
        assert len(batch) == 1 or len(batch) * longest <= budget
        assert sum(longest - lengths[index] for index in batch) <= budget // PADDING
    for batch, following in pairwise(batches):  # a batch ends only where it must
        merged = [lengths[index] for index in (*batch, following[0])]
        assert len(merged) * max(merged) > budget or len(merged) * max(merged) - sum(merged) > budget // PADDING


@FAST
@given(st.lists(st.lists(st.integers(0, 9), max_size=7), min_size=1, max_size=9), st.integers(0, 9))
def test_padding_is_on_the_right_and_masked(texts: list[list[int]], token: int) -> None:
    ids, mask = pad(texts, token)
    texts = [text or [token] for text in texts]  # one without tokens would leave an encoder nothing to look at
    longest = max(map(len, texts))
    assert ids.dtype == mask.dtype == np.int64
    assert ids.tolist() == [text + [token] * (longest - len(text)) for text in texts]
    assert mask.tolist() == [[1] * len(text) + [0] * (longest - len(text)) for text in texts]


def test_the_next_is_made_while_the_caller_works() -> None:
    made = [threading.Event() for _ in range(3)]

    def make(number: int) -> int:
        made[number].set()
        return number

    assert list(one_ahead(str, [])) == []
    for number in one_ahead(make, range(3)):
        if number < 2:
            assert made[number + 1].wait(PATIENCE)
        assert not any(event.is_set() for event in made[number + 2 :])  # one ahead, no more


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
