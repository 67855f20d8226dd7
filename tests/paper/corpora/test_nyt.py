from __future__ import annotations

import gzip
import io
import json
import tarfile
import xml.dom.minidom
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from hgclr.paper.corpora.news_xml import parse
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.data import DataFolder
from hgclr.errors import InputError
from hgclr.paper.corpora import nyt
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


def test_the_tree_is_that_of_the_label_list(corpus: Path, tmp_path: Path) -> None:
    build_nyt(corpus, tmp_path / "out")
    tree = DataFolder(tmp_path / "out").taxonomy
    assert tree.ids == (
        "Top/Features",
        "Top/News",
        "Top/News/Sports",
        "Top/News/Sports/Baseball",
        "Top/Features/Arts",
    )
    assert tree.names == ("Features", "News", "Sports", "Baseball", "Arts")
    assert tree.parents.tolist() == [-1, -1, 1, 2, 0]


def test_the_same_corpus_gives_the_same_bytes(corpus: Path, tmp_path: Path) -> None:
    first = build_nyt(corpus, tmp_path / "first").output
    second = build_nyt(corpus, tmp_path / "second").output
    assert {path.name: path.read_bytes() for path in first.iterdir()} == {
        path.name: path.read_bytes() for path in second.iterdir()
    }
    build_nyt(corpus, first, text="literature")  # over an earlier build
    assert texts(first) == ["Kept.", "Kept."]


@pytest.mark.parametrize(
    ("packed", "member"),
    [
        ("data/2006/12.tgz", "12/24/1815754.xml"),  # as published
        ("2006/12.tgz", "./12/24/1815754.xml"),  # --source is the folder "data"
        ("data/2006/12/12.tar.gz", "1815754.xml"),
        (None, "data/2006/12/24/1815754.xml"),  # unpacked
        (None, "2006/1815754.xml"),
        (None, "Nytimes/2006/1815754.xml"),  # as the literature's program wants it
    ],
)
def test_places_where_a_document_may_be(packed: str | None, member: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    folder = member.rpartition("/")[0]
    for name in (member, f"{folder}/1.xml", f"{folder}/2.xml") if packed is None else ():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(article(SPORTS))
    if packed is not None:
        pack(source / packed, dict.fromkeys((member, "12/31/1.xml", "12/31/2.xml"), article(SPORTS)))
    write_lists(tmp_path / "lists", ["2006/1815754"], ["2006/1"], ["2006/2"])
    build_nyt(source, tmp_path / "out", ids=tmp_path / "lists")
    assert [row["id"] for split in rows(tmp_path / "out").values() for row in split] == ["1815754", "1", "2"]


def test_lists_in_other_places_and_with_other_line_ends(corpus: Path, tmp_path: Path) -> None:
    lists = tmp_path / "lists"
    write_lists(lists, ["2006/1815754"], ["1987/0000001"], [])
    (lists / "nyt_label.vocab").unlink()
    (lists / "idnewnyt_test.json").write_bytes(b"\r\n 1987/0000002.xml \r\n2006/1800001.xml")
    (tmp_path / "labels.txt").write_bytes(b"Top\r\nTop/News\r\nTop/News/Sports\r\n")
    summary = build_nyt(corpus, tmp_path / "out", ids=lists, labels=tmp_path / "labels.txt")
    assert summary.documents == {"train": 1, "dev": 1, "test": 1}
    assert summary.left_out == {"no label of the list": 1}
    assert DataFolder(summary.output).taxonomy.ids == ("Top/News", "Top/News/Sports")


def build_one(tmp_path: Path, *articles: bytes, **options: object) -> Path:
    """Build a corpus in which these are the training documents; return its folder."""
    members = {f"01/01/{number}.xml": data for number, data in enumerate(articles)}
    pack(
        tmp_path / "source/data/2000/01.tgz",
        members | {"01/01/98.xml": article(SPORTS), "01/01/99.xml": article(SPORTS)},
    )
    write_lists(tmp_path / "source", [f"2000/{n}" for n in range(len(articles))], ["2000/98"], ["2000/99"])
    return build_nyt(tmp_path / "source", tmp_path / "out", **options).output


MARKUP = article(
    SPORTS,
    abstract="<abstract>\n<p>An abstract.</p>\n</abstract>",
    lead="<p>The caf&eacute;&#8217;s lead.</p>",
    text="<p>The caf&eacute;&#8217;s lead.</p>\n<p/>\n"
    '<p>  He\n  said <em>&ldquo;so <a href="x">it</a> is&rdquo;</em> &mdash; twice.</p><p>Yes.</p><p>Yes.</p>',
)


def test_full_text(tmp_path: Path) -> None:
    assert texts(build_one(tmp_path, MARKUP)) == ["An abstract. The café’s lead. He said “so it is” — twice. Yes. Yes."]


def test_literature_text(tmp_path: Path) -> None:
    # The first <p> is the abstract here; the lead comes twice, and nothing stands between the paragraphs.
    assert texts(build_one(tmp_path, MARKUP, text="literature")) == [
        "The café’s lead.The café’s lead. He said “so it is” — twice.Yes.Yes."
    ]


def test_a_lead_that_the_full_text_does_not_repeat_is_kept(tmp_path: Path) -> None:
    leads = "<p>Alone.</p><p>Both.</p><p>Alone.</p>"
    assert texts(build_one(tmp_path, article(SPORTS, lead=leads, text="<p>Both.</p><p>More.</p>"))) == [
        "Alone. Both. More."
    ]


def test_an_empty_first_paragraph_is_the_one_the_literature_drops(tmp_path: Path) -> None:
    assert texts(build_one(tmp_path, article(SPORTS, text="<p/><p>A.</p><p>B.</p>"), text="literature")) == ["A.B."]


def test_latin_1(tmp_path: Path) -> None:
    data = article(SPORTS, text="<p>Dvořák</p>".replace("ř", "r"), encoding="ISO-8859-1")
    assert "á".encode("latin-1") in data
    assert "á".encode() not in data
    assert texts(build_one(tmp_path, data)) == ["Dvorák"]


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
        (f"{archive}:01/01/0.xml", "no label of the list", None),
        (f"{archive}:01/01/1.xml", "no label of the list", None),
        (f"{archive}:01/01/2.xml", "no label of the list", "Top/Opinion, Top/Opinion/Letters"),
        (f"{archive}:01/01/3.xml", "no text", None),
        (f"{archive}:01/01/4.xml", "broken XML", f"no element found: line {len(lines)}, column {len(last_line)}"),
        (f"{archive}:01/01/6.xml", "broken XML", "no element found: line 1, column 0"),
    ]
    assert [row["id"] for row in rows(folder)["train"]] == ["5"]
    record = json.loads((folder / "corpus.json").read_text())
    assert record["left_out"] == {"no label of the list": 3, "no text": 1, "broken XML": 2}


