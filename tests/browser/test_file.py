"""A file: labelled in batches and given back, with its other columns, in its order."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.watched_page import Watched

pytestmark = pytest.mark.slow

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


def download(page: Page, folder: Path) -> Path:
    with page.expect_download() as found:
        page.get_by_role("link", name="Download").click()
    path = folder / found.value.suggested_filename
    found.value.save_as(path)
    return path


def read(path: Path, delimiter: str = ",") -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter=delimiter, strict=True))


@pytest.mark.parametrize(("ending", "delimiter"), [("csv", ";"), ("tsv", "\t")])
def test_a_table_comes_back_labelled(
    files: Page, watched: Watched, classifier, tmp_path: Path, ending: str, delimiter: str
) -> None:
    with (tmp_path / "mine").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ROWS[0], delimiter=delimiter)
        writer.writeheader()
        writer.writerows(ROWS)
    choose(files, f"mine.{ending}", (tmp_path / "mine").read_bytes())
    expect(files.get_by_label("Column with the text")).to_have_value("text")
    label(files)
    path = download(files, tmp_path)
    assert path.name == f"mine-labelled.{ending}"
    found = read(path, delimiter)
    assert list(found[0]) == ["id", "text", "note", "labels", "paths", "probabilities", "abstained", "error"]
    assert [{name: row[name] for name in ROWS[0]} for row in found] == ROWS
    assert [place for place, row in enumerate(found) if row["error"]] == [2, 4]
    for row in found:
        if not row["error"]:
            labels = classifier.predict(row["text"]).to_json()["labels"]
            assert row["labels"] == ";".join(predicted["id"] for predicted in labels)
            assert row["probabilities"] == ";".join(str(predicted["probability"]) for predicted in labels)
    assert found[0]["paths"] == "science > physics > optics"
    expect(files.locator("#progress-note")).to_contain_text("30 of 30 rows, 2 errors")
    sizes = [len(json.loads(request.post_data)["texts"]) for request in watched.sent("predict")]
    assert (max(sizes), sum(sizes)) == (8, 28)  # as many at a time as the service takes


def workbook(rows: list[list[object]]) -> bytes:
    openpyxl = pytest.importorskip("openpyxl", reason="needs the extra data")
    made = openpyxl.Workbook()
    for row in rows:
        made.active.append(row)
        made.active.cell(made.active.max_row, 2).data_type = "s"
    made.save(content := io.BytesIO())
    return content.getvalue()


def test_a_workbook_comes_back_as_a_workbook_and_as_csv(files: Page, tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="needs the extra data")
    choose(files, "mine.xlsx", workbook([["id", "text"], [1.5, "a lens"], [2, "=court"]]))
    label(files)
    found = read(download(files, tmp_path))
    assert [row["text"] for row in found] == ["a lens", "'=court"]  # not a formula
    with files.expect_download() as saved:
        files.get_by_role("button", name="Download for Excel").click()
    assert saved.value.suggested_filename == "mine-labelled.xlsx"
    saved.value.save_as(tmp_path / "mine.xlsx")
    header, *rows = openpyxl.load_workbook(tmp_path / "mine.xlsx").active.iter_rows()
    assert [cell.value for cell in header[:3]] == ["id", "text", "labels"]
    assert [[cell.value for cell in row[:3]] for row in rows] == [
        [1.5, "a lens", "science;physics;optics"],
        [2, "=court", "society;law"],
    ]
    assert rows[1][1].data_type == "s"
    choose(files, "mine.xlsx", b"no workbook")
    expect(files.locator("#file-problem")).to_contain_text("not an XLSX file")


def test_a_table_keeps_its_delimiter_and_its_mark(files: Page, tmp_path: Path) -> None:
    for mark in ("\ufeff", ""):
        choose(files, "mine.csv", f"{mark}id;text\n1;lens\n".encode())
        label(files)
        content = download(files, tmp_path).read_bytes().decode()
        assert content.startswith(f"{mark}id;text;labels;paths")


def test_a_review_gives_training_rows(files: Page, tmp_path: Path) -> None:
    """With the keyboard: the rows that need it most, accepted or corrected."""
    hostile = '<img src=x onerror=alert(1)> "judge", =1+1'
    choose(files, "mine.jsonl", "\n".join(json.dumps({"text": text}) for text in ("lens prism", hostile, "of", "")))
    label(files)
    review = files.get_by_role("region", name="Review")
    expect(review.locator("#review-count")).to_have_text("0 of 3 rows accepted")  # one has no text
    expect(review.locator("#review-row")).to_have_text("Row 2 · near the threshold")
    text = review.get_by_role("region", name="Text of the row")
    expect(text).to_have_text(hostile)
    assert files.locator("img[src=x]").count() == 0
    accept = review.get_by_role("button", name="Accept")
    law = review.get_by_role("checkbox", name="law")
    expect(law).to_be_checked()
    law.focus()
    files.keyboard.press("Space")
    expect(law).to_be_focused()
    expect(law).not_to_be_checked()
    expect(accept).to_be_disabled()  # no label
    review.get_by_role("combobox", name="Add another label").focus()
    files.keyboard.type("chem")
    files.keyboard.press("Enter")
    expect(review.get_by_role("checkbox", name="chemistry")).to_be_checked()
    accept.focus()
    files.keyboard.press("Enter")
    expect(accept).to_be_focused()
    expect(text).not_to_have_text(hostile)
    expect(files.locator("[aria-live=polite]")).to_contain_text("Row ")
    review.get_by_role("button", name="Previous").click()
    expect(review.locator("#review-row")).to_have_text("Row 2 · near the threshold · accepted")
    for _ in range(2):
        review.get_by_role("button", name="Next").click()
    expect(review.get_by_role("button", name="Next")).to_be_disabled()
    with files.expect_download() as saved:
        review.get_by_role("link", name="Download training rows").click()
    assert saved.value.suggested_filename == "mine-reviewed.jsonl"
    saved.value.save_as(tmp_path / "rows.jsonl")
    (row,) = map(json.loads, (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines())
    assert row == {"text": hostile, "labels": ["chemistry"]}
    choose(files, "other.txt", "lens")
    expect(review).to_be_hidden()


def test_a_bad_file_is_refused_with_its_place(files: Page) -> None:
    for name, content, part in (
        ("a.csv", b"text\n\xff\xfa\n", "not UTF-8"),
        ("a.csv", b"a,b\n1,2\n3\n", "Row 2"),
        ("a.csv", b"a,a\n1,2\n", "“a”"),
        ("a.csv", b'a,b\n1,"2\n', "row 1"),
        ("a.csv", b"a,b\n", "no row"),
        ("a.jsonl", b'{"a": "b"}\n{"a"\n', "Line 2"),
        ("a.jsonl", b"[1]\n", "Line 1"),
    ):
        choose(files, name, content)
        expect(files.locator("#file-problem")).to_contain_text(part)
        expect(files.get_by_role("button", name="Label the file")).to_be_hidden()
    choose(files, "a.tsv", "text\tn\nlens für\t1\n".encode("utf-16"))  # as spreadsheets write it
    expect(files.get_by_role("cell", name="lens für")).to_be_visible()


def test_a_busy_service_is_asked_again_and_a_refused_batch_fails_in_one_row(
    files: Page, watched: Watched, tmp_path: Path
) -> None:
    statuses = iter([(429, "overloaded"), (503, "not_ready"), (429, "overloaded")])

    def refuse(route: Route) -> None:
        if (busy := next(statuses, None)) is not None:
            error = {"error": {"type": busy[1], "message": "not now"}}
            route.fulfill(status=busy[0], headers={"Retry-After": "0.1"}, json=error)
        elif "judge" in route.request.post_data:
            route.fulfill(status=422, json={"error": {"type": "invalid", "message": "no judges"}})
        else:
            route.fallback()

    files.route("**/predict", refuse)
    choose(files, "mine.txt", "lens\n" * 16 + "lens\njudge\nlens\n")
    label(files)
    found = read(download(files, tmp_path))
    assert [row["error"] for row in found] == [""] * 17 + ["no judges", ""]
    assert [row["labels"] for row in found if not row["error"]] == ["science;physics;optics"] * 18


def test_cancelling_and_an_error_keep_what_is_done(files: Page, tmp_path: Path) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        """Let the first batch pass, and no other."""
        held.append(route)
        if len(held) == 1:
            route.fallback()

    files.route("**/predict", hold)
    choose(files, "mine.txt", "lens\n" * 20)
    label(files)
    expect(files.get_by_role("progressbar")).to_have_attribute("value", "0.4")
    files.get_by_role("button", name="Cancel").click()
    expect(files.locator("#progress-note")).to_have_text("Cancelled. 8 of 20 rows done.")
    assert [bool(row["labels"]) for row in read(download(files, tmp_path))] == [True] * 8 + [False] * 12
    files.unroute("**/predict")
    files.get_by_role("button", name="Label again").click()
    expect(files.locator("#progress-note")).to_contain_text("20 of 20 rows, in")
    error = {"error": {"type": "internal", "message": "something went wrong here"}}
    files.route("**/predict", lambda route: route.fulfill(status=500, json=error))
    files.get_by_role("button", name="Label again").click()
    expect(files.locator("#progress-note")).to_have_text("Something went wrong here. 0 of 20 rows done.")
    expect(files.get_by_role("link", name="Download")).to_be_hidden()
