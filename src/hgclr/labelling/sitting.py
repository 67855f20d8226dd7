"""A sitting: the next text with suggestions, answers, progress, and a model that learns in the background."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import DataFolder, open_tree
from hgclr.decisions.review import margins, tree_scores
from hgclr.encoders import DEFAULT_ENCODER
from hgclr.errors import InputError
from hgclr.files import locked
from hgclr.labelling import learning
from hgclr.labelling.choice import Pool, choose, cluster_count, kmeans
from hgclr.labelling.export import export
from hgclr.labelling.learning import RETRAIN, Encoder, Head, encode_texts, learn
from hgclr.labelling.store import DATA, TREE, Answer, Store, Work
from hgclr.taxonomy import Taxonomy

logger = logging.getLogger(__name__)
LEASE = 900.0
"""Seconds for which a text is reserved."""
IDLE = 60.0
"""Seconds after a training from which on one new answer starts the next."""
SUGGESTIONS = 5
SURE = 0.8
"""Probability of the best path above which the yes-or-no mode asks about it."""
SECOND = 5
"""Every so many answers, a user gets a text that another user has answered and that two are to label."""
ROWS = 4096
"""Texts scored at a time."""
LOCK = ".labelling.lock"


@dataclass(frozen=True)
class Suggestion:
    """A path that the model suggests.

    Args:
        label: id of the label where the path ends.
        path: the names from the top label down to it.
        probability: its probability; those of all leaves sum up to 1.
        words: the words of the text that carried it, strongest first, as they are in the text.
    """

    label: str
    path: tuple[str, ...]
    probability: float
    words: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"path": list(self.path), "words": list(self.words)}


@dataclass(frozen=True)
class Task:
    """A text to label.

    Args:
        document: id of the text.
        text: the text.
        hidden: the text is in the random slice, so there are no suggestions.
        suggestions: the best paths, best first, five at most.
        question: in the yes-or-no mode, the path to ask about, if the model is sure enough.
        model: id of the model that made the suggestions; None if it has learned from label names only.
        others: in the mode ``disagreements``, the answers of all people to this text.
    """

    document: int
    text: str
    hidden: bool
    suggestions: list[Suggestion] = field(default_factory=list)
    question: Suggestion | None = None
    model: int | None = None
    others: list[Answer] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {
            "suggestions": [each.to_json() for each in self.suggestions],
            "question": None if self.question is None else self.question.to_json(),
            "others": [each.to_json() for each in self.others],
        }


@dataclass(frozen=True)
class Progress:
    """The state of a sitting.

    Args:
        answers: number of texts with an answer, "belongs nowhere" included; of one user, if one was asked for.
        skipped: number of texts skipped by somebody, or by this user.
        documents: number of texts.
        labels_covered: number of labels with at least one text, ancestors included.
        labels: number of labels.
        labels_without_text: ids of the others, in the order of the tree.
        model: id of the newest model.
        training: a model is being trained.
        curve: for each model the answers it learned from, Macro-F1 on the random slice, and the ends of its interval.
        agreement: share of the texts for which the newest two models suggest the same leaf first.
        people: answers of each user.
        people_agreement: Cohen's kappa at each level for texts with answers of two people, None where it is undefined;
            None if there is no such text.
        disagreements: number of texts on which people disagree.
        advice: one sentence.
    """

    answers: int
    skipped: int
    documents: int
    labels_covered: int
    labels: int
    labels_without_text: list[str]
    model: int | None
    training: bool
    curve: list[tuple[int, float, float, float]]
    agreement: float | None
    people: dict[str, int]
    people_agreement: list[float | None] | None
    disagreements: int
    advice: str

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"curve": [list(point) for point in self.curve]}


@dataclass(frozen=True, eq=False)
class Model:
    """A trained head with all that depends on it; replaced as a whole.

    Args:
        id: its id in the store; None if it has learned from label names only.
        answers: number of texts that it has learned from or been scored on.
        newest: id of the newest answer before its training.
        encoder: the encoder of ``vectors``.
        vectors: of all texts, (N, H).
        head: the head.
        pool: what the choice of texts depends on.
        first: the leaf that it suggests first for each text, (N,), as a place in ``taxonomy.leaves``.
        agreement: share of texts with the same first leaf as with the model before it.
    """

    id: int | None
    answers: int
    newest: int
    encoder: Encoder
    vectors: NDArray[np.float32]
    head: Head
    pool: Pool
    first: NDArray[np.int64]
    agreement: float | None = None


def read_progress(store: Store, user: str | None = None) -> Progress:
    """Return the state of a store, with the counts of one user or of all; a sitting may have it open."""
    taxonomy, models = store.taxonomy, store.models()
    current = [answer for answer in store.current() if answer.user != DATA]
    answered = [answer for answer in current if answer.kind != "skip"]
    people: dict[str, int] = {}
    for answer in answered:
        people[answer.user] = people.get(answer.user, 0) + 1
    own = [answer for answer in current if user in (None, answer.user)]
    settled, open_texts = store.settled(), store.disagreements()
    covered = np.zeros(len(taxonomy), dtype=np.bool_)
    for row in settled.values():
        covered |= row == 1
    without = [taxonomy.ids[label] for label in np.flatnonzero(~covered)]
    curve = [
        (model.answers, model.scores["macro_f1"], model.scores["low"], model.scores["high"])
        for model in models
        if "macro_f1" in model.scores
    ]
    advice = learning.advice(
        curve,
        answers=len({answer.document for answer in answered}),
        leaves=len(taxonomy.leaves),
        without_text=len(without),
        open_texts=len(open_texts),
    )
    return Progress(
        answers=len({answer.document for answer in own if answer.kind != "skip"}),
        skipped=len({answer.document for answer in own if answer.kind == "skip"}),
        documents=len(store),
        labels_covered=int(covered.sum()),
        labels=len(taxonomy),
        labels_without_text=without,
        model=models[-1].id if models else None,
        training=False,
        curve=curve,
        agreement=models[-1].scores.get("agreement") if models else None,
        people=people,
        people_agreement=learning.people_agreement(answered, taxonomy),
        disagreements=len(open_texts),
        advice=advice,
    )


class Sitting:
    """Labelling in an output folder; see :meth:`open`. All methods may be called from any thread.

    Attributes:
        store: the texts and answers.
        taxonomy: the label tree.
        model: the newest model.
        failure: why the latest training failed; None if it did not.
    """

    def __init__(self, store: Store, encoder: Encoder, vectors: NDArray[np.float32], seed: int) -> None:
        self.store, self.taxonomy = store, store.taxonomy
        self.failure: str | None = None
        self._seed, self._stack = seed, ExitStack()
        documents = store.documents()
        self._texts = [each.text for each in documents]
        self._random, self._double = (
            np.array([getattr(each, name) for each in documents], dtype=np.bool_) for name in ("random", "double")
        )
        self._given = np.zeros(len(documents), dtype=np.bool_)  # labelled by the data folder
        self._given[store.answered_by(DATA)] = True
        self._order = np.random.default_rng(seed).random(len(documents))
        self._training, self._closing = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._trained_at = time.monotonic()
        self._handed: dict[str, int] = {}  # by user, the text given in the mode "disagreements"
        self._reviewed: dict[str, set[int]] = {}  # by user, the texts answered in it
        self._clusters: dict[tuple[str, int], tuple[NDArray[np.int64], NDArray[np.float32]]] = {}
        self.model = self._learn("head", encoder, vectors, None)

    @classmethod
    def open(
        cls,
        output: Path,
        *,
        texts: Sequence[str | Path] = (),
        taxonomy: Path | None = None,
        model: Path | None = None,
        data: Path | None = None,
        encoder: str = DEFAULT_ENCODER,
        seed: int = 0,
        text_column: str | None = None,
        progress: Callable[[int, int | None], None] | None = None,
    ) -> Sitting:
        """Open or begin a sitting.

        A new one encodes all texts once and keeps the vectors in the folder. A known one needs the folder alone.

        Args:
            output: the folder.
            texts: files, folders, patterns or URLs with the texts; not needed with ``data``.
            taxonomy: the label tree; by default that of the folder, of ``data`` or of ``model``.
            model: a trained flat model; its encoder and its head are the start of learning.
            data: a data folder whose train split is learned from. Its texts come last, those with the smallest margin
                first, to review their labels.
            encoder: the encoder, if there is no model.
            seed: of the random slice, the texts labelled twice and the clusters.
            text_column: the column with the text.
            progress: called with the number of texts encoded and of all texts.

        Raises:
            InputError: if something is missing or does not fit, or another process has the folder open.
        """
        output = Path(output)
        with ExitStack() as stack:
            stack.enter_context(locked(output / LOCK, "labelling", remedy="stop it first, or choose another folder"))
            folder = None if data is None else DataFolder(data)
            tree = None if taxonomy is None else Taxonomy.read(taxonomy)
            if tree is None and not (output / TREE).is_file():
                tree = folder.taxonomy if folder is not None else None if model is None else open_tree(model)
            labelled = () if folder is None else folder.documents("train")
            store = Store.open(output, texts, tree, labelled=labelled, seed=seed, text_column=text_column)
            stack.callback(store.close)
            if model is not None or store.meta("encoder") is None:
                start = None if model is None else str(model.absolute())
                store.set_meta("encoder", {"encoder": encoder, "model": start})
            start = store.meta("encoder")
            known = Encoder.load(store.taxonomy, start["encoder"], start["model"] and Path(start["model"]))
            vectors = encode_texts(known, store.texts(), output / f"vectors-{known.name}.npy", progress)
            sitting = cls(store, known, vectors, store.meta("seed"))
            sitting._stack = stack.pop_all()
            return sitting

    def next(self, user: str, *, mode: Literal["all", "disagreements"] = "all", yes_no: bool = False) -> Task | None:
        """Lease the next text to a user and return it; None if there is none. Asked again, it is the same text.

        In the mode ``disagreements`` it is a text on which people disagree and that this user has not answered in this
        mode since the sitting was opened.
        """
        self._retrain_if_due()
        if mode == "disagreements":
            others, reviewed = self.store.disagreements(), self._reviewed.setdefault(user, set())
            document = next((document for document in others if document not in reviewed), None)
            if document is None:
                return None
            self._handed[user] = document
            self.store.lease(document, user, LEASE, shared=True)
            return self._task(document, yes_no, others[document])
        self._handed.pop(user, None)
        work = self.store.work(user, self._double)
        if (leased := self.store.leased(user)) is not None and work.free[leased]:
            self.store.lease(leased, user, LEASE, shared=True)
            return self._task(leased, yes_no)
        while (document := self._choose(work)) is not None:
            if self.store.lease(document, user, LEASE):
                return self._task(document, yes_no)
            work.free[document] = False  # another user was faster
        return None

    def answer(self, answer: Answer) -> int:
        """Store an answer and return its id once it is on the disk; see :meth:`Store.add`."""
        if answer.user == DATA:
            raise InputError(f"the user {DATA!r} is that of labels from a data folder", remedy="choose another name")
        number = self.store.add(answer)
        if self._handed.get(answer.user) == answer.document:
            self._reviewed.setdefault(answer.user, set()).add(answer.document)
        self._retrain_if_due()
        return number

    def undo(self, user: str) -> Task | None:
        """Undo the user's latest answer; return its text, leased again, or None if there is no answer left."""
        undone = self.store.undo(user)
        if undone is None:
            return None
        self._reviewed.get(user, set()).discard(undone.document)
        self.store.lease(undone.document, user, LEASE, shared=True)
        return self._task(undone.document)

    def progress(self, user: str | None = None) -> Progress:
        """Return the state of the sitting, with the counts of one user or of all."""
        state, model = read_progress(self.store, user), self.model
        advice = state.advice if self.failure is None else f"the latest training failed: {self.failure}"
        training = self._training.locked()
        return replace(state, model=model.id, training=training, agreement=model.agreement, advice=advice)

    def retrain(self, effort: Literal["head", "full"] = "head", *, wait: bool = False) -> None:
        """Train a model on the answers so far and put it in place of the one in use.

        ``head`` trains a head on the vectors. ``full`` exports the answers, trains the encoder too, in a process of its
        own, and encodes all texts again; meanwhile no head is trained. Only one training runs at a time: a request for
        a head is dropped if one is running.

        Args:
            effort: ``head`` or ``full``.
            wait: return when the model is in use; otherwise training runs in the background.

        Raises:
            InputError: with ``wait``, if training fails; in the background, :attr:`failure` says why.
        """

        def work() -> None:
            if not self._training.acquire(blocking=wait or effort == "full"):
                return
            try:
                if not self._closing.is_set():
                    self._train(effort)
            except Exception as error:
                self.failure = str(error)
                if wait:
                    raise
                if not self._closing.is_set():
                    logger.exception("training failed; the former model stays in use")
            finally:
                self._trained_at = time.monotonic()
                self._training.release()

        if wait:
            work()
        else:
            self._thread = threading.Thread(target=work, name="hgclr-training", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop a full training, wait for a head that is being trained, and close the store."""
        self._closing.set()
        if (child := self._child) is not None:
            child.terminate()
        with self._training:
            self._stack.close()

    def _retrain_if_due(self) -> None:
        """Start a training after 25 new answers, or after one if the last training, or its failure, is a minute ago."""
        new = self.store.newest() - self.model.newest
        idle = time.monotonic() - self._trained_at >= IDLE
        many = new >= RETRAIN and self.failure is None
        if not self._training.locked() and new > 0 and (many or idle):
            self.retrain()

    def _train(self, effort: Literal["head", "full"]) -> None:
        former = self.model
        encoder, vectors = former.encoder, former.vectors
        if effort == "full":
            encoder, vectors = self._train_encoder()
        self.model = self._learn(effort, encoder, vectors, former)
        self.failure = None

    def _train_encoder(self) -> tuple[Encoder, NDArray[np.float32]]:
        """Train a whole model in another process; return its encoder and the vectors of all texts."""
        place, start = self.store.folder / "full", self.store.meta("encoder")
        place.mkdir(exist_ok=True)
        run, log = place / f"run-{len(self.store.models()) + 1}", place / "train.log"
        export(self.store, self.taxonomy, place / "data")
        settings = [f"model.encoder={start['encoder']}", f"training.seed={self._seed}"]
        options = [word for setting in settings for word in ("--set", setting)]
        command = [sys.executable, "-m", "hgclr", "train", str(place / "data"), "--output", str(run), *options]
        with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as child:
            self._child = child
            if self._closing.is_set():
                child.terminate()
        self._child = None
        if child.returncode:
            raise InputError("the full training failed", path=log, remedy="read the log")
        encoder = Encoder.load(self.taxonomy, start["encoder"], run / "model")
        vectors = encode_texts(encoder, self._texts, self.store.folder / f"vectors-{encoder.name}.npy")
        self.store.set_meta("encoder", start | {"model": str((run / "model").absolute())})
        return encoder, vectors

    def _learn(self, effort: str, encoder: Encoder, vectors: NDArray[np.float32], former: Model | None) -> Model:
        """Return a model of the answers so far, recorded in the store unless it is there or has no answers."""
        newest, settled = self.store.newest(), self.store.settled()
        documents = np.array(list(settled), dtype=np.int64)
        targets = np.array(list(settled.values()), dtype=np.float32).reshape(-1, len(self.taxonomy))
        in_slice = self._random[documents]
        scored = in_slice & ~np.isnan(targets).any(axis=1)
        head = learn(
            encoder,
            vectors[documents[~in_slice]],
            targets[~in_slice],
            vectors[documents[scored]],
            targets[scored] == 1,
        )
        logits = head.logits(vectors[documents[scored]])
        on_slice = learning.slice_scores(logits, targets[scored] == 1, self.taxonomy, seed=self._seed)
        first, doubt = np.empty(len(vectors), dtype=np.int64), np.empty(len(vectors), dtype=np.float32)
        for start in range(0, len(vectors), ROWS):
            scores = tree_scores(head.logits(vectors[start : start + ROWS]), self.taxonomy)
            first[start : start + ROWS], doubt[start : start + ROWS] = scores.argmax(axis=1), margins(scores)
        leaves, people = len(self.taxonomy.leaves), int((~in_slice & ~self._given[documents]).sum())
        key = encoder.name, cluster_count(people + RETRAIN, leaves, len(vectors))
        if key not in self._clusters:
            self._clusters = {key: kmeans(vectors, key[1], seed=self._seed)}
        pool = Pool(self._random, self._order, *self._clusters[key], doubt, leaves, float(self.store.meta("shares")[0]))
        models = self.store.models()
        if not settled:
            number, agreement = None, None
        elif former is None and models and models[-1].answers == len(settled):  # opened again
            number, agreement = models[-1].id, models[-1].scores.get("agreement")
        else:
            agreement = None if former is None else float((first == former.first).mean())
            number = self.store.add_model(len(settled), effort, on_slice | {"agreement": agreement})
        return Model(number, len(settled), newest, encoder, vectors, head, pool, first, agreement)

    def _choose(self, work: Work) -> int | None:
        """Return a free text, or None; texts that the data folder has labelled come last."""
        pool, taken = self.model.pool, work.taken & ~self._given
        if work.second.any() and work.own % SECOND == SECOND - 1:
            return int(np.flatnonzero(work.second)[0])
        chosen = choose(pool, taken, work.free & ~self._given)
        return choose(pool, taken, work.free & self._given, "margin") if chosen is None else chosen

    def _task(self, document: int, yes_no: bool = False, others: list[Answer] | None = None) -> Task:
        model, text, hidden = self.model, self._texts[document], bool(self._random[document])
        suggestions = list[Suggestion]()
        if not hidden:
            logits = model.head.logits(model.vectors[document : document + 1])
            (row,), leaves = model.head.suggesting.probabilities(logits), self.taxonomy.leaves
            best = leaves[np.argsort(-row[leaves], kind="stable")[:SUGGESTIONS]].tolist()
            words = learning.carrying_words(model.encoder.classifier, model.head.weight, text, best)
            suggestions = [
                Suggestion(self.taxonomy.ids[label], self.taxonomy.path_names(label), float(row[label]), own)
                for label, own in zip(best, words, strict=True)
            ]
        sure = yes_no and bool(suggestions) and suggestions[0].probability > SURE
        question = suggestions[0] if sure else None
        return Task(document, text, hidden, suggestions, question, model.id, others or [])
