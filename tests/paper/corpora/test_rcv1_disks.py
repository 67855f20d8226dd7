from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pytest

from hgclr.errors import InputError
from hgclr.paper.corpora import rcv1
from hgclr.paper.corpora.rcv1 import IdList, Portion, find_disks

TOKENS = ".I 2286\n.W\nrecov recov .I 1\nexcit\n\n.I 2288\n.W\nmexic\n\n"


def write_zip(path: Path, *names: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "<newsitem/>")


def test_archives_at_any_depth_in_the_order_of_their_names(tmp_path: Path) -> None:
    write_zip(tmp_path / "cd2" / "19970301.zip", "9newsML.xml")
    write_zip(tmp_path / "cd3" / "19960820.ZIP", "1newsML.xml")
    (tmp_path / "unpacked" / "19961224").mkdir(parents=True)
    (tmp_path / "unpacked" / "19961224" / "5newsML.xml").touch()
    (tmp_path / "unpacked" / "empty").mkdir()
    (tmp_path / "notes.txt").touch()
    disks = find_disks(tmp_path)
    assert [portion.where for portion in disks.portions] == [
        "cd3/19960820.ZIP",
        "unpacked/19961224",
        "cd2/19970301.zip",
    ]
    assert disks.others == [tmp_path / "notes.txt"]


@pytest.mark.parametrize("parts", range(1, 9))
def test_the_parts_of_a_place_are_all_of_it(parts: int) -> None:
    names = list("abcde")
    shares = [Portion(Path("p"), "p", part, parts).share(names) for part in range(parts)]
    assert [name for share in shares for name in share] == names
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_large_place_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rcv1, "FILES_A_PORTION", 2)
    monkeypatch.setattr(rcv1, "BYTES_A_PORTION", 100)
    for number in range(5):
        (tmp_path / f"{number}newsML.xml").touch()
    write_zip(tmp_path / "all.zip", "1newsML.xml")
    parts = -(-(tmp_path / "all.zip").stat().st_size // 100)
    found = [(portion.path.name, portion.part, portion.parts) for portion in find_disks(tmp_path).portions]
    assert found == sorted(
        [("all.zip", part, parts) for part in range(parts)] + [(tmp_path.name, part, 3) for part in range(3)]
    )


def test_a_truncated_archive_is_found_before_any_work(tmp_path: Path) -> None:
    path = tmp_path / "19960820.zip"
    write_zip(path, "1newsML.xml", "2newsML.xml")
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(
        InputError,
        match=r"19960820\.zip: truncated or not a zip file: File is not a zip file; copy it from the disk again",
    ):
        find_disks(tmp_path)


def test_no_archives(tmp_path: Path) -> None:
    (tmp_path / "rcv1.tar.xz").touch()
    with pytest.raises(InputError, match=r"no zip file and no XML file below this folder; .*unpack rcv1\.tar\.xz"):
        find_disks(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        find_disks(tmp_path / "rcv1.tar.xz")


def test_the_publishers_files_by_name(tmp_path: Path) -> None:
    write_zip(tmp_path / "19960820.zip", "1newsML.xml")
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "train.dat.gz").touch()
    disks = find_disks(tmp_path)
    assert disks.named("train.dat", "train.dat.gz", option="--train-ids") == tmp_path / "lists" / "train.dat.gz"
    with pytest.raises(InputError, match="there is no topics below this folder; name it with --topics"):
        disks.named("topics", option="--topics")


def test_ids_of_a_token_file(tmp_path: Path) -> None:
    path = tmp_path / "lyrl2004_tokens_train.dat"
    path.write_text(TOKENS)
    packed = tmp_path / "lyrl2004_tokens_train.dat.gz"
    packed.write_bytes(gzip.compress(TOKENS.encode()))
    assert IdList(path, mark=".I").ids == IdList(packed, mark=".I").ids == {2286, 2288}


def test_ids_that_were_not_found(tmp_path: Path) -> None:
    path = tmp_path / "ids.dat"
    path.write_text("2286\n\n2290\n2288\n")
    listed = IdList(path)
    listed.require({1, 2286, 2288, 2290})
    with pytest.raises(
        InputError, match=r"ids\.dat:3: document 2290 is not in the archives; check that the archives of"
    ):
        listed.require({2286, 2288})
    with pytest.raises(InputError, match=r"ids\.dat:1: document 2286 and 2 more that this file lists are not in the"):
        listed.require(set())


@pytest.mark.parametrize(
    ("text", "mark", "message"),
    [
        ("2286\n22x88\n", "", r"ids\.dat:2: '22x88' is no document id"),
        (".I 2286\n.W\nfoo\n.I\n", ".I", r"ids\.dat:4: '' is no document id"),
        ("foo\n", ".I", r"ids\.dat: no line '\.I' with an id in this file; check that it is the right file"),
        ("\n", "", r"ids\.dat: no id in this file"),
    ],
)
def test_bad_id_lists(tmp_path: Path, text: str, mark: str, message: str) -> None:
    (tmp_path / "ids.dat").write_text(text)
    with pytest.raises(InputError, match=message):
        IdList(tmp_path / "ids.dat", mark=mark)


def test_id_lists_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.dat: no such file"):
        IdList(tmp_path / "absent.dat")
    cut = tmp_path / "cut.dat.gz"
    cut.write_bytes(gzip.compress(TOKENS.encode() * 100)[:-12])
    with pytest.raises(InputError, match=r"cut\.dat\.gz:\d+: damaged or truncated gzip file: .*ended before"):
        IdList(cut, mark=".I")
    cut.write_text(TOKENS)
    with pytest.raises(InputError, match=r"cut\.dat\.gz:1: damaged or truncated gzip file: Not a gzipped file"):
        IdList(cut, mark=".I")
