"""The rows that ``hgclr predict`` reads: a text that cannot be labelled is named with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hgclr.cli.predict import _rows
from hgclr.errors import InputError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (3, r"texts.jsonl:2: column 'body': expected a text, got int 3"),
        ("a\ud800", r"texts.jsonl:2: column 'body': not UTF-8: the text has a lone surrogate at character 2"),
    ],
)
def test_a_row_without_a_usable_text_is_named(text: object, message: str, tmp_path: Path) -> None:
    source = tmp_path / "texts.jsonl"
    source.write_text("".join(json.dumps({"body": value}) + "\n" for value in ("good", text)), encoding="utf-8")
    rows = _rows(source, "body")
    assert next(rows) == {"body": "good"}
    with pytest.raises(InputError, match=message):
        next(rows)
