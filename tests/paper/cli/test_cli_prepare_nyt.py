from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app

ARTICLE = b"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE nitf SYSTEM "http://www.nitf.org/IPTC/NITF/3.3/specification/dtd/nitf-3-3.dtd">
<nitf><head><docdata><identified-content>
<classifier class="online_producer" type="taxonomic_classifier">Top/News/Sports</classifier>
</identified-content></docdata></head><body><body.content>
<block class="full_text"><p>One.</p><p>Two.</p><p>Three.</p></block>
</body.content></body></nitf>"""


def run(*arguments: object):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["data", "prepare", "nyt", *map(str, arguments)])


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    source = tmp_path / "nyt_corpus"
    (source / "data/2006").mkdir(parents=True)
    with tarfile.open(source / "data/2006/12.tgz", "w:gz") as archive:
        for number, data in enumerate((ARTICLE, ARTICLE, ARTICLE, b"<nitf>")):
            entry = tarfile.TarInfo(f"12/24/{number}.xml")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    lists = tmp_path / "lists"
    lists.mkdir()
    for name, ids in (("train", (0, 3)), ("val", (1,)), ("test", (2,))):
        (lists / f"idnewnyt_{name}.json").write_text("".join(f"Nytimes/2006/{number}.xml\n" for number in ids))
    (lists / "nyt_label.vocab").write_text("Top/News\nTop/News/Sports\n")
    return source


def test_prepare_nyt(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    result = run("--source", corpus, "--ids", tmp_path / "lists", "--output", output)
    assert result.exit_code == 0
    assert result.stdout == f"wrote {output}: train 1, dev 1, test 1\n"
    assert result.stderr == f"left out 1 document: broken XML; see {output / 'left-out.jsonl'}\n"
    with gzip.open(output / "test.jsonl.gz", "rt") as lines:
        assert json.loads(lines.read()) == {
            "id": "2",
            "text": "One. Two. Three.",
            "labels": ["Top/News", "Top/News/Sports"],
        }


def test_options(corpus: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("Top/News\n")
    result = run(
        *("--source", corpus, "--ids", tmp_path / "lists", "--labels", labels, "--text", "literature"),
        *("--output", tmp_path / "out"),
    )
    assert result.exit_code == 0
    with gzip.open(tmp_path / "out/dev.jsonl.gz", "rt") as lines:
        assert json.loads(lines.read()) == {"id": "1", "text": "Two.Three.", "labels": ["Top/News"]}


def test_errors_are_one_line(corpus: Path, tmp_path: Path) -> None:
    result = run("--source", corpus, "--output", tmp_path / "out")
    assert result.exit_code == 2
    assert result.stderr == (
        f"error: {corpus / 'idnewnyt_train.json'}: no such file; "
        "--ids takes the folder with idnewnyt_train.json, idnewnyt_val.json, idnewnyt_test.json\n"
    )
    archive = corpus / "data/2006/12.tgz"
    archive.write_bytes(archive.read_bytes()[:-20])
    result = run("--source", corpus, "--ids", tmp_path / "lists", "--output", tmp_path / "out")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {archive}: the archive is damaged or cut short after member ")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_help_tells_what_to_give() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for word in ("LDC2008T19", "idnewnyt_train.json", "nyt_label.vocab", "literature"):
        assert word in result.stdout
