"""A file: labelled in batches and given back, with its other columns, in its order."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.watched_page import Watched

expect = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright").expect

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

ROWS = [
    {"id": str(number), "text": text, "note": note}
    for number, (text, note) in enumerate(
        [
            ("a lens", "plain"),
            ('the "court", of\nlaw', 'with "quotes", a comma'),
            ("", "no text"),
            ("nothing that it knows", "über"),
            ("x" * 401, "too long"),
            *(("serve", f"row {n}") for n in range(5, 30)),
        ]
    )
]


@pytest.fixture
def files(page: Page) -> Page:
    """The page with the tab for files open."""
    page.get_by_role("tab", name="A file").click()
    return page


def choose(page: Page, name: str, content: str | bytes) -> None:
    data = content.encode() if isinstance(content, str) else content
    page.get_by_label("Choose a file").set_input_files({"name": name, "mimeType": "text/plain", "buffer": data})


def label(page: Page) -> None:
    page.get_by_role("button", name="Label the file").click()


def download(page: Page, tmp_path: Path) -> Path:
    with page.expect_download() as found:
        page.get_by_role("link", name="Download").click()
    path = tmp_path / found.value.suggested_filename
    found.value.save_as(path)
    return path


def table(rows: list[dict[str, str]], path: Path, **dialect: str) -> str:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], **dialect)
        writer.writeheader()
        writer.writerows(rows)
    return path.read_bytes().decode()


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "delimiter"), [("csv", ","), ("csv", ";"), ("tsv", "\t")])
def test_a_table_comes_back_labelled(
    files: Page, watched: Watched, classifier, tmp_path: Path, ending: str, delimiter: str
) -> None:
    choose(files, f"mine.{ending}", table(ROWS, tmp_path / "mine", delimiter=delimiter))
    expect(files.get_by_label("Column with the text")).to_have_value("text")
    label(files)
    path = download(files, tmp_path)
    assert path.name == f"mine-labelled.{ending}"
    with path.open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file, delimiter=delimiter, strict=True))
    assert list(found[0]) == ["id", "text", "note", "labels", "paths", "probabilities", "abstained", "error"]
    assert [{name: row[name] for name in ROWS[0]} for row in found] == ROWS
    for row in found:
        if row["error"]:
            assert row["labels"] == ""
            continue
        labels = classifier.predict([row["text"]])[0].labels
        assert row["labels"] == ";".join(predicted.id for predicted in labels)
        values = [float(value) for value in row["probabilities"].split(";") if value]
        assert values == pytest.approx([predicted.probability for predicted in labels], abs=6e-5)
    assert [row["error"] for row in found if row["error"]] == [
        "the text is empty",
        "the text is longer than 400 characters",
    ]
    assert found[0]["paths"] == "science > physics > optics"
    expect(files.locator("#progress-note")).to_contain_text("30 of 30 rows, 2 errors")
    sizes = [len(json.loads(request.post_data)["texts"]) for request in watched.sent("predict")]
    assert max(sizes) == 8  # as many as the service takes
    assert sum(sizes) == 28


@pytest.mark.slow
def test_json_lines_keep_what_they_hold(files: Page, tmp_path: Path, classifier) -> None:
    rows = [
        {"n": 1, "body": "a prism", "tags": ["a", {"b": None}]},
        {"n": 2, "body": 7},
        {"body": "salt", "prediction": 0},
    ]
    choose(files, "mine.jsonl", "\n".join(map(json.dumps, rows)))
    expect(files.get_by_label("Column with the text")).to_have_value("body")  # the one with the longest cells
    label(files)
    found = [json.loads(line) for line in download(files, tmp_path).read_text(encoding="utf-8").splitlines()]
    assert [{name: row[name] for name in given} for row, given in zip(found, rows, strict=True)] == rows
    # One column has the name already.
    assert found[0]["prediction_2"] == classifier.predict("a prism").to_json()
    assert found[1]["error"] == "there is no text"


@pytest.mark.slow
def test_plain_lines_become_a_table(files: Page, tmp_path: Path) -> None:
    choose(files, "mine.txt", "lens, prism\r\n\r\njudge\n")
    label(files)
    path = download(files, tmp_path)
    assert path.name == "mine-labelled.csv"
    with path.open(newline="", encoding="utf-8") as file:
        assert [row["text"] for row in csv.DictReader(file)] == ["lens, prism", "", "judge"]


@pytest.mark.slow
def test_settings_of_the_page_hold_for_files(files: Page, tmp_path: Path) -> None:
    files.get_by_label("Threshold").fill("0.8")
    files.get_by_label("Abstain below").fill("0.96")
    choose(files, "mine.txt", "lens")
    label(files)
    with download(files, tmp_path).open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert (row["labels"], row["abstained"]) == ("", "science;physics")


BAD_FILES = [
    ("a.csv", b"text\n\xff\xfa\n", "This file is not UTF-8. Save it as UTF-8 and choose it again."),
    ("a.csv", b"a,b\n1,2\n3\n", "Row 2 has 1 cells, the header has 2."),
    ("a.csv", b"a,a\n1,2\n", "Two columns are called “a”. Rename one of them."),
    ("a.csv", b'a,b\n1,"2\n', "A quotation mark in row 1 is never closed."),
    ("a.csv", b"a,b\n", "There is no row in this file."),
    ("a.jsonl", b'{"a": "b"}\n{"a"\n', "Line 2 is not JSON."),
    ("a.jsonl", b"[1]\n", "Line 1 is no JSON object."),
]


@pytest.mark.slow
def test_a_bad_file_is_refused_with_its_place(files: Page) -> None:
    for name, content, message in BAD_FILES:
        choose(files, name, content)
        expect(files.locator("#file-problem")).to_have_text(message)
        expect(files.get_by_role("button", name="Label the file")).to_be_hidden()


@pytest.mark.slow
def test_utf_16_as_spreadsheets_write_it_is_read(files: Page) -> None:
    choose(files, "a.tsv", "text\tn\nlens für\t1\n".encode("utf-16"))
    expect(files.get_by_role("cell", name="lens für")).to_be_visible()


@pytest.mark.slow
def test_a_busy_service_is_asked_again_after_the_time_it_wants(files: Page, watched: Watched, tmp_path: Path) -> None:
    refusals = iter([429, 503, 429])

    def refuse(route: Route) -> None:
        if (status := next(refusals, None)) is None:
            route.fallback()
        else:
            kind = {429: "overloaded", 503: "not_ready"}[status]
            route.fulfill(
                status=status, headers={"Retry-After": "0.1"}, json={"error": {"type": kind, "message": "not now"}}
            )

    files.route("**/predict", refuse)
    choose(files, "mine.txt", "lens\n" * 20)
    label(files)
    with download(files, tmp_path).open(newline="", encoding="utf-8") as file:
        labels = [row["labels"] for row in csv.DictReader(file)]
    assert labels == ["science;physics;optics"] * 20
    assert len(watched.sent("predict")) == 3 + 3  # three batches, three refusals


@pytest.mark.slow
def test_a_batch_that_is_refused_as_a_whole_fails_in_one_row_only(files: Page, tmp_path: Path) -> None:
    def refuse(route: Route) -> None:
        if "judge" in route.request.post_data:
            route.fulfill(status=422, json={"error": {"type": "invalid", "message": "no judges"}})
        else:
            route.fallback()

    files.route("**/predict", refuse)
    choose(files, "mine.txt", "lens\nlens\njudge\nlens\nlens\n")
    label(files)
    with download(files, tmp_path).open(newline="", encoding="utf-8") as file:
        assert [row["error"] for row in csv.DictReader(file)] == ["", "", "no judges", "", ""]


@pytest.mark.slow
def test_cancelling_keeps_what_is_done(files: Page, tmp_path: Path) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        """Let the first batch pass, and no other."""
        if held:
            held.append(route)
        else:
            held.append(route)
            route.fallback()

    files.route("**/predict", hold)
    choose(files, "mine.txt", "lens\n" * 20)
    label(files)
    expect(files.get_by_role("progressbar")).to_have_attribute("value", "0.4")
    files.get_by_role("button", name="Cancel").click()
    expect(files.locator("#progress-note")).to_have_text("Cancelled. 8 of 20 rows done.")
    with download(files, tmp_path).open(newline="", encoding="utf-8") as file:
        assert [bool(row["labels"]) for row in csv.DictReader(file)] == [True] * 8 + [False] * 12
    files.unroute("**/predict")
    files.get_by_role("button", name="Label it again").click()
    expect(files.locator("#progress-note")).to_contain_text("20 of 20 rows, in")


@pytest.mark.slow
def test_an_error_of_the_service_ends_it_with_what_is_done(files: Page) -> None:
    error = {"error": {"type": "internal", "message": "something went wrong here"}}
    files.route("**/predict", lambda route: route.fulfill(status=500, json=error))
    choose(files, "mine.txt", "lens\n")
    label(files)
    expect(files.locator("#progress-note")).to_have_text("Something went wrong here. 0 of 1 row done.")
    expect(files.get_by_role("link", name="Download")).to_be_hidden()
