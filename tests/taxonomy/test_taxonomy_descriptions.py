"""Descriptions of labels: in the tree, in its files, and joined from a table of their own."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import pytest

from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.changes import compare
from hgclr.taxonomy.descriptions import join_descriptions

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "arxiv"
needs_data = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared benchmark data is not beside this repository")

IDS, PARENTS, NAMES = ["s", "p", "l"], [-1, 0, -1], ["Science", "Physics", "Law"]
TREE = Taxonomy(IDS, PARENTS, NAMES)
TEXTS = ("", 'Matter, energy; "forces"', "Courts and statutes")
DESCRIBED = Taxonomy(IDS, PARENTS, NAMES, TEXTS)


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "about.txt"
    file.write_text(text)
    return file


def test_none_and_blank_are_no_description_and_white_space_is_single() -> None:
    assert TREE.descriptions == ("", "", "")
    assert Taxonomy(IDS, PARENTS, NAMES, [None, " \t\n", "  Courts\n and\r\n\tstatutes "]).descriptions == (
        "",
        "",
        "Courts and statutes",
    )


def test_descriptions_are_no_part_of_what_a_tree_is() -> None:
    assert DESCRIBED == TREE
    assert hash(DESCRIBED) == hash(TREE)
    assert not compare(TREE, DESCRIBED)


def test_copies_keep_them() -> None:
    for tree in (pickle.loads(pickle.dumps(DESCRIBED)), copy.deepcopy(DESCRIBED)):
        assert tree.descriptions == TEXTS
    assert Taxonomy.from_json(DESCRIBED.to_json()).descriptions == TEXTS
    assert DESCRIBED.to_json()["labels"][0] == {"id": "s", "name": "Science", "parent": None}


@pytest.mark.parametrize(
    ("descriptions", "message"),
    [
        (["a", "b"], "3 ids but 2 descriptions"),
        (["a", 3, None], "the description of 'p' is not a string"),
        (["a", "b", "\ud83d"], "not valid Unicode"),
    ],
)
def test_what_is_no_description_is_refused(descriptions, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Taxonomy(IDS, PARENTS, NAMES, descriptions)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "child,parent,name,description\nS,,Science,\nP,S,Physics,Of matter\nO,P,Optics, Of  light \n",
        "description\tname\tid\tparent\n\tScience\tS\tRoot\nOf matter\tPhysics\tP\tS\nOf light\tOptics\tO\tP\n",
        """{"labels": [{"id": "S", "name": "Science", "parent": null, "description": null},
        {"id": "P", "name": "Physics", "parent": "S", "description": "Of matter"},
        {"id": "O", "name": "Optics", "parent": "P", "description": "Of\\nlight"}]}""",
        """[{"name": "Science", "id": "S", "children": [
        {"name": "Physics", "id": "P", "description": "Of matter", "children": [
        {"name": "Optics", "id": "O", "description": "Of light"}]}]}]""",
    ],
)
def test_files_with_descriptions(text: str, tmp_path: Path) -> None:
    taxonomy = Taxonomy.read(write(tmp_path, text))
    assert taxonomy.ids == ("S", "P", "O")
    assert taxonomy.names == ("Science", "Physics", "Optics")
    assert taxonomy.descriptions == ("", "Of matter", "Of light")


def test_a_description_without_a_name_beside_it_is_the_name(tmp_path: Path) -> None:
    taxonomy = Taxonomy.read(write(tmp_path, "code,parent,description\nS,,Science\n"))
    assert (taxonomy.names, taxonomy.descriptions) == (("Science",), ("",))


def test_in_nested_objects_description_is_a_label(tmp_path: Path) -> None:
    taxonomy = Taxonomy.read(write(tmp_path, '{"Science": {"description": {}}}'))
    assert taxonomy.ids == ("Science", "Science > description")
    assert taxonomy.descriptions == ("", "")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"labels": [\n{"id": "a"},\n{"id": "b", "description": 3}]}', "label 2"),
        ('[\n{"name": "a"},\n{"name": "b", "description": ["text"]}]', "label 2 at the top"),
    ],
)
def test_a_description_that_is_no_string_has_its_place(text: str, place: str, tmp_path: Path) -> None:
    file = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        Taxonomy.read(file)
    assert str(caught.value) == (
        f'{file}: the description of {place} is not a string; write it as "description": "..."'
    )


@pytest.mark.parametrize("name", ["tree.json", "tree.csv"])
def test_written_files_keep_them(name: str, tmp_path: Path) -> None:
    DESCRIBED.write(tmp_path / name)
    again = Taxonomy.read(tmp_path / name)
    assert again == DESCRIBED
    assert again.descriptions == TEXTS


def test_the_table_that_is_written(tmp_path: Path) -> None:
    TREE.write(tmp_path / "tree.CSV")
    assert (tmp_path / "tree.CSV").read_text() == "child,parent,name\ns,,Science\np,s,Physics\nl,,Law\n"
    DESCRIBED.write(tmp_path / "tree.csv")
    assert (tmp_path / "tree.csv").read_text() == (
        'child,parent,name,description\ns,,Science,\np,s,Physics,"Matter, energy; ""forces"""\n'
        "l,,Law,Courts and statutes\n"
    )


