"""Workbooks from CSV and back: typed cells, no formulas, and limits on what a small file may unpack to."""

from __future__ import annotations

import csv
import io
import zipfile
from concurrent.futures import CancelledError

import httpx
import pytest

from hgclr.serving import workbooks
from support.fake_service import fake_service

openpyxl = pytest.importorskip("openpyxl", reason="needs the extra data")

CELLS = ["text", "=1+1", "12", "-0.5", "007", "1e999", "nan", 'a "quote", a comma', "two\nlines", "Ω", ""]


def table(rows: list[list[str]]) -> bytes:
    csv.writer(content := io.StringIO(newline="")).writerows(rows)
    return content.getvalue().encode()


def workbook(rows: list[list[object]]) -> bytes:
    made = openpyxl.Workbook()
    for row in rows:
        made.active.append(row)
    made.save(content := io.BytesIO())
    return content.getvalue()


def convert(client: httpx.Client, content: bytes, kind: str) -> httpx.Response:
    return client.post("/workbook", content=content, headers={"Content-Type": kind})


def test_a_table_becomes_a_workbook_and_comes_back(client: httpx.Client) -> None:
    answer = convert(client, table([CELLS, ["x", *CELLS[1:-1], "end"]]), workbooks.CSV)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, workbooks.WORKBOOK)
    first, _ = openpyxl.load_workbook(io.BytesIO(answer.content)).active.iter_rows()
    assert [cell.value for cell in first[2:5]] == [12, -0.5, "007"]
    assert {cell.data_type for cell in first[:2]} == {"s"}  # a text, not a formula
    back = convert(client, answer.content, workbooks.WORKBOOK)
    assert back.headers["Content-Type"].startswith(workbooks.CSV)
    rows = list(csv.reader(io.StringIO(back.text, newline=""), strict=True))
    assert rows == [CELLS[:-1], ["x", *CELLS[1:-1], "end"]]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"no workbook", workbooks.WORKBOOK),
        (b"PK\x03\x04 damaged", workbooks.WORKBOOK),
        (b"", workbooks.WORKBOOK),
        (b"\xff\xfe", workbooks.CSV),
        (b'a,"b', workbooks.CSV),
        (table([["x" * 40_000]]), workbooks.CSV),  # longer than a cell of Excel
        (b"{}", "application/json"),
    ],
)
def test_what_is_no_table_is_refused(client: httpx.Client, content: bytes, kind: str) -> None:
    answer = convert(client, content, kind)
    assert (answer.status_code, answer.json()["error"]["type"]) == (422, "invalid")


def test_a_workbook_that_unpacks_to_too_much_is_refused() -> None:
    bomb = io.BytesIO(workbook([["text"]]))
    with zipfile.ZipFile(bomb, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/media/zeros", b"0" * 400_000)
    rows = workbook([["x" * 10_000]] * 100)  # the archive has the text once, its CSV would have 1 MB
    with fake_service(body_bytes=20_000) as (client, _):
        for content in (bomb.getvalue(), rows):
            assert len(content) < 20_000
            assert convert(client, content, workbooks.WORKBOOK).status_code == 422
        assert convert(client, workbook([["text"]]), workbooks.WORKBOOK).text == "text\r\n"


def test_dropped_work_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def unwanted() -> None:
        raise CancelledError

    with pytest.raises(CancelledError):
        workbooks.to_csv(workbook([["a"]]), 10**6, unwanted)
    with pytest.raises(CancelledError):
        workbooks.to_workbook(b"a\n", unwanted)


def test_without_openpyxl_the_service_says_what_to_install(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    for content, kind in ((workbook([["a"]]), workbooks.WORKBOOK), (b"a\n", workbooks.CSV)):
        answer = convert(client, content, kind)
        assert answer.status_code == 422
        assert "pip install" in answer.json()["error"]["message"]
