"""The page in a real browser, by keyboard alone: on a sitting in memory, and on the command itself."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("playwright", reason="the page is tested with playwright")

import httpx
from playwright.sync_api import expect

from hgclr.labelling.app import create_app
from hgclr.labelling.store import Answer
from hgclr.taxonomy import Taxonomy
from support.fake_service import until
from support.memory_sitting import MemorySitting, serving_app
from support.watched_page import Watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = pytest.mark.slow

WORDS = {
    "optics": ["lens", "mirror", "prism"],
    "chemistry": ["acid", "salt", "molecule"],
    "law": ["court", "judge", "contract"],
    "tennis": ["racket", "serve", "net"],
    "rowing": ["boat", "oar", "lake"],
}
GOLD = {word: label for label, words in WORDS.items() for word in words}
"""The label of each word; a text has three words of its label."""
PEOPLE = "anna", "bert"
START_SECONDS = 300
"""For the imports of the command, on a busy machine."""


@pytest.fixture
def sitting() -> MemorySitting:
    return MemorySitting()


@pytest.fixture
def page(context: BrowserContext, sitting: MemorySitting, tmp_path: Path) -> Iterator[Page]:
    """The page on a sitting in memory; its errors are failures, and nothing may come from elsewhere."""
    with serving_app(create_app(sitting, tmp_path, people=None, hosts=())) as address:  # type: ignore[arg-type]
        watched = Watched(context.new_page(), address)
        page = watched.load()
        page.get_by_role("button", name="optics").wait_for()
        yield page
        watched.check()


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def text_of(page: Page) -> str:
    return page.get_by_role("region", name="Text", exact=True).inner_text()


def shows(page: Page, number: int) -> None:
    """Wait for a text of the sitting in memory."""
    expect(page.locator("#document")).to_have_text(f"<i>lens</i> and court {number}")


def test_every_kind_of_answer_by_keyboard(page: Page, sitting: MemorySitting) -> None:
    press(page, "Enter")  # nothing is chosen yet
    press(page, "Digit2", "Digit1", "Backspace", "Enter")
    shows(page, 1)
    press(page, "Digit1", "Shift+Digit2", "Shift+Digit3", "Shift+Digit2", "Enter")
    shows(page, 2)
    press(page, "n", *"so so", "Enter", "x")
    shows(page, 3)
    press(page, "s")
    shows(page, 4)
    press(page, "m", "Digit1", "Digit2", "m", "Enter")  # several paths without Shift
    shows(page, 5)
    press(page, "/", *"mirrors", "Escape", "/", *"theory", "Enter", "Enter")
    shows(page, 6)
    press(page, "/", *"society la", "Enter", "/", *"mirrors", "Shift+Enter", "Enter")
    shows(page, 7)
    given = [(answer.document, answer.kind, answer.labels, answer.note) for answer in sitting.answers]
    assert given == [
        (0, "labels", ("physics",), ""),
        (1, "labels", ("optics", "chemistry"), ""),
        (2, "none", (), "so so"),
        (3, "skip", (), ""),
        (4, "labels", ("optics", "law"), ""),
        (5, "labels", ("optics",), ""),
        (6, "labels", ("law", "optics"), ""),
    ]
    assert {answer.model for answer in sitting.answers} == {1}
    for number in (6, 5, 4):
        press(page, "u")
        shows(page, number)
    assert len(sitting.answers) == 4


def test_yes_and_no(page: Page, sitting: MemorySitting) -> None:
    question = page.locator("#question-text")
    press(page, "y")  # no question is shown
    press(page, "q")
    expect(question).to_have_text("science › physics › optics?")
    press(page, "y")
    shows(page, 1)
    press(page, "n")
    expect(question).to_have_text("science › physics?")
    press(page, "y")
    shows(page, 2)
    press(page, "n", "n", "n")
    expect(question).to_be_hidden()
    press(page, "Digit2", "Enter")
    shows(page, 3)
    press(page, "n", "Digit1", "Shift+N", *"hm", "Escape", "Enter")  # a no that is taken back
    shows(page, 4)
    assert [(answer.labels, answer.refused, answer.partial, answer.note) for answer in sitting.answers] == [
        (("optics",), (), False, ""),
        (("physics",), ("optics",), True, ""),
        (("law",), ("optics", "physics", "science"), False, ""),
        (("optics",), (), False, "hm"),
    ]


def test_words_suggestions_and_names_are_text(page: Page, sitting: MemorySitting) -> None:
    marks = page.locator("#document mark")
    expect(marks).to_have_text(["lens"])
    press(page, "Digit2")
    expect(marks).to_have_text(["court"])
    expect(page.get_by_role("button", name="<b>chemistry</b>")).to_be_visible()
    assert page.locator("#document i, bdi b").count() == 0
    expect(page.locator("[aria-live=polite]")).to_contain_text("Answer: society, law")
    for _ in range(11):
        press(page, "x")
        expect(page.locator("#work")).not_to_have_attribute("aria-busy", "true")
    expect(page.locator("#hint")).to_contain_text("random slice")
    expect(page.get_by_role("list", name="Suggested paths")).to_be_hidden()
    press(page, "x")
    expect(page.locator("#document")).to_have_text("There is no text left.")
    press(page, "x", "Digit1", "Enter")
    assert len(sitting.answers) == 12


def test_mouse_tree_and_buttons(page: Page, sitting: MemorySitting) -> None:
    page.get_by_role("button", name="law").click()
    press(page, "Enter")  # on the option that has the focus
    shows(page, 1)
    page.get_by_role("treeitem", name="physics").click()
    page.get_by_role("button", name="Remove physics").click()
    expect(page.get_by_role("button", name="Accept")).to_be_disabled()
    page.get_by_role("treeitem", name="chemistry").focus()
    press(page, "Enter", "Enter")
    shows(page, 2)
    page.get_by_role("button", name="Belongs nowhere").click()
    shows(page, 3)
    assert [answer.labels for answer in sitting.answers] == [("law",), ("chemistry",), ()]
    page.get_by_role("button", name="Train the whole model").click()
    until(lambda: sitting.efforts == ["full"])
    press(page, "?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    press(page, "x", "Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
    expect(page.get_by_role("img", name=re.compile("Macro-F1 50 % .45 % to 55 %. with 10 answers"))).to_be_visible()
    assert len(sitting.answers) == 3


def test_disagreements_and_a_narrow_screen(page: Page, sitting: MemorySitting) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    press(page, "d")
    expect(page.locator("#document")).to_have_text("There are no disagreements.")
    press(page, "d")
    shows(page, 0)
    sitting.others += [Answer(0, "anna", "labels", ("law",)), Answer(0, "bert", "none", note="unclear")]
    press(page, "d")
    expect(page.locator("#hint")).to_have_text("Different answers. anna: law; bert: belongs nowhere (unclear).")
    expect(page.locator("#options li").first).to_contain_text("law")
    assert page.evaluate("document.documentElement.scrollWidth") == 360


# The command, with its sitting


def write_inputs(folder: Path, taxonomy: Taxonomy, texts: int) -> None:
    taxonomy.write(folder / "tree.json")
    firsts = list(GOLD)
    rows = ["text"]
    for number in range(texts):
        first = firsts[number % len(firsts)]
        rows.append(f"{first} of {WORDS[GOLD[first]][number % 3]} number{number}")
    (folder / "texts.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


@pytest.fixture
def start(tmp_path: Path, taxonomy: Taxonomy, make_encoder: Callable[[str], str]) -> Iterator[Callable[..., str]]:
    """Return a function that starts the command, always on the same port, after it has killed the one before."""
    write_inputs(tmp_path, taxonomy, 80)
    with socket.create_server(("127.0.0.1", 0)) as chosen:
        port = chosen.getsockname()[1]
    running: list[subprocess.Popen[bytes]] = []

    def stop() -> None:
        while running:
            process = running.pop()
            os.kill(process.pid, signal.SIGKILL)
            process.wait()

    def begin(*options: str) -> str:
        stop()
        inputs = "texts.csv", "--taxonomy", "tree.json", "--output", "mine", "--encoder", make_encoder("bert")
        command = sys.executable, "-m", "hgclr", "label", *inputs, "--no-browser", "--port", str(port), *options
        with (tmp_path / "log").open("ab") as log:
            running.append(subprocess.Popen(command, cwd=tmp_path, stderr=log))
        address = f"http://127.0.0.1:{port}"

        def answers() -> bool:
            assert running[0].poll() is None, (tmp_path / "log").read_text()
            try:
                return httpx.get(f"{address}/progress", timeout=60).status_code in (200, 401)
            except httpx.TransportError:
                return False

        end = time.monotonic() + START_SECONDS
        while not answers():
            assert time.monotonic() < end, (tmp_path / "log").read_text()
            time.sleep(0.1)
        return address

    begin.stop = stop  # type: ignore[attr-defined]
    yield begin
    stop()


def read_answers(folder: Path) -> list[tuple[int, str, str, list[str]]]:
    """Return the valid answers: text, user, gold label and labels."""
    connection = sqlite3.connect(folder / "mine" / "labels.sqlite")
    query = (
        "SELECT document, user, text, labels FROM answers JOIN documents ON documents.id = document"
        " WHERE undone_by IS NULL AND kind = 'labels' ORDER BY answers.id"
    )
    rows = [
        (document, user, GOLD[text.split()[0]], json.loads(labels))
        for document, user, text, labels in connection.execute(query)
    ]
    connection.close()
    return rows


def ready(page: Page) -> str:
    """Wait until a text can be answered, and return it."""
    expect(page.locator("#document")).to_contain_text("number")
    expect(page.locator("#work")).not_to_have_attribute("aria-busy", "true")
    return text_of(page)


def answer_rightly(page: Page) -> tuple[str, int]:
    """Answer the shown text by its gold label; return the text, and the number of keys if a suggestion was right."""
    text = ready(page)
    label = GOLD[text.split()[0]]
    options = page.locator("#options .path bdi:last-child").all_inner_texts()
    keys = [f"Digit{options.index(label) + 1}", "Enter"] if label in options else ["/", *label, "Enter", "Enter"]
    press(page, *keys)
    expect(page.locator("#document")).not_to_have_text(text)
    return text, len(keys) if label in options else 0


def test_a_sitting_of_sixty_answers(context: BrowserContext, start: Callable[..., str], tmp_path: Path) -> None:
    page = context.new_page()
    page.goto(start())
    keys = []
    for number in range(60):
        text, pressed = answer_rightly(page)
        keys += [pressed] if pressed else []
        if number == 10:
            current = ready(page)
            press(page, "u")
            expect(page.locator("#document")).to_have_text(text)
            assert answer_rightly(page)[0] == text
            assert ready(page) == current
        if number == 20:
            current = ready(page)
            page.reload()
            assert ready(page) == current
        if number == 30:
            expect(page.locator("#model-state")).to_have_text(re.compile("^model [1-9]"))
    assert sorted(keys)[len(keys) // 2] <= 2
    expect(page.locator("#facts")).to_have_text("60 of 80 texts answered")
    rows = read_answers(tmp_path)
    assert len(rows) == 60
    assert all(labels == [gold] for _, _, gold, labels in rows)


def test_two_people_never_get_the_same_text(browser: Browser, start: Callable[..., str], tmp_path: Path) -> None:
    address = start("--people", ",".join(PEOPLE))
    tokens = json.loads((tmp_path / "mine" / "people.json").read_text())
    contexts = [browser.new_context(reduced_motion="reduce") for _ in PEOPLE]
    pages = [context.new_page() for context in contexts]
    for page, name in zip(pages, PEOPLE, strict=True):
        page.goto(f"{address}/?token={tokens[name]}")
        ready(page)
        assert page.url == f"{address}/"  # the token is not in the address bar
    connection = sqlite3.connect(tmp_path / "mine" / "labels.sqlite")
    doubles = {text for (text,) in connection.execute("SELECT text FROM documents WHERE double")}
    connection.close()
    seen = [set[str](), set[str]()]
    for _ in range(15):
        for page, texts in zip(pages, seen, strict=True):
            texts.add(answer_rightly(page)[0])
    assert [len(texts) for texts in seen] == [15, 15]
    assert seen[0] & seen[1] <= doubles
    assert {user for _, user, _, _ in read_answers(tmp_path)} == set(PEOPLE)
    stranger = contexts[0].browser.new_context().new_page()
    stranger.goto(address)
    expect(stranger.get_by_role("alert")).to_contain_text("personal link")
    for context in contexts:
        context.close()


def test_a_killed_server_loses_no_answer(context: BrowserContext, start: Callable[..., str], tmp_path: Path) -> None:
    page = context.new_page()
    page.goto(start())
    given = [answer_rightly(page)[0] for _ in range(3)]
    given.append(ready(page))
    start.stop()  # type: ignore[attr-defined]
    press(page, "/", *GOLD[given[-1].split()[0]], "Enter", "Enter")
    expect(page.get_by_role("alert")).to_contain_text("Your answer is kept in this browser. Trying again in")
    start()
    expect(page.get_by_role("alert")).to_be_hidden()
    assert ready(page) not in given
    # The server stores the answer, but its reply is lost; nor does a reload lose the answer or repeat it.
    given.append(ready(page))
    page.route("**/answers", lambda route: (route.fetch(), route.abort()))
    press(page, "/", *GOLD[given[-1].split()[0]], "Enter", "Enter")
    expect(page.get_by_role("alert")).to_contain_text("Your answer is kept")
    page.unroute("**/answers")
    page.reload()
    assert ready(page) not in given
    rows = read_answers(tmp_path)
    assert (len(rows), len({document for document, *_ in rows})) == (5, 5)
    assert all(labels == [gold] for _, _, gold, labels in rows)
