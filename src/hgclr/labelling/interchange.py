"""Answers in the formats of Label Studio, Argilla and Prodigy, and as tables: texts and answers out, answers in.

Every format keeps all fields of an answer, also those that the tool has no place for. The formats are documented at

- Label Studio: https://labelstud.io/guide/task_format, https://labelstud.io/guide/predictions and
  https://labelstud.io/tags/taxonomy. An alias replaces a choice's value in results, so paths are written as ids.
- Argilla: https://docs.argilla.io/latest/reference/argilla/records/records (``Record.to_dict``) and
  https://docs.argilla.io/latest/how_to_guides/import_export.
- Prodigy: https://prodi.gy/docs/api-interfaces#choice.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal
from uuid import NAMESPACE_URL, UUID, uuid5
from xml.etree import ElementTree

from hgclr.data.readers import BadRow, Row, RowProblem, good_json_rows, is_unicode, read_rows, text_hash
from hgclr.errors import InputError
from hgclr.files import FORMULAS, NOT_XML, atomic_file, json_text, read_json, table_writer, write_files
from hgclr.labelling.store import Answer, Store, StoredText
from hgclr.taxonomy import Taxonomy

Format = Literal["label-studio", "argilla", "prodigy", "csv", "xlsx"]
SUFFIXES: Mapping[Format, tuple[str, ...]] = {
    "label-studio": (".json",),
    "argilla": (".json", ".jsonl"),
    "prodigy": (".jsonl",),
    "csv": (".csv",),
    "xlsx": (".xlsx",),
}
Suggestions = Mapping[int, Sequence[tuple[str, float]]]
"""The ids and probabilities of the best paths' ends, best first, by document."""
NOWHERE = "__none__"
"""The option of Argilla's question that stands for no label."""
COLUMNS = {"document": 10, "source": 12, "text": 60, "suggestion": 40, "probability": 12, "kind": 8, "labels": 30}
COLUMNS |= {"paths": 40, "partial": 8, "refused": 20, "user": 12, "note": 30, "model": 8, "milliseconds": 12}
"""The columns of a table with their widths. People fill in ``labels``; paths and the columns before are not read."""
ESCAPED = re.compile(f"'+[{re.escape(''.join(FORMULAS))}]")
"""A cell of CSV that begins with apostrophes, the first of which `TableWriter` or `_write_table` added."""
NO_ANSWER, NO_LABEL, BOTH = "no answer", "no label chosen", "labels chosen, and also that there are none"


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of `import_answers`: numbers of rows and of answers; ``left_out`` counts those without one."""

    rows: int
    added: int
    unchanged: int
    left_out: Counter[str]

    def to_json(self) -> dict[str, object]:
        """Return the result as plain values for a JSON file."""
        return asdict(self) | {"left_out": dict(self.left_out)}


def export_tasks(
    store: Store, output: Path, form: Format, *, suggestions: Suggestions | None = None, model: str = ""
) -> list[Path]:
    """Write all texts of a store with their current answers, and return the files written.

    Label Studio also gets its labelling configuration, and Argilla the options of its question. Texts of the random
    slice get no suggestion, as on the page.

    Args:
        store: the store.
        output: the file to write.
        form: its format.
        suggestions: the best paths of texts.
        model: the name of the model that made them.
    """
    _check_suffix(output, form)
    taxonomy, texts, answers = store.taxonomy, store.documents(), defaultdict[int, list[Answer]](list)
    for answer in store.current():
        answers[answer.document].append(answer)
    known = {text.id: (suggestions or {}).get(text.id, ()) for text in texts if not text.random}
    rows = [(text, answers[text.id], known.get(text.id, ())) for text in texts]
    try:
        if form in ("csv", "xlsx"):
            _write_table(output, rows, taxonomy)
            return [output]
        if form == "prodigy":
            tasks = (task for row in rows for task in _prodigy_tasks(*row, taxonomy))
        elif form == "argilla":
            tasks = (_argilla_record(*row, model) for row in rows)
        else:
            tasks = (_label_studio_task(*row, taxonomy, model) for row in rows)
        with atomic_file(output) as path, path.open("w", encoding="utf-8") as stream:
            lines = output.suffix.lower() == ".jsonl"
            start, between, end = ("", "\n", "\n") if lines else ("[\n", ",\n", "\n]\n")
            stream.write(start)
            for number, task in enumerate(tasks):
                stream.write((between if number else "") + json_text(task))
            stream.write(end)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=output) from error
    beside: dict[str, bytes] = {}
    if form == "label-studio":
        beside[f"{output.stem}.config.xml"] = label_studio_config(taxonomy).encode()
    elif form == "argilla":
        options = {one: taxonomy.path_name(label) for label, one in enumerate(taxonomy.ids)}
        beside[f"{output.stem}.labels.json"] = json_text(options | {NOWHERE: "belongs nowhere"}, indent=2).encode()
    return [output, *write_files(output.parent, beside)]


def import_answers(store: Store, path: Path, form: Format, *, user: str) -> Imported:
    """Add the answers of a file to a store; all rows are checked first.

    Texts are found by their number in the store, or else by their content. Answers that the store has already, the
    latest of their user, are not added again.

    Args:
        store: the store.
        path: the file, exported by the tool or by `export_tasks`, and perhaps changed by people since.
        form: its format.
        user: the name for answers of which the file does not say whose they are.

    Raises:
        InputError: with the row, for an unknown text or label, or a row that is not in this format.
    """
    _check_suffix(path, form)
    found, left_out, rows = list[Answer](), Counter[str](), 0
    reader = _Reader(store, user)
    read: Callable[[Mapping[str, Any], _Reader], Iterator[Answer | str]] = {
        "label-studio": _label_studio_answers,
        "argilla": _argilla_answers,
        "prodigy": _prodigy_answers,
    }.get(form, _table_answers)
    for row in _rows(path):
        rows += 1
        try:
            for answer in read(row.values, reader):
                if isinstance(answer, Answer):
                    found.append(answer)
                else:
                    left_out[answer] += 1
        except RowProblem as problem:
            raise InputError(problem.reason, path=path, line=row.number, remedy=problem.remedy) from None
        except (KeyError, TypeError, AttributeError, ValueError, csv.Error) as error:
            what = f"not a row in the format {form!r}: {type(error).__name__} {error}"
            raise InputError(what, path=path, line=row.number, remedy="export it again, or choose --format") from None
    current = {(answer.document, answer.user): replace(answer, id=None) for answer in store.current()}
    added = 0
    for answer in found:
        if current.get((answer.document, answer.user)) != answer:
            store.add(answer)
            current[answer.document, answer.user] = answer
            added += 1
    return Imported(rows, added, len(found) - added, left_out)


def _check_suffix(path: Path, form: Format) -> None:
    if path.suffix.lower() not in SUFFIXES[form]:
        remedy = f"use a name that ends in {' or '.join(SUFFIXES[form])}"
        raise InputError(f"not a file name for the format {form!r}", path=path, remedy=remedy)


def _rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a table, of JSON lines or of a JSON array, all numbered from 1."""
    if path.suffix.lower() == ".json":
        content = read_json(path)
        if not isinstance(content, list):
            raise InputError("not a JSON array", path=path, remedy="export all tasks again, as JSON or JSON-MIN")
        yield from (Row(number, values) for number, values in enumerate(content, 1))
    elif path.suffix.lower() == ".jsonl":
        yield from good_json_rows(path)
    else:
        for row in read_rows(path, ("labels",), all_columns=True):
            if isinstance(row, BadRow):
                raise InputError(row.reason, path=path, line=row.number, remedy=row.remedy or "correct the row")
            if path.suffix.lower() == ".csv":
                cells = {name: cell[1:] if ESCAPED.match(cell) else cell for name, cell in row.values.items()}
                row = Row(row.number, cells)
            yield row


