"""Killed at any event of the file system, what writes a folder or a cache leaves the old one or the new one, whole.

Training has tests of its own. After each kill the same work is done again, and must end as if nothing had happened.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from hgclr.data.folder import DataFolder, write_corpus
from hgclr.decisions.settings import FILE, Decisions
from hgclr.files import LOCK
from hgclr.inference import HierarchicalClassifier
from hgclr.model_files import check_folder
from support.bulk_cases import expected, write_model
from support.crash_points import survive_every_crash
from support.toy import TEXTS, make_model

pytestmark = pytest.mark.slow


def leftovers(place: Path) -> list[str]:
    return [path.name for path in place.rglob("*") if path.name.startswith(".")]


def test_an_export(make_encoder, taxonomy, tmp_path: Path) -> None:
    from hgclr.export.stock import export_stock
    from hgclr.models.base import save

    network, tokenizer = make_model(make_encoder, taxonomy)
    save(network.deployed(), tokenizer, tmp_path / "model")
    wanted = HierarchicalClassifier.load(tmp_path / "model").predict_proba(TEXTS)
    export_stock(tmp_path / "model", tmp_path / "first")  # so that forks have what it imports

    def work(place: Path) -> None:
        export_stock(tmp_path / "model", place / "stock")

    def check(place: Path) -> None:
        if not (place / "stock").exists():
            work(place)
        check_folder(place / "stock")
        found = HierarchicalClassifier.load(place / "stock").predict_proba(TEXTS)
        assert abs(found - wanted).max() < 1e-6

    assert len(survive_every_crash(work, check, tmp_path / "crashes")) > 10


def test_a_calibration(taxonomy, tmp_path: Path) -> None:
    old, new = Decisions(taxonomy, thresholds=0.3), Decisions(taxonomy, thresholds=0.7)

    def check(place: Path) -> None:
        assert Decisions.read(place / FILE, taxonomy).thresholds in (0.3, 0.7)
        new.write(place)
        assert Decisions.read(place / FILE, taxonomy).thresholds == 0.7

    assert len(survive_every_crash(new.write, check, tmp_path, start=old.write)) >= 3


def test_a_data_folder(taxonomy, tmp_path: Path) -> None:
    def write(text: str, place: Path) -> None:
        with write_corpus(place / "data", name="toy", settings={}) as writer:
            writer.taxonomy = taxonomy
            for split in ("train", "dev", "test"):
                writer.add(split, text, ["law", "society"])
            writer.leave_out("no text", "row 4")

    def check(place: Path) -> None:
        texts = {document.text for document in DataFolder(place / "data").documents("train")}
        assert texts in ({"old"}, {"new"})
        write("newer", place)
        assert [document.text for document in DataFolder(place / "data").documents("test")] == ["newer"]
        assert leftovers(place) == []

    events = survive_every_crash(partial(write, "new"), check, tmp_path, start=partial(write, "old"))
    assert len(events) > 10


def test_a_cache_of_tokens(toy_data: Path, tokenizer, tmp_path: Path) -> None:
    from hgclr.data.tokens import tokenize_split

    folder = DataFolder(toy_data)

    def read(place: Path) -> list[list[int]]:
        return tokenize_split(folder, "dev", tokenizer, max_length=16, cache=place)["input_ids"][:]

    wanted = read(tmp_path / "whole")

    def check(place: Path) -> None:
        assert read(place) == wanted
        # Nothing is written where the cache is whole, so nothing is tidied: an empty folder with its lock may be left.
        assert not [path for path in place.rglob(".*/**/*") if path.is_file() and path.name != LOCK]

    assert len(survive_every_crash(read, check, tmp_path / "crashes")) > 5
    assert survive_every_crash(read, check, tmp_path / "torn", torn=True)


def test_bulk_prediction(tmp_path: Path) -> None:
    from hgclr.bulk import predict_files

    model = write_model(tmp_path / "model")
    texts = ["atom judge", "statute", "nothing at all"]
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        (tmp_path / "in" / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))

    def work(place: Path) -> None:
        predict_files(model, [str(tmp_path / "in")], place / "out", workers=1)

    def check(place: Path) -> None:
        finished = [path for path in (place / "out").glob("*.jsonl") if not path.name.startswith(".")]
        for path in finished:
            assert len(path.read_text().splitlines()) == len(texts)
        work(place)
        for name in ("a", "b"):
            rows = [json.loads(line) for line in (place / "out" / f"{name}.jsonl").read_text().splitlines()]
            assert [row["prediction"]["labels"] for row in rows] == [expected(text) for text in texts]

    assert len(survive_every_crash(work, check, tmp_path / "crashes")) > 8