@pytest.mark.parametrize(
    ("identifier", "name", "what"),
    [
        (" a", "A", "the id ' a'"),
        ("Root", "A", "the id 'Root'"),
        ("a", "A ", "the name 'A '"),
        ("a", "A\r\nB", r"the name 'A\\r\\nB'"),
        ("a", "A" * 200_000, "the name 'AAA"),
    ],
)
def test_what_a_table_cannot_hold_is_refused(identifier: str, name: str, what: str, tmp_path: Path) -> None:
    taxonomy = Taxonomy([identifier], [-1], [name])
    with pytest.raises(InputError, match=rf"{what}.* cannot be written in a table; .*\.json"):
        taxonomy.write(tmp_path / "tree.csv")
    assert list(tmp_path.iterdir()) == []
    taxonomy.write(tmp_path / "tree.json")
    assert Taxonomy.read(tmp_path / "tree.json") == taxonomy


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("label\tdescription\np\tOf matter\ns\t\n", {}),
        ("Description;Node\nOf matter;Science > Physics\n;s\n", {}),
        ("number,label,Description\n1,Physics,Of matter\n2,s,\n", {}),
        ("p\tOf matter\ns\t\n", {}),
        ("Of matter,p\n,s\n", {}),
        ("p,x,Of matter\ns,x,\n", {"description_column": "3"}),
        ("x;p;Of matter\nx;s;\n", {"label_column": "2", "description_column": "3"}),
        ("x, y;Of matter\np;Of matter\ns;\n", {"label_column": "1"}),
        ("key\tname\tText\np\tLaw\tOf matter\ns\tLaw\t\n", {"label_column": "KEY", "description_column": "text"}),
        ("description\tparent\tid\nx\tOf matter\tp\nx\t\ts\n", {"description_column": "parent"}),
        ("p\tOf  matter\nPhysics\t Of matter\np\t\n", {}),
        ("\ufeff\np\tOf matter\r\n\r\n\t\r\n", {}),
    ],
)
def test_a_table_of_descriptions_is_joined(text: str, columns: dict[str, str], tmp_path: Path) -> None:
    described = join_descriptions(DESCRIBED, write(tmp_path, text), **columns)
    assert described.taxonomy == DESCRIBED
    assert described.taxonomy.descriptions == ("", "Of matter", "Courts and statutes"), "the others stay"
    assert described.labels == 1
    assert described.matched == described.rows - len(described.unknown)
    assert described.unknown == ([("x, y", 1)] if text.startswith("x, y") else [])
    assert described.ambiguous == []


def test_rows_that_name_no_label_or_several_are_told(tmp_path: Path) -> None:
    tree = Taxonomy(["a", "b", "a/x", "b/x"], [-1, -1, 0, 1], ["A", "B", "X", "X"])
    file = write(tmp_path, "label,description\nX,Which one?\nA > X,This one\nnobody,None\n\n,None either\nb,\n,\n")
    described = join_descriptions(tree, file)
    assert described.taxonomy.descriptions == ("", "", "This one", "")
    assert (described.rows, described.matched, described.labels) == (5, 2, 1)
    assert described.unknown == [("nobody", 4), ("", 6)]
    assert described.ambiguous == [("X", 2)]
    slashes = join_descriptions(tree, write(tmp_path, "B/X\tThat one\n"), separator="/")
    assert slashes.taxonomy.descriptions == ("", "", "", "That one")


@pytest.mark.parametrize(
    ("text", "columns", "line", "what"),
    [
        ("p\tOne\nl\tx\nPhysics\tTwo\n", {}, 3, "'Physics' has two descriptions, the first (line 1)"),
        ("label\tdescription\nnobody\tOne\np\t\n", {}, None, "no row has both a label of the tree and a description"),
        ("label\tdescription\n", {}, None, "no row has both a label of the tree and a description"),
        ("p\tOne\tTwo\n", {}, 1, "which column holds the descriptions?"),
        ("p\tOne\n", {"label_column": "1", "description_column": "1"}, 1, "which column holds the descriptions?"),
        ("p\tOne\n", {"label_column": "node"}, 1, "there is no column 'node'"),
        ("p\tOne\n", {"label_column": "3"}, 1, "there is no column '3'"),
        ("id\tdescription\np\tOne\n", {"description_column": "0"}, 1, "there is no column '0'"),
        ("p\tOne\nl\n", {}, 2, "1 cells in a table of 2 columns"),
        ("p,One, and two\nl,x\n", {}, 2, "2 cells in a table of 3 columns"),
        ('p,"One\n', {}, 1, "broken table: unexpected end of data"),
        ("p\nl\n", {}, None, "no table of labels and descriptions"),
        (",,\n", {}, None, "no table of labels and descriptions"),
        ("", {}, None, "no table of labels and descriptions"),
    ],
)
def test_tables_that_are_refused(
    text: str, columns: dict[str, str], line: int | None, what: str, tmp_path: Path
) -> None:
    file = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        join_descriptions(TREE, file, **columns)
    assert (caught.value.path, caught.value.line, caught.value.what) == (file, line, what)
    assert caught.value.remedy


@needs_data
def test_descriptions_of_arxiv() -> None:
    rows = [line.split("\t") for line in (SHARED / "labels.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    texts = {node: text for node, _, text in rows if text}
    described = join_descriptions(Taxonomy.read(SHARED / "taxonomy.tsv"), SHARED / "labels.tsv")
    assert (described.matched, described.rows, described.unknown) == (161, 161, [])
    tree = described.taxonomy
    assert {label: text for label, text in zip(tree.ids, tree.descriptions, strict=True) if text} == texts
    assert len(json.dumps(tree.to_json())) > len("".join(texts.values()))
