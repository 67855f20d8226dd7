"""The queue of texts: bounded, first come first served, batches of similar length, nothing left of what was dropped."""

from __future__ import annotations

import random
import threading

import pytest

from hgclr.decisions.settings import Decisions
from hgclr.serving.engine import BatchQueue, PendingRequest, QueueFullError
from hgclr.taxonomy import Taxonomy

DECISIONS = Decisions(Taxonomy(["a"], [-1]))


def request(count: int) -> PendingRequest[int]:
    return PendingRequest(DECISIONS, count)


def admitted(queue: BatchQueue[int], lengths: list[int]) -> PendingRequest[int]:
    """Texts of certain lengths in tokens, tokenised."""
    one = request(len(lengths))
    queue.put(one, [(place, "text") for place in range(len(lengths))])
    entries = queue.take_untokenised(len(lengths))
    for entry, length in zip(entries, lengths, strict=True):
        entry.ids = [0] * length
    queue.put_tokenised(entries)
    return one


def test_a_request_comes_in_whole_or_not_at_all() -> None:
    queue: BatchQueue[int] = BatchQueue(3)
    queue.put(request(2), [(0, "a"), (1, "b")])
    with pytest.raises(QueueFullError):
        queue.put(request(2), [(0, "c"), (1, "d")])
    assert queue.length == 2
    queue.put(request(1), [(0, "e")])
    assert [entry.text for entry in queue.take_untokenised(10)] == ["a", "b", "e"]
    assert queue.length == 3  # tokenising makes no room


def test_batches_hold_the_oldest_text_and_others_within_the_budget() -> None:
    generator = random.Random(1)
    queue: BatchQueue[int] = BatchQueue(500)
    lengths = [generator.randint(1, 40) for _ in range(300)]
    one = admitted(queue, lengths)
    left = list(range(300))
    while left:
        batch = queue.take_batch(100, 0.0)
        places = [entry.place for entry in batch]
        assert places[0] == left[0] == min(left)
        assert len(places) * max(lengths[place] for place in places) <= 100
        left = [place for place in left if place not in set(places)]
        assert queue.length == one.waiting == len(left)


def test_a_text_longer_than_the_budget_is_a_batch() -> None:
    queue: BatchQueue[int] = BatchQueue(5)
    admitted(queue, [1000, 3])
    assert [len(entry.ids) for entry in queue.take_batch(100, 0.0)] == [1000]
    assert [len(entry.ids) for entry in queue.take_batch(100, 0.0)] == [3]


def test_a_lone_text_waits_for_company_until_the_batch_is_full() -> None:
    queue: BatchQueue[int] = BatchQueue(50)
    admitted(queue, [10])
    taken: list[int] = []
    thread = threading.Thread(target=lambda: taken.append(len(queue.take_batch(30, 3600.0))))
    thread.start()
    admitted(queue, [10])
    thread.join(0.1)
    assert thread.is_alive()  # two texts do not fill it
    admitted(queue, [10])
    thread.join(30)
    assert taken == [3]


def test_a_lone_text_waits_no_longer_than_told() -> None:
    queue: BatchQueue[int] = BatchQueue(50)
    admitted(queue, [10])
    assert len(queue.take_batch(1000, 0.01)) == 1


def test_what_is_dropped_leaves_from_every_stage() -> None:
    queue: BatchQueue[int] = BatchQueue(10)
    kept = admitted(queue, [4])
    ready = admitted(queue, [4, 4])
    tokenising, arrived = request(2), request(3)
    queue.put(tokenising, [(0, "c"), (1, "d")])
    entries = queue.take_untokenised(10)
    queue.put(arrived, [(place, "e") for place in range(3)])
    assert [queue.drop(one) for one in (ready, tokenising, arrived)] == [2, 2, 3]
    queue.put_tokenised(entries)
    assert queue.length == 1
    assert [entry.request for entry in queue.take_batch(100, 0.0)] == [kept]
    assert queue.drop(kept) == 0  # it is being computed
    queue.close()
    assert queue.take_batch(100, 0.0) == []
    assert queue.take_untokenised(10) == []


def test_a_closed_room_is_emptied_and_lets_nobody_in() -> None:
    queue: BatchQueue[int] = BatchQueue(10)
    admitted(queue, [4, 5])
    queue.close()
    with pytest.raises(QueueFullError):
        queue.put(request(1), [(0, "a")])
    assert len(queue.take_batch(100, 3600.0)) == 2  # without waiting for more
    assert queue.take_batch(100, 3600.0) == []


def test_answers_are_in_the_order_of_the_texts() -> None:
    one: PendingRequest[int] = request(3)
    for place in (2, 0):
        one.deliver(place, 10 * place)
        assert not one.future.done()
    one.deliver(1, 10)
    assert one.future.result(0) == [0, 10, 20]


def test_an_answer_that_nobody_waits_for_is_no_error() -> None:
    one: PendingRequest[int] = request(1)
    one.future.cancel()
    one.deliver(0, 1)
    assert one.future.cancelled()