class _Reader:
    """Finds the texts of rows, and makes answers from the fields that a row has."""

    def __init__(self, store: Store, user: str) -> None:
        self.taxonomy, self.user = store.taxonomy, user
        self._hashes = {text.id: _hash(text.text) for text in store.documents()}
        self._by_hash = {hashed: document for document, hashed in self._hashes.items()}

    def document(self, number: object, text: object) -> int:
        """Return the text with this number, if its content is the given one, or else the one with the content."""
        found = int(str(number)) if str(number).isdecimal() else -1
        hashed = None if text is None else _hash(str(text))
        if found in self._hashes and hashed in (None, self._hashes[found]):
            return found
        if hashed in self._by_hash:
            return self._by_hash[hashed]
        what = f"unknown document {number!r:.20}" if text is None else f"unknown text {text!r:.60}"
        raise RowProblem(what, "import into the folder that the file was exported from, or delete the row")

    def answer(
        self, document: int, labels: Iterable[str], others: Mapping[str, Any], *, none: bool = False, skip: bool = False
    ) -> Answer | str:
        """Return the answer, or the reason why there is none.

        Labels, and refused labels among the ``others``, are ids, codes, names or paths. A label that was refused and
        has been chosen since is chosen.
        """
        for name, kind in (("partial", bool), ("note", str), ("model", int), ("milliseconds", int), ("refused", list)):
            if type(value := others.get(name)) is not kind and value is not None:
                raise RowProblem(f"{name!r} is {value!r:.60}", f"write a value of the type {kind.__name__}")
        chosen = tuple(dict.fromkeys(map(self.label, labels)))
        more = {name: others[name] for name in ("note", "model", "milliseconds") if others.get(name) is not None}
        user = str(others.get("user") or self.user)
        if not is_unicode(user + more.get("note", "")):
            raise RowProblem("not UTF-8: the user or the note has a lone surrogate", "correct the text")
        if skip or none:
            if chosen:
                return BOTH
            return Answer(document, user, "skip" if skip else "none", **more)
        index = {self.taxonomy.ids[label] for label in self.taxonomy.closure(list(map(self.taxonomy.resolve, chosen)))}
        refused = tuple(dict.fromkeys(map(self.label, others.get("refused") or ())))
        refused = tuple(label for label in refused if label not in index)
        partial = bool(others.get("partial"))
        if not chosen and not (partial and refused):
            return NO_LABEL
        return Answer(document, user, "labels", chosen, refused, partial, **more)

    def label(self, label: str) -> str:
        """Return the id of a label."""
        try:
            return self.taxonomy.ids[self.taxonomy.resolve(label)]
        except InputError as error:
            raise RowProblem(error.what, error.remedy) from None

    def path_end(self, path: Sequence[str]) -> str:
        """Return the id of the label at the end of a path, whose steps are all ids or, without aliases, all names."""
        for steps in (self.taxonomy.ids, self.taxonomy.names):
            label = -1
            for step in path:
                label = next((one for one in self.taxonomy.children(label).tolist() if steps[one] == step), len(steps))
                if label == len(steps):
                    break
            else:
                return self.taxonomy.ids[label]
        raise RowProblem(f"unknown label {' > '.join(path)!r}", "choose labels of the tree, without adding any")


