from __future__ import annotations

import json
import logging
import subprocess
import sys
from itertools import repeat
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE, Unigram, WordLevel, WordPiece
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing

from hgclr.data import DataFolder, Document, tokens
from hgclr.data.folder import DocumentSet
from hgclr.data.tokens import ORDINARY, SplitWords, split_tokens, tokenize_split
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy

TEXTS = [
    "atom laser quantum the prism lens of a court",
    "judge",
    "goal in the match is a goal",
    "unheard words",
]


def write_rows(folder: Path, texts: list[str], labels: list[str] | None = None) -> None:
    rows = [json.dumps({"text": text, "labels": labels or ["science", "physics"]}) for text in texts]
    (folder / "train.jsonl").write_text("\n".join(rows) + "\n")


@pytest.fixture
def folder(tmp_path: Path, taxonomy: Taxonomy) -> Path:
    path = tmp_path / "data"
    path.mkdir()
    taxonomy.write(path / "taxonomy.tsv")
    write_rows(path, TEXTS)
    return path


@pytest.fixture
def forbid_reading(monkeypatch: pytest.MonkeyPatch):
    """Return a function that makes every later reading of a document fail."""

    def forbid() -> None:
        def scan(*_: object) -> None:
            raise AssertionError("the documents were read again")

        monkeypatch.setattr(DataFolder, "scan", scan)

    return forbid


def test_tokens_are_those_of_the_tokenizer(folder: Path, tokenizer: Any, tmp_path: Path) -> None:
    data = DataFolder(folder)
    before = tokenizer.backend_tokenizer.to_str()
    dataset = tokenize_split(data, "train", tokenizer, max_length=7, cache=tmp_path)
    assert tokenizer.backend_tokenizer.to_str() == before
    # The tokenizer file sets truncation to 5 and padding; only the arguments of the call count.
    expected = [tokenizer(text, truncation=True, max_length=7, padding=False)["input_ids"] for text in TEXTS]
    assert dataset["input_ids"][:] == expected
    assert dataset["length"][:] == [len(ids) for ids in expected] == [7, 3, 7, 4]
    indices = sorted(data.taxonomy.resolve(label) for label in ("science", "physics"))
    assert dataset["labels"][:] == [indices] * 4
    assert {name: str(kind.type) for name, kind in zip(dataset.column_names, dataset.data.schema, strict=True)} == {
        "input_ids": "list<item: int32>",
        "labels": "list<item: int32>",
        "length": "int32",
    }


def test_a_second_call_reads_no_document(folder: Path, tokenizer: Any, tmp_path: Path, forbid_reading: Any) -> None:
    seen: list[int] = []
    first = tokenize_split(DataFolder(folder), "train", tokenizer, max_length=8, cache=tmp_path, progress=seen.append)
    assert seen == [4]
    forbid_reading()
    tokenizer("a call in between that sets", truncation=True, max_length=3, padding="max_length")
    again = tokenize_split(DataFolder(folder), "train", tokenizer, max_length=8, cache=tmp_path, progress=seen.append)
    assert again[:] == first[:]
    assert seen == [4]


def test_everything_that_decides_the_result_is_in_the_key(
    folder: Path, tokenizer: Any, make_encoder: Any, tmp_path: Path, taxonomy: Taxonomy
) -> None:
    from transformers import AutoTokenizer

    def run(tokenizer: Any = tokenizer, max_length: int = 8, options: dict[str, Any] | None = None, **more: Any) -> int:
        data = DataFolder(folder, **(options or {}))
        tokenize_split(data, "train", tokenizer, max_length=max_length, cache=tmp_path, **more)
        return len(list((tmp_path / "tokens").iterdir()))

    assert run() == 1
    assert run(max_length=9) == 2
    assert run(tokenizer=AutoTokenizer.from_pretrained(make_encoder("mpnet"))) == 3
    assert run(limit=2) == 4
    assert run(limit=2, seed=1) == 5
    assert run(seed=1) == 5  # without a sample the seed has no effect
    options: list[dict[str, Any]] = [
        {"add_ancestors": True},
        {"skip_bad_rows": True},
        {"label_separator": "|"},
        {"path_separator": "/"},
        {"taxonomy": Taxonomy(taxonomy.ids, taxonomy.parents, [name + "s" for name in taxonomy.ids])},
    ]
    for count, option in enumerate(options, 6):
        assert run(options=option) == count
    write_rows(folder, [*TEXTS[:3], "other words"])
    assert run() == 11
    rows = (folder / "train.jsonl").read_text()
    (folder / "train.jsonl").write_text(rows.replace('"text"', '"body"'))
    assert run(options={"text_column": "body"}) == 12
    assert run(options={"text_column": "body"}) == 12


