"""Whatever is in a file or a request, reading it gives a result or one of our errors: content that Hypothesis makes up.

Real files that were damaged are in test_mutated_files.py. Here as there a hundred cases of each kind, always the same
ones, are tried; ``make soak`` tries ten thousand others.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from hgclr.bulk.run import RECORD, RunRecord
from hgclr.data import DataFolder
from hgclr.data.readers import read_rows
from hgclr.decisions.settings import Decisions
from hgclr.errors import HGCLRError
from hgclr.evaluation.comparison import read_report
from hgclr.export.card import read_scores
from hgclr.model_files import check_folder
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.changes import read_changes
from hgclr.taxonomy.tree import read_model_tree

pytestmark = pytest.mark.slow

CASES = int(os.environ.get("HGCLR_FUZZ_CASES", "100"))
SEED = os.environ.get("HGCLR_FUZZ_SEED")
TREE = Taxonomy(["a", "b", "c"], [-1, 0, 0], descriptions=["", "one", "two"])
PIECES = (
    *("{", "}", "[", "]", ":", ",", '"', "'", "\t", "\n", "\r\n", "\r", " > ", ";", "|", "- ", "? ", "&x", "*x", "<<"),
    *("!!python/object:os.system", "%YAML", "---", "#", "\\u0000", "\\ud800", "\0", "\x85", "\u2028", "\ufeff", "é"),
    *("null", "true", "NaN", "-Infinity", "1e999", "9" * 5000, "0x1", "2001-99-99", "[" * 3000, '{"a":' * 3000),
)
"""What the formats are made of, and what has been the end of readers."""


def any_case(test: Callable[..., None]) -> Callable[..., None]:
    """Try a test with the same cases each time, or, under ``make soak``, with many others."""
    form = settings(
        max_examples=CASES,
        derandomize=SEED is None,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    return form(test if SEED is None else seed(SEED)(test))


def json_values(words: Sequence[str]) -> st.SearchStrategy[Any]:
    """Draw values that JSON can hold, in which names of fields and other words of a format are more likely."""
    names = st.sampled_from(words) | st.text(max_size=5)
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | names
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=5), max_leaves=15
    )


def contents(words: Sequence[str], good: Mapping[str, Any] | None = None) -> st.SearchStrategy[bytes]:
    """Draw bytes, text, text made of the format's pieces, JSON, and a good object of JSON with some other fields."""
    values = json_values(words)
    texts = st.text(max_size=60) | st.lists(st.sampled_from([*words, *PIECES]), max_size=25).map("".join)
    kinds = [
        st.binary(max_size=60),
        texts.map(lambda text: text.encode(errors="surrogatepass")),
        values.map(lambda value: json.dumps(value).encode()),
    ]
    if good is not None:
        changed = st.dictionaries(st.sampled_from(list(good)), values, min_size=1, max_size=3)
        kinds.append(changed.map(lambda fields: json.dumps({**good, **fields}).encode()))
    return st.one_of(kinds)


def is_survived(content: bytes, file: Path, read: Callable[[Path], object]) -> None:
    file.write_bytes(content)
    told = ""
    try:
        read(file)
    except HGCLRError as error:
        told = str(error)
    assert "\n" not in told


class Kind(NamedTuple):
    """A kind of file: its name, the words of its format, what reads it, and the fields of a good one, if it is JSON."""

    name: str
    words: Sequence[str]
    read: Callable[[Path], object]
    good: Mapping[str, Any] | None = None


def read_table(file: Path) -> None:
    for _ in read_rows(file, ("text", "labels"), all_columns=True):
        pass


def read_documents(file: Path, *, skip: bool) -> None:
    folder = DataFolder(file.parent, taxonomy=TREE, skip_bad_rows=skip)
    for _ in folder.documents("train"):
        pass


def read_settings(file: Path) -> None:
    from hgclr.training.settings import RunConfig

    RunConfig.read(file)


def read_record(file: Path) -> None:
    content = file.read_bytes()
    RunRecord(file.parent, {"model": "m"})
    file.write_bytes(content)


