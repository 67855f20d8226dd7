"""The waiting room: bounded, first come first served, batches of similar length, nothing left of what was dropped."""

from __future__ import annotations

import random
import threading

import pytest

from hgclr.decisions.settings import Decisions
from hgclr.serving.batch_queue import RoomFullError, Ticket, WaitingRoom
from hgclr.taxonomy import Taxonomy

DECISIONS = Decisions(Taxonomy(["a"], [-1]))


def ticket(count: int) -> Ticket[int]:
    return Ticket(DECISIONS, count)


def admitted(room: WaitingRoom[int], lengths: list[int]) -> Ticket[int]:
    """Texts of certain lengths in tokens, tokenised."""
    one = ticket(len(lengths))
    room.admit(one, [(place, "text") for place in range(len(lengths))])
    entries = room.take_arrived(len(lengths))
    for entry, length in zip(entries, lengths, strict=True):
        entry.ids = [0] * length
    room.put_ready(entries)
    return one


def test_a_request_comes_in_whole_or_not_at_all() -> None:
    room: WaitingRoom[int] = WaitingRoom(3)
    room.admit(ticket(2), [(0, "a"), (1, "b")])
    with pytest.raises(RoomFullError):
        room.admit(ticket(2), [(0, "c"), (1, "d")])
    assert room.occupied == 2
    room.admit(ticket(1), [(0, "e")])
    assert [entry.text for entry in room.take_arrived(10)] == ["a", "b", "e"]
    assert room.occupied == 3  # tokenising makes no room


def test_batches_hold_the_oldest_text_and_others_within_the_budget() -> None:
    generator = random.Random(1)
    room: WaitingRoom[int] = WaitingRoom(500)
    lengths = [generator.randint(1, 40) for _ in range(300)]
    one = admitted(room, lengths)
    left = list(range(300))
    while left:
        batch = room.take_batch(100, 0.0)
        places = [entry.place for entry in batch]
        assert places[0] == left[0] == min(left)
        assert len(places) * max(lengths[place] for place in places) <= 100
        left = [place for place in left if place not in set(places)]
        assert room.occupied == one.waiting == len(left)


def test_a_text_longer_than_the_budget_is_a_batch() -> None:
    room: WaitingRoom[int] = WaitingRoom(5)
    admitted(room, [1000, 3])
    assert [len(entry.ids) for entry in room.take_batch(100, 0.0)] == [1000]
    assert [len(entry.ids) for entry in room.take_batch(100, 0.0)] == [3]


def test_a_lone_text_waits_for_company_until_the_batch_is_full() -> None:
    room: WaitingRoom[int] = WaitingRoom(50)
    admitted(room, [10])
    taken: list[int] = []
    thread = threading.Thread(target=lambda: taken.append(len(room.take_batch(30, 3600.0))))
    thread.start()
    admitted(room, [10])
    thread.join(0.1)
    assert thread.is_alive()  # two texts do not fill it
    admitted(room, [10])
    thread.join(30)
    assert taken == [3]


def test_a_lone_text_waits_no_longer_than_told() -> None:
    room: WaitingRoom[int] = WaitingRoom(50)
    admitted(room, [10])
    assert len(room.take_batch(1000, 0.01)) == 1


def test_what_is_dropped_leaves_from_every_stage() -> None:
    room: WaitingRoom[int] = WaitingRoom(10)
    kept = admitted(room, [4])
    ready = admitted(room, [4, 4])
    tokenising, arrived = ticket(2), ticket(3)
    room.admit(tokenising, [(0, "c"), (1, "d")])
    entries = room.take_arrived(10)
    room.admit(arrived, [(place, "e") for place in range(3)])
    assert [room.leave(one) for one in (ready, tokenising, arrived)] == [2, 2, 3]
    room.put_ready(entries)
    assert room.occupied == 1
    assert [entry.ticket for entry in room.take_batch(100, 0.0)] == [kept]
    assert room.leave(kept) == 0  # it is being computed
    room.close()
    assert room.take_batch(100, 0.0) == []
    assert room.take_arrived(10) == []


def test_a_closed_room_is_emptied_and_lets_nobody_in() -> None:
    room: WaitingRoom[int] = WaitingRoom(10)
    admitted(room, [4, 5])
    room.close()
    with pytest.raises(RoomFullError):
        room.admit(ticket(1), [(0, "a")])
    assert len(room.take_batch(100, 3600.0)) == 2  # without waiting for more
    assert room.take_batch(100, 3600.0) == []


def test_answers_are_in_the_order_of_the_texts() -> None:
    one: Ticket[int] = ticket(3)
    for place in (2, 0):
        one.deliver(place, 10 * place)
        assert not one.future.done()
    one.deliver(1, 10)
    assert one.future.result(0) == [0, 10, 20]


def test_an_answer_that_nobody_waits_for_is_no_error() -> None:
    one: Ticket[int] = ticket(1)
    one.future.cancel()
    one.deliver(0, 1)
    assert one.future.cancelled()
