from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hgclr.cli.app import app

ITEM = """<?xml version="1.0" encoding="iso-8859-1" ?>
<newsitem itemid="{number}" id="root" date="1996-08-20" xml:lang="en">
<title>MEXICO: A title.</title>
<text>
<p>One.</p>
<p>Two.</p>
</text>
<metadata>
<codes class="bip:countries:1.0">
  <code code="MEX"/>
</codes>
<codes class="bip:topics:1.0">
  <code code="{topic}"/>
</codes>
</metadata>
</newsitem>
"""
TOPICS = """\
parent: None    child: Root    child-description: No Description
parent: Root    child: GCAT    child-description: GOVERNMENT/SOCIAL
parent: GCAT    child: GCRIM   child-description: CRIME, LAW ENFORCEMENT
"""


@pytest.fixture
def disks(tmp_path: Path) -> Path:
    source = tmp_path / "disks"
    (source / "cd1").mkdir(parents=True)
    with zipfile.ZipFile(source / "cd1" / "19960820.zip", "w") as archive:
        for number in (2286, 2287, 2288):
            archive.writestr(f"{number}newsML.xml", ITEM.format(number=number, topic="GCRIM"))
        archive.writestr("2289newsML.xml", ITEM.format(number=2289, topic="1POL"))
    (source / "lyrl2004_tokens_train.dat").write_text(".I 2286\n.W\nfoo\n\n.I 2287\n.W\nfoo\n")
    (source / "rcv1.topics.hier.orig").write_text(TOPICS)
    return source


def run(*arguments: object):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["data", "prepare", "rcv1", *map(str, arguments)])


def test_prepare(disks: Path, tmp_path: Path) -> None:
    output = tmp_path / "data"
    result = run("--source", disks, "--output", output, "--workers", 1)
    assert result.exit_code == 0
    assert result.stdout == f"wrote {output}: train 1, dev 1, test 1\n"
    messages = " ".join(result.stderr.split())
    assert "dropped topics that rcv1.topics.hier.orig does not have (in so many documents): 1POL (1)" in messages
    assert "RCV1-v2 has 804,414 documents, this corpus 3" in messages
    assert f"left out 1 document: no topic that the topic file has; see {output / 'left-out.jsonl'}" in messages


def test_options(disks: Path, tmp_path: Path) -> None:
    for name in ("lyrl2004_tokens_train.dat", "rcv1.topics.hier.orig"):
        (disks / name).rename(tmp_path / name)
    (tmp_path / "ids.dat").write_text("2286\n2287\n2288\n")
    output = tmp_path / "data"
    result = run(
        *("--source", disks, "--output", output, "--workers", 1),
        *("--train-ids", tmp_path / "lyrl2004_tokens_train.dat", "--topics", tmp_path / "rcv1.topics.hier.orig"),
        *("--ids", tmp_path / "ids.dat", "--label-names", "descriptions", "--text", "literature"),
    )
    assert result.exit_code == 0
    with gzip.open(output / "test.jsonl.gz", "rt") as file:
        assert [json.loads(line) for line in file] == [{"id": "2288", "text": "One.Two.", "labels": ["GCAT", "GCRIM"]}]
    tree = json.loads((output / "taxonomy.json").read_text())
    assert [label["name"] for label in tree["labels"]] == ["GOVERNMENT/SOCIAL", "CRIME, LAW ENFORCEMENT"]


def test_bad_input_is_one_line_and_exit_code_2(disks: Path, tmp_path: Path) -> None:
    archive = disks / "cd1" / "19960820.zip"
    archive.write_bytes(archive.read_bytes()[:-40])
    result = run("--source", disks, "--output", tmp_path / "data")
    assert result.exit_code == 2
    assert (
        result.stderr
        == f"error: {archive}: truncated or not a zip file: File is not a zip file; copy it from the disk again\n"
    )
    assert not (tmp_path / "data").exists()


def test_help_teaches() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for option in ("--source", "--output", "--train-ids", "--topics", "--label-names", "--text", "--ids", "--workers"):
        assert option in result.stdout
