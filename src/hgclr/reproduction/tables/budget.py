"""Less of everything, for every row alike: documents, length of texts, epochs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hgclr.errors import InputError

__all__ = ["Budget"]

KEYS = ("documents", "length", "epochs", "dev", "test")
EXAMPLE = "documents=1500,length=64,epochs=8"


@dataclass(frozen=True)
class Budget:
    """What the rows of a table may spend; None is no bound.

    Args:
        documents: size of the random sample of training documents, another one for each seed.
        length: tokens of a text that are read.
        epochs: epochs; systems that take longer by nature get a multiple, see ``System.length``.
        dev: size of the sample of dev documents scored, by default as many as ``documents``.
        test: size of the sample of test documents scored, by default as many as ``documents``.
        scores_all: by default dev and test are scored whole instead.
    """

    documents: int | None = None
    length: int | None = None
    epochs: int | None = None
    dev: int | None = None
    test: int | None = None
    scores_all: bool = False

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read ``key=number`` pairs with commas between them.

        Raises:
            InputError: for an unknown or repeated key, or a value that is no whole number from 1.

        Example:
            >>> Budget.parse("documents=1500, epochs=8")
            Budget(documents=1500, length=None, epochs=8, dev=None, test=None, scores_all=False)
        """
        values: dict[str, Any] = {}
        for part in text.split(","):
            key, _, value = (piece.strip() for piece in part.partition("="))
            if key not in KEYS:
                raise InputError(f"--budget has no {key!r}", remedy=f"known are {', '.join(KEYS)}, as in {EXAMPLE}")
            if key in values:
                raise InputError(f"--budget has {key!r} twice")
            if not value.isascii() or not value.isdigit() or int(value) < 1:
                raise InputError(f"--budget: {key} is {value!r}", remedy=f"give a whole number from 1, as in {EXAMPLE}")
            values[key] = int(value)
        return cls(**values)

    def settings(self) -> dict[str, dict[str, Any]]:
        """Return the budget as settings of a run; nothing stands there for what has no bound."""
        scored = None if self.scores_all else self.documents
        data = {"limit": self.documents, "dev_limit": self.dev or scored, "test_limit": self.test or scored}
        sections = {"data": data, "model": {"max_length": self.length}, "training": {"epochs": self.epochs}}
        return {
            section: {name: value for name, value in values.items() if value is not None}
            for section, values in sections.items()
        }

    def __str__(self) -> str:
        """Say it in words, for the title of a table."""
        words = {"documents": "documents", "length": "tokens", "epochs": "epochs"}
        parts = [f"{getattr(self, key):,} {word}" for key, word in words.items() if getattr(self, key) is not None]
        scored = [f"{split} {size:,}" for split, size in (("dev", self.dev), ("test", self.test)) if size is not None]
        return ", ".join([*parts, *(f"scored on {sample}" for sample in scored)])