def _hash(text: str) -> int:
    """Return a hash of a text that stays the same when the text is written to a workbook and read again."""
    return text_hash(NOT_XML.sub(" ", text))


def _others(answer: Answer, *names: str) -> dict[str, Any]:
    """Return those of the named fields of an answer that are not empty."""
    values = {name: getattr(answer, name) for name in names}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items() if value}


def label_studio_config(taxonomy: Taxonomy) -> str:
    """Return Label Studio's labelling configuration: the label tree, and controls for the other parts of an answer.

    A label with several parents is below each of them, and its own children below its main parent. The control
    ``hgclr`` is hidden; it keeps what Label Studio has no place for.
    """
    view = ElementTree.Element("View")
    ElementTree.SubElement(view, "Text", name="text", value="$text")
    tree = ElementTree.SubElement(view, "Taxonomy", name="labels", toName="text", showFullPath="true")
    pending = [(tree, -1)]
    while pending:
        element, parent = pending.pop()
        for label in taxonomy.children(parent).tolist():
            below = ElementTree.SubElement(element, "Choice", value=taxonomy.names[label], alias=taxonomy.ids[label])
            if taxonomy.parents[label] == parent:
                pending.append((below, label))
    choices = ElementTree.SubElement(view, "Choices", name="answer", toName="text", choice="multiple")
    ElementTree.SubElement(choices, "Choice", value="belongs nowhere", alias="none")
    ElementTree.SubElement(choices, "Choice", value="not sure below these labels", alias="partial")
    ElementTree.SubElement(view, "TextArea", name="note", toName="text", placeholder="note")
    hidden = ElementTree.SubElement(view, "View", style="display: none")
    ElementTree.SubElement(hidden, "TextArea", name="hgclr", toName="text")
    ElementTree.indent(view)
    return ElementTree.tostring(view, encoding="unicode") + "\n"