def test_only_the_literature_loses_documents_of_one_paragraph(tmp_path: Path) -> None:
    short, long = article(SPORTS, text="<p>One.</p>"), article(SPORTS)
    assert texts(build_one(tmp_path, short, long)) == ["One.", "Dropped. Kept."]
    assert texts(build_one(tmp_path, short, long, text="literature")) == ["Kept."]


def test_documents_that_are_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = article(SPORTS, text=f"<p>{'x' * 5000}</p>")
    monkeypatch.setattr(nyt, "LARGEST", 4000)
    folder = build_one(tmp_path, large, article(SPORTS))
    assert [(row["where"].rpartition(":")[2], row["reason"]) for row in left_out(folder)] == [
        ("01/01/0.xml", "larger than 64 MB")
    ]
    loose = tmp_path / "source/data/2000/0.xml"
    loose.write_bytes(large)
    folder = build_nyt(tmp_path / "source", folder).output
    assert [row["where"] for row in left_out(folder)] == [str(loose)]


def test_links_and_folders_in_an_archive_are_not_documents(corpus: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.xml"
    secret.write_bytes(article(SPORTS, text="<p>Secret.</p>"))
    with tarfile.open(corpus / "data/2006/00.tgz", "w:gz") as archive:  # is read before the true one
        for kind, target in ((tarfile.SYMTYPE, str(secret)), (tarfile.LNKTYPE, str(secret)), (tarfile.DIRTYPE, "")):
            entry = tarfile.TarInfo("12/24/1815754.xml")
            entry.type, entry.linkname = kind, target
            archive.addfile(entry)
    assert texts(build_nyt(corpus, tmp_path / "out").output) == ["Dropped. Kept."] * 2


def test_the_first_of_several_files_is_taken(corpus: Path, tmp_path: Path) -> None:
    again = {"12/25/1815754.xml": article(SPORTS, text="<p>Later.</p>")}
    pack(corpus / "data/2006/13.tgz", again)
    assert texts(build_nyt(corpus, tmp_path / "out").output)[0] == "Dropped. Kept."
    (corpus / "data/2006/1815754.xml").write_bytes(article(SPORTS, text="<p>Loose.</p>"))
    assert texts(build_nyt(corpus, tmp_path / "out").output)[0] == "Loose."


def test_archives_that_are_not_needed_are_not_read(corpus: Path, tmp_path: Path) -> None:
    (corpus / "data/1987/02.tgz").write_bytes(b"no archive")  # 1987 is complete after January
    (corpus / "data/1988").mkdir()
    (corpus / "data/1988/01.tgz").write_bytes(b"no archive")
    (corpus / "data/2006/._12.tgz").write_bytes(b"no archive, but what macOS leaves behind")
    steps: list[tuple[int, int | None]] = []
    build_nyt(corpus, tmp_path / "out", progress=lambda done, total: steps.append((done, total)))
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_nothing_is_unpacked(corpus: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    build_nyt(corpus, tmp_path / "out")
    new = set(tmp_path.rglob("*")).difference(before)
    assert {path.relative_to(tmp_path / "out").name for path in new if path != tmp_path / "out"} == {
        "taxonomy.json",
        "corpus.json",
        "train.jsonl.gz",
        "dev.jsonl.gz",
        "test.jsonl.gz",
    }


def check_refused(corpus: Path, match: str) -> InputError:
    output = corpus.parent / "out"
    with pytest.raises(InputError, match=match) as caught:
        build_nyt(corpus, output)
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
    error = check_refused(corpus, "the archive is damaged or cut short")
    assert error.path == path
    assert error.remedy == "copy it again"
    assert ("before the first member" in error.what) == (share == 0.0)
    if share == 0.999:  # the folder, fifty files, the article
        assert "after member 52, '12/24/1815754.xml': " in error.what


def test_an_archive_with_a_flipped_bit(corpus: Path) -> None:
    path = corpus / "data/2006/12.tgz"
    data = bytearray(path.read_bytes())
    data[-8] ^= 1  # in the check sum
    path.write_bytes(data)
    check_refused(corpus, r"12\.tgz: the archive is damaged or cut short after member 3, .*CRC")


def test_a_file_that_is_no_archive(corpus: Path) -> None:
    (corpus / "data/2006/12.tgz").write_bytes(b"<html>Please log in</html>")
    check_refused(corpus, "damaged or cut short before the first member: Not a gzipped file")


def test_missing_documents(corpus: Path) -> None:
    with (corpus / "idnewnyt_val.json").open("a") as file:
        file.write("\nNytimes/2006/7.xml\nNytimes/1987/8.xml\n")
    error = check_refused(corpus, "7")
    assert str(error) == (
        f"{corpus / 'idnewnyt_val.json'}:3: 'Nytimes/2006/7.xml' is not in {corpus}, "
        "nor is 1 more of the listed documents; check that --source holds the whole corpus, all years and months of it"
    )


def test_a_missing_year_is_noticed_before_anything_is_read(corpus: Path) -> None:
    with (corpus / "idnewnyt_test.json").open("a") as file:
        file.write("Nytimes/1999/1.xml\n")
    for path in corpus.rglob("*.tgz"):
        path.write_bytes(b"would be an error if it were read")
    check_refused(corpus, rf"idnewnyt_test\.json:2: 'Nytimes/1999/1\.xml' is not in {corpus}; check")
    with (corpus / "idnewnyt_test.json").open("a") as file:
        file.write("Nytimes/1999/2.xml\nNytimes/1999/3.xml\n")
    check_refused(corpus, "nor are 2 more of the listed documents")


def test_a_document_listed_twice(corpus: Path, tmp_path: Path) -> None:
    with (corpus / "idnewnyt_train.json").open("a") as file:
        file.write("2006/1815754.xml\n")
    summary = build_nyt(corpus, tmp_path / "out")
    assert summary.documents["train"] == 2
    assert summary.left_out == Counter({"listed twice": 1})
    assert left_out(summary.output) == [
        {"where": f"{corpus / 'idnewnyt_train.json'}:3", "reason": "listed twice", "detail": "2006/1815754.xml"}
    ]


def test_a_document_in_two_splits(corpus: Path) -> None:
    with (corpus / "idnewnyt_test.json").open("a") as file:
        file.write("Nytimes/1987/0000001.xml\n")
    check_refused(
        corpus,
        r"test\.json:2: 'Nytimes/1987/0000001\.xml' is also in idnewnyt_train\.json \(line 2\); a document may",
    )


@pytest.mark.parametrize("line", ['{"token": []}', "Nytimes/2006/1815754", "1815754.xml", "Nytimes/06/1815754.xml"])
def test_lines_that_are_no_path(line: str, corpus: Path) -> None:
    (corpus / "idnewnyt_train.json").write_text(f"\nNytimes/1987/0000001.xml\n{line}\n")
    error = check_refused(corpus, r"train\.json:3: expected a path such as 'Nytimes/2006/1815754\.xml', found")
    assert error.what.endswith(repr(line))


def test_lists_that_are_missing_or_empty(corpus: Path) -> None:
    (corpus / "idnewnyt_val.json").write_text("\n")
    check_refused(corpus, r"idnewnyt_val\.json: the list names no document")
    (corpus / "idnewnyt_val.json").unlink()
    check_refused(corpus, r"idnewnyt_val\.json: no such file; --ids takes the folder with idnewnyt_train\.json, ")


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        ("Root\n\n", r"nyt_label\.vocab: the list names no label"),
        ("Top/News\nNews/Sports\n", r"vocab:2: expected a label path such as 'Top/News/Sports', found 'News/Sports'"),
        ("Top/News\nTop/News//Sports\n", "vocab:2: expected a label path"),
        ("Top/News/\n", "vocab:1: expected a label path"),
        ("Top/News\n\nTop/News/Sports/Golf\n", "vocab:3: the parent of 'Top/News/Sports/Golf' is not in the list; add"),
    ],
)
def test_label_lists_that_are_wrong(labels: str, match: str, corpus: Path) -> None:
    (corpus / "nyt_label.vocab").write_text(labels)
    check_refused(corpus, match)


