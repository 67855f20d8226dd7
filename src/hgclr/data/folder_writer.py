"""Write a prepared corpus as a data folder, whole or not at all."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from io import BufferedIOBase
from pathlib import Path
from typing import Any, TypeVar

from hgclr.errors import InputError
from hgclr.files import atomic_folder, json_bytes
from hgclr.taxonomy import Taxonomy

Progress = Callable[[int, int | None], None]
"""Called with the rows done so far and, where it is known, their total."""
Item = TypeVar("Item")
STEP = 1000
"""Rows between two reports of progress."""
SPLITS = ("train", "dev", "test")
TAXONOMY, RECORD, LEFT_OUT, CONTRADICTIONS = "taxonomy.json", "corpus.json", "left-out.jsonl", "contradictions.jsonl"
FILES = {TAXONOMY, RECORD, LEFT_OUT, CONTRADICTIONS, *(f"{split}.jsonl.gz" for split in SPLITS)}


@dataclass(slots=True)
class CorpusSummary:
    """The folder of a corpus, the documents written, by split, and those left out, by reason."""

    output: Path
    documents: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SPLITS, 0))
    left_out: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Readings:
    """Count rows as they are read and report progress; ``total`` can be set once it is known."""

    progress: Progress | None
    done: int = 0
    total: int | None = None

    def count(self, rows: Iterable[Item]) -> Iterator[Item]:
        for row in rows:
            yield row
            self.done += 1
            if self.progress is not None and self.done % STEP == 0:
                self.progress(self.done, self.total)


class CorpusWriter:
    """Write documents one by one, in their order; see `write_corpus`."""

    def __init__(self, summary: CorpusSummary, streams: Mapping[str, BufferedIOBase]) -> None:
        self.summary = summary
        self.taxonomy: Taxonomy | None = None
        """Must be set before the block ends."""
        self._streams = streams

    def add(self, split: str, text: str, labels: Sequence[str], *, id: str | None = None) -> None:  # noqa: A002
        """Write one document; labels are ids, each with its ancestors, ``id`` is that of the publisher."""
        row = {"text": text, "labels": list(labels)}
        self.add_row(split, row if id is None else {"id": id, **row})

    def add_row(self, split: str, row: Mapping[str, Any]) -> None:
        """Write one document with all its fields."""
        self._write(split, row)
        self.summary.documents[split] += 1

    def leave_out(self, reason: str, where: str, detail: str | None = None) -> None:
        """Record a document that cannot be used; documents are counted by reason, the detail is this one's."""
        self._write(LEFT_OUT, {"where": where, "reason": reason} | ({} if detail is None else {"detail": detail}))
        self.summary.left_out[reason] += 1

    def contradict(self, text: str, rows: Sequence[tuple[str, Sequence[str]]]) -> None:
        """Record a text of several rows with different labels: the place of each, and its labels."""
        listed = [{"where": where, "labels": list(labels)} for where, labels in rows]
        self._write(CONTRADICTIONS, {"text": text, "rows": listed})

    def _write(self, stream: str, row: Mapping[str, Any]) -> None:
        self._streams[stream].write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


@contextmanager
def write_corpus(
    output: str | Path, *, name: str, settings: Mapping[str, object], reading: Mapping[str, object] | None = None
) -> Iterator[CorpusWriter]:
    """Write a data folder: ``taxonomy.json``, the splits as gzipped JSON lines, and a record, ``corpus.json``.

    ``left-out.jsonl`` has the documents that were left out, with places and reasons. The same input and settings give
    the same bytes. If the block fails, nothing is left behind and an earlier build stays.

    Args:
        output: the folder; it may be absent, empty, or an earlier build, which is replaced.
        name: the corpus, as in ``hgclr data prepare NAME``.
        settings: the user's choices.
        reading: how rows are read, see `hgclr.data.folder.RowForm`, if not by default.
    """
    output = Path(output)
    if output.exists() and not output.is_dir():
        raise InputError("this is a file, not a folder", path=output, remedy="name another folder")
    if foreign := sorted(path.name for path in output.glob("*") if path.name not in FILES):
        what = f"the folder holds other files, such as {foreign[0]!r}, which would be lost"
        raise InputError(what, path=output, remedy="name a new or empty folder")
    with atomic_folder(output) as folder:
        summary = CorpusSummary(output)
        with ExitStack() as stack:
            # No time stamp and no name inside: the same input gives the same bytes.
            streams: dict[str, BufferedIOBase] = {
                name: stack.enter_context((folder / name).open("wb")) for name in (LEFT_OUT, CONTRADICTIONS)
            }
            for split in SPLITS:
                raw = stack.enter_context((folder / f"{split}.jsonl.gz").open("wb"))
                streams[split] = stack.enter_context(gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0))
            writer = CorpusWriter(summary, streams)
            yield writer
        if not summary.documents["train"]:
            reasons = ", ".join(f"{count:,} ({reason})" for reason, count in summary.left_out.most_common(3))
            what = "no document for training was found" + (f"; left out: {reasons}" if reasons else "")
            raise InputError(what, remedy="check --source")
        for split in SPLITS:
            if not summary.documents[split]:
                (folder / f"{split}.jsonl.gz").unlink()
        for side in (LEFT_OUT, CONTRADICTIONS):
            if not (folder / side).stat().st_size:
                (folder / side).unlink()
        if writer.taxonomy is None:
            raise RuntimeError("a corpus needs its taxonomy")
        writer.taxonomy.write(folder / TAXONOMY)
        record = {
            "corpus": name,
            "settings": {key: str(value) if isinstance(value, Path) else value for key, value in settings.items()},
            **({} if reading is None else {"reading": dict(reading)}),
            "labels": len(writer.taxonomy),
            "documents": summary.documents,
            "left_out": dict(summary.left_out),
        }
        (folder / RECORD).write_bytes(json_bytes(record))