def _label_studio_task(
    text: StoredText,
    answers: Sequence[Answer],
    suggestions: Sequence[tuple[str, float]],
    taxonomy: Taxonomy,
    model: str,
) -> dict[str, Any]:
    def result(control: str, type_: str, key: str, values: Sequence[object]) -> list[dict[str, Any]]:
        value = {"id": f"{control}-{text.id}", "from_name": control, "to_name": "text", "type": type_}
        return [value | {"value": {key: list(values)}}] if values else []

    def labels(ids: Iterable[str]) -> list[dict[str, Any]]:
        paths = [[taxonomy.ids[step] for step in taxonomy.path(taxonomy.resolve(one)).tolist()] for one in ids]
        return result("labels", "taxonomy", "taxonomy", paths)

    def annotation(answer: Answer) -> dict[str, Any]:
        marks = ["none"] * (answer.kind == "none") + ["partial"] * answer.partial
        results = labels(answer.labels) + result("answer", "choices", "choices", marks)
        results += result("note", "textarea", "text", [answer.note] if answer.note else [])
        results += result("hgclr", "textarea", "text", [json.dumps(_others(answer, "user", "refused", "model"))])
        return {
            "result": results,
            "was_cancelled": answer.kind == "skip",
            "lead_time": answer.milliseconds / 1000,
        }

    predictions = [
        {"model_version": model, "score": score, "result": labels([label])} for label, score in suggestions[:1]
    ]
    data = {"text": text.text, "document": text.id, "source": text.source}
    return {"data": data, "predictions": predictions, "annotations": list(map(annotation, answers))}


def _label_studio_answers(task: Mapping[str, Any], reader: _Reader) -> Iterator[Answer | str]:
    """Yield the answers of a task in Label Studio's JSON, or of an annotation in its JSON-MIN."""

    def parts(control: str, key: str) -> list[Any]:
        """Return the values of a control, which JSON-MIN simplifies if there is only one."""
        cell = controls.get(control) or []
        values = [
            part.get(key) if isinstance(part, dict) else part for part in (cell if isinstance(cell, list) else [cell])
        ]
        return [one for value in values for one in (value if isinstance(value, list) else [value])]

    if minimal := "data" not in task:
        annotations: list[Mapping[str, Any]] = [task]
        document = reader.document(task.get("document"), task["text"])
    else:
        annotations = task.get("annotations") or []
        document = reader.document(task["data"].get("document"), task["data"]["text"])
    for annotation in annotations:
        controls = defaultdict[str, Any](list, annotation if minimal else {})
        for result in annotation.get("result", ()):
            controls[result["from_name"]].append(result["value"])
        others: dict[str, Any] = {"user": _person(annotation.get("annotator" if minimal else "completed_by"))}
        others |= {key: value for text in parts("hgclr", "text") for key, value in json.loads(text).items()}
        marks, notes = set(parts("answer", "choices")), parts("note", "text")
        others |= {"partial": "partial" in marks, "note": "\n".join(notes)}
        others["milliseconds"] = round(1000 * (annotation.get("lead_time") or 0))
        skip = bool(annotation.get("was_cancelled"))
        labels = [] if skip else map(reader.path_end, parts("labels", "taxonomy"))
        yield reader.answer(document, labels, others, none="none" in marks, skip=skip)
    if not annotations:
        yield NO_ANSWER


