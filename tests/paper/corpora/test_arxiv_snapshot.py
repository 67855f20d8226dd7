from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hgclr.errors import InputError
from hgclr.paper.corpora import arxiv
from hgclr.paper.corpora.arxiv import build_arxiv, records

NAME = "arxiv-metadata-oai-snapshot.json"
AGAIN = "; get the file again and compare its size with the publisher's"


def line(number: int) -> bytes:
    fields = {"id": str(number), "title": "T", "abstract": f"A {number * 7919}", "categories": "cs.CL", "doi": None}
    return json.dumps(fields).encode() + b"\n"


LINES = b"".join(line(number) for number in range(1, 3001))


def plain(folder: Path, content: bytes) -> Path:
    path = folder / NAME
    path.write_bytes(content)
    return path


def gzipped(folder: Path, content: bytes) -> Path:
    path = folder / f"{NAME}.gz"
    path.write_bytes(gzip.compress(content))
    return path


def zipped(folder: Path, content: bytes) -> Path:
    path = folder / "archive.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(NAME, content)
    return path


def error_of(source: Path) -> str:
    """Return the message, with a build that leaves nothing behind."""
    before = sorted(source.parent.iterdir())
    with pytest.raises(InputError) as caught:
        build_arxiv(source, source.parent / "out")
    assert sorted(source.parent.iterdir()) == before
    return str(caught.value)


@pytest.mark.parametrize("pack", [plain, gzipped, zipped])
def test_packed_or_not(tmp_path: Path, pack: Callable[[Path, bytes], Path]) -> None:
    source = pack(tmp_path, LINES)
    seen: list[int] = []
    found = list(records(source, seen.append))
    assert [(number, record["id"]) for number, record in found] == [(n, str(n)) for n in range(1, 3001)]
    assert seen == sorted(seen)
    assert len(seen) == 4
    assert seen[-1] == source.stat().st_size


def test_blank_lines_byte_order_marks_and_a_missing_last_line_end(tmp_path: Path) -> None:
    source = plain(tmp_path, b"\xef\xbb\xbf" + line(1) + b"\n \r\n" + line(2).rstrip())
    assert [number for number, _ in records(source)] == [1, 4]


def test_a_truncated_download(tmp_path: Path) -> None:
    source = plain(tmp_path, LINES[:-20])
    assert error_of(source) == f"{source}:3000: truncated: the file ends in the middle of a record{AGAIN}"
    source = gzipped(tmp_path, LINES[:-20])
    assert error_of(source) == f"{source}:3000: truncated: the file ends in the middle of a record{AGAIN}"


def test_truncated_archives(tmp_path: Path) -> None:
    source = gzipped(tmp_path, LINES * 4)
    source.write_bytes(source.read_bytes()[:-5000])
    message = error_of(source)
    assert message.startswith(f"{source}:")
    assert 1 < int(message.removeprefix(f"{source}:").partition(":")[0]) < 12_000
    assert ": damaged or truncated archive: cannot be unpacked from here on: " in message
    assert message.endswith(AGAIN)
    source = zipped(tmp_path, LINES)
    source.write_bytes(source.read_bytes()[:-5000])
    assert error_of(source) == f"{source}: damaged or truncated archive: File is not a zip file{AGAIN}"


def test_damaged_archives(tmp_path: Path) -> None:
    for pack in (gzipped, zipped):
        source = pack(tmp_path, LINES)
        content = bytearray(source.read_bytes())
        content[len(content) // 2] ^= 0xFF
        source.write_bytes(content)
        assert ": damaged or truncated archive: " in error_of(source) or ": broken record: " in error_of(source)


def test_archives_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    assert error_of(path) == f"{path}: 0 JSON files in the archive (none); unpack the snapshot"
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("a.json", line(1))
        archive.writestr("b.json", line(1))
    assert error_of(path) == f"{path}: 2 JSON files in the archive ('a.json', 'b.json'); unpack the snapshot"


def test_an_archive_with_a_password(tmp_path: Path) -> None:
    source = zipped(tmp_path, LINES)
    content = bytearray(source.read_bytes())
    for header, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flag "encrypted" of the format
        content[content.index(header) + flags] |= 1
    source.write_bytes(content)
    message = error_of(source)
    assert message.startswith(f"{source}: the archive cannot be unpacked: ")
    assert message.endswith("; unpack it yourself")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"id": "2",\n', "broken record: "),
        (b'{"id": "\xff"}\n', "broken record: "),
        (b"[" * 100_000 + b"\n", "broken record: "),
        (b"[]\n", "the record has no text 'id'; the file must be arXiv's metadata snapshot"),
        (b'{"id": "2", "title": "T", "categories": "cs.CL"}\n', "the record has no text 'abstract'"),
        (line(2).replace(b'"cs.CL"', b'["cs.CL"]'), "the record has no text 'categories'"),
    ],
)
def test_broken_records(tmp_path: Path, content: bytes, message: str) -> None:
    source = plain(tmp_path, line(1) + content + line(3))
    assert error_of(source).startswith(f"{source}:2: {message}")


def test_a_file_without_line_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arxiv, "LONGEST_LINE", 1000)
    assert len(list(records(plain(tmp_path, LINES)))) == 3000
    source = plain(tmp_path, line(1) + LINES.replace(b"\n", b","))
    assert error_of(source) == f"{source}:2: no line end in 1,000 bytes; the snapshot has one record a line"


def test_no_such_file(tmp_path: Path) -> None:
    remedy = "name arxiv-metadata-oai-snapshot.json, or its .gz or .zip"
    assert error_of(tmp_path / "absent.json") == f"{tmp_path / 'absent.json'}: no such file; {remedy}"
    (tmp_path / "folder").mkdir()
    assert error_of(tmp_path / "folder") == f"{tmp_path / 'folder'}: this is a folder; {remedy}"


def test_an_empty_file(tmp_path: Path) -> None:
    assert "no document for training was found" in error_of(plain(tmp_path, b""))