def test_skipped_rows_are_recorded_and_warned_of_on_cached_runs_too(
    folder: Path, tokenizer: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, forbid_reading: Any
) -> None:
    with (folder / "train.jsonl").open("a") as file:
        file.write('{"text": "x", "labels": ["nonsense"]}\n{broken\n')
    with pytest.raises(InputError):
        tokenize_split(DataFolder(folder), "train", tokenizer, max_length=8, cache=tmp_path)
    assert list((tmp_path / "tokens").iterdir()) == []  # nothing half-written is left
    data = DataFolder(folder, skip_bad_rows=True)
    messages = []
    sides = [tmp_path / "first.jsonl", tmp_path / "second.jsonl"]
    for side in sides:
        with caplog.at_level(logging.WARNING):
            dataset = tokenize_split(data, "train", tokenizer, max_length=8, cache=tmp_path, bad_rows=side)
        assert len(dataset) == 4
        messages.append(caplog.messages[-1].replace(side.name, "SIDE"))
        forbid_reading()
    assert len(caplog.messages) == 2
    assert messages[0] == messages[1]
    assert "bad rows skipped: 2" in messages[0]
    assert sides[0].read_text() == sides[1].read_text()
    rows = [json.loads(line)["row"] for line in sides[0].read_text().splitlines()]
    assert rows == [5, 6]


def test_an_empty_split_is_an_error_and_its_bad_rows_are_recorded(folder: Path, tokenizer: Any, tmp_path: Path) -> None:
    (folder / "train.jsonl").write_text("{\n")
    data = DataFolder(folder, skip_bad_rows=True)
    side = tmp_path / "bad.jsonl"
    with pytest.raises(InputError):
        tokenize_split(data, "train", tokenizer, max_length=8, cache=tmp_path, bad_rows=side)
    assert "broken JSON" in side.read_text()
    assert list((tmp_path / "tokens").iterdir()) == []


def test_samples(folder: Path, tokenizer: Any, tmp_path: Path, vocabulary: list[str]) -> None:
    words = vocabulary[5:]
    write_rows(folder, words)

    def sample(limit: int, seed: int = 0) -> list[str]:
        data = DataFolder(folder)
        dataset = tokenize_split(data, "train", tokenizer, max_length=8, cache=tmp_path, limit=limit, seed=seed)
        return [tokenizer.convert_ids_to_tokens(ids)[1] for ids in dataset["input_ids"]]

    chosen = sample(7)
    assert len(set(chosen)) == 7
    assert chosen == sorted(chosen, key=words.index)  # in the order of the file
    assert chosen == sample(7)
    assert chosen != sample(7, seed=1)
    assert sample(len(words) + 5) == words
    # Every document has the same chance: 7 of the n, over many seeds.
    counts = dict.fromkeys(words, 0)
    documents = DocumentSet(DataFolder(folder).taxonomy, {"train": [Document(word, (0,)) for word in words]})
    for seed in range(300):
        for document in tokens.sample_documents(documents, "train", (7, seed)):
            counts[document.text] += 1
    mean = 2100 / len(words)
    assert all(abs(count - mean) < 5 * mean**0.5 for count in counts.values())


def test_documents_are_taken_in_batches(
    folder: Path, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "BATCH", 10)
    taken = 0

    def scan(*_: object):
        nonlocal taken
        for document in repeat(Document("atom", (0,)), 95):
            taken += 1
            yield document

    monkeypatch.setattr(DataFolder, "scan", scan)
    seen: list[tuple[int, int]] = []
    data = DataFolder(folder)
    dataset = tokenize_split(
        data,
        "train",
        tokenizer,
        max_length=8,
        cache=tmp_path,
        progress=lambda done: seen.append((done, taken)),
    )
    assert seen == [*((10, 10 * (batch + 1)) for batch in range(9)), (5, 95)]
    assert len(dataset) == 95


def test_what_leaves_nothing_is_refused(folder: Path, tokenizer: Any, tmp_path: Path) -> None:
    data = DataFolder(folder)
    with pytest.raises(InputError):
        tokenize_split(data, "train", tokenizer, max_length=2, cache=tmp_path)
    with pytest.raises(InputError):
        tokenize_split(data, "train", tokenizer, max_length=8, limit=0, cache=tmp_path)
    with pytest.raises(InputError):
        tokenize_split(data, "dev", tokenizer, max_length=8, cache=tmp_path)
    with pytest.raises(InputError):
        tokenize_split(data, "train", object(), max_length=8, cache=tmp_path)  # type: ignore[arg-type]