def _person(account: Any) -> str:
    """Return the name of an account in Label Studio: its email address, or its number."""
    account = account.get("email") or account.get("id") if isinstance(account, dict) else account
    return "" if account is None else str(account)


def _argilla_record(
    text: StoredText, answers: Sequence[Answer], suggestions: Sequence[tuple[str, float]], model: str
) -> dict[str, Any]:
    """Return a record with the field ``text``, the multi-label question ``labels`` and the text question ``note``.

    Argilla's users are UUIDs: a user has one derived from the name. The metadata ``answers`` has the name, and what
    responses have no place for.
    """
    responses, metadata, best = defaultdict[str, list[dict[str, Any]]](list), {}, {}
    if suggestions:
        best = {"value": [suggestions[0][0]], "score": [suggestions[0][1]], "agent": model}
    for answer in answers:
        status = {"user_id": _user_id(answer.user), "status": "discarded" if answer.kind == "skip" else "submitted"}
        labels = [NOWHERE] if answer.kind == "none" else list(answer.labels)
        responses["labels"].append({"value": labels, **status})
        if answer.note:
            responses["note"].append({"value": answer.note, **status})
        metadata[status["user_id"]] = _others(answer, "user", "refused", "partial", "model", "milliseconds")
    return {
        "id": str(text.id),
        "fields": {"text": text.text},
        "metadata": {"source": text.source} | ({"answers": json.dumps(metadata)} if metadata else {}),
        "suggestions": {"labels": best} if best else {},
        "responses": dict(responses),
        "vectors": {},
    }


def _user_id(user: str) -> str:
    try:
        return str(UUID(user))
    except ValueError:
        return str(uuid5(NAMESPACE_URL, user))


def _argilla_answers(record: Mapping[str, Any], reader: _Reader) -> Iterator[Answer | str]:
    document = reader.document(record.get("id"), record["fields"]["text"])
    known = json.loads((record.get("metadata") or {}).get("answers") or "{}")
    responses = record.get("responses") or {}
    notes = {response["user_id"]: response["value"] for response in responses.get("note", ())}
    for response in responses.get("labels", ()):
        user = response["user_id"]
        if response.get("status") == "draft":
            yield NO_ANSWER
            continue
        labels = [label for label in response["value"] or () if label != NOWHERE]
        others = {"user": user, "note": notes.get(user)} | known.get(user, {})
        none, skip = NOWHERE in (response["value"] or ()), response.get("status") == "discarded"
        yield reader.answer(document, () if skip else labels, others, none=none, skip=skip)
    if not responses.get("labels"):
        yield NO_ANSWER


def _prodigy_tasks(
    text: StoredText, answers: Sequence[Answer], suggestions: Sequence[tuple[str, float]], taxonomy: Taxonomy
) -> Iterator[dict[str, Any]]:
    """Yield a task for the interface ``choice`` with several choices for each answer, or one without an answer.

    The options are the suggested and the chosen labels, or all labels if nothing is suggested.
    """
    offered = [label for label, _ in suggestions]
    for answer in answers or (None,):
        ids = dict.fromkeys([*offered, *(answer.labels if answer else ())]) if offered else taxonomy.ids
        options = [{"id": one, "text": taxonomy.path_name(taxonomy.resolve(one))} for one in ids]
        task: dict[str, Any] = {"text": text.text, "options": options, "accept": offered[:1]}
        meta: dict[str, Any] = {"document": text.id, "source": text.source}
        if answer is not None:
            task["accept"] = list(answer.labels)
            task |= {"answer": "ignore" if answer.kind == "skip" else "accept", "_annotator_id": answer.user}
            meta |= _others(answer, "refused", "partial", "note", "model", "milliseconds")
        yield task | {"meta": meta}


