"""Every format read and written; errors with file, line and remedy for files that are not trees; descriptions."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
needs_data = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared benchmark data is not beside this repository")


def read(tmp_path: Path, text: str | bytes, **options: str) -> Taxonomy:
    file = tmp_path / "tree.txt"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return Taxonomy.read(file, **options)


def as_pairs(taxonomy: Taxonomy) -> list[tuple[str, str | None]]:
    """Return each label's id with its parent's, in index order."""
    return [
        (label, None if parent < 0 else taxonomy.ids[parent])
        for label, parent in zip(taxonomy.ids, taxonomy.parents, strict=True)
    ]


BY_ID = [("S", None), ("L", None), ("P", "S"), ("B", "S"), ("O", "P")]


@pytest.mark.parametrize(
    "text",
    [
        "Root\tS\tL\nS\tP\tB\nP\tO\n",
        "Root\tS\tL\n\nS\tP\nS\tB\n   \nP\tO",
        "Root\tS\tL\r\nS\tP\tB\r\nP\tO\r\n",
        "\ufeffRoot\tS\tL\nS\tP\tB\nP\tO\n",
        "child,parent\nS,\nL,Root\nP,S\nB,S\nO,P\n",
        "Parent ; Child\n;S\nRoot;L\nS;P\nS;B\nP;O\n",
        "note\tparent\tid\nx\tRoot\tS\n\tRoot\tL\n\tS\tP\n\tS\tB\n\tP\tO\n",
        '"code","parent"\r\n"S",""\r\n"L",""\r\n\r\nP,S\r\nB, S\r\nO,P\r\n',
        """{"labels": [{"id": "S", "parent": null}, {"id": "L"}, {"id": "P", "parent": "S"},
        {"id": "B", "parent": "S"}, {"id": "O", "parent": "P"}]}""",
    ],
)
def test_formats_that_give_parents_by_id(text: str, tmp_path: Path) -> None:
    taxonomy = read(tmp_path, text)
    assert as_pairs(taxonomy) == BY_ID
    assert taxonomy.names == taxonomy.ids


@pytest.mark.parametrize(
    "text",
    [
        "S > P > O\nS > B\nL\n",
        "S\nS > P\nS > P > O\nS > B\nL",
        "  S  >  P > O \r\n\r\nS > B\r\nL\r\n",
        "S\n\tP\n\t\tO\n\tB\nL\n",
        "S\r\n   P  \r\n\r\n      O\r\n   B\r\nL",
        '{"S": {"P": {"O": {}}, "B": {}}, "L": {}}',
        '{"S": {"P": ["O"], "B": null}, "L": []}',
        '[{"name": "S", "children": [{"name": "P", "children": ["O"]}, "B"]}, {"name": "L", "children": []}]',
        '[{"name": "S", "children": {"P": {"O": null}, "B": {}}}, {"name": "L", "id": null}]',
    ],
)
def test_formats_in_which_a_label_is_its_path(text: str, tmp_path: Path) -> None:
    taxonomy = read(tmp_path, text)
    expected = [
        ("S", None),
        ("S > P", "S"),
        ("S > P > O", "S > P"),
        ("S > B", "S"),
        ("L", None),
    ]
    assert as_pairs(taxonomy) == expected
    assert taxonomy.names == ("S", "P", "O", "B", "L")


def test_the_separator_of_paths_can_be_chosen(tmp_path: Path) -> None:
    taxonomy = read(tmp_path, "A::B > C::D\n", separator="::")
    assert taxonomy.ids == ("A", "A::B > C", "A::B > C::D")
    assert read(tmp_path, "A\tB\n", separator="\t", format="paths").ids == ("A", "A\tB")
    assert read(tmp_path, "A\nB\n", format="paths").ids == ("A", "B")


def test_the_content_decides_and_the_format_can_be_forced(tmp_path: Path) -> None:
    assert read(tmp_path, "Root\tA > B\n").ids == ("A > B",)
    assert read(tmp_path, "child,parent\nA > B,\n").ids == ("A > B",)
    assert read(tmp_path, "[x] > y\n", format="paths").ids == ("[x]", "[x] > y")
    assert read(tmp_path, f"{'x' * 200_000} > y\n").depth == 2
    assert read(tmp_path, "A\n  B > C\n  D\n").names == ("A", "B > C", "D")
    assert read(tmp_path, "A\nB\n", format="outline").ids == ("A", "B")
    for text in ("A\nB\n", "A,B\nC,D\n", "A\tB\n"):
        with pytest.raises(InputError) as caught:
            read(tmp_path, text)
        assert caught.value.line == 1
        assert "hgclr taxonomy convert" in str(caught.value.remedy)  # import and train have no --format
    for options in ({"format": "yaml"}, {"separator": ""}):
        with pytest.raises(InputError):
            read(tmp_path, "A > B", **options)


@needs_data
@pytest.mark.parametrize(
    ("file", "labels", "names", "depth"),
    [
        ("taxonomies/wos.taxonomy", 141, 141, 2),
        ("taxonomies/nyt.taxonomy", 166, 135, 8),
        ("taxonomies/rcv1.taxonomy", 103, 103, 4),
        ("taxonomies/rcv1.topics.tsv", 103, 103, 4),
        ("taxonomies/hwv.taxonomy", 1186, 1186, 6),
        ("arxiv/taxonomy.tsv", 161, 161, 3),
        ("arxiv_mini/taxonomy.tsv", 37, 37, 3),
        ("clinc150/taxonomy.tsv", 160, 160, 2),
    ],
)
def test_published_trees(file: str, labels: int, names: int, depth: int) -> None:
    taxonomy = Taxonomy.read(SHARED / file)
    assert (len(taxonomy), len(set(taxonomy.names)), taxonomy.depth) == (labels, names, depth)


def test_writing_keeps_what_each_format_can_hold(tmp_path: Path) -> None:
    taxonomy = Taxonomy(["o", "p", "s", " l "], [1, 2, -1, -1], ["Optics", "Physics", "Science", "Law"])
    taxonomy.write(tmp_path / "new" / "tree.JSON")
    assert Taxonomy.read(tmp_path / "new" / "tree.JSON") == taxonomy
    taxonomy.write(tmp_path / "tree.tsv")
    assert (tmp_path / "tree.tsv").read_text() == "Root\ts\t l \ns\tp\np\to\n"
    assert as_pairs(Taxonomy.read(tmp_path / "tree.tsv")) == [
        ("s", None),
        (" l ", None),
        ("p", "s"),
        ("o", "p"),
    ]


@pytest.mark.parametrize("label", ["a\tb", "a\nb", "a\rb", "Root"])
def test_ids_that_the_tab_format_cannot_hold_are_refused(label: str, tmp_path: Path) -> None:
    taxonomy = Taxonomy([label, "x"], [-1, 0])
    with pytest.raises(InputError):
        taxonomy.write(tmp_path / "tree.tsv")
    assert list(tmp_path.iterdir()) == []
    taxonomy.write(tmp_path / "tree.json")
    assert Taxonomy.read(tmp_path / "tree.json") == taxonomy


def refusal(tmp_path: Path, text: str | bytes, **options: str) -> InputError:
    """Return the error for a file, after checking that it names the file and a remedy."""
    file = tmp_path / "tree.txt"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as caught:
        Taxonomy.read(file, **options)
    assert caught.value.path == file
    assert caught.value.remedy
    return caught.value


def by_id(form: str, *pairs: tuple[str, str]) -> str:
    """Return a file with one (label, parent) pair per line, from line 2 on; there is a label "top"."""
    if form == "literature":
        return "".join(["Root\ttop\n", *(f"{parent or 'Root'}\t{label}\n" for label, parent in pairs)])
    if form == "table":
        return "".join(["child,parent\n", *(f"{label},{parent}\n" for label, parent in pairs), "top,\n"])
    labels = [json.dumps({"id": label, "parent": parent or None}) for label, parent in (*pairs, ("top", ""))]
    return '{"labels": [\n' + ",\n".join(labels) + "\n]}"


@pytest.mark.parametrize("form", ["literature", "table", "json"])
@pytest.mark.parametrize(
    ("pairs", "line", "named"),
    [
        ([("x", "top"), ("a", "b"), ("b", "c"), ("c", "a")], 3, "'b'"),
        ([("a", "a")], 2, "'a'"),
        ([("a", "top"), ("b", "top"), ("c", "a"), ("c", "b")], 5, "two parents"),
        ([("c", "top"), ("c", "")], 3, "two parents"),
        ([("a", "top"), ("b", "top"), ("a", "top")], 4, "'a'"),
        ([("Physics", "top"), ("Optics", "Phisics")], 3, "'Phisics'"),
        ([("a", "top"), (" ", "top")], 3, "empty"),
    ],
)
def test_labels_that_make_no_tree(form: str, pairs, line: int, named: str, tmp_path: Path) -> None:
    """In JSON, labels have no lines."""
    error = refusal(tmp_path, by_id(form, *pairs))
    assert error.line == (None if form == "json" else line)
    assert named in error.what
    assert ("'Physics'" in str(error.remedy)) == (named == "'Phisics'")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Root\ta\na\tb\t\n", 2),
        ("Root\ta\n\tb\n", 2),
        ("Root\ta\na  b\n", 2),
        ("Root\ta\na\tRoot\n", 2),
        ("child,parent,name\na,,A\nb,a, \n", 3),
        ("child,parent,name\na,,A\n\nb,,A\n", 4),
        ("child,parent\nRoot,\na,Root\n", 2),
        ("child,parent\na,\nb\n", 3),
        ('child,parent\na,\n"b"x,a\n', 3),
        ('child,parent\na,\n"b,a\n', 3),
        ('child,parent,name\na,,"two\nlines"\nb,c,x\n', 4),
        ("child,name,parent\n1,A,\n2,B,A\n", 3),
        ("A\n  B\n   C\n", 3),
        ("A\n  B\n\tC\n", 3),
        ("A\n\tB\n\t  C\n", 3),
        ("A\n  B\n      C\n", 3),
        ("  A\nB\n", 1),
        ("A\n  B\n\n  B\n", 4),
        ("A > B\nA >  > C\n", 2),
        ("A > B\nA > C >\n", 2),
        ("A > B\nC\nA > B\n", 3),
        ('{"A": {},\n "": {}}', None),
        ('{"A": [\n"B",\n" "]}', None),
        ('{"A": {},\n "B": {},\n "A": {}}', None),
        ('{"A": [\n"B",\n"B"]}', None),
        ('[{"name": "B"},\n{"name": "C", "id": "B"}]', None),
        ('{"A": {"B > C": {},\n"B": {"C": {}}}}', None),
        ('[{"name": "A",\n"id": ""}]', None),
        ('[{"id": "A"}]', None),
        ('[\n{"name": 7}]', None),
        ('[\n{"name": "A", "childs": []}]', None),
        ('{"A": [{"name": "B", "childs": []}]}', None),
        ('{"name": "Root",\n"children": []}', None),
        ('{"A": {"B":\n true}}', None),
        ('{"labels": [{"id": "a"},\n{"id": 3}]}', None),
        ('{"labels": [{"id": "a"},\n{"id": "b", "parent": 0}]}', None),
        ('{"labels": [{"id": "a"},\n"b"]}', None),
        ('{"labels": [{"id": "a", "name": ""}]}', None),
        ('{"A": {}', 1),
        ('{"A": {}}\n}', 2),
        ('{"A": {},\n}', 2),
        ('{"A": NaN}', None),
        ('{"A": {},\n"B\n": {}}', 2),
    ],
)
def test_broken_files(text: str, line: int | None, tmp_path: Path) -> None:
    assert refusal(tmp_path, text).line == line


@pytest.mark.parametrize("text", ["", "\ufeff\r\n", "Root\n", "child,parent\n", "{}", "[]", '{"labels": []}'])
def test_an_empty_tree(text: str, tmp_path: Path) -> None:
    refusal(tmp_path, text)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_not_utf8(mark: bytes, tmp_path: Path) -> None:
    assert refusal(tmp_path, mark + b"Root\ta\na\tcaf\xe9\n").line == 2


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "nowhere.tsv", tmp_path):
        with pytest.raises(InputError):
            Taxonomy.read(path)
    with pytest.raises(InputError):
        Taxonomy(["a"], [-1]).write(tmp_path / "file" / "tree.json")


def test_half_a_surrogate_pair(tmp_path: Path) -> None:
    refusal(tmp_path, '{"A": {},\n"\\ud83d": {}}')
    assert Taxonomy.from_json({"labels": [{"id": "\U0001f600"}]}).ids == ("😀",)


@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_json_that_is_nested_too_deep(brackets: str, tmp_path: Path) -> None:
    opening = brackets[0] if brackets == "[]" else '{"A": '
    refusal(tmp_path, 100_000 * opening + brackets + 100_000 * brackets[1])


IDS, PARENTS, NAMES = ["s", "p", "l"], [-1, 0, -1], ["Science", "Physics", "Law"]
TREE = Taxonomy(IDS, PARENTS, NAMES)
TEXTS = ("", 'Matter, energy; "forces"', "Courts and statutes")
DESCRIBED = Taxonomy(IDS, PARENTS, NAMES, TEXTS)


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "about.txt"
    file.write_text(text)
    return file


def test_descriptions_are_no_part_of_a_trees_identity() -> None:
    assert Taxonomy(IDS, PARENTS, NAMES, [None, " \t\n", "  A\n b "]).descriptions == ("", "", "A b")
    assert DESCRIBED == TREE
    assert hash(DESCRIBED) == hash(TREE)
    for again in (pickle.loads(pickle.dumps(DESCRIBED)), Taxonomy.from_json(DESCRIBED.to_json())):
        assert again.descriptions == TEXTS
    for wrong in (["a", "b"], ["a", 3, None], ["a", "b", "\ud83d"]):
        with pytest.raises(InputError):
            Taxonomy(IDS, PARENTS, NAMES, wrong)


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


@pytest.mark.parametrize("name", ["tree.json", "tree.csv"])
def test_written_files_keep_descriptions(name: str, tmp_path: Path) -> None:
    DESCRIBED.write(tmp_path / name)
    again = Taxonomy.read(tmp_path / name)
    assert again == DESCRIBED
    assert again.descriptions == TEXTS


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("label\tdescription\np\tOf matter\ns\t\n", {}),
        ("Description;Node\nOf matter;Science > Physics\n;s\n", {}),
        ("number,label,Description\n1,Physics,Of matter\n2,s,\n", {}),
        ("p\tOf matter\ns\t\n", {}),
        ("Of matter,p\n,s\n", {}),
        ("key\tname\tText\np\tLaw\tOf matter\ns\tLaw\t\n", {"label_column": "KEY", "description_column": "text"}),
        ("description\tparent\tid\nx\tOf matter\tp\nx\t\ts\n", {"description_column": "parent"}),
        ("p\tOf  matter\nPhysics\t Of matter\np\t\n", {}),
        ("\ufeff\np\tOf matter\r\n\r\n\t\r\n", {}),
    ],
)
def test_a_table_of_descriptions_is_joined(text: str, columns: dict[str, str], tmp_path: Path) -> None:
    described, table = DESCRIBED.with_descriptions(write(tmp_path, text), **columns)
    assert described == DESCRIBED
    assert described.descriptions == ("", "Of matter", "Courts and statutes"), "the others stay"
    assert table.texts == {1: "Of matter"}
    assert table.matched == table.rows


def test_rows_that_name_no_label_or_several_are_listed(tmp_path: Path) -> None:
    taxonomy = Taxonomy(["a", "b", "a/x", "b/x"], [-1, -1, 0, 1], ["A", "B", "X", "X"])
    file = write(tmp_path, "label,description\nX,Which one?\nA > X,This one\nnobody,None\n\n,None either\nb,\n,\n")
    described, table = taxonomy.with_descriptions(file)
    assert described.descriptions == ("", "", "This one", "")
    assert (table.rows, table.matched) == (5, 2)
    assert table.unknown == [("nobody", 4), ("", 6)]
    assert table.ambiguous == [("X", 2)]
    slashes, _ = taxonomy.with_descriptions(write(tmp_path, "B/X\tThat one\n"), separator="/")
    assert slashes.descriptions == ("", "", "", "That one")


@pytest.mark.parametrize(
    ("text", "columns", "line"),
    [
        ("p\tOne\nl\tx\nPhysics\tTwo\n", {}, 3),
        ("label\tdescription\nnobody\tOne\np\t\n", {}, None),
        ("label\tdescription\n", {}, None),
        ("p\tOne\tTwo\n", {}, 1),
        ("p\tOne\n", {"label_column": "p", "description_column": "p"}, 1),
        ("p\tOne\n", {"label_column": "node"}, 1),
        ("p\tOne\nl\n", {}, 2),
        ('p,"One\n', {}, 1),
        ("p\nl\n", {}, None),
        (",,\n", {}, None),
        ("", {}, None),
    ],
)
def test_tables_that_are_refused(text: str, columns: dict[str, str], line: int | None, tmp_path: Path) -> None:
    file = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        TREE.with_descriptions(file, **columns)
    assert (caught.value.path, caught.value.line, bool(caught.value.remedy)) == (file, line, True)
