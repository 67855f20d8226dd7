"""The texts to label, the answers of people, leases and models, in one SQLite file.

An answer that :meth:`Store.add` has returned survives a kill of the process and, as far as the disk keeps its word, a
loss of power: the journal is a write-ahead log that is flushed at every commit.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import Document
from hgclr.data.readers import text_hash
from hgclr.data.texts import Texts, read_texts
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy

FILE, TREE = "labels.sqlite", "taxonomy.json"
FORMAT = 1
"""Version of the tables."""
RANDOM_SHARE, DOUBLE_SHARE = 0.15, 0.1
"""Shares of the texts in the random slice, and of the texts that two people label."""
DATA = "data"
"""The user of labels from a data folder; an answer by a person replaces them."""
WAIT = 30.0
"""Seconds to wait for another process that is writing."""
TABLES = """
CREATE TABLE documents(id INTEGER PRIMARY KEY, source TEXT, text TEXT, random INTEGER, double INTEGER);
CREATE TABLE answers(
    id INTEGER PRIMARY KEY, document INTEGER, user TEXT, kind TEXT, labels TEXT, refused TEXT, partial INTEGER,
    note TEXT, model INTEGER, milliseconds INTEGER, created REAL, undone_by INTEGER
);
CREATE INDEX valid_answers ON answers(document, user) WHERE undone_by IS NULL AND kind != 'undo';
CREATE TABLE leases(document INTEGER, user TEXT PRIMARY KEY, until REAL);
CREATE TABLE models(id INTEGER PRIMARY KEY, created REAL, answers INTEGER, effort TEXT, scores TEXT);
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT);
"""
VALID = "undone_by IS NULL AND kind != 'undo'"
NEWEST = f"SELECT max(id) FROM answers WHERE {VALID} GROUP BY document, user"
COLUMNS = "id, document, user, kind, labels, refused, partial, note, model, milliseconds"


@dataclass(frozen=True, slots=True)
class Answer:
    """One person's answer to one text.

    Args:
        document: id of the text.
        user: who answered.
        kind: ``none`` means that the text belongs nowhere.
        labels: ids of the labels where the chosen paths end: a leaf, or an inner label if the path stops there.
        refused: ids of labels answered with no.
        partial: the labels below ``labels`` that are not refused are unknown. Without labels, all labels that are not
            refused are unknown.
        note: free text.
        model: id of the model that made the suggestions.
        milliseconds: time from the text's appearance to the answer.
        id: set by the store.
    """

    document: int
    user: str
    kind: Literal["labels", "none", "skip"]
    labels: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    partial: bool = False
    note: str = ""
    model: int | None = None
    milliseconds: int = 0
    id: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"labels": list(self.labels), "refused": list(self.refused)}


Settled = dict[int, tuple[NDArray[np.float32] | None, list[Answer]]]
"""Of each answered text the targets on which people agree, None without a majority, and their answers."""


class StoredText(NamedTuple):
    """A text, its id in the source file or its row number there, and whether it is in the two samples."""

    id: int
    source: str
    text: str
    random: bool
    double: bool


class Work(NamedTuple):
    """The texts that one user may be given, each (N,).

    Args:
        free: not answered by this user, nor answered by or leased to as many others as the text needs.
        taken: answered by or leased to anybody.
        second: free texts of the sample labelled twice that another user has answered.
        own: number of texts that this user has answered.
    """

    free: NDArray[np.bool_]
    taken: NDArray[np.bool_]
    second: NDArray[np.bool_]
    own: int


class ModelRow(NamedTuple):
    """A model: the number of answers it was trained on, the effort, and its scores."""

    id: int
    answers: int
    effort: str
    scores: dict[str, Any]


class Store:
    """Texts, answers, leases and models in an output folder; see :meth:`open`.

    Every method may be called from any thread, and several processes may open the same folder.
    """

    def __init__(self, folder: Path, taxonomy: Taxonomy) -> None:
        self.folder, self.taxonomy = folder, taxonomy
        self._index = {identifier: label for label, identifier in enumerate(taxonomy.ids)}
        self._known: tuple[int, Settled] = (0, {})  # the newest row of answers, and what was computed up to it
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []

    @classmethod
    def open(
        cls,
        folder: str | Path,
        texts: Sequence[str | Path] = (),
        taxonomy: Taxonomy | str | Path | None = None,
        *,
        labelled: Iterable[Document] = (),
        seed: int = 0,
        text_column: str | None = None,
        shares: tuple[float, float] = (RANDOM_SHARE, DOUBLE_SHARE),
    ) -> Store:
        """Return the store of a folder; a new one needs a label tree, and texts or labelled documents.

        A new store is complete or absent. Of a known store, the texts must be those that it has; blank texts and
        repeated ones, apart from case and white space, are left out.

        Args:
            folder: the output folder.
            texts: files, folders, patterns or URLs, see :func:`~hgclr.data.texts.read_texts`.
            taxonomy: the label tree or its file.
            labelled: documents that have labels already; they are outside of both samples.
            seed: of the random slice and of the texts labelled twice.
            text_column: the column with the text; detected by default.
            shares: of the random slice, and of the texts labelled twice.

        Raises:
            InputError: if something is missing or damaged, or the label tree or the texts are not those of the store.
        """
        folder = Path(folder)
        known = (folder / FILE).is_file()
        if not isinstance(taxonomy, Taxonomy):
            if taxonomy is None and not (folder / TREE).is_file():
                raise InputError("no label tree", path=folder, remedy="name its file with --taxonomy")
            taxonomy = Taxonomy.read(folder / TREE if taxonomy is None else taxonomy)
        digest = hashlib.sha256(json.dumps(taxonomy.to_json(), sort_keys=True).encode()).hexdigest()
        if not known and not texts and not labelled:
            raise InputError("no texts to label", path=folder, remedy="name the file of the texts")
        found = read_texts(texts, text_columns=[text_column] if text_column else []) if texts else Texts()
        if other := [path for path, column in found.columns.items() if text_column not in (None, column)]:
            raise InputError(f"no column {text_column!r}", path=other[0], remedy="correct --text-column")
        rows = list(zip(found.sources, found.texts, strict=True))
        folder.mkdir(parents=True, exist_ok=True)
        store = cls(folder, taxonomy)
        try:
            with store._writing() as connection:
                if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                    for statement in TABLES.split(";"):
                        connection.execute(statement)
                    store._fill(connection, rows, list(labelled), seed, shares)
                    values = {"format": FORMAT, "taxonomy": digest, "seed": seed, "shares": shares}
                    for key, value in (values | {"left_out": found.left_out}).items():
                        connection.execute("INSERT INTO meta VALUES (?, ?)", (key, json.dumps(value)))
            if store.meta("format") != FORMAT:
                what = f"written by another version of hgclr (format {store.meta('format')})"
                raise InputError(what, path=folder / FILE, remedy="use that version")
            if store.meta("taxonomy") != digest:
                raise InputError("the answers are for another label tree", path=folder, remedy="choose a new folder")
            has = {text_hash(text) for text in store.texts()} if rows else set()
            if new := [source for source, text in rows if text_hash(text) not in has]:
                what = f"{len(new)} texts are not in this folder, such as the one with the id or row {new[0]}"
                raise InputError(what, path=folder, remedy="choose a new folder, or leave out the texts")
            if not (folder / TREE).is_file():
                taxonomy.write(folder / TREE)
        except sqlite3.DatabaseError as error:
            store.close()
            raise InputError(f"not a store of hgclr label: {error}", path=folder / FILE) from error
        except InputError:
            store.close()
            raise
        return store

    def _fill(
        self,
        connection: sqlite3.Connection,
        rows: Sequence[tuple[str, str]],
        labelled: Sequence[Document],
        seed: int,
        shares: tuple[float, float],
    ) -> None:
        """Insert texts with the two samples, then labelled documents with answers of the user ``data``."""
        known = {text_hash(text) for _, text in rows}
        generator, samples = np.random.default_rng(seed), np.zeros((2, len(rows)), dtype=np.int64)
        for sample, share in zip(samples, shares, strict=True):
            sample[generator.permutation(len(rows))[: round(share * len(rows))]] = 1
        texts = [(*row, int(random), int(double)) for row, random, double in zip(rows, *samples, strict=True)]
        answers = []
        for place, document in enumerate(labelled):
            if (hashed := text_hash(document.text)) in known:
                continue
            known.add(hashed)
            ends = [self.taxonomy.ids[label] for label in self.taxonomy.path_ends(document.labels)]
            answers.append((len(texts), DATA, "labels", json.dumps(ends), "[]", 0, "", 0, time.time()))
            texts.append((f"{DATA} {place + 1}", document.text, 0, 0))
        if not texts:
            raise InputError(
                "no usable text", path=self.folder, remedy="add rows, or name the column with --text-column"
            )
        connection.executemany("INSERT INTO documents VALUES (?, ?, ?, ?, ?)", [(i, *t) for i, t in enumerate(texts)])
        names = "document, user, kind, labels, refused, partial, note, milliseconds, created"
        connection.executemany(f"INSERT INTO answers({names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", answers)

    def __len__(self) -> int:
        """Return the number of texts."""
        return int(self._connection().execute("SELECT count(*) FROM documents").fetchone()[0])

    def documents(self) -> list[StoredText]:
        """Return all texts in the order of their ids, which count from 0."""
        rows = self._connection().execute("SELECT id, source, text, random, double FROM documents ORDER BY id")
        return [StoredText(i, source, text, bool(random), bool(double)) for i, source, text, random, double in rows]

    def texts(self) -> list[str]:
        """Return the texts in the order of their ids."""
        return [row[0] for row in self._connection().execute("SELECT text FROM documents ORDER BY id")]

    def meta(self, key: str) -> Any:
        """Return a value of the table ``meta``, None if it is absent."""
        row = self._connection().execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else json.loads(row[0])

    def set_meta(self, key: str, value: Any) -> None:
        with self._writing() as connection:
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))

    def add(self, answer: Answer) -> int:
        """Append an answer and end the user's lease; return its id once it is on the disk.

        Raises:
            InputError: at an unknown text or label, or an answer that contradicts itself.
        """
        return self.add_all([answer])[0]

    def add_all(self, answers: Sequence[Answer]) -> list[int]:
        """Append all answers or, after a kill or an error, none; see :meth:`add`."""
        ids = list[int]()
        for answer in answers:
            self._check(answer)
        with self._writing() as connection:
            for answer in answers:
                if not connection.execute("SELECT 1 FROM documents WHERE id = ?", (answer.document,)).fetchone():
                    raise InputError(f"unknown text {answer.document}", path=self.folder)
                values = (
                    *(answer.document, answer.user, answer.kind, json.dumps(answer.labels)),
                    *(json.dumps(answer.refused), int(answer.partial), answer.note, answer.model),
                    *(answer.milliseconds, time.time()),
                )
                names = COLUMNS.removeprefix("id, ")
                cursor = connection.execute(
                    f"INSERT INTO answers({names}, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values
                )
                connection.execute("DELETE FROM leases WHERE document = ? AND user = ?", values[:2])
                ids.append(int(cursor.lastrowid or 0))
        return ids

    def undo(self, user: str) -> Answer | None:
        """Undo the user's latest answer that is not undone yet, and return it; None if there is none left.

        An earlier answer of the user to the same text is valid again.
        """
        with self._writing() as connection:
            query = f"SELECT {COLUMNS} FROM answers WHERE user = ? AND {VALID} ORDER BY id DESC LIMIT 1"
            row = connection.execute(query, (user,)).fetchone()
            if row is None:
                return None
            undone = _answer(row)
            cursor = connection.execute(
                "INSERT INTO answers(document, user, kind, labels, refused, partial, note, milliseconds, created)"
                " VALUES (?, ?, 'undo', '[]', '[]', 0, '', 0, ?)",
                (undone.document, user, time.time()),
            )
            connection.execute("UPDATE answers SET undone_by = ? WHERE id = ?", (cursor.lastrowid, undone.id))
        return undone

    def newest(self) -> int:
        """Return the id of the newest row of answers, undone ones and undos included; 0 if there is none."""
        return int(self._connection().execute("SELECT coalesce(max(id), 0) FROM answers").fetchone()[0])

    def current(self, users: Iterable[str] | None = None) -> list[Answer]:
        """Return the latest valid answer of each user to each text, by id; ``data`` counts only where no person has."""
        rows = self._connection().execute(f"SELECT {COLUMNS} FROM answers WHERE id IN ({NEWEST}) ORDER BY id")
        answers = [_answer(row) for row in rows]
        people = {answer.document for answer in answers if answer.user != DATA and answer.kind != "skip"}
        wanted = None if users is None else set(users)
        return [
            answer
            for answer in answers
            if (wanted is None or answer.user in wanted) and not (answer.user == DATA and answer.document in people)
        ]

    def answered_by(self, user: str) -> list[int]:
        """Return the texts that a user has answered, in the order of their ids."""
        query = f"SELECT DISTINCT document FROM answers WHERE user = ? AND {VALID} ORDER BY document"
        return [row[0] for row in self._connection().execute(query, (user,))]

    def disagreements(self) -> dict[int, list[Answer]]:
        """Return the texts without a majority for one answer, with the answers, in the order of their ids."""
        return {document: answers for document, (row, answers) in self._settled().items() if row is None}

    def settled(self) -> dict[int, NDArray[np.float32]]:
        """Return the targets, (K,), of each answered text on which people agree, in the order of their ids."""
        return {document: row for document, (row, _) in self._settled().items() if row is not None}

    def _settled(self) -> Settled:
        """Return what the answers to each text settle; only texts with new rows of answers are computed again."""
        before, former = self._known
        if (newest := self.newest()) == before:
            return former
        rows = self._connection().execute("SELECT DISTINCT document FROM answers WHERE id > ?", (before,))
        changed = {row[0] for row in rows}
        given: dict[int, list[Answer]] = {}
        for answer in self.current():
            if answer.kind != "skip" and answer.document in changed:
                given.setdefault(answer.document, []).append(answer)
        targets = iter(target_rows([answer for answers in given.values() for answer in answers], self.taxonomy))
        found = {document: own for document, own in former.items() if document not in changed}
        for document, answers in given.items():
            found[document] = majority(np.stack([next(targets) for _ in answers])), answers
        found = dict(sorted(found.items()))
        self._known = newest, found
        return found

    def lease(self, document: int, user: str, seconds: float, *, shared: bool = False) -> bool:
        """Reserve a text for a user in place of the user's former lease; return False if others have it.

        Others have a text if as many of them have answered it or hold a lease as are to label it: one, or two in the
        sample labelled twice. With ``shared`` it is reserved whatever others do.
        """
        now = time.time()
        with self._writing() as connection:
            connection.execute("DELETE FROM leases WHERE until <= ? OR user = ?", (now, user))
            if not shared:
                query = (
                    f"SELECT user FROM answers WHERE document = ? AND {VALID} AND kind != 'skip'"
                    " UNION SELECT user FROM leases WHERE document = ?"
                )
                others = {row[0] for row in connection.execute(query, (document, document))} - {user, DATA}
                (double,) = connection.execute("SELECT double FROM documents WHERE id = ?", (document,)).fetchone()
                if len(others) >= 1 + double:
                    return False
            connection.execute("INSERT INTO leases VALUES (?, ?, ?)", (document, user, now + seconds))
        return True

    def leased(self, user: str) -> int | None:
        """Return the text that is leased to a user, or None."""
        query = "SELECT document FROM leases WHERE user = ? AND until > ?"
        row = self._connection().execute(query, (user, time.time())).fetchone()
        return None if row is None else int(row[0])

    def work(self, user: str, double: NDArray[np.bool_]) -> Work:
        """Return the texts that a user may be given; ``double`` is the sample labelled twice, (N,)."""
        connection, count = self._connection(), len(double)
        answered = connection.execute(
            f"SELECT document, user, kind != 'skip' FROM answers WHERE id IN ({NEWEST})"
        ).fetchall()
        leased = connection.execute("SELECT document, user FROM leases WHERE until > ?", (time.time(),)).fetchall()
        own, taken, seconds = np.zeros((3, count), dtype=np.bool_)
        holders: set[tuple[int, str]] = set()
        for document, other, counts in answered:
            taken[document] = True
            if other == user:
                own[document] = True
            elif other != DATA and counts:
                seconds[document] = True
                holders.add((document, other))
        for document, other in leased:
            taken[document] = True
            if other != user:
                holders.add((document, other))
        numbers = np.bincount([document for document, _ in holders], minlength=count)
        free = ~own & (numbers < 1 + double)
        return Work(free, taken, free & seconds & double, int(own.sum()))

    def add_model(self, answers: int, effort: str, scores: dict[str, Any]) -> int:
        """Record a model and return its id."""
        with self._writing() as connection:
            values = (time.time(), answers, effort, json.dumps(scores))
            cursor = connection.execute(
                "INSERT INTO models(created, answers, effort, scores) VALUES (?, ?, ?, ?)", values
            )
        return int(cursor.lastrowid or 0)

    def models(self) -> list[ModelRow]:
        """Return all models in the order of their ids."""
        rows = self._connection().execute("SELECT id, answers, effort, scores FROM models ORDER BY id")
        return [ModelRow(number, answers, effort, json.loads(scores)) for number, answers, effort, scores in rows]

    def close(self) -> None:
        """Close the connections of all threads."""
        while self._opened:
            self._opened.pop().close()
        self._local = threading.local()

    def _check(self, answer: Answer) -> None:
        if not answer.user.strip():
            raise InputError("the answer has no user")
        if answer.kind not in ("labels", "none", "skip"):
            raise InputError(f"unknown kind of answer {answer.kind!r}", remedy="use labels, none or skip")
        if unknown := [label for label in (*answer.labels, *answer.refused) if label not in self._index]:
            raise InputError(f"unknown label {unknown[0]!r}", remedy="use ids of the label tree")
        if answer.kind == "labels" and not (answer.labels or (answer.partial and answer.refused)):
            raise InputError("the answer has no label", remedy="use the kind none for a text that belongs nowhere")
        if answer.kind != "labels" and (answer.labels or answer.refused or answer.partial):
            raise InputError(f"an answer of the kind {answer.kind} has labels", remedy="leave them out")
        chosen = self.taxonomy.closure([self._index[label] for label in answer.labels]).tolist()
        if both := {self.taxonomy.ids[label] for label in chosen} & set(answer.refused):
            raise InputError(f"{min(both)!r} is both chosen and refused", remedy="leave out one of them")

    def _connection(self) -> sqlite3.Connection:
        """Return this thread's connection."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = sqlite3.connect(
                self.folder / FILE, timeout=WAIT, isolation_level=None, check_same_thread=False
            )
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            self._local.connection = connection
            self._opened.append(connection)
        return connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection in a transaction, which is on the disk when the block has ended."""
        connection = self._connection()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _answer(row: tuple[Any, ...]) -> Answer:
    number, document, user, kind, labels, refused, partial, note, model, milliseconds = row
    chosen, no = tuple(json.loads(labels)), tuple(json.loads(refused))
    return Answer(document, user, kind, chosen, no, bool(partial), note, model, milliseconds, number)


def target_rows(answers: Sequence[Answer], taxonomy: Taxonomy) -> NDArray[np.float32]:
    """Return the targets of answers, (n, K): 1 for a label that applies, 0 for one that does not, NaN if unknown.

    The labels and their ancestors are 1, refused labels and all below them 0. If an answer is partial, the other labels
    below its labels are NaN, or all other labels if it has none. Everything else is 0.

    Example:
        >>> tree = Taxonomy(["science", "physics", "optics", "law"], [-1, 0, 1, -1])
        >>> target_rows([Answer(0, "anna", "labels", ("physics",), partial=True)], tree)
        array([[ 1.,  1., nan,  0.]], dtype=float32)
    """
    index = {identifier: label for label, identifier in enumerate(taxonomy.ids)}
    chosen, refused = np.zeros((2, len(answers), len(taxonomy)), dtype=np.bool_)
    for row, answer in enumerate(answers):
        chosen[row, [index[label] for label in answer.labels]] = True
        refused[row, [index[label] for label in answer.refused]] = True
    partial = np.array([answer.partial for answer in answers], dtype=np.bool_)
    bare = np.array([not answer.labels for answer in answers], dtype=np.bool_)

    def with_branches(marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
        arranged = taxonomy.order.arrange(marked)
        taxonomy.order.carry_down(arranged, np.logical_or)
        return taxonomy.order.restore(arranged)

    targets = np.zeros(chosen.shape, dtype=np.float32)
    targets[partial[:, None] & (with_branches(chosen) | bare[:, None])] = np.nan
    targets[with_branches(refused)] = 0
    targets[taxonomy.close(chosen)] = 1
    return targets


def majority(rows: NDArray[np.float32]) -> NDArray[np.float32] | None:
    """Return the targets, (K,), on which more than half of several answers, (n, K), agree; None without a majority.

    Two answers agree if no label is 1 in one and 0 in the other. A label that is unknown in some of the answers that
    agree has the target of the others.
    """
    if len(rows) == 1:
        only: NDArray[np.float32] = rows[0]
        return only
    yes, no = rows == 1, rows == 0
    differ = yes.astype(np.int64) @ no.T
    agree = (differ + differ.T) == 0  # (n, n)
    best = int(agree.sum(axis=1).argmax())
    if 2 * int(agree[best].sum()) <= len(rows):
        return None
    support = agree[best]
    result: NDArray[np.float32] = rows[best].copy()
    unknown = np.isnan(result)
    result[unknown & yes[support].any(axis=0)] = 1
    result[unknown & no[support].any(axis=0) & ~yes[support].any(axis=0)] = 0
    return result