def test_a_label_list_that_is_missing(corpus: Path) -> None:
    (corpus / "nyt_label.vocab").unlink()
    check_refused(corpus, r"nyt_label\.vocab: there is no such file")


def test_a_source_that_is_not_the_corpus(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="absent: no such folder; --source takes the folder nyt_corpus"):
        build_nyt(tmp_path / "absent", tmp_path / "out", ids=corpus)
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match="other: there is no folder of a year, such as 1987"):
        build_nyt(tmp_path / "other", tmp_path / "out", ids=corpus)
    assert not (tmp_path / "out").exists()


def test_an_interrupted_build_leaves_nothing_behind(corpus: Path, tmp_path: Path) -> None:
    def interrupt(done: int, total: int | None) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_nyt(corpus, tmp_path / "out", progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["nyt_corpus"]
    finished = build_nyt(corpus, tmp_path / "out").output
    before = {path.name: path.read_bytes() for path in finished.iterdir()}
    with pytest.raises(KeyboardInterrupt):
        build_nyt(corpus, finished, text="literature", progress=interrupt)
    assert {path.name: path.read_bytes() for path in finished.iterdir()} == before


def test_the_literatures_tree(shared_data: Path, tmp_path: Path) -> None:
    tree = Taxonomy.read(shared_data / "taxonomies/nyt.taxonomy")
    (tmp_path / "nyt_label.vocab").write_text("".join(f"{label}\n" for label in ("Root", *tree.ids)))
    built = read_label_list(tmp_path / "nyt_label.vocab")
    assert built == tree
    assert (len(built), built.depth) == (166, 8)