MEASURE = """
import sys
from pathlib import Path
from types import SimpleNamespace
from tokenizers import Tokenizer, models, pre_tokenizers
from hgclr.data import DataFolder
from hgclr.data.tokens import ORDINARY, SplitWords, split_tokens, tokenize_split

def private_megabytes():
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1024

used = []
folder, cache = map(Path, sys.argv[1:])
backend = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
# The part of a transformers tokenizer that is used, without the time to import transformers.
tokenizer = SimpleNamespace(backend_tokenizer=backend, truncation_side="right")
tokenize_split(DataFolder(folder), "train", tokenizer, max_length=64, cache=cache,
               progress=lambda _: used.append(private_megabytes()))
print(max(used) - used[4])
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux to measure memory")
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_memory_stays_flat(folder: Path, tmp_path: Path, form: str) -> None:
    texts = [f"atom {number} " + "x" * 1500 for number in range(20_000)]  # 30 MB, quick to tokenise
    if form == "jsonl":
        write_rows(folder, texts)
    else:
        import pyarrow
        import pyarrow.parquet

        (folder / "train.jsonl").unlink()
        table = pyarrow.table({"text": texts, "labels": [["science"]] * len(texts)})
        path = folder / "train.parquet"
        # Not compressed, so that anything the reader keeps in memory is visible.
        pyarrow.parquet.write_table(table, path, row_group_size=2000, compression="none", use_dictionary=False)
    measured = subprocess.run(
        [sys.executable, "-c", MEASURE, str(folder), str(tmp_path / "cache")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(measured.stdout) < 20


PIECES = ["[UNK]", "[CLS]", "lens", "atom", "##s", "##ic"]


def word_piece(pieces: list[str]) -> Tokenizer:
    """A tokenizer that puts one special token before a text."""
    tokenizer = Tokenizer(WordPiece({piece: place for place, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 1)])
    return tokenizer


def byte_level() -> Tokenizer:
    return Tokenizer(BPE({"[UNK]": 0, "Ġlens": 1, "Ġ": 2, "s": 3}, [], unk_token="[UNK]"))


def unigram() -> Tokenizer:
    return Tokenizer(Unigram([("<unk>", -9.0), ("▁lens", -1.0), ("s", -2.0)], unk_id=0))


def word_level() -> Tokenizer:
    return Tokenizer(WordLevel({"[UNK]": 0, "lens": 1}, unk_token="[UNK]"))


@pytest.mark.parametrize(
    ("tokenizer", "odd"),
    [
        (word_piece(PIECES), [1, 0, 0, 0, 1, 1]),
        (byte_level(), [1, 0, 0, 1]),
        (unigram(), [1, 0, 1]),
        (word_level(), [1, 0]),
    ],
    ids=["WordPiece", "byte-level BPE", "SentencePiece", "words"],
)
def test_tokens_that_continue_a_word_or_are_unknown_are_known(tokenizer: Tokenizer, odd: list[int]) -> None:
    assert list(split_tokens(tokenizer)) == odd


def test_split_words_are_measured_in_training_texts() -> None:
    random = np.random.default_rng(2)
    texts = []
    for rate in random.beta(2, 20, 400):  # texts differ by more than chance
        odd = random.random(random.integers(5, 60)) < rate
        texts.append(" ".join("quantum" if one else "lens" for one in odd))
    tokenizer = word_piece(PIECES)
    ids = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    found = SplitWords.measure(datasets.Dataset.from_dict({"input_ids": ids}), tokenizer)
    shares = np.array([text.split().count("quantum") / len(text.split()) for text in texts])
    lengths = np.array([len(text.split()) for text in texts])
    assert found.mean == pytest.approx((shares @ lengths + 1) / (lengths.sum() + 2))
    assert found.spread == pytest.approx(np.sqrt(2 * 20 / 22**2 / 23), rel=0.3)  # of the beta distribution
    above = [
        found.excess(round(share * length), length) > found.limit for share, length in zip(shares, lengths, strict=True)
    ]
    assert np.mean(above) == pytest.approx(1 - ORDINARY)
    plain = SplitWords.measure(datasets.Dataset.from_dict({"input_ids": [[1, 2, 3], [1], []]}), tokenizer)
    assert plain.spread == 0 < plain.mean
    assert plain.excess(4, 4) > plain.limit
