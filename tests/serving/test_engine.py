"""The batch engine: a bounded queue, batches of similar length, and one bad text that fails alone."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import numpy as np
import pytest

from hgclr.decisions.settings import Decisions
from hgclr.inference.classifier import TokenisedText
from hgclr.serving.engine import BatchQueue, PendingRequest, PendingText
from hgclr.serving.messages import Problem
from hgclr.taxonomy import Taxonomy
from support.fake_service import LONGEST, PATIENCE, GatedBackend, WordBackend, fake_service, metric, until

DECISIONS = Decisions(Taxonomy(["a"], [-1]))


def request(count: int) -> PendingRequest:
    return PendingRequest(DECISIONS, count)


def texts_of(one: PendingRequest, lengths: list[int]) -> list[PendingText]:
    """Texts of certain lengths in tokens."""
    tokens = [TokenisedText([0] * length, truncated=False, note=None) for length in lengths]
    return [PendingText(one, place, tokens[place]) for place in range(len(lengths))]


def admitted(queue: BatchQueue, lengths: list[int]) -> PendingRequest:
    one = request(len(lengths))
    queue.admit(one, len(lengths))
    queue.put(texts_of(one, lengths))
    return one


@contextmanager
def busy(backend: GatedBackend, client: httpx.Client) -> Iterator[None]:
    """Let one text keep the backend busy meanwhile."""
    backend.close()
    thread = threading.Thread(target=client.post, args=("/predict",), kwargs={"json": {"text": "goal"}})
    thread.start()
    assert backend.entered.wait(PATIENCE)
    try:
        yield
    finally:
        backend.gate.set()
        thread.join(PATIENCE)


def test_a_request_comes_in_whole_or_not_at_all() -> None:
    queue = BatchQueue(3)
    queue.admit(request(2), 2)
    with pytest.raises(Problem):
        queue.admit(request(2), 2)
    assert queue.length == 2
    queue.admit(request(1), 1)
    assert queue.length == 3


def test_batches_hold_the_oldest_text_and_others_within_the_budget() -> None:
    generator = random.Random(1)
    queue = BatchQueue(500)
    lengths = [generator.randint(1, 40) for _ in range(300)]
    one = admitted(queue, lengths)
    left = list(range(300))
    while left:
        places = [entry.place for entry in queue.take_batch(100, 0.0)]
        assert places[0] == left[0] == min(left)
        assert len(places) * max(lengths[place] for place in places) <= 100
        left = [place for place in left if place not in set(places)]
        assert queue.length == one.waiting == len(left)


def test_a_lone_text_waits_for_others_until_the_batch_is_full_or_its_time_is_over() -> None:
    queue = BatchQueue(50)
    admitted(queue, [10])
    assert len(queue.take_batch(1000, 0.01)) == 1
    admitted(queue, [10])
    taken: list[int] = []
    thread = threading.Thread(target=lambda: taken.append(len(queue.take_batch(30, 3600.0))))
    thread.start()
    admitted(queue, [10])
    thread.join(0.1)
    assert thread.is_alive()  # two texts do not fill it
    admitted(queue, [10])
    thread.join(PATIENCE)
    assert taken == [3]


def test_dropped_texts_leave_every_stage() -> None:
    queue = BatchQueue(10)
    kept = admitted(queue, [4])
    ready = admitted(queue, [4, 4])
    tokenising = request(2)
    queue.admit(tokenising, 2)
    assert [queue.drop(one) for one in (ready, tokenising)] == [2, 2]
    queue.put(texts_of(tokenising, [4, 4]))  # too late
    assert queue.length == 1
    assert [entry.request for entry in queue.take_batch(100, 0.0)] == [kept]
    assert queue.drop(kept) == 0  # it is being computed


def test_a_closed_queue_is_emptied_and_takes_nothing() -> None:
    queue = BatchQueue(10)
    admitted(queue, [4, 5])
    queue.close()
    with pytest.raises(Problem):
        queue.admit(request(1), 1)
    assert len(queue.take_batch(100, 3600.0)) == 2  # without waiting for more
    assert queue.take_batch(100, 3600.0) == []


def test_answers_are_in_the_order_of_the_texts_and_may_be_unwanted() -> None:
    one, unwanted = request(3), request(1)
    answers = [Problem("invalid", str(place)) for place in range(3)]
    for place in (2, 0, 1):
        assert not one.future.done()
        one.deliver(place, answers[place])
    assert one.future.result(0) == answers
    unwanted.future.cancel()
    unwanted.deliver(0, answers[0])
    assert unwanted.future.cancelled()


def test_requests_beyond_the_queue_are_refused_before_they_are_tokenised() -> None:
    backend = GatedBackend()
    with fake_service(backend, max_queue=4, texts_per_request=4) as (client, app):
        tokenised = metric(client, "hgclr_tokenise_seconds_count")
        with busy(backend, client):
            waiting = threading.Thread(target=client.post, args=("/predict",), kwargs={"json": {"texts": ["atom"] * 3}})
            waiting.start()
            until(lambda: metric(client, "hgclr_tokenise_seconds_count") == tokenised + 2)
            refused = client.post("/predict", json={"texts": ["lens"] * 2})
            assert (refused.status_code, refused.json()["error"]["type"]) == (429, "overloaded")
            assert int(refused.headers["Retry-After"]) >= 1
            assert metric(client, "hgclr_queue_texts") == 3
            last = threading.Thread(target=client.post, args=("/predict",), kwargs={"json": {"text": "judge"}})
            last.start()
            until(lambda: app.state.service.engine.queue.length == 4)
            # Now that the queue is full, the body is not even parsed.
            assert client.post("/predict", content=b"no JSON").status_code == 429
            for path in ("/livez", "/readyz", "/metrics", "/model", "/taxonomy"):
                assert client.get(path).status_code == 200
        waiting.join(PATIENCE)
        last.join(PATIENCE)
        assert client.post("/predict", json={"texts": ["lens"] * 4}).status_code == 200
        assert metric(client, "hgclr_queue_texts") == 0
        assert metric(client, 'hgclr_errors_total{type="overloaded"}') == 2
    computed = [text for batch in backend.batches for text in batch]
    assert len(computed) == 1 + 3 + 1 + 4  # nothing of what was refused


@pytest.mark.slow
def test_a_storm_of_requests_is_answered_with_200_or_429_only() -> None:
    backend, statuses = GatedBackend(), []
    with fake_service(backend, max_queue=8, texts_per_request=4) as (client, _):

        def ask() -> None:
            body = {"texts": ["atom lens"] * 4}
            statuses.extend(client.post("/predict", json=body).status_code for _ in range(5))

        with busy(backend, client):
            threads = [threading.Thread(target=ask) for _ in range(10)]
            for thread in threads:
                thread.start()
            until(lambda: 429 in statuses)
        for thread in threads:
            thread.join(PATIENCE)
        assert client.post("/predict", json={"text": "atom"}).status_code == 200
    assert len(statuses) == 50
    assert set(statuses) == {200, 429}


def test_texts_of_several_requests_share_a_batch_and_keep_their_own_decisions() -> None:
    backend = GatedBackend()
    wanted = [{"texts": ["lens", "atom"]}, {"texts": ["lens"], "threshold": 0.99}, {"text": "lens", "rule": "closure"}]
    with fake_service(backend) as (client, app):
        single = [client.post("/predict", json=body).json()["predictions"] for body in wanted]
        answers: dict[int, list[object]] = {}

        def ask(number: int) -> None:
            answers[number] = client.post("/predict", json=wanted[number]).json()["predictions"]

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
        with busy(backend, client):
            for thread in threads:
                thread.start()
            until(lambda: len(app.state.service.engine.queue._ready) == 4)  # those that are tokenised
        for thread in threads:
            thread.join(PATIENCE)
    assert [len(batch) for batch in backend.batches] == [1, 4]
    assert [answers[number] for number in range(3)] == single


def test_batches_stay_within_the_token_budget_and_the_largest_is_the_first() -> None:
    backend = WordBackend()
    with fake_service(backend, batch_tokens=24) as (client, _):
        assert list(map(len, backend.batches[-1])) == [LONGEST] * 2  # memory is taken in the warm-up
        backend.batches.clear()
        texts = ["atom " * (1 + number % 11) for number in range(60)]
        assert client.post("/predict", json={"texts": texts}).status_code == 200
    assert sum(map(len, backend.batches)) == 60
    assert all(len(batch) * max(map(len, batch)) <= 24 for batch in backend.batches)


def test_a_text_that_breaks_the_backend_fails_alone(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(WordBackend):
        def logits(self, input_ids, attention_mask):
            logits = super().logits(input_ids, attention_mask)
            logits[(input_ids == 5).any(axis=1)] = np.nan  # laser
            return logits

    texts = ["atom", "lens poison", "judge", "laser", "boat"]
    with fake_service(Broken()) as (client, _):
        answer = client.post("/predict", json={"texts": texts})
        good = client.post("/predict", json={"texts": [texts[place] for place in (0, 2, 4)]}).json()["predictions"]
        alone = client.post("/predict", json={"text": "poison"})
        after = client.post("/predict", json={"text": "atom"})
    found = answer.json()["predictions"]
    assert answer.status_code == after.status_code == 200
    assert [found[place]["error"]["type"] for place in (1, 3)] == ["internal", "internal"]
    assert [found[place] for place in (0, 2, 4)] == good
    assert (alone.status_code, alone.json()["error"]["type"]) == (500, "internal")
    assert "RuntimeError" in caplog.text
    assert "no good text: poison" not in caplog.text  # an error's message may quote a text


def test_a_text_that_breaks_the_tokenizer_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_service() as (client, app):
        monkeypatch.setattr(app.state.service.classifier, "tokenise", lambda _: 1 / 0)
        assert client.post("/predict", json={"text": "atom"}).status_code == 500
        monkeypatch.undo()
        assert client.post("/predict", json={"text": "atom"}).status_code == 200
        assert app.state.service.engine.queue.length == 0
