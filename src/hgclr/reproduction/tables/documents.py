"""The documents that a neural run reads, for systems that take texts instead of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

import datasets
from tokenizers import Tokenizer

from hgclr.data.folder import DataFolder, Document, empty_split
from hgclr.data.tokens import sample_documents
from hgclr.models.saving import load_tokenizer
from hgclr.training import RunConfig
from hgclr.training.preparing import check_splits, hold_out

__all__ = ["read_splits"]

WINDOW = 1024


def read_splits(
    run: RunConfig, folder: DataFolder, on_documents: Callable[[int], None] | None = None
) -> dict[str, list[Document]]:
    """Return the documents that a neural run with these settings reads: the same samples, the same part of each text.

    Args:
        run: the settings; without ``model.max_length`` texts stay whole.
        folder: the data.
        on_documents: called with the number of documents read, as it grows.

    Raises:
        InputError: if a split is empty or holds a bad row, or there is no train or dev to be had.
    """
    limits = {"train": run.data.limit, "dev": run.data.dev_limit, "test": run.data.test_limit}
    check_splits(run, folder)
    length = run.model.overrides.get("max_length")
    cut = None if length is None else _cutter(run.model.encoder, length)
    splits: dict[str, list[Document]] = {}
    for name in folder.splits:
        limit, splits[name] = limits[name], []
        sampled = sample_documents(folder, name, None if limit is None else (limit, run.training.seed))
        while batch := list(islice(sampled, WINDOW)):
            splits[name] += batch if cut is None else cut(batch)
            if on_documents is not None:
                on_documents(len(batch))
        if not splits[name]:
            raise empty_split(folder.split_path(name), 0)
    if "dev" not in splits:
        places = datasets.Dataset.from_dict({"place": range(len(splits["train"]))})
        parts, documents = hold_out(run, places), splits["train"]
        splits |= {
            name: [documents[place] for place in parts[part]["place"]]
            for name, part in (("train", "train"), ("dev", "test"))
        }
    return splits


def _cutter(encoder: str, length: int) -> Callable[[Sequence[Document]], list[Document]]:
    """Return a function that leaves of each text what an encoder reads of it."""
    tokenizer = load_tokenizer(encoder)
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_padding()
    backend.enable_truncation(length, direction=tokenizer.truncation_side)

    def cut(documents: Sequence[Document]) -> list[Document]:
        shortened = []
        for document, encoding in zip(documents, backend.encode_batch([d.text for d in documents]), strict=True):
            spans = [(start, end) for start, end in encoding.offsets if end > start] or [(0, 0)]  # no special tokens
            text = document.text[min(start for start, _ in spans) : max(end for _, end in spans)]
            shortened.append(Document(text, document.labels))
        return shortened

    return cut
