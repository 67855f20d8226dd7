"""What a deployment decides: limits, waiting times, and the key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hgclr.errors import InputError

__all__ = ["PROBABILITIES", "Settings", "read_key"]

PROBABILITIES = 2**18
"""Texts times labels of a request that asks for the probability of every label: an answer of some ten megabytes."""
KEY, KEY_FILE = "HGCLR_API_KEY", "HGCLR_API_KEY_FILE"


@dataclass(frozen=True)
class Settings:
    """Limits and waiting times of a service.

    Args:
        max_queue: texts that may wait; a request that would make it more is refused with 429.
        batch_tokens: tokens computed at a time, padding included; by default what the backend takes best.
        max_wait: seconds that a text waits at most for others to share its batch, while nothing is computed.
        deadline: seconds after which a request is answered with 504 and its texts are dropped.
        body_bytes: size of a request's body.
        texts_per_request: texts in one request.
        characters_per_text: characters in one text.
        grace: seconds that requests under way have to finish in when the service is told to stop.
        max_connections: open connections; one more takes the place of the one that is idle longest, or is refused.
        hosts: names, besides those that every machine has for itself, that requests may be for; None: any.
        key: what clients must show; None lets everybody in.

    Raises:
        InputError: if a limit lets nothing through, or the texts of one request would never find queue.
    """

    max_queue: int = 1024
    batch_tokens: int | None = None
    max_wait: float = 0.002
    deadline: float = 30.0
    body_bytes: int = 4 * 2**20
    texts_per_request: int = 256
    characters_per_text: int = 20_000
    grace: float = 30.0
    max_connections: int = 512
    hosts: tuple[str, ...] | None = None
    key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        positive = ("max_queue", "batch_tokens", "deadline", "body_bytes", "texts_per_request", "characters_per_text")
        for name in (*positive, "max_connections"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name} is {value}", remedy="give a number above 0")
        for name in ("max_wait", "grace"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name} is {getattr(self, name)}", remedy="give a number from 0")
        if self.texts_per_request > self.max_queue:
            raise InputError(
                f"{self.texts_per_request} texts a request are more than may wait, {self.max_queue}",
                remedy="raise max_queue, or lower texts_per_request",
            )


def read_key(environment: Mapping[str, str]) -> str | None:
    """Return the key that the environment holds or names a file of, None if there is neither."""
    given, file = environment.get(KEY), environment.get(KEY_FILE)
    if given is not None and file is not None:
        raise InputError(f"both {KEY} and {KEY_FILE} are set", remedy="set one of them")
    if file is not None:
        try:
            given = Path(file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise InputError(f"the key cannot be read: {error.strerror}", path=file) from None
        except UnicodeDecodeError:
            raise InputError("the key is no text", path=file) from None
    if given is None:
        return None
    if not given or not all("!" <= character <= "~" for character in given):
        raise InputError(
            "the key is empty, or has a character that is no printable ASCII",
            path=file,
            remedy="make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
        )
    return given
