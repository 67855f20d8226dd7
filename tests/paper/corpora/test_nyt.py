"""New York Times: documents by the lists, texts, labels, archives; bad input."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import xml.dom.minidom
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.data import DataFolder
from hgclr.errors import InputError
from hgclr.paper.corpora import parse
from hgclr.paper.corpora.nyt import build_nyt, literature_text, read_label_list
from hgclr.taxonomy import Taxonomy

HEADER = (
    '<?xml version="1.0" encoding="{encoding}"?>\n'
    '<!DOCTYPE nitf SYSTEM "http://www.nitf.org/IPTC/NITF/3.3/specification/dtd/nitf-3-3.dtd">\n'
)
BODY = """<nitf change.date="June 10, 2005" change.time="19:30" version="-//IPTC//DTD NITF 3.3//EN">
  <head>
    <title>A headline that is no paragraph</title>
    <meta content="1" name="publication_day_of_month"/>
    <docdata>
      <doc-id id-string="1815754"/>
      <identified-content>
        <classifier class="indexing_service" type="descriptor">Top/News/World</classifier>
        {classifiers}
      </identified-content>
    </docdata>
  </head>
  <body>
    <body.head>
      <hedline><hl1>A headline that is no paragraph</hl1></hedline>
      {abstract}
    </body.head>
    <body.content>
      <block class="lead_paragraph">
        {lead}
      </block>
      <block class="full_text">
        {text}
      </block>
    </body.content>
  </body>
</nitf>
"""
SPORTS = "Top/News/Sports"
LABELS = """Root
Top/Features
Top/News
Top/News/Sports

 Top/News/Sports/Baseball\t
Top/Features/Arts
Top/News
"""


def article(
    *paths: str, lead: str = "", text: str = "<p>Dropped.</p><p>Kept.</p>", abstract: str = "", encoding: str = "UTF-8"
) -> bytes:
    """A file of the corpus, as the publisher lays it out."""
    classifiers = "\n        ".join(
        f'<classifier class="online_producer" type="taxonomic_classifier">{path}</classifier>' for path in paths
    )
    body = BODY.format(classifiers=classifiers, lead=lead, text=text, abstract=abstract)
    return (HEADER.format(encoding=encoding) + body).encode(encoding)


def pack(path: Path, members: Mapping[str, bytes]) -> None:
    """Write a month's archive, with its folders as members of their own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for folder in sorted({name.rpartition("/")[0] for name in members}):
            entry = tarfile.TarInfo(folder)
            entry.type = tarfile.DIRTYPE
            archive.addfile(entry)
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def write_lists(folder: Path, train: list[str], dev: list[str], test: list[str], labels: str = LABELS) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, ids in (("train", train), ("val", dev), ("test", test)):
        (folder / f"idnewnyt_{name}.json").write_text("".join(f"Nytimes/{path}.xml\n" for path in ids))
    (folder / "nyt_label.vocab").write_text(labels)


def rows(folder: Path) -> dict[str, list[dict[str, object]]]:
    found = {}
    for split in ("train", "dev", "test"):
        with gzip.open(folder / f"{split}.jsonl.gz", "rt", encoding="utf-8") as lines:
            found[split] = [json.loads(line) for line in lines]
    return found


def texts(folder: Path, split: str = "train") -> list[object]:
    return [row["text"] for row in rows(folder)[split]]


