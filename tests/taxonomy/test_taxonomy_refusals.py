"""What makes no tree is refused with file, line and remedy, in every format that can express it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy


def refusal(tmp_path: Path, text: str | bytes, **options: str) -> InputError:
    """Return the error for a file, after checking that it names the file and a remedy."""
    file = tmp_path / "tree.txt"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as caught:
        Taxonomy.read(file, **options)
    assert caught.value.path == file
    assert caught.value.remedy
    place = f"{file}:{caught.value.line}: " if caught.value.line else f"{file}: "
    assert str(caught.value) == f"{place}{caught.value.what}; {caught.value.remedy}"
    return caught.value


def by_id(form: str, *pairs: tuple[str, str]) -> str:
    """Return a file with one (label, parent) pair per line, from line 2 on; there is a label "top"."""
    if form == "literature":
        return "".join(["Root\ttop\n", *(f"{parent or 'Root'}\t{label}\n" for label, parent in pairs)])
    if form == "table":
        return "".join(["child,parent\n", *(f"{label},{parent}\n" for label, parent in pairs), "top,\n"])
    labels = [json.dumps({"id": label, "parent": parent or None}) for label, parent in (*pairs, ("top", ""))]
    return '{"labels": [\n' + ",\n".join(labels) + "\n]}"


every_id_format = pytest.mark.parametrize("form", ["literature", "table", "json"])


def at(form: str, line: int) -> tuple[int | None, str]:
    """Return the line that an error names and how it names another; in JSON labels are named by their ids alone."""
    return (None, "") if form == "json" else (line, f" (line {line})")


@every_id_format
def test_cycle(form: str, tmp_path: Path) -> None:
    error = refusal(tmp_path, by_id(form, ("x", "top"), ("a", "b"), ("b", "c"), ("c", "a")))
    assert error.line == at(form, 3)[0]
    first, second, third = (at(form, line)[1] for line in (3, 4, 5))
    assert error.what == f"labels form a cycle, each below the next: 'a'{first} < 'b'{second} < 'c'{third} < 'a'"
    assert error.remedy == "give one of them a parent outside the cycle"


@every_id_format
def test_label_that_is_its_own_parent(form: str, tmp_path: Path) -> None:
    error = refusal(tmp_path, by_id(form, ("a", "a")))
    line, place = at(form, 2)
    assert (error.line, error.what) == (line, f"labels form a cycle, each below the next: 'a'{place} < 'a'")


def test_a_long_cycle_is_cut(tmp_path: Path) -> None:
    error = refusal(tmp_path, by_id("table", *((f"n{i}", f"n{(i + 1) % 20}") for i in range(20))))
    assert error.what.endswith("'n7' (line 9) < ... 12 more ... < 'n0'")


@every_id_format
def test_two_parents(form: str, tmp_path: Path) -> None:
    error = refusal(tmp_path, by_id(form, ("a", "top"), ("b", "top"), ("c", "a"), ("c", "b")))
    assert error.line == at(form, 5)[0]
    assert error.what == f"the label 'c' has two parents, 'a'{at(form, 4)[1]} and 'b'{at(form, 5)[1]}"
    assert error.remedy == (
        "choose one parent and delete the other entry, or duplicate the label: list it under the second"
        " parent with an id of its own, such as 'c (b)'"
    )


@every_id_format
def test_two_parents_one_of_which_is_the_top(form: str, tmp_path: Path) -> None:
    error = refusal(tmp_path, by_id(form, ("c", "top"), ("c", "")))
    assert error.what == f"the label 'c' has two parents, 'top'{at(form, 2)[1]} and the top{at(form, 3)[1]}"
    assert "'c (2)'" in str(error.remedy)


@every_id_format
def test_duplicate_sibling(form: str, tmp_path: Path) -> None:
    error = refusal(tmp_path, by_id(form, ("a", "top"), ("b", "top"), ("a", "top")))
    assert error.line == at(form, 4)[0]
    first = "" if form == "json" else ", first (line 2)"
    assert error.what == f"the label 'a' is listed twice under 'top'{first}"
    assert error.remedy == "delete or rename one of the two"


@every_id_format
def test_unknown_parent(form: str, tmp_path: Path) -> None:
    error = refusal(tmp_path, by_id(form, ("Physics", "top"), ("Optics", "Phisics")))
    assert error.line == at(form, 3)[0]
    assert error.what == "the parent 'Phisics' of 'Optics' is not listed as a label"
    assert error.remedy == "did you mean 'Physics'? Otherwise list 'Phisics' under a parent of its own or at the top"
    far = refusal(tmp_path, by_id(form, ("Optics", "zzzzzzzz")))
    assert far.remedy == "list 'zzzzzzzz' under a parent of its own or at the top"


@every_id_format
def test_empty_id(form: str, tmp_path: Path) -> None:
    error = refusal(tmp_path, by_id(form, ("a", "top"), (" ", "top")))
    assert error.line == at(form, 3)[0]
    assert error.what == ("label 2 has an empty id" if form == "json" else "empty label name")


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("Root\ta\na\tb\t\n", 2, "empty label name"),
        ("Root\t\ta\n", 1, "empty label name"),
        ("Root\ta\n\tb\n", 2, "the line has no parent"),
        ("Root\ta\na  b\n", 2, "'a  b' has no children"),
        ("Root\ta\na\tRoot\n", 2, "'Root' is a child"),
        ("child,parent,name\na,,A\nb,a, \n", 3, "label 'b' has an empty name"),
        ("child,parent,name\na,,A\n\nb,,A\n", 4, "the label 'A' is listed twice at the top, first (line 2)"),
        ("child,parent\nRoot,\na,Root\n", 2, "'Root' is a label"),
        ("child,parent\na,\nb\n", 3, "1 cells in a table of 2 columns"),
        ("child,parent\na,\nb,a,c\n", 3, "3 cells in a table of 2 columns"),
        ('child,parent\na,\n"b"x,a\n', 3, "broken table: ',' expected after '\"'"),
        ('child,parent\na,\n"b,a\n', 3, "broken table: unexpected end of data"),
        ('child,parent,name\na,,"two\nlines"\nb,c,x\n', 4, "the parent 'c' of 'b' is not listed as a label"),
        ("A > B\nA >  > C\n", 2, "empty label name"),
        ("A > B\n > C\n", 2, "empty label name"),
        ("A > B\nA > C > \n", 2, "empty label name"),
        ("A > B\nA > C >\n", 2, "a name begins or ends with '>': 'C >'"),
        ("A > B\nC\nA > B\n", 3, "the path 'A > B' is listed twice, first (line 1)"),
        ("A > B\nA\n\nA\n", 4, "the path 'A' is listed twice, first (line 2)"),
        ('{"A": {},\n "": {}}', None, "empty label name at the top"),
        ('{"A": [\n"B",\n" "]}', None, "empty label name under 'A'"),
        ('{"A": {},\n "B": {},\n "A": {}}', None, "the key 'A' occurs twice in one object"),
        ('{"A": [\n"B",\n"B"]}', None, "the label 'B' is listed twice under 'A'"),
        ('[{"name": "B"},\n{"name": "B"}]', None, "the label 'B' is listed twice at the top"),
        ('[{"name": "B"},\n{"name": "C", "id": "B"}]', None, "two labels have the id 'B', 'B' and 'C'"),
        ('{"A": {"B > C": {},\n"B": {"C": {}}}}', None, "two labels have the id 'A > B > C', 'B > C' and 'C'"),
        ('[{"name": "A",\n"id": ""}]', None, "label 1 has an empty id"),
        ('[{"id": "A"}]', None, "the name of label 1 at the top is missing"),
        ('[\n{"name": 7}]', None, "the name of label 1 at the top is not a string"),
        ('[\n{"name": "A", "childs": []}]', None, "label 1 at the top has the unknown key 'childs'"),
        ('{"A": [{"name": "B", "childs": []}]}', None, "label 1 under 'A' has the unknown key 'childs'"),
        ("[\n7]", None, "label 1 at the top is 7"),
        ('{"name": "Root",\n"children": []}', None, "expected the children of 'name', found 'Root'"),
        ('{"A": {"B":\n true}}', None, "expected the children of 'A > B', found True"),
        ('{"labels": [{"id": "a"},\n{"id": 3}]}', None, "the id of label 2 is not a string"),
        ('{"labels": [{"id": "a"},\n{"id": "b", "parent": 0}]}', None, "the parent of label 2 is not a string"),
        ('{"labels": [{"id": "a"},\n"b"]}', None, "label 2 is 'b'"),
        ('{"labels": [{"id": "a", "name": ""}]}', None, "label 'a' has an empty name"),
        ('{"A": {}', 1, "broken JSON: Expecting ',' delimiter"),
        ('{"A": {}}\n}', 2, "broken JSON: Extra data"),
        ('{"A" {}}', 1, "broken JSON: Expecting ':' delimiter"),
        ('{"A": {},\n}', 2, "broken JSON: Expecting property name enclosed in double quotes"),
        ('["A",\n\n]', 3, "broken JSON: Expecting value"),
        ('["A"\n"B"]', 2, "broken JSON: Expecting ',' delimiter"),
        ("{'A': {}}", 1, "broken JSON: Expecting property name enclosed in double quotes"),
        ('{"A": NaN}', None, "expected the children of 'A', found nan"),
        ('{"A": {},\n"B\\q": {}}', 2, "broken JSON: Invalid \\escape"),
        ('{"A": {},\n"B\n": {}}', 2, "broken JSON: Invalid control character at"),
        ('{"A": {},\n"B', 2, "broken JSON: Unterminated string starting at"),
        ('["A", tru]', 1, "broken JSON: Expecting value"),
        ('["A", -]', 1, "broken JSON: Expecting value"),
    ],
)
def test_broken_files(text: str, line: int | None, what: str, tmp_path: Path) -> None:
    error = refusal(tmp_path, text)
    assert (error.line, error.what) == (line, what)


@pytest.mark.parametrize("form", ["auto", "literature", "table", "json", "paths"])
@pytest.mark.parametrize("text", ["", "\n \n", "\ufeff\r\n"])
def test_an_empty_file(form: str, text: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, text, format=form).what == "the label tree is empty"


@pytest.mark.parametrize("text", ["Root\n", "child,parent\n", "{}", "[]", '{"labels": []}', "null"])
def test_an_empty_tree(text: str, tmp_path: Path) -> None:
    form = "json" if text == "null" else "auto"
    assert refusal(tmp_path, text, format=form).what == "the label tree is empty"


def test_a_format_that_is_not_the_files(tmp_path: Path) -> None:
    error = refusal(tmp_path, "S\tP\n", format="literature")
    assert error.what == "no line begins with 'Root'"
    for header in ("a,b", "child,name", "parent,name", "child,id,parent", "child,parent,parent"):
        error = refusal(tmp_path, f"\n{header}\nx,y\n", format="table")
        assert error.line == 2
        assert error.what == f"the header {header!r} does not say which column is which"
    assert "Expecting value" in refusal(tmp_path, "Root\tA\n", format="json").what


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_not_utf8(mark: bytes, tmp_path: Path) -> None:
    error = refusal(tmp_path, mark + b"Root\ta\na\tcaf\xe9\n")
    assert (error.line, error.what) == (2, "not UTF-8: byte 0xe9")
    assert error.remedy == "save the file as UTF-8"


def test_no_such_file_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        Taxonomy.read(tmp_path / "nowhere.tsv")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        Taxonomy.read(tmp_path)


def test_half_a_surrogate_pair(tmp_path: Path) -> None:
    error = refusal(tmp_path, '{"A": {},\n"\\ud83d": {}}')
    assert error.what == r"'\ud83d' is not valid Unicode text"
    assert Taxonomy.from_json({"labels": [{"id": "\U0001f600"}]}).ids == ("😀",)


@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_json_that_is_nested_too_deep(brackets: str, tmp_path: Path) -> None:
    opening = brackets[0] if brackets == "[]" else '{"A": '
    text = 100_000 * opening + brackets + 100_000 * brackets[1]
    assert refusal(tmp_path, text).what == "the JSON is nested too deep"
