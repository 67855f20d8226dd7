from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import Future
from contextlib import closing

import pytest

from hgclr.errors import HGCLRError, InputError
from hgclr.hardware import usable_cores
from hgclr.paper.corpora.rcv1 import in_order, limited


def square(number: int) -> int:
    if number == 13:
        raise InputError("thirteen", path="numbers.txt", line=13, remedy="take another")
    if number == 99:
        os._exit(1)  # as if the system had killed the process
    return number * number


def test_few_results_wait_at_any_time() -> None:
    waiting, most = 0, 0

    def submit(job: int) -> Future[int]:
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        future: Future[int] = Future()
        future.set_result(job)  # done at once: reading is as fast as can be
        return future

    taken = []
    for result in limited(submit, range(100), ahead=5):
        taken.append(result)
        waiting -= 1
    assert taken == list(range(100))
    assert most == 5
    assert waiting == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_jobs(workers: int) -> None:
    assert list(in_order(square, range(12), workers)) == [number * number for number in range(12)]
    assert list(in_order(square, [], workers)) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_errors_keep_their_place(workers: int) -> None:
    with pytest.raises(InputError) as caught:
        list(in_order(square, [1, 13], workers))
    assert str(caught.value) == "numbers.txt:13: thirteen; take another"
    assert (caught.value.path, caught.value.line) == ("numbers.txt", 13)


def test_closing_ends_the_processes() -> None:
    before = set(multiprocessing.active_children())
    with closing(in_order(square, range(12), 2)) as results:
        assert next(results) == 0
        assert len(set(multiprocessing.active_children()) - before) >= 1
    assert set(multiprocessing.active_children()) <= before


def test_a_process_that_dies() -> None:
    with pytest.raises(
        HGCLRError, match="a worker process ended by itself, perhaps for want of memory; try --workers 1"
    ):
        list(in_order(square, [1, 99, 2], 2))


def test_cores() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