def _prodigy_answers(task: Mapping[str, Any], reader: _Reader) -> Iterator[Answer | str]:
    """Yield the answer of a task: accepted or rejected without a choice, the text belongs nowhere."""
    meta = task.get("meta") or {}
    document = reader.document(meta.get("document"), task["text"])
    decision, labels = task.get("answer"), task.get("accept") or []
    others = meta | {"user": task.get("_annotator_id") or task.get("_session_id")}
    if decision is None:
        yield NO_ANSWER
    elif decision == "reject" and labels:
        yield "labels were chosen and rejected"
    elif decision not in ("accept", "reject", "ignore"):
        raise RowProblem(f"unknown answer {decision!r:.60}", "write accept, reject or ignore")
    else:
        skip = decision == "ignore"
        none = not labels and not (meta.get("partial") and decision == "accept")
        yield reader.answer(document, () if skip else labels, others, none=none, skip=skip)


def _write_table(
    output: Path,
    rows: Iterable[tuple[StoredText, Sequence[Answer], Sequence[tuple[str, float]]]],
    taxonomy: Taxonomy,
) -> None:
    """Write a row for each answer, and for each text without one."""
    is_csv = output.suffix.lower() == ".csv"
    with table_writer(output, list(COLUMNS.values())) as table:
        table.writerow(COLUMNS)
        for text, answers, suggestions in rows:
            best = ("", "")
            for label, probability in suggestions[:1]:
                best = (taxonomy.path_name(taxonomy.resolve(label)), f"{probability:.4f}")
            for answer in answers or (None,):
                cells: list[Any] = [text.id, text.source, text.text, *best]
                if answer is None:
                    cells += [""] * (len(COLUMNS) - len(cells))
                else:
                    paths = " ; ".join(taxonomy.path_name(taxonomy.resolve(label)) for label in answer.labels)
                    cells += [answer.kind, _joined(answer.labels), paths, "yes" if answer.partial else ""]
                    cells += [_joined(answer.refused), answer.user, answer.note]
                    cells += ["" if answer.model is None else answer.model, answer.milliseconds]
                if is_csv:  # a text that looks escaped gets a further apostrophe
                    cells = [f"'{cell}" if isinstance(cell, str) and ESCAPED.match(cell) else cell for cell in cells]
                table.writerow(cells)


def _joined(ids: Iterable[str]) -> str:
    """Return ids joined by semicolons; an id with a semicolon or a quote is quoted as in CSV."""
    stream = io.StringIO()
    csv.writer(stream, delimiter=";", lineterminator="").writerow(ids)
    return stream.getvalue()


def _table_answers(cells: Mapping[str, Any], reader: _Reader) -> Iterator[Answer | str]:
    def cell(name: str) -> str:
        return str(cells.get(name) or "").strip()

    def whole(name: str) -> int | None:
        if not cell(name):
            return None
        if not cell(name).isdecimal():
            raise RowProblem(f"{name!r} is {cell(name)!r:.60}", "write a whole number")
        return int(cell(name))

    def split(name: str) -> list[str]:
        if (whole := str(cells.get(name) or "")) and reader.taxonomy.candidates(whole):
            return [whole]
        parts = chain.from_iterable(csv.reader(io.StringIO(whole, newline=""), delimiter=";"))
        return [part if reader.taxonomy.candidates(part) else part.strip() for part in parts if part.strip()]

    document = reader.document(cell("document"), cells.get("text") or None)
    kind, labels = cell("kind"), split("labels")
    if kind not in ("", "labels", "none", "skip"):
        raise RowProblem(f"unknown kind {kind!r:.60}", "write labels, none or skip, or leave it empty")
    if not kind and not labels:
        yield NO_ANSWER
        return
    others: dict[str, Any] = {"user": cell("user"), "note": str(cells.get("note") or ""), "refused": split("refused")}
    others |= {"model": whole("model"), "milliseconds": whole("milliseconds")}
    others["partial"] = cell("partial").casefold() in ("yes", "true", "1", "x")
    yield reader.answer(document, labels, others, none=kind == "none", skip=kind == "skip")
