"""The endpoints, on a sitting in memory."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

import httpx
from starlette.testclient import TestClient

from hgclr.labelling.app import LONGEST_NOTE, MOST_LABELS, PEOPLE_FILE, create_app, read_people
from hgclr.labelling.store import Answer
from support.memory_sitting import MemorySitting

TOKENS = {"anna": "token-of-anna", "bert": "token-of-bert"}
ANSWER = {"document": 0, "kind": "labels", "labels": ["optics"], "model": None, "milliseconds": 900}


def client_of(sitting: MemorySitting, folder: Path, people: dict[str, str] | None = None, **headers: str) -> TestClient:
    app = create_app(sitting, folder, people=people, hosts=())  # type: ignore[arg-type]
    return TestClient(app, base_url="http://localhost", headers=headers)


@pytest.fixture
def sitting() -> MemorySitting:
    return MemorySitting()


@pytest.fixture
def client(sitting: MemorySitting, tmp_path: Path) -> Iterator[TestClient]:
    with client_of(sitting, tmp_path / "mine") as client:
        yield client


def error(answer: httpx.Response, status: int) -> dict[str, str]:
    assert answer.status_code == status, answer.text
    return answer.json()["error"]


def test_texts_answers_and_undo(client: TestClient, sitting: MemorySitting) -> None:
    asked = client.get("/next", params={"yes_no": "true"}).json()
    assert (asked["document"], asked["question"]["label"], asked["question"]["words"]) == (0, "optics", ["lens"])
    added = client.post("/answers", json=ANSWER | {"note": "clear", "refused": ["law"], "partial": True}).json()
    assert (added["id"], added["progress"]["answers"], added["progress"]["user"]) == (1, 1, "me")
    assert sitting.answers == [Answer(0, "me", "labels", ("optics",), ("law",), True, "clear", None, 900, 1)]
    assert client.get("/next").json()["document"] == 1
    assert client.get("/next", params={"mode": "disagreements"}).status_code == 204
    assert client.post("/undo", json={}).json()["document"] == 0
    assert client.post("/undo", json={}).status_code == 204
    assert client.get("/progress").json()["folder"] == "mine"
    assert client.post("/train", json={"effort": "full"}).status_code == 200
    assert sitting.efforts == ["full"]


def test_an_answer_that_arrives_again_is_stored_once(client: TestClient, sitting: MemorySitting) -> None:
    for again, number in ((False, 1), (True, 1), (True, 1)):
        assert client.post("/answers", json=ANSWER | {"again": again}).json()["id"] == number
    assert client.post("/answers", json=ANSWER | {"again": True, "milliseconds": 901}).json()["id"] == 2
    assert len(sitting.answers) == 2


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"document": -1}, "document"),
        ({"document": "0"}, "document"),
        ({"kind": "undo"}, "kind"),
        ({"labels": "optics"}, "labels"),
        ({"labels": ["law"] * (MOST_LABELS + 1)}, "labels"),
        ({"note": "n" * (LONGEST_NOTE + 1)}, "note"),
        ({"milliseconds": 2**53}, "milliseconds"),
        ({"user": "anna"}, "user"),
    ],
)
def test_invalid_answers_are_refused(client: TestClient, sitting: MemorySitting, change: dict, field: str) -> None:
    assert error(client.post("/answers", json=ANSWER | change), 422)["field"] == field
    assert sitting.answers == []


def test_what_the_sitting_refuses_is_an_invalid_request(client: TestClient) -> None:
    assert error(client.post("/answers", json=ANSWER | {"document": 99}), 422)["message"] == "unknown text 99"
    assert "did you mean 'note'" in error(client.post("/answers", json=ANSWER | {"not": ""}), 422)["message"]
    assert error(client.get("/next", params={"mode": "some"}), 422)["field"] == "query.mode"
    assert error(client.post("/answers", content="x" * 300_000), 413)["type"] == "too_large"


def test_foreign_pages_are_refused(client: TestClient, sitting: MemorySitting) -> None:
    for site in ("cross-site", "same-site"):
        assert error(client.get("/next", headers={"Sec-Fetch-Site": site}), 401)["type"] == "unauthorised"
    assert client.get("/next", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        for path in ("/answers", "/undo", "/train"):
            answer = client.post(path, content=b"{}", headers={"Content-Type": kind})
            assert error(answer, 422)["field"] == "Content-Type"
    assert client.get("/next", headers={"Host": "foreign.example"}).status_code == 400
    assert (sitting.answers, sitting.efforts) == ([], [])


def test_everybody_needs_their_token(sitting: MemorySitting, tmp_path: Path) -> None:
    paths = "/next", "/progress", "/taxonomy"
    with client_of(sitting, tmp_path, TOKENS) as client:
        for value in ("", "Bearer ", "Bearer wrong", "Bearer token-of-ann", "Basic token-of-anna", "Bearer tökén"):
            headers = {"Authorization": value.encode("latin-1")}
            assert {error(client.get(path, headers=headers), 401)["type"] for path in paths} == {"unauthorised"}
            assert client.post("/answers", json=ANSWER, headers=headers).status_code == 401
        for user, token in TOKENS.items():
            headers = {"Authorization": f"Bearer {token}"}
            assert client.post("/answers", json=ANSWER, headers=headers).json()["progress"]["user"] == user
        assert client.get("/?token=token-of-anna").status_code == 200  # the page has no texts in it
    assert [answer.user for answer in sitting.answers] == ["anna", "bert"]
    assert sitting.closed


def test_tokens_stay_valid_and_private(tmp_path: Path) -> None:
    first = read_people(tmp_path, ["anna", "bert"])
    assert len(set(first.values())) == 2
    assert min(map(len, first.values())) >= 32
    second = read_people(tmp_path, ["bert", "cleo"])
    assert (second["bert"], list(second)) == (first["bert"], ["bert", "cleo"])
    assert read_people(tmp_path, ["anna"]) == {"anna": first["anna"]}
    assert stat.S_IMODE((tmp_path / PEOPLE_FILE).stat().st_mode) == 0o600


def test_the_page_and_its_files(client: TestClient) -> None:
    page = client.get("/")
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]
    names = ["label/main.js", "label/style.css", "page/style.css", "page/theme.js", "page/icon.svg"]
    assert all(f'"{name}"' in page.text for name in names)
    for name in (*names, "page/api.js", "label/server.js"):
        assert client.get(f"/{name}").status_code == 200
    assert client.get("/label/..%2fapp.py").status_code == 404
    labels = client.get("/taxonomy").json()["labels"]
    assert labels[2]["description"] == "lenses and mirrors"