def left_out(folder: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (folder / "left-out.jsonl").read_text().splitlines()]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Four documents in three archives, the lists beside them."""
    source = tmp_path / "nyt_corpus"
    pack(source / "data/1987/01.tgz", {"01/02/0000001.xml": article(SPORTS), "01/02/0000002.xml": article(SPORTS)})
    pack(source / "data/2006/01.tgz", {"01/31/1800001.xml": article("Top/Features/Arts")})
    pack(source / "data/2006/12.tgz", {"12/24/1815754.xml": article(SPORTS), "12/24/0000001.xml": b"another year"})
    write_lists(source, ["2006/1815754", "1987/0000001"], ["2006/1800001"], ["1987/0000002"])
    return source


def test_documents_stand_in_the_order_of_the_lists(corpus: Path, tmp_path: Path) -> None:
    summary = build_nyt(corpus, tmp_path / "out")
    assert summary.documents == {"train": 2, "dev": 1, "test": 1}
    assert summary.left_out == {}
    assert rows(tmp_path / "out") == {
        "train": [
            {"id": "1815754", "text": "Dropped. Kept.", "labels": ["Top/News", "Top/News/Sports"]},
            {"id": "0000001", "text": "Dropped. Kept.", "labels": ["Top/News", "Top/News/Sports"]},
        ],
        "dev": [{"id": "1800001", "text": "Dropped. Kept.", "labels": ["Top/Features", "Top/Features/Arts"]}],
        "test": [{"id": "0000002", "text": "Dropped. Kept.", "labels": ["Top/News", "Top/News/Sports"]}],
    }
    record = json.loads((tmp_path / "out/corpus.json").read_text())
    assert record["corpus"] == "nyt"
    assert record["settings"]["text"] == "full"
    data = DataFolder(tmp_path / "out")
    assert sum(1 for split in data.splits for _ in data.documents(split)) == 4


def build_one(tmp_path: Path, *articles: bytes, **options: object) -> Path:
    """Build a corpus in which these are the training documents; return its folder."""
    members = {f"01/01/{number}.xml": data for number, data in enumerate(articles)}
    pack(
        tmp_path / "source/data/2000/01.tgz",
        members | {"01/01/98.xml": article(SPORTS), "01/01/99.xml": article(SPORTS)},
    )
    write_lists(tmp_path / "source", [f"2000/{n}" for n in range(len(articles))], ["2000/98"], ["2000/99"])
    return build_nyt(tmp_path / "source", tmp_path / "out", **options).output


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.lists(st.text("ab .\n\t"), max_size=5))
def test_literature_text_is_what_the_dom_says(pieces: list[str]) -> None:
    data = article(SPORTS, text="".join(f"<p>{piece}.</p>" for piece in pieces))
    elements = xml.dom.minidom.parseString(data).getElementsByTagName("p")
    expected = ""
    for element in elements[1:]:
        expected += element.firstChild.data
    assert literature_text(parse(data)).split() == expected.split()


def test_labels(tmp_path: Path) -> None:
    folder = build_one(
        tmp_path,
        article(" Top/News/Sports/Baseball/Mets ", SPORTS, SPORTS),  # deeper than the list; twice
        article("Top/Features/Arts", "Top/News", "Top/News/World"),  # two segments; not in the list but its start
        article("Top/Features/Books/Arts", "Arts", "Features/Arts/Music"),  # only the start is in the list
    )
    assert [row["labels"] for row in rows(folder)["train"]] == [
        ["Top/News", "Top/News/Sports", "Top/News/Sports/Baseball"],
        ["Top/Features", "Top/News", "Top/Features/Arts"],
        ["Top/Features"],
    ]


def test_documents_that_cannot_be_used_are_left_out(tmp_path: Path) -> None:
    cut = article(SPORTS).partition(b"</body.content>")[0]
    folder = build_one(
        tmp_path,
        article(),  # no taxonomic classifier
        article("Top/News"),
        article("Top/Opinion/Letters"),
        article(SPORTS, text="<p> </p><p/>"),
        cut,
        article(SPORTS),
        b"",
    )
    archive = tmp_path / "source/data/2000/01.tgz"
    *_, last_line = lines = cut.splitlines()
    assert [(row["where"], row["reason"], row.get("detail")) for row in left_out(folder)] == [
        (f"{archive}:01/01/0.xml", "no label in the label list", None),
        (f"{archive}:01/01/1.xml", "no label in the label list", None),
        (f"{archive}:01/01/2.xml", "no label in the label list", "Top/Opinion, Top/Opinion/Letters"),
        (f"{archive}:01/01/3.xml", "no text", None),
        (f"{archive}:01/01/4.xml", "broken XML", f"no element found: line {len(lines)}, column {len(last_line)}"),
        (f"{archive}:01/01/6.xml", "broken XML", "no element found: line 1, column 0"),
    ]
    assert [row["id"] for row in rows(folder)["train"]] == ["5"]
    record = json.loads((folder / "corpus.json").read_text())
    assert record["left_out"] == {"no label in the label list": 3, "no text": 1, "broken XML": 2}


def test_links_and_folders_in_an_archive_are_not_documents(corpus: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.xml"
    secret.write_bytes(article(SPORTS, text="<p>Secret.</p>"))
    with tarfile.open(corpus / "data/2006/00.tgz", "w:gz") as archive:  # is read before the true one
        for kind, target in ((tarfile.SYMTYPE, str(secret)), (tarfile.LNKTYPE, str(secret)), (tarfile.DIRTYPE, "")):
            entry = tarfile.TarInfo("12/24/1815754.xml")
            entry.type, entry.linkname = kind, target
            archive.addfile(entry)
    assert texts(build_nyt(corpus, tmp_path / "out").output) == ["Dropped. Kept."] * 2


def check_refused(corpus: Path, path: Path, line: int | None = None) -> InputError:
    with pytest.raises(InputError) as caught:
        build_nyt(corpus, corpus.parent / "out")
    assert (caught.value.path, caught.value.line) == (path, line)
    assert {path.name for path in corpus.parent.iterdir()} == {corpus.name}
    return caught.value


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_truncated_archives(share: float, corpus: Path) -> None:
    path = corpus / "data/2006/12.tgz"
    noise = bytes(range(256)) * 8  # so that the cut is in the middle of the members
    members = {f"12/24/{number}.xml": noise + bytes([number]) * number for number in range(50)}
    pack(path, members | {"12/24/1815754.xml": article(SPORTS)})
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    error = check_refused(corpus, path)
    assert ("before the first member" in error.what) == (share == 0.0)
    if share == 0.999:  # the folder, fifty files, the article
        assert "after member 52, '12/24/1815754.xml': " in error.what


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("idnewnyt_val.json", "\n", None),
        ("idnewnyt_val.json", "2006/1800001.xml\nNytimes/2006/7.xml\n", 2),  # not in the corpus
        ("idnewnyt_val.json", "2006/1800001.xml\nNytimes/1987/0000001.xml\n", 2),  # in train, too
        ("idnewnyt_train.json", '{"token": []}\n', 1),
        ("nyt_label.vocab", "Root\n\n", None),
        ("nyt_label.vocab", "Top/News\nNews/Sports\n", 2),
        ("nyt_label.vocab", "Top/News\n\nTop/News/Sports/Golf\n", 3),  # its parent is not listed
    ],
)
def test_lists_that_are_wrong(name: str, content: str, line: int | None, corpus: Path) -> None:
    (corpus / name).write_text(content)
    check_refused(corpus, corpus / name, line)


def test_the_literatures_tree(shared_data: Path, tmp_path: Path) -> None:
    tree = Taxonomy.read(shared_data / "taxonomies/nyt.taxonomy")
    (tmp_path / "nyt_label.vocab").write_text("".join(f"{label}\n" for label in ("Root", *tree.ids)))
    built = read_label_list(tmp_path / "nyt_label.vocab")
    assert built == tree
    assert (len(built), built.depth) == (166, 8)
