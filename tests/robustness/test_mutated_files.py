"""Whatever happens to a file, reading it gives a result or one of our errors, and never anything else.

Each kind of file is damaged a hundred times, those of models, which take longest to load, twenty times, always in the
same ways; ``make soak`` does so ten thousand times, in others. A fork reads the files of a kind, so that a crash of a
library is found and not suffered.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import resource
import shutil
import traceback
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from hgclr.errors import HGCLRError
from support.crash_points import run_forked
from support.mutations import mutated_bytes, mutated_json, mutated_text
from support.scored_documents import score, write
from support.toy import TEXTS

CASES = int(os.environ.get("HGCLR_FUZZ_CASES", "100"))
CASES_OF_MODELS = int(os.environ.get("HGCLR_FUZZ_CASES", "20"))
SEED = os.environ.get("HGCLR_FUZZ_SEED", "0")
MEMORY = 2**33
"""Bytes of address space beside what is taken at the start: more than any of these files has a right to."""

Read = Callable[[Path], object]
Mutate = Callable[[bytes, random.Random], bytes]


def damage(original: Path, name: str, mutate: Mutate, read: Read, place: Path, failures: Path, cases: int) -> None:
    """Read ``original``, a file or a folder, with its file ``name`` damaged in all ways; note what went wrong."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    content = (original / name).read_bytes() if original.is_dir() else original.read_bytes()
    for case in range(cases):
        draw = random.Random(zlib.crc32(f"{SEED} {original.name} {name} {case}".encode()))
        copy = place / original.name
        if original.is_dir():
            shutil.copytree(original, copy)
        else:
            copy.parent.mkdir(exist_ok=True)
        target = copy / name if original.is_dir() else copy
        target.write_bytes(mutate(content, draw))
        (place / "last").write_text(f"case {case}")
        try:
            read(copy)
        except HGCLRError as error:
            if "\n" in str(error):
                _note(failures, case, "an error of several lines", str(error))
        except BaseException as error:
            _note(failures, case, type(error).__name__, traceback.format_exc())
        shutil.rmtree(copy) if copy.is_dir() else copy.unlink()


def _note(failures: Path, case: int, what: str, detail: str) -> None:
    with failures.open("a", encoding="utf-8") as file:
        file.write(f"case {case}: {what}\n{detail[-1500:]}\n")


def survives(original: Path, name: str, mutate: Mutate, read: Read, place: Path, cases: int = CASES) -> None:
    place.mkdir(exist_ok=True)
    failures = place / "failures"
    status = run_forked(partial(damage, original, name, mutate, read, place, failures, cases), place / "log")
    last = (place / "last").read_text() if (place / "last").exists() else "nothing"
    assert status == 0, f"ended with {status} at {last}\n{(place / 'log').read_text()[-3000:]}"
    assert not failures.exists(), failures.read_text()[:6000]


# models and encoders


def predict(folder: Path) -> None:
    from hgclr.inference import HierarchicalClassifier

    HierarchicalClassifier.load(folder, device="cpu").predict(TEXTS)


def put_a_model_on(taxonomy, folder: Path) -> None:
    from hgclr.models import FlatForSequenceClassification
    from hgclr.models.base import load_tokenizer

    tokenizer = load_tokenizer(str(folder))
    FlatForSequenceClassification.from_encoder(str(folder), taxonomy, tokenizer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "name", "mutate"),
    [
        ("torch", "config.json", mutated_json),
        ("torch", "tokenizer.json", mutated_json),
        ("torch", "tokenizer_config.json", mutated_json),
        ("torch", "model.safetensors", mutated_bytes),
        ("stock", "config.json", mutated_json),
        ("modules", "config.json", mutated_json),
        ("modules", "modules.json", mutated_json),
        ("modules", "2_Dense/config.json", mutated_json),
        ("modules", "2_Dense/model.safetensors", mutated_bytes),
        ("onnx", "config.json", mutated_json),
        ("onnx", "tokenizer.json", mutated_json),
        ("onnx", "model.onnx", mutated_bytes),
        ("onnx", "decisions.json", mutated_json),
    ],
)
def test_models(models: Path, tmp_path: Path, form: str, name: str, mutate: Mutate) -> None:
    # Without the manifest, which would tell at once.
    model = shutil.copytree(models / form, tmp_path / form, ignore=shutil.ignore_patterns("manifest.json"))
    survives(model, name, mutate, predict, tmp_path / "cases", CASES_OF_MODELS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mutate"),
    [
        ("config.json", mutated_json),
        ("config.json", mutated_bytes),
        ("tokenizer.json", mutated_json),
        ("tokenizer.json", mutated_bytes),
        ("model.safetensors", mutated_bytes),
    ],
)
def test_encoders(models: Path, taxonomy, tmp_path: Path, name: str, mutate: Mutate) -> None:
    survives(models / "encoder", name, mutate, partial(put_a_model_on, taxonomy), tmp_path, CASES_OF_MODELS)


# settings, data, reports


def test_settings(toy_data: Path, tmp_path: Path) -> None:
    from hgclr.training import RunConfig

    config = Path(__file__).parents[2] / "configs" / "clinc150.yaml"
    (tmp_path / "made").mkdir()
    file = shutil.copy(config, tmp_path / "made" / "run.yaml")
    survives(Path(file), "", mutated_text, lambda path: RunConfig.read(path), tmp_path / "cases")


@pytest.fixture(scope="module")
def data(toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a train split is a folder of ``datasets``, and one with it as a table."""
    import datasets
    import openpyxl
    import pyarrow.parquet

    folder = tmp_path_factory.mktemp("data")
    with gzip.open(toy_data / "train.jsonl.gz") as lines:
        rows = [json.loads(line) for line in lines]
    dataset = datasets.Dataset.from_list(rows)
    dataset.save_to_disk(folder / "dataset")
    pyarrow.parquet.write_table(dataset.data.table, folder / "train.parquet")
    book = openpyxl.Workbook()
    for cells in [("text", "labels"), *((row["text"], ";".join(row["labels"])) for row in rows)]:
        book.active.append(cells)
    book.save(folder / "train.xlsx")
    shutil.copy(toy_data / "train.jsonl.gz", folder)
    shutil.copy(toy_data / "taxonomy.tsv", folder)
    return folder


def read_all(path: Path) -> None:
    from hgclr.data.readers import read_rows

    for _ in read_rows(path, ("text", "labels"), all_columns=True):
        pass


@pytest.mark.parametrize(
    ("original", "name", "mutate"),
    [
        ("dataset", "state.json", mutated_json),
        ("dataset", "dataset_info.json", mutated_json),
        ("dataset", "data-00000-of-00001.arrow", mutated_bytes),
        ("train.parquet", "", mutated_bytes),
        ("train.xlsx", "", mutated_bytes),
        ("train.jsonl.gz", "", mutated_bytes),
    ],
)
def test_data(data: Path, tmp_path: Path, original: str, name: str, mutate: Mutate) -> None:
    survives(data / original, name, mutate, read_all, tmp_path)


def test_taxonomies(data: Path, tmp_path: Path) -> None:
    from hgclr.taxonomy import Taxonomy

    survives(data / "taxonomy.tsv", "", mutated_bytes, Taxonomy.read, tmp_path)


def test_reports(taxonomy, tmp_path: Path) -> None:
    from hgclr.evaluation.comparison import compare

    made = write(tmp_path / "report", score(taxonomy, noise=0.4).content(resamples=20))
    whole = shutil.copytree(made, tmp_path / "whole")
    survives(made, "report.json", mutated_json, lambda folder: compare([whole, folder]), tmp_path / "cases")
