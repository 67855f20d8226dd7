"""``POST /predict``: the same answers as the library gives, one by one or together; one bad text fails alone."""

from __future__ import annotations

import threading

import httpx
import numpy as np
import pytest

from hgclr.serving import messages
from support.fake_service import (
    LONGEST,
    PATIENCE,
    TREE,
    WORDS,
    GatedBackend,
    WordBackend,
    fake_service,
    make_classifier,
    until,
)

TEXTS = ["atom", "a", "lens of a laser", "judge " * 30, "goal boat judge", "court court court court"]


def probabilities(client: httpx.Client, texts: list[str]) -> np.ndarray:
    answer = client.post("/predict", json={"texts": texts, "probabilities": True})
    assert answer.status_code == 200
    rows = [prediction["probabilities"] for prediction in answer.json()["predictions"]]
    assert all(tuple(row) == TREE.ids for row in rows)
    return np.array([list(row.values()) for row in rows])


def expected(text: str) -> np.ndarray:
    """The probabilities of a text, word by word."""
    read = ["[CLS]", *text.split()[: LONGEST - 2], "[SEP]"]
    rows = [WORDS.index(word if word in WORDS else "[UNK]") for word in read]
    total = sum(WordBackend().table[row].astype(float) for row in rows)
    return 1 / (1 + np.exp(-total))


def test_probabilities_are_those_of_each_text_alone(client: httpx.Client) -> None:
    together = probabilities(client, TEXTS)
    np.testing.assert_allclose(together, [expected(text) for text in TEXTS], atol=6e-5)
    np.testing.assert_allclose(together, [probabilities(client, [text])[0] for text in TEXTS], atol=1e-5)
    np.testing.assert_allclose(probabilities(client, TEXTS[::-1]), together[::-1], atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"threshold": 0.1},
        {"rule": "closure", "threshold": 0.7},
        {"rule": "top-k-paths", "paths": 2},
        {"rule": "best-path", "abstain_below": 0.9},
        {"rule": "top-down"},
    ],
)
def test_labels_are_those_of_the_library(client: httpx.Client, options: dict[str, object]) -> None:
    answer = client.post("/predict", json={"texts": TEXTS, **options}).json()
    for found, right in zip(answer["predictions"], make_classifier().predict(TEXTS, **options), strict=True):
        for name in ("labels", "abstained"):
            assert [label["id"] for label in found[name]] == [label.id for label in getattr(right, name)]
            assert [label["path"] for label in found[name]] == [list(label.path) for label in getattr(right, name)]
            for label, same in zip(found[name], getattr(right, name), strict=True):
                assert label["probability"] == pytest.approx(same.probability, abs=6e-5)
    assert [found["truncated"] for found in answer["predictions"]] == [
        len(text.split()) > LONGEST - 2 for text in TEXTS
    ]
    assert answer["seconds"] > 0