LABELS = ("Root", "child", "parent", "name", "description", "id", "children", "labels", "a", "b", "a > b", "old", "new")
ROWS = ("text", "labels", "a", "b;c", "text,labels\n", "text\tlabels\n", '{"text": "x", "labels": ["a"]}\n', "x,a\n")
SETTINGS = ("data:", "path", "model:", "training:", "encoder", "preset", "seed", "epochs", "output", "\n  ")
DECISIONS = Decisions(TREE).to_json()
SCORES = {name: {"precision": 0.5, "recall": 0.5, "f1": 0.5} for name in ("micro", "macro")}
CONFIG = {"id2label": {"0": "a", "1": "b"}, "label_parents": [-1, 0], "label_names": None, "hgclr": {}}
KINDS = {
    **{
        f"tree-{form}": Kind("tree", LABELS, partial(Taxonomy.read, format=form))
        for form in ("auto", "literature", "table", "json", "paths")
    },
    "changes": Kind("changes.tsv", LABELS, lambda file: read_changes(file, TREE, TREE)),
    "descriptions": Kind("descriptions.csv", LABELS, lambda file: TREE.with_descriptions(file)),
    **{
        ending: Kind(f"rows.{ending}", ROWS, read_table)
        for ending in ("jsonl", "csv", "tsv", "csv.gz", "parquet", "xlsx")
    },
    "documents": Kind("train.jsonl", ROWS, partial(read_documents, skip=False)),
    "skipped": Kind("train.csv", ROWS, partial(read_documents, skip=True)),
    "settings": Kind("run.yaml", SETTINGS, read_settings),
    "decisions": Kind("decisions.json", tuple(DECISIONS), lambda file: Decisions.read(file, TREE), DECISIONS),
    "manifest": Kind(
        "manifest.json", ("files", "x.json", "../x"), lambda file: check_folder(file.parent), {"files": {"x.json": "0"}}
    ),
    "code": Kind("x.json", ("auto_map", "weight_map", "../x"), lambda file: check_folder(file.parent), {"auto_map": 1}),
    "tree-of-a-model": Kind("config.json", tuple(CONFIG), lambda file: read_model_tree(file.parent), CONFIG),
    "bulk-record": Kind(
        RECORD, ("settings", "results", "model"), read_record, {"settings": {"model": "m"}, "results": {}}
    ),
    "report": Kind("report.json", ("scores", "version", "labels"), read_report, {"version": 1}),
    "scores": Kind(
        "scores.json", tuple(SCORES), read_scores, {"scores": SCORES, "model": "m", "data": "d", "split": "test"}
    ),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_any_file(kind: Kind, tmp_path: Path) -> None:
    @any_case
    @given(contents(kind.words, kind.good))
    def check(content: bytes) -> None:
        packed = gzip.compress(content, 1) if kind.name.endswith(".gz") else content
        is_survived(packed, tmp_path / kind.name, kind.read)

    check()


def test_any_record_of_a_data_folder(tmp_path: Path) -> None:
    reading = {"text_column": "text", "label_column": "labels", "label_separator": ";", "path_separator": " > "}
    (tmp_path / "train.jsonl").write_text('{"text": "x", "labels": "a;a > b"}\n')
    words = ("reading", "add_ancestors", *reading)

    @any_case
    @given(
        contents(words, {"reading": reading})
        | st.dictionaries(st.sampled_from(words), json_values(words)).map(
            lambda fields: json.dumps({"reading": reading | fields}).encode()
        )
    )
    def check(content: bytes) -> None:
        is_survived(content, tmp_path / "corpus.json", partial(read_documents, skip=False))

    check()


@pytest.mark.parametrize("path", ["/predict", "/explain"])
def test_any_body(path: str) -> None:
    pytest.importorskip("fastapi", reason="needs the extra serve")
    from support.fake_service import fake_service

    good = {"texts": ["atom"], "threshold": 0.5, "rule": "closure", "paths": 1, "probabilities": True}
    if path == "/explain":
        good = {"text": "atom", "labels": ["optics"], "method": "occlusion", "keep": 0.5}
    words = (*good, "text", "abstain_below", "atom", "poison", "optics", "\0")
    with fake_service() as (client, _):

        @any_case
        @given(contents(words, good))
        def check(content: bytes) -> None:
            answer = client.post(path, content=content, headers={"Content-Type": "application/json"})
            assert answer.status_code in (200, 422), answer.text
            assert answer.status_code == 200 or len(json.dumps(answer.json())) < 1000  # nothing is echoed whole

        check()
