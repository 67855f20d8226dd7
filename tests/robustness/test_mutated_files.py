"""Whatever happens to a file, reading it gives a result or one of our errors, and never anything else.

The fast tests damage each kind of data file a few times, the slow ones a hundred times, and those of models twenty
times, always in the same ways; ``make soak`` does so ten thousand times, in others. A fork reads the files of a kind,
so that a crash of a library is a failure and not the end of the tests.
"""

from __future__ import annotations

import copy
import gzip
import json
import os
import random
import resource
import shutil
import traceback
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hgclr.errors import HGCLRError
from support.crash_points import run_forked
from support.scored_documents import score, write
from support.toy import TEXTS
from support.vocabulary import ESCO, IDS, IPTC, JSON_LD, TURTLE, XML, n_triples

CASES = int(os.environ.get("HGCLR_FUZZ_CASES", "100"))
CASES_OF_MODELS = int(os.environ.get("HGCLR_FUZZ_CASES", "20"))
SEED = os.environ.get("HGCLR_FUZZ_SEED", "0")
MEMORY = 2**33
"""Bytes of address space beside what is taken at the start: more than any of these files has a right to."""

Read = Callable[[Path], object]
Mutate = Callable[[bytes, random.Random], bytes]
VALUES = (None, True, -1, 0, 1, 7, 2**62, -(2**63), 0.5, 1e300, float("nan"), "", "x", "../x", "0", [], [1], ["a"], {})
"""What a field may become; nothing between 7 and what no machine can hold, which would only take its memory."""
ODD = ("2001-99-99", "&a [*a]", "!!python/object:os.system x", "{", "0x", "- -", "*b")
"""Values that YAML reads as something of its own, or not at all."""
NESTED: Any = json.loads("[" * 300 + "]" * 300)


def mutated_bytes(content: bytes, draw: random.Random) -> bytes:
    """Flip bits, cut the end off, put foreign bytes in, or leave some out."""
    data = bytearray(content)
    kind = draw.choice(("flip", "flip", "cut", "insert", "delete", "zero", "empty"))
    place = draw.randrange(len(data) + 1) if draw.random() < 0.5 else draw.randrange(min(len(data), 200) + 1)
    length = draw.choice((1, 4, 64))
    if kind == "flip":
        for _ in range(draw.choice((1, 2, 8))):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    elif kind == "cut":
        del data[place:]
    elif kind == "insert":
        data[place:place] = draw.randbytes(length)
    elif kind == "delete":
        del data[place : place + length]
    elif kind == "zero":
        data[place : place + length] = bytes(len(data[place : place + length]))
    else:
        data.clear()
    return bytes(data)


def mutated_json(content: bytes, draw: random.Random) -> bytes:
    """Change one to three fields, at any depth: another value, another field's value, none, or one more."""
    value = json.loads(content)
    for _ in range(draw.choice((1, 1, 3))):
        places = list(_places(value))
        if not places:
            break
        holder, key = draw.choice(places)
        kind = draw.choice(("value", "value", "value", "swap", "delete", "rename", "nest"))
        if kind == "value":
            holder[key] = copy.deepcopy(draw.choice(VALUES))
        elif kind == "swap":
            other, other_key = draw.choice(places)
            holder[key] = copy.deepcopy(other[other_key])
        elif kind == "delete":
            del holder[key]
        elif kind == "rename" and isinstance(holder, dict):
            holder[f"{key}x"] = holder.pop(key)
        else:
            holder[key] = copy.deepcopy(NESTED)
    return json.dumps(value).encode()


def mutated_text(content: bytes, draw: random.Random) -> bytes:
    """Change lines of a text, as YAML is one, or its bytes."""
    if draw.random() < 0.4:
        return mutated_bytes(content, draw)
    lines = content.decode().split("\n")
    place = draw.randrange(len(lines))
    name, _, value = lines[place].partition(":")
    changes: tuple[Callable[[], str], ...] = (
        lambda: f"{name}: {json.dumps(draw.choice(VALUES))}",
        lambda: f"{name}: {draw.choice(ODD)}",
        lambda: f"{name}: {'[' * 500}",
        lambda: f"{name}{draw.choice('x: ')}:{value}",
        lambda: f" {lines[place]}",
        lambda: lines[place] + "\n" + lines[place],
        lambda: "",
        lambda: draw.choice(lines),
    )
    lines[place] = draw.choice(changes)()
    return "\n".join(lines).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every holder of a field, with the field's key or index."""
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(min(len(holder), 20))
        for key in keys:
            yield holder, key
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])


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


