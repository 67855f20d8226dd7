"""Every format read right, whatever the file is called."""

from __future__ import annotations

import json
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


def test_lines_of_the_literature_may_come_in_any_order(tmp_path: Path) -> None:
    taxonomy = read(tmp_path, "Root\tS\nP\tO\nS\tP\n")
    assert as_pairs(taxonomy) == [("S", None), ("O", "P"), ("P", "S")]
    late = read(tmp_path, "S\tP\nRoot\tS\n", format="literature")
    assert as_pairs(late) == [("P", "S"), ("S", None)]


def test_ids_that_are_paths_give_their_last_part_as_name(tmp_path: Path) -> None:
    taxonomy = read(tmp_path, "Root\tTop/News\tTop/Arts\nTop/News\tTop/News/A/B\tTop/News/C\n")
    assert taxonomy.names == ("News", "Arts", "A/B", "C")
    assert taxonomy.ids[2] == "Top/News/A/B"
    only_top = read(tmp_path, "Root\tTCP/IP\tI/O\n")
    assert only_top.names == ("TCP/IP", "I/O")
    one_exception = read(tmp_path, "Root\tTop/News\nTop/News\tTop/News/A\tB\n")
    assert one_exception.names == one_exception.ids
    no_rest = read(tmp_path, "Root\tA\nA\tA/\n")
    assert no_rest.names == ("A", "A/")


def test_a_table_may_have_names_and_any_row_order(tmp_path: Path) -> None:
    taxonomy = read(tmp_path, 'id,description,parent\nb,"Beta, the second",a\na,Alpha,Root\n')
    assert as_pairs(taxonomy) == [("b", "a"), ("a", None)]
    assert taxonomy.names == ("Beta, the second", "Alpha")
    both = read(tmp_path, "id,description,name,parent\na,long text,Alpha,\n")
    assert both.names == ("Alpha",)


def test_ids_in_nested_json(tmp_path: Path) -> None:
    text = '[{"name": "S", "id": "s", "children": [{"name": "P"}, {"name": "Q", "id": "q"}]}]'
    assert as_pairs(read(tmp_path, text)) == [("s", None), ("S > P", "s"), ("q", "s")]
    slashes = read(tmp_path, '{"S": {"P": {}}}', separator="/")
    assert slashes.ids == ("S", "S/P")


def test_a_top_label_called_labels(tmp_path: Path) -> None:
    assert read(tmp_path, '{"labels": ["a", "b"]}').ids == ("labels", "labels > a", "labels > b")


def test_json_strings_and_other_values(tmp_path: Path) -> None:
    names = ['quote " and \\', "tab\tline\n", "é 漢 😀", "/"]
    assert read(tmp_path, json.dumps({name: {} for name in names})).names == tuple(names)
    assert read(tmp_path, json.dumps(names, ensure_ascii=False)).names == tuple(names)


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
    for text in ("A\nB\n", "A,B\nC,D\n", "A\tB\n"):
        with pytest.raises(InputError) as caught:
            read(tmp_path, text)
        assert "tree.txt:1: cannot tell the format from the line" in str(caught.value)
        for word in ("--format", "literature", "table", "json", "paths", "--separator"):
            assert word in str(caught.value.remedy)
    with pytest.raises(InputError, match="unknown format 'yaml'; choose one of auto, literature"):
        read(tmp_path, "A > B", format="yaml")
    with pytest.raises(InputError, match="separator of paths is empty"):
        read(tmp_path, "A > B", separator="")


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


@needs_data
def test_the_two_files_of_rcv1_hold_one_tree() -> None:
    topics = Taxonomy.read(SHARED / "taxonomies/rcv1.topics.tsv")
    assert sorted(as_pairs(topics), key=str) == sorted(
        as_pairs(Taxonomy.read(SHARED / "taxonomies/rcv1.taxonomy")), key=str
    )
    assert topics.names[topics.resolve("CCAT")] == "CORPORATE/INDUSTRIAL"


@needs_data
def test_names_of_nyt_are_the_last_parts_of_its_ids() -> None:
    taxonomy = Taxonomy.read(SHARED / "taxonomies/nyt.taxonomy")
    assert taxonomy.names == tuple(label.rpartition("/")[2] for label in taxonomy.ids)


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
    with pytest.raises(InputError, match=r"cannot be written in the tab format; .*\.json"):
        taxonomy.write(tmp_path / "tree.tsv")
    assert list(tmp_path.iterdir()) == []
    taxonomy.write(tmp_path / "tree.json")
    assert Taxonomy.read(tmp_path / "tree.json") == taxonomy


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="the label tree cannot be written"):
        Taxonomy(["a"], [-1]).write(tmp_path / "file" / "tree.json")
