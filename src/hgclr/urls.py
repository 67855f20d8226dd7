"""URLs of object stores, as text and as paths.

pathlib makes one slash of the two in ``s3://bucket/data``, and from that the URL can be read back: so a path may carry
one from the command line or the settings to whoever opens it, and need not be of another type on the way.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["COPIES", "as_written", "holds_credentials", "url_of"]

COPIES: dict[str, str] = {}
"""What this process has on this machine for something in an object store, a copy or a lock, each with that URL."""

URL = re.compile(r"([a-z][a-z0-9+.-]+):/+(.+)", re.DOTALL)  # one letter before a colon is a drive
PASSWORD = re.compile(r"[^/:@]*:(?!\d*(/|$))")
"""The beginning of what stands behind ``//`` if there is more than a host, or a host and its port."""
SIGNED = re.compile(r"https?://[^?]*\?")


def url_of(place: str | Path) -> str | None:
    """Return the URL that a place is, or None for a path.

    Example:
        >>> url_of(Path("s3://bucket/data")), url_of("my-data")
        ('s3://bucket/data', None)
    """
    match = URL.fullmatch(place.as_posix() if isinstance(place, Path) else place)
    if match is None:
        return None
    return f"{match[1]}://{'/' if match[1] == 'file' else ''}{match[2].rstrip('/')}"


def holds_credentials(url: str) -> bool:
    """Tell whether a URL has a password in it, or the query of a signed link.

    Example:
        >>> [holds_credentials(url) for url in ("s3://id:secret@bucket/data", "sftp://me@host:22/data")]
        [True, False]
    """
    return bool(PASSWORD.match(url.partition("://")[2]) or SIGNED.match(url))


def as_written(place: str | Path) -> str:
    """Return a path or a URL as people write it, without what must not be shown to others; of a copy, its original.

    Example:
        >>> as_written(Path("s3://bucket/data")), as_written("s3://id:secret@bucket/data")
        ('s3://bucket/data', 's3://***@bucket/data')
    """
    url = url_of(place)
    if url is None:
        text = str(place)
        originals = (
            url + text[len(copy) :] for copy, url in COPIES.items() if f"{text}{os.sep}".startswith(copy + os.sep)
        )
        return next(originals, text)
    if not holds_credentials(url):
        return url
    scheme, _, rest = url.partition("://")
    shown = f"***@{rest.rpartition('@')[2]}" if "@" in rest else rest if SIGNED.match(url) else "***"
    return f"{scheme}://{shown.partition('?')[0]}"