def survives(original: Path, name: str, mutate: Mutate, read: Read, place: Path, cases: int) -> None:
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


# settings, data, reports: the few cases of a fast run, and the many of a slow one


NUMBERS = pytest.mark.parametrize("cases", [5, pytest.param(CASES, marks=pytest.mark.slow)])


@pytest.fixture(scope="module")
def data(toy_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A train split in several formats, a label tree, and settings of a run."""
    import openpyxl
    import pyarrow.parquet

    folder = tmp_path_factory.mktemp("data")
    with gzip.open(toy_data / "train.jsonl.gz") as lines:
        rows = [json.loads(line) for line in lines]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "train.parquet")
    book = openpyxl.Workbook()
    for cells in [("text", "labels"), *((row["text"], ";".join(row["labels"])) for row in rows)]:
        book.active.append(cells)
    book.save(folder / "train.xlsx")
    for file in (toy_data / "train.jsonl.gz", toy_data / "taxonomy.tsv"):
        shutil.copy(file, folder)
    shutil.copy(Path(__file__).parents[2] / "configs" / "clinc150.yaml", folder / "run.yaml")
    return folder


def read_all(path: Path) -> None:
    from hgclr.data.readers import read_rows
    from hgclr.taxonomy import Taxonomy
    from hgclr.training import RunConfig

    if path.suffix == ".tsv":
        Taxonomy.read(path)
    elif path.suffix == ".yaml":
        RunConfig.read(path)
    else:
        for _ in read_rows(path, ("text", "labels"), all_columns=True):
            pass


@NUMBERS
@pytest.mark.parametrize(
    ("name", "mutate"),
    [
        ("train.parquet", mutated_bytes),
        ("train.xlsx", mutated_bytes),
        ("train.jsonl.gz", mutated_bytes),
        ("taxonomy.tsv", mutated_bytes),
        ("run.yaml", mutated_text),
    ],
)
def test_data(data: Path, tmp_path: Path, name: str, mutate: Mutate, cases: int) -> None:
    survives(data / name, "", mutate, read_all, tmp_path, cases)


@NUMBERS
@pytest.mark.parametrize(
    ("name", "text", "mutate"),
    [
        ("turtle", TURTLE, mutated_bytes),
        ("turtle-lines", TURTLE, mutated_text),
        ("n-triples", None, mutated_bytes),
        ("xml", XML, mutated_bytes),
        ("json-ld", JSON_LD, mutated_bytes),
        ("json-ld-fields", JSON_LD, mutated_json),
        ("iptc", IPTC, mutated_bytes),
        ("iptc-fields", IPTC, mutated_json),
        ("ids", IDS, mutated_bytes),
        ("esco", ESCO["occupations.csv"], mutated_bytes),
        ("outline", "A\n  B\n    C\n  D\nE\n", mutated_bytes),
    ],
)
def test_vocabularies(name: str, text: str | None, mutate: Mutate, tmp_path: Path, cases: int) -> None:
    from hgclr.taxonomy import Taxonomy

    original = tmp_path / "original" / name
    original.parent.mkdir()
    original.write_text(n_triples() if text is None else text)
    survives(original, "", mutate, Taxonomy.read, tmp_path / "cases", cases)


@NUMBERS
def test_reports(taxonomy, tmp_path: Path, cases: int) -> None:
    from hgclr.evaluation.comparison import compare

    made = write(tmp_path / "report", score(taxonomy, noise=0.4).content(resamples=20))
    whole = shutil.copytree(made, tmp_path / "whole")
    survives(made, "report.json", mutated_json, lambda folder: compare([whole, folder]), tmp_path / "cases", cases)
