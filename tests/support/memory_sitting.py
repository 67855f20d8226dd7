"""A sitting in memory, which suggests what a test says, and a server for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import uvicorn
from fastapi import FastAPI

from hgclr.errors import InputError
from hgclr.labelling.sitting import Progress, Suggestion, Task
from hgclr.labelling.store import Answer
from hgclr.serving.server import listen, server_config
from hgclr.serving.service import Settings
from hgclr.taxonomy import Taxonomy
from support.fake_service import PATIENCE, until

TREE = Taxonomy(
    ["science", "physics", "optics", "chemistry", "society", "law"],
    [-1, 0, 1, 0, -1, 4],
    names=["science", "physics", "optics", "<b>chemistry</b>", "society", "law"],
    alternatives=[[], [], ["theory of light"], [], [], []],
    descriptions=["", "", "lenses and mirrors", "", "", ""],
)
SUGGESTED = {"optics": (0.9, ("lens",)), "law": (0.05, ("court",)), "chemistry": (0.01, ())}


@dataclass
class MemorySitting:
    """A sitting that gives its texts in their order; the last of them has no suggestions."""

    texts: list[str] = field(default_factory=lambda: [f"<i>lens</i> and court {number}" for number in range(12)])
    taxonomy: Taxonomy = TREE
    answers: list[Answer] = field(default_factory=list)
    others: list[Answer] = field(default_factory=list)
    efforts: list[str] = field(default_factory=list)
    closed: bool = False

    @property
    def store(self) -> Any:
        return SimpleNamespace(
            meta=lambda _: None, current=lambda users: [one for one in self.answers if one.user in users]
        )

    def next(self, user: str, *, mode: str = "all", yes_no: bool = False) -> Task | None:
        answered = {answer.document for answer in self.answers}
        free = (document for document in range(len(self.texts)) if document not in answered)
        document = next(free, None) if mode == "all" or self.others else None
        return None if document is None else self.task(document, yes_no, self.others if mode != "all" else [])

    def task(self, document: int, yes_no: bool = False, others: list[Answer] = []) -> Task:  # noqa: B006
        hidden = document == len(self.texts) - 1
        suggestions = [
            Suggestion(label, self.taxonomy.path_names(self.taxonomy.ids.index(label)), probability, words)
            for label, (probability, words) in SUGGESTED.items()
            if not hidden
        ]
        question = suggestions[0] if yes_no and suggestions else None
        return Task(document, self.texts[document], hidden, suggestions, question, 1, others)

    def answer(self, answer: Answer) -> int:
        if answer.document >= len(self.texts):
            raise InputError(f"unknown text {answer.document}")
        self.answers.append(replace(answer, id=len(self.answers) + 1))
        return len(self.answers)

    def undo(self, user: str) -> Task | None:
        mine = [one for one in self.answers if one.user == user]
        if not mine:
            return None
        self.answers.remove(mine[-1])
        return self.task(mine[-1].document)

    def progress(self, user: str | None = None) -> Progress:
        count = len(self.answers)
        curve = [(5, 0.3, 0.2, 0.4), (10, 0.5, 0.45, 0.55)]
        people = {"me": count} if count else {}
        missing = ["society", "law"]
        return Progress(
            count, 0, len(self.texts), 4, 6, missing, 1, False, curve, 0.9, people, None, len(self.others), "Go on."
        )

    def retrain(self, effort: str) -> None:
        self.efforts.append(effort)

    def close(self) -> None:
        self.closed = True


@contextmanager
def serving_app(app: FastAPI) -> Iterator[str]:
    """Serve an application in a thread, on a free port; yield the address."""
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(server_config(app, Settings()))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