def test_the_former_name_of_abstain_below_is_taken_and_logged_once(
    client: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    messages._deprecated.cache_clear()
    wanted = client.post("/predict", json={"texts": TEXTS, "abstain_below": 0.9}).json()["predictions"]
    assert "sure" not in caplog.text
    for _ in range(2):
        assert client.post("/predict", json={"texts": TEXTS, "sure": 0.9}).json()["predictions"] == wanted
    message = "a request has the field 'sure', which is called 'abstain_below' now; version 0.3 will refuse it"
    assert caplog.messages.count(message) == 1
    both = client.post("/predict", json={"text": "a", "sure": 0.9, "abstain_below": 0.9})
    assert (both.status_code, both.json()["error"]["field"]) == (422, "sure")


def test_one_text_is_a_list_of_one(client: httpx.Client) -> None:
    one = client.post("/predict", json={"text": "lens"}).json()["predictions"]
    assert one == client.post("/predict", json={"texts": ["lens"]}).json()["predictions"]
    assert "probabilities" not in one[0]


def test_a_blank_text_gets_no_label_and_says_so(client: httpx.Client) -> None:
    asked = {"texts": ["atom", " \n"], "rule": "best-path", "probabilities": True}
    atom, blank = client.post("/predict", json=asked).json()["predictions"]
    assert atom["labels"]
    assert "note" not in atom
    assert blank["labels"] == blank["abstained"] == []
    assert blank["note"] == "the text is empty or blank"
    assert set(blank["probabilities"].values()) == {0}
    alone = client.post("/predict", json={"text": ""})
    assert (alone.status_code, alone.json()["predictions"][0]["labels"]) == (200, [])


def test_a_text_that_cannot_be_read_fails_alone(client: httpx.Client) -> None:
    body = rb'{"texts": ["atom", "a\ud800", "nul\u0000", "lens"]}'
    answer = client.post("/predict", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200
    first, second, third, fourth = answer.json()["predictions"]
    assert second["error"] == {
        "type": "invalid",
        "message": "not UTF-8: the text has a lone surrogate at character 2",
    }
    assert third["error"] == {"type": "invalid", "message": "the text has a NUL at character 4"}
    assert [first, fourth] == client.post("/predict", json={"texts": ["atom", "lens"]}).json()["predictions"]


def test_a_text_that_breaks_the_backend_fails_alone(caplog: pytest.LogCaptureFixture) -> None:
    texts = ["atom", "lens poison", "judge", "boat"]
    with fake_service() as (client, _):
        answer = client.post("/predict", json={"texts": texts})
        good = client.post("/predict", json={"texts": [texts[0], *texts[2:]]}).json()["predictions"]
        alone = client.post("/predict", json={"text": "poison"})
        after = client.post("/predict", json={"text": "atom"})
    found = answer.json()["predictions"]
    assert answer.status_code == 200
    assert found[1] == {"error": {"type": "internal", "message": "the model could not label this text"}}
    assert [found[0], *found[2:]] == good
    assert alone.status_code == 500
    assert alone.json()["error"]["type"] == "internal"
    assert after.status_code == 200
    assert "RuntimeError" in caplog.text
    assert "no good text: poison" not in caplog.text  # an error's message may quote a text


def test_logits_that_are_no_numbers_are_an_error_of_ours() -> None:
    class Broken(WordBackend):
        def logits(self, input_ids, attention_mask):
            logits = super().logits(input_ids, attention_mask)
            logits[(input_ids == 5).any(axis=1)] = np.nan  # laser
            return logits

    with fake_service(Broken()) as (client, _):
        answer = client.post("/predict", json={"texts": ["laser", "lens"]}).json()["predictions"]
    assert answer[0]["error"]["type"] == "internal"
    assert "labels" in answer[1]


def test_texts_of_several_requests_share_a_batch_and_keep_their_own_decisions() -> None:
    backend = GatedBackend()
    wanted = [
        {"texts": ["lens", "atom"]},
        {"texts": ["lens"], "threshold": 0.99},
        {"text": "lens", "rule": "closure"},
    ]
    with fake_service(backend) as (client, app):
        single = [client.post("/predict", json=body).json()["predictions"] for body in wanted]
        backend.close()
        answers: dict[int, list[object]] = {}

        def ask(number: int) -> None:
            answers[number] = client.post("/predict", json=wanted[number]).json()["predictions"]

        first = threading.Thread(target=client.post, args=("/predict",), kwargs={"json": {"text": "goal"}})
        first.start()
        assert backend.entered.wait(PATIENCE)  # it is being computed; the others must wait
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        until(lambda: len(app.state.service.engine._queue._ready) == 4)  # those that are tokenised
        backend.gate.set()
        for thread in (first, *threads):
            thread.join(PATIENCE)
    assert [len(batch) for batch in backend.batches] == [1, 4]
    assert [answers[number] for number in range(3)] == single


def test_batches_stay_within_the_token_budget() -> None:
    backend = WordBackend()
    with fake_service(backend, batch_tokens=24) as (client, _):
        backend.batches.clear()
        texts = ["atom " * (1 + number % 11) for number in range(60)]
        assert client.post("/predict", json={"texts": texts}).status_code == 200
    assert sum(map(len, backend.batches)) == 60
    assert all(len(batch) * max(map(len, batch)) <= 24 for batch in backend.batches)


def test_too_many_probabilities_are_refused(monkeypatch: pytest.MonkeyPatch, client: httpx.Client) -> None:
    monkeypatch.setattr("hgclr.serving.app.PROBABILITIES", 10)
    answer = client.post("/predict", json={"texts": ["a", "b", "c"], "probabilities": True})
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == "probabilities"
    assert client.post("/predict", json={"texts": ["a", "b"], "probabilities": True}).status_code == 200
