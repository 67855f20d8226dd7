"""Interchange with other tools: documented schemas, round trips without loss, changed and broken files."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import astuple
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgclr.errors import InputError
from hgclr.labelling.interchange import NOWHERE, SUFFIXES, export_tasks, import_answers, label_studio_config
from hgclr.labelling.store import Answer, Store
from hgclr.taxonomy import Taxonomy

jsonschema = pytest.importorskip("jsonschema")

TREE = Taxonomy(
    ["=S", 'p;"1', "-5", "law", "a,b", "none", "ß > €"],
    [-1, 0, 1, -1, 3, -1, 3],
    ["Science; 'all'", 'Physics, "hard"', "Optics > lenses", "Recht & Ordnung", "<b>Tort</b>", "law", "Öffentliches"],
    more_parents=[(), (), (3,), (), (), (), ()],
)
TEXTS = [
    *("a lens, of glass", "=SUM(A1)", "'=quoted", 'two\nlines; "quoted"', "Ünïcode – текст 文", "x" * 300, "-7"),
    *(f"text {number}" for number in range(13)),
]
ANSWERS = [
    Answer(0, "anna", "labels", ("-5",), note="=1+1; 'so'", model=3, milliseconds=1234),
    Answer(0, 'Bért; "x"', "labels", ('p;"1', "a,b"), milliseconds=1),
    Answer(1, "anna", "labels", ("=S",)),
    Answer(2, "anna", "labels", ("law",), ("a,b", "ß > €"), partial=True, note="'=not a formula\nsecond line"),
    Answer(3, "anna", "none", note="belongs <nowhere>", model=1),
    Answer(4, "anna", "skip", milliseconds=77, note="-"),
    Answer(5, "2f9a4e58-9e0b-4c5b-8a3e-3b1f0f8d5a11", "labels", ("ß > €", "none")),
    Answer(6, "anna", "labels", (), ('p;"1',), partial=True),
]
STRING, NUMBER = {"type": "string"}, {"type": "number"}


def listed(items: object, **more: object) -> dict[str, object]:
    return {"type": "array", "items": items, **more}


def fields(required: str = "", **properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": required.split()}


# https://labelstud.io/guide/task_format, /guide/predictions, and the result formats in /tags/taxonomy, /tags/choices
# and /tags/textarea.
RESULT = fields("from_name to_name type value", id=STRING, from_name=STRING, to_name={"const": "text"}) | {
    "oneOf": [
        fields(type={"const": "taxonomy"}, value=fields("taxonomy", taxonomy=listed(listed(STRING, minItems=1)))),
        fields(type={"const": "choices"}, value=fields("choices", choices=listed(STRING))),
        fields(type={"const": "textarea"}, value=fields("text", text=listed(STRING))),
    ]
}
ANNOTATION = fields("result", result=listed(RESULT), was_cancelled={"type": "boolean"}, lead_time=NUMBER)
PREDICTION = fields("result", result=listed(RESULT), score=NUMBER, model_version=STRING)
LABEL_STUDIO = listed(
    fields(
        "data",
        data=fields("text", text=STRING),
        annotations=listed(ANNOTATION),
        predictions=listed(PREDICTION),
    )
)
# https://docs.argilla.io/latest/reference/argilla/records/records, /responses and /suggestions.
RESPONSE = fields(
    "value user_id", user_id=STRING | {"format": "uuid"}, status={"enum": ["draft", "submitted", "discarded"]}
)
ARGILLA = fields(
    "id fields metadata suggestions responses vectors",
    id=STRING,
    fields=fields("text", text=STRING),
    metadata=fields() | {"additionalProperties": {"type": ["string", "number", "array"]}},
    suggestions=fields(labels=fields("value score agent", value=listed(STRING), score=listed(NUMBER), agent=STRING)),
    responses=fields() | {"additionalProperties": listed(RESPONSE)},
    vectors=fields(),
)
# https://prodi.gy/docs/api-interfaces#choice
PRODIGY = fields(
    "text options",
    text=STRING,
    options=listed(fields("id text", id=STRING, text=STRING), minItems=1),
    accept=listed(STRING),
    answer={"enum": ["accept", "reject", "ignore"]},
    meta=fields(),
)


@pytest.fixture
def make_store(tmp_path: Path) -> Callable[..., Store]:
    def make(name: str, answers: list[Answer] = []) -> Store:  # noqa: B006
        source = tmp_path / "texts.jsonl"
        source.write_text("".join(json.dumps({"id": f"id {n}", "text": text}) + "\n" for n, text in enumerate(TEXTS)))
        store = Store.open(tmp_path / name, [source], TREE)
        for answer in answers:
            store.add(answer)
        return store

    return make


def plain(store: Store) -> set[tuple[object, ...]]:
    """Return the fields of the current answers without the id that the store gave them."""
    return {astuple(answer)[:-1] for answer in store.current()}


def rows_of(path: Path) -> list[dict]:
    content = path.read_text(encoding="utf-8")
    return json.loads(content) if content.startswith("[") else [json.loads(line) for line in content.split("\n")[:-1]]


CASES = [(form, suffix) for form, suffixes in SUFFIXES.items() for suffix in suffixes]


@pytest.mark.parametrize(("form", "suffix"), CASES)
def test_round_trip_keeps_every_field(make_store, tmp_path: Path, form, suffix: str) -> None:
    store, output = make_store("a", ANSWERS), tmp_path / f"tasks{suffix}"
    assert export_tasks(store, output, form)[0] == output
    other = make_store("b")
    found = import_answers(other, output, form, user="nobody")
    assert plain(other) == plain(store)
    assert found.added == len(ANSWERS)
    assert dict(found.left_out) == {"no answer": len(TEXTS) - 7}
    again = import_answers(other, output, form, user="nobody")
    assert (again.added, again.unchanged) == (0, len(ANSWERS))
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
PRINTED = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn")), max_size=8)


@pytest.mark.parametrize(("form", "suffix"), CASES)
@given(data=st.data())
@settings(max_examples=8, deadline=None)
def test_any_tree_and_any_note_survive(form, suffix: str, data: st.DataObject) -> None:
    texts = NAMES.filter(str.strip) if suffix in (".json", ".jsonl") else PRINTED.map("a{}".format)
    names = data.draw(st.lists(texts, min_size=2, max_size=6, unique=True))
    tree = Taxonomy(names, [data.draw(st.integers(-1, label - 1)) for label in range(len(names))])
    with TemporaryDirectory() as folder:
        source = Path(folder) / "texts.csv"
        source.write_text("text\n" + "".join(f"text {number}\n" for number in range(6)))
        stores = [Store.open(Path(folder) / name, [source], tree) for name in "ab"]
        for number in range(data.draw(st.integers(1, 6))):
            chosen = tuple(data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True)))
            notes = data.draw(NAMES if suffix in (".json", ".jsonl") else PRINTED)
            stores[0].add(Answer(number, "anna", "labels", chosen, note=notes))
        export_tasks(stores[0], Path(folder) / f"t{suffix}", form)
        import_answers(stores[1], Path(folder) / f"t{suffix}", form, user="me")
        assert plain(stores[1]) == plain(stores[0])
        for store in stores:
            store.close()


def suggested(store: Store) -> dict[int, list[tuple[str, float]]]:
    return {number: [("-5", 0.75), ("law", 0.25)] for number in range(len(TEXTS))}


def test_label_studio_schema(make_store, tmp_path: Path) -> None:
    store = make_store("a", ANSWERS)
    written = export_tasks(store, tmp_path / "t.json", "label-studio", suggestions=suggested(store), model="my model")
    tasks = rows_of(tmp_path / "t.json")
    jsonschema.validate(tasks, LABEL_STUDIO)
    random = [text.random for text in store.documents()]
    assert [bool(task["predictions"]) for task in tasks] == [not each for each in random]
    (prediction,) = next(task["predictions"] for task in tasks if task["predictions"])
    assert (prediction["score"], prediction["model_version"]) == (0.75, "my model")
    assert prediction["result"][0]["value"] == {"taxonomy": [["=S", 'p;"1', "-5"]]}

    config = ElementTree.parse(written[1]).getroot()
    controls = {element.get("name"): element for element in config.iter() if element.get("toName")}
    assert all(element.get("toName") == "text" for element in controls.values())
    used = {result["from_name"] for task in tasks for each in task["annotations"] for result in each["result"]}
    assert used <= controls.keys()

    def paths(element: ElementTree.Element, above: tuple[str, ...] = ()) -> dict[tuple[str, ...], str]:
        found = {}
        for choice in element:
            path = (*above, choice.attrib["alias"])
            found |= {path: choice.attrib["value"]} | paths(choice, path)
        return found

    names = {TREE.ids[label]: TREE.names[label] for label in range(len(TREE))}
    shown = paths(controls["labels"])
    assert shown == {path: names[path[-1]] for path in shown}
    assert {path[-1] for path in shown} == set(TREE.ids)
    assert ("law", "-5") in shown  # the other parent
    results = [each for task in tasks for one in task["annotations"] for each in one["result"]]
    assert all(tuple(path) in shown for each in results for path in each["value"].get("taxonomy", ()))


def test_argilla_and_prodigy_schemas(make_store, tmp_path: Path) -> None:
    store = make_store("a", ANSWERS)
    best = suggested(store)
    written = export_tasks(store, tmp_path / "r.json", "argilla", suggestions=best, model="m")
    records, options = rows_of(tmp_path / "r.json"), json.loads(written[1].read_text(encoding="utf-8"))
    jsonschema.validate(records, listed(ARGILLA), format_checker=jsonschema.FormatChecker())
    assert options.keys() == {*TREE.ids, NOWHERE}
    values = [one["value"] for record in records for one in record["responses"].get("labels", ())]
    assert {label for value in values for label in value} <= options.keys()
    export_tasks(store, tmp_path / "t.jsonl", "prodigy", suggestions=best)
    tasks = rows_of(tmp_path / "t.jsonl")
    jsonschema.validate(tasks, listed(PRODIGY))
    assert all(set(task["accept"]) <= {option["id"] for option in task["options"]} for task in tasks)
    random = {text.text for text in store.documents() if text.random}
    unanswered = [task for task in tasks if "answer" not in task]
    assert all(len(task["options"]) == (len(TREE) if task["text"] in random else 2) for task in unanswered)
    assert all(record["suggestions"] == {} for record in records if record["fields"]["text"] in random)


def test_label_studio_json_min_and_edits(make_store, tmp_path: Path) -> None:
    """As Label Studio writes JSON-MIN: one value is not a list, and without aliases paths are names."""
    path, text = tmp_path / "min.json", {"text": TEXTS[0].upper()}
    extra = {"hgclr": json.dumps({"user": "anna", "model": 2, "refused": ["a,b", "-5"]})}
    rows = [
        {**text, "id": 9, "labels": [{"taxonomy": [["=S", 'p;"1', "-5"]]}], **extra, "lead_time": 1.5, "annotator": 4},
        {"document": 1, "text": TEXTS[1], "answer": "none", "note": "why", "annotator": 4, "lead_time": None},
        {"text": TEXTS[2], "labels": [{"taxonomy": [["Recht & Ordnung", "Optics > lenses"], ["law"]]}], "annotator": 5},
        {"text": TEXTS[3], "answer": {"choices": ["none", "partial"]}, "labels": [{"taxonomy": [["law"]]}]},
        {"text": TEXTS[4]},
    ]
    path.write_text(json.dumps(rows))
    store = make_store("a")
    found = import_answers(store, path, "label-studio", user="nobody")
    assert plain(store) == {
        (0, "anna", "labels", ("-5",), ("a,b",), False, "", 2, 1500),  # what was chosen is no longer refused
        (1, "4", "none", (), (), False, "why", None, 0),
        (2, "5", "labels", ("-5", "law"), (), False, "", None, 0),
    }
    assert (found.rows, sum(found.left_out.values())) == (5, 2)
    task = {"data": text, "annotations": [{"result": [], "was_cancelled": True, "completed_by": {"email": "a@b.c"}}]}
    path.write_text(json.dumps([task]))
    import_answers(store, path, "label-studio", user="nobody")
    assert (0, "a@b.c", "skip", (), (), False, "", None, 0) in plain(store)


def test_prodigy_decisions(make_store, tmp_path: Path) -> None:
    rows = [
        {"text": TEXTS[0], "accept": ["law"], "answer": "accept", "_session_id": "set-anna"},
        {"text": TEXTS[1], "accept": [], "answer": "accept"},
        {"text": TEXTS[2], "answer": "reject", "_annotator_id": "bert"},
        {"text": TEXTS[3], "accept": ["law"], "answer": "reject"},
        {"text": TEXTS[4], "accept": ["law"], "answer": "ignore"},
        {"text": TEXTS[5], "accept": ["law"]},
    ]
    path = tmp_path / "done.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    store = make_store("a")
    found = import_answers(store, path, "prodigy", user="me")
    kinds = {(answer.document, answer.user): (answer.kind, answer.labels) for answer in store.current()}
    assert kinds == {
        (0, "set-anna"): ("labels", ("law",)),
        (1, "me"): ("none", ()),
        (2, "bert"): ("none", ()),
        (4, "me"): ("skip", ()),
    }
    assert sum(found.left_out.values()) == 2


@pytest.mark.parametrize("suffix", ["csv", "xlsx"])
def test_table_filled_in_by_a_person(make_store, tmp_path: Path, suffix: str) -> None:
    from openpyxl import load_workbook

    path, store = tmp_path / f"t.{suffix}", make_store("a")
    export_tasks(store, path, suffix, suggestions=suggested(store))
    cells = {0: {"labels": "Recht & Ordnung; -5\n"}, 1: {"kind": "none"}, 2: {"labels": 'p;"1', "partial": "x"}}
    if suffix == "csv":
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = list(csv.DictReader(stream))
        assert rows[1]["text"] == "'=SUM(A1)"  # no formula
        with path.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, rows[0].keys())
            writer.writeheader()
            writer.writerows(row | cells.get(number, {}) for number, row in enumerate(rows))
    else:
        book = load_workbook(path)
        sheet = book.worksheets[0]
        columns = {cell.value: cell.column for cell in sheet[1]}
        for number, changed in cells.items():
            for name, value in changed.items():
                sheet.cell(number + 2, columns[name], value)
        book.save(path)
    import_answers(store, path, suffix, user="me")
    assert plain(store) == {
        (0, "me", "labels", ("law", "-5"), (), False, "", None, 0),
        (1, "me", "none", (), (), False, "", None, 0),
        (2, "me", "labels", ('p;"1',), (), True, "", None, 0),
    }


GOOD = {"text": TEXTS[0], "accept": ["law"], "answer": "accept"}


@pytest.mark.parametrize(
    ("form", "name", "bad"),
    [
        ("prodigy", "t.jsonl", {**GOOD, "text": "another"}),
        ("prodigy", "t.jsonl", {**GOOD, "accept": ["lawn"]}),
        ("prodigy", "t.jsonl", {**GOOD, "answer": "perhaps"}),
        ("prodigy", "t.jsonl", {**GOOD, "accept": [["law"]]}),
        ("prodigy", "t.jsonl", {**GOOD, "meta": {"model": "3"}}),
        ("prodigy", "t.jsonl", {**GOOD, "meta": {"model": 10**30}}),
        ("prodigy", "t.jsonl", {**GOOD, "meta": {"note": "\ud800"}}),
        ("prodigy", "t.jsonl", {"accept": []}),
        ("label-studio", "t.json", {"data": {"text": TEXTS[0]}, "annotations": [{"result": [{}]}]}),
        ("label-studio", "t.json", {"text": TEXTS[0], "labels": [{"taxonomy": [["law", "=S"]]}]}),
        ("label-studio", "t.json", {"text": TEXTS[0], "labels": [{"taxonomy": [["law"]]}], "hgclr": "{"}),
        ("label-studio", "t.json", {"text": TEXTS[0], "labels": [{"taxonomy": [["law"]]}], "lead_time": 1e300}),
        ("label-studio", "t.json", "text"),
        ("argilla", "t.jsonl", {"fields": {"text": TEXTS[0]}, "responses": {"labels": [{"user_id": "1"}]}}),
        ("csv", "t.csv", {"text": TEXTS[0], "labels": "law; lawn", "kind": "", "model": ""}),
        ("csv", "t.csv", {"text": TEXTS[0], "labels": "law", "kind": "label", "model": ""}),
        ("csv", "t.csv", {"text": TEXTS[0], "labels": "law", "kind": "", "model": "x"}),
        ("csv", "t.csv", {"text": "", "document": "99", "labels": "law"}),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_added(make_store, tmp_path: Path, form, name: str, bad) -> None:
    path, store = tmp_path / name, make_store("a")
    if form == "csv":
        good = dict.fromkeys(bad, "") | {"text": TEXTS[1], "labels": "law"}
        with path.open("w", newline="") as stream:
            csv.writer(stream).writerows([bad.keys(), good.values(), bad.values()])
        line = 3
    else:
        good = {
            "prodigy": GOOD,
            "label-studio": {"data": {"text": TEXTS[0]}},
            "argilla": {"fields": {"text": TEXTS[0]}},
        }[form]
        lines, line = [json.dumps(good), json.dumps(bad)], 2
        path.write_text("\n".join(lines) if name.endswith("l") else f"[{','.join(lines)}]")
    with pytest.raises(InputError) as caught:
        import_answers(store, path, form, user="me")
    assert (caught.value.path, caught.value.line) == (path, line)
    assert caught.value.remedy
    assert not store.current()


def test_wrong_files_and_outputs(make_store, tmp_path: Path) -> None:
    store = make_store("a", ANSWERS)
    for form, name in (("prodigy", "t.json"), ("csv", "t.xlsx"), ("label-studio", "t.xml")):
        with pytest.raises(InputError):
            export_tasks(store, tmp_path / name, form)
    (tmp_path / "object.json").write_text("{}")
    with pytest.raises(InputError):
        import_answers(store, tmp_path / "object.json", "label-studio", user="me")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError) as caught:
        export_tasks(store, tmp_path / "file" / "t.jsonl", "prodigy")
    assert caught.value.path == tmp_path / "file" / "t.jsonl"


@pytest.mark.parametrize(("form", "suffix"), CASES)
def test_a_failed_export_leaves_the_former_file(make_store, tmp_path: Path, form, suffix: str) -> None:
    store, output = make_store("a", ANSWERS), tmp_path / f"tasks{suffix}"
    output.write_text("former")
    before = sorted(path.name for path in tmp_path.iterdir())

    class Broken(list):
        def __getitem__(self, place: object) -> object:
            raise MemoryError

        def __iter__(self) -> Iterator[object]:
            raise MemoryError

    last = max(text.id for text in store.documents() if not text.random)
    with pytest.raises(MemoryError):
        export_tasks(store, output, form, suggestions={last: Broken([("law", 0.5)])})
    assert output.read_text() == "former"
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_config_of_a_deep_and_a_wide_tree() -> None:
    chain = Taxonomy([f"l{n}" for n in range(60)], list(range(-1, 59)))
    assert label_studio_config(chain).count("<Choice ") == 60 + 2
    wide = Taxonomy([f"l{n}" for n in range(3000)], [-1] * 3000)
    assert label_studio_config(wide).count("<Choice ") == 3000 + 2
