"""Tokenisation of splits, with a cache, and of documents in memory."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import DataFolder, Document, DocumentSet, empty_split
from hgclr.data.readers import BadRow, BadRowLog
from hgclr.errors import InputError, require_extra
from hgclr.files import atomic_folder, cache_dir

if TYPE_CHECKING:
    import datasets
    import pyarrow
    import tokenizers
    from transformers import PreTrainedTokenizerBase

FORMAT = 1
"""Version of the cache; increase it when the output for the same input changes."""

BATCH = 1000
"""Documents tokenised, and in memory, at a time."""

TOKENS, BAD_ROWS = "tokens.arrow", "bad_rows.jsonl"

ORDINARY, MEASURED = 0.995, 20_000
"""Share of the training texts that are below the limit of `SplitWords`, and how many texts it is computed from."""


@dataclass(frozen=True)
class SplitWords:
    """How often training texts have unknown and split words; texts in another language have far more.

    Of the n tokens of a text, a share o stands for an unknown word or continues a word. In training texts o has the
    mean m and the variance ``m (1 - m) / n + s²``.

    Args:
        mean: m.
        spread: s, by which texts differ more than by chance.
        limit: ``(o - m) / sqrt(m (1 - m) / n + s²)`` that ``ORDINARY`` of the training texts do not exceed.
    """

    mean: float
    spread: float
    limit: float

    @classmethod
    def measure(cls, tokens: datasets.Dataset, tokenizer: tokenizers.Tokenizer) -> SplitWords:
        """Return the values for tokenised training texts."""
        counts, lengths = _odd_tokens(tokens, tokenizer)
        mean = float((counts.sum() + 1) / (lengths.sum() + 2))
        square = np.average((counts / lengths - mean) ** 2, weights=lengths) - mean * (1 - mean) / lengths.mean()
        found = cls(mean, math.sqrt(max(0.0, square)), 0.0)
        excess = [found.excess(*pair) for pair in zip(counts.tolist(), lengths.tolist(), strict=True)]
        return cls(mean, found.spread, float(np.quantile(excess, ORDINARY)))

    def excess(self, odd: int, length: int) -> float:
        """Return by how many standard deviations the share of ``odd`` tokens is above that of training texts."""
        return (odd / length - self.mean) / math.sqrt(self.mean * (1 - self.mean) / length + self.spread**2)

    def is_unlike(self, odd: int, length: int) -> bool:
        """Return whether a text has more ``odd`` tokens than nearly all training texts."""
        return odd > 0 < length and self.excess(odd, length) > self.limit

    def unlike(self, tokens: datasets.Dataset, tokenizer: tokenizers.Tokenizer) -> float:
        """Return the share of tokenised texts above the limit, such as those in another language."""
        pairs = zip(*map(np.ndarray.tolist, _odd_tokens(tokens, tokenizer)), strict=True)
        return float(np.mean([self.is_unlike(odd, length) for odd, length in pairs]))


def _odd_tokens(
    tokens: datasets.Dataset, tokenizer: tokenizers.Tokenizer
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many tokens of each text stand for unknown words or continue words, and of how many; of a sample."""
    special = tokenizer.num_special_tokens_to_add(False)
    texts = tokens.select(range(0, len(tokens), -(-len(tokens) // MEASURED)))
    column = texts.select_columns("input_ids").with_format("arrow")[:].column("input_ids").combine_chunks()
    odd = np.frombuffer(split_tokens(tokenizer), dtype=np.uint8)[column.flatten().to_numpy()]
    ends = np.cumsum(column.value_lengths().to_numpy())
    lengths = np.maximum(1, np.diff(ends, prepend=0) - special)
    return np.diff(np.concatenate([[0], np.cumsum(odd, dtype=np.int64)])[ends], prepend=0), lengths


def split_tokens(tokenizer: tokenizers.Tokenizer) -> bytes:
    """Return for every token id 1 if it stands for an unknown word or continues a word, else 0."""
    model, vocabulary = json.loads(tokenizer.to_str())["model"], tokenizer.get_vocab()
    unknown, prefix = model.get("unk_token"), model.get("continuing_subword_prefix")
    starts = ("▁", "Ġ")  # before the first token of a word, in SentencePiece and in byte-level BPE
    marked = any(token.startswith(starts) for token in vocabulary)
    odd = bytearray(max(vocabulary.values()) + 1)
    for token, index in vocabulary.items():
        continues = token.startswith(prefix) if prefix else marked and not token.startswith(starts)
        odd[index] = continues or token == unknown or index == model.get("unk_id")
    return bytes(odd)


def tokenize_split(
    folder: DataFolder,
    split: str,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_length: int,
    cache: Path | None = None,
    limit: int | None = None,
    seed: int = 0,
    bad_rows: Path | None = None,
    progress: Callable[[int], None] | None = None,
    on_total: Callable[[int], None] | None = None,
) -> datasets.Dataset:
    """Return a split as token ids, tokenised now or read from the cache.

    The cache key covers everything that affects the result: the split's bytes, the taxonomy, the reading options,
    the tokenizer, and the arguments here. A second call reads the split only to compute the key.

    Args:
        folder, split: the data, and which of its splits.
        tokenizer: a fast tokenizer. Its own truncation and padding are ignored; it is not changed.
        max_length: maximum tokens per document, special tokens included.
        cache: the cache folder, by default `hgclr.files.cache_dir`.
        limit, seed: take a random sample of this size, in file order; all documents if there are fewer.
        bad_rows: file for the skipped rows, as in `DataFolder.documents`; also written on a cached run.
        progress: called with the number of documents tokenised since the last call; not on a cached run.
        on_total: called first with the number of documents, which takes a pass over the split; not on a cached run.

    Returns:
        Columns ``input_ids`` (list of int32, with special tokens), ``labels`` (list of int32, label indices),
        ``length`` (int32, the number of ids), memory-mapped.
    """
    require_extra("datasets", extra="train", capability="Tokenising a data set")
    import datasets
    from datasets.arrow_writer import ArrowWriter

    if limit is not None and limit < 1:
        raise InputError(f"the limit is {limit} documents", remedy="use 1 or more, or no limit")
    entries = (cache or cache_dir()) / "tokens"
    backend = _backend(tokenizer, max_length)
    path = folder.split_path(split)
    sample = None if limit is None else (limit, seed)
    target = entries / _key(folder, path, backend, sample)
    if not (target / TOKENS).is_file():
        count = 0
        if on_total is not None:
            total = sum(1 for _ in folder.usable(split))
            on_total(total if limit is None else min(limit, total))
        with atomic_folder(target) as temporary:
            with (
                (temporary / BAD_ROWS).open("w", encoding="utf-8") as record,
                ArrowWriter(features=_features(), path=str(temporary / TOKENS)) as writer,
            ):
                documents = sample_documents(folder, split, sample, record)
                while batch := list(islice(documents, BATCH)):
                    writer.write_table(_table(batch, backend))
                    count += len(batch)
                    if progress is not None:
                        progress(len(batch))
                writer.finalize()
            if not count:
                raise empty_split(path, _report_bad_rows(temporary, path, bad_rows))
    _report_bad_rows(target, path, bad_rows)
    return datasets.Dataset.from_file(str(target / TOKENS))


def tokenize_documents(
    documents: Iterable[Document], tokenizer: PreTrainedTokenizerBase, *, max_length: int
) -> datasets.Dataset:
    """Return documents as token ids, in memory, in the columns of :func:`tokenize_split`."""
    import datasets

    tokens = datasets.Dataset(_table(list(documents), _backend(tokenizer, max_length)))
    assert tokens.features == _features()
    return tokens


def _features() -> datasets.Features:
    import datasets

    numbers = datasets.List(datasets.Value("int32"))
    return datasets.Features(input_ids=numbers, labels=numbers, length=datasets.Value("int32"))


def _backend(tokenizer: PreTrainedTokenizerBase, max_length: int) -> tokenizers.Tokenizer:
    """Return a copy of the tokenizer's Rust part that truncates to ``max_length`` and never pads."""
    from tokenizers import Tokenizer

    rust = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(rust, Tokenizer):
        raise InputError(f"{type(tokenizer).__name__} is not a fast tokenizer", remedy="use one with a tokenizer.json")
    backend = Tokenizer.from_str(rust.to_str())
    special = backend.num_special_tokens_to_add(False)
    if max_length <= special:
        remedy = f"use more than {special}, the number of special tokens"
        raise InputError(f"a maximum length of {max_length} tokens leaves no room for text", remedy=remedy)
    backend.no_padding()
    backend.enable_truncation(max_length, direction=tokenizer.truncation_side)
    return backend


def _key(folder: DataFolder, path: Path, backend: tokenizers.Tokenizer, sample: tuple[int, int] | None) -> str:
    """Return the name of the cache entry: a hash of everything that affects its content."""
    digest = hashlib.sha256()
    taxonomy = folder.taxonomy
    optional = taxonomy.more_parents, taxonomy.codes, taxonomy.alternatives
    settings = {
        "format": FORMAT,
        "taxonomy": [
            taxonomy.ids,
            taxonomy.names,
            taxonomy.parents.tolist(),
            *(optional if any(map(any, optional)) else ()),
        ],
        "columns": [folder.form.text_column, folder.form.label_column],
        "separators": [folder.form.label_separator, folder.form.path_separator],
        "add_ancestors": folder.form.add_ancestors,
        "skip_bad_rows": folder.skip_bad_rows,
        "tokenizer": backend.to_str(),  # includes the maximum length
        "sample": sample,
    }
    digest.update(json.dumps(settings).encode())
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    for file in files:
        with file.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
        # The name is included because its suffix decides how the bytes are read.
        digest.update(f"\n{file.relative_to(path.parent)}\t{content}".encode())
    return digest.hexdigest()


def sample_documents(
    folder: DataFolder | DocumentSet, split: str, sample: tuple[int, int] | None, record: IO[str] | None = None
) -> Iterator[Document]:
    """Yield the documents of a split, or a random sample of them, in order; raise at a bad row.

    ``sample`` is limit and seed. Bad rows that the folder skips are recorded as JSON lines.
    """
    documents = folder.usable(split, None if record is None else lambda row: record.write(row.to_json() + "\n"))
    if sample is not None:
        # The first pass only counts and records bad rows; keeping the sampled texts could fill the memory.
        count, (limit, seed) = sum(1 for _ in documents), sample
        documents = folder.usable(split)
        if limit < count:
            chosen = set(np.random.default_rng(seed).choice(count, size=limit, replace=False).tolist())
            documents = (document for place, document in enumerate(documents) if place in chosen)
    yield from documents


def _table(batch: Sequence[Document], backend: tokenizers.Tokenizer) -> pyarrow.Table:
    """Tokenise a batch of documents into a table."""
    import pyarrow

    encodings = backend.encode_batch_fast([document.text for document in batch])
    ids = [encoding.ids for encoding in encodings]
    return pyarrow.table(
        {
            "input_ids": pyarrow.array(ids, pyarrow.list_(pyarrow.int32())),
            "labels": pyarrow.array([document.labels for document in batch], pyarrow.list_(pyarrow.int32())),
            "length": pyarrow.array([len(row) for row in ids], pyarrow.int32()),
        }
    )


def _report_bad_rows(source: Path, path: Path, target: Path | None) -> int:
    """Warn about the bad rows recorded in a cache entry, copy them to a side file, and return their number."""
    with BadRowLog(target) as log, (source / BAD_ROWS).open(encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            # Use the current path: the data may have moved since.
            log.add(BadRow(path, row["row"], row["reason"], row["content"], row["remedy"]))
    log.warn()
    return log.count
