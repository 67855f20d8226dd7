"""URLs of object stores, as text and as paths.

pathlib turns the two slashes of ``s3://bucket/data`` into one, from which the URL can be restored. So settings and
commands carry URLs as paths, and only the code that opens files tells them apart.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

COPIES: dict[str, str] = {}
"""The copies and locks that this process keeps in the cache for things in object stores, each with its URL."""
URL = re.compile(r"([a-z][a-z0-9+.-]+):/+(.+)", re.DOTALL)  # one letter before a colon is a drive
PASSWORD = re.compile(r"[^/:@]*:(?!\d*(/|$))")
"""Matches behind ``//`` if there is more than a host, or a host and its port."""
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
    """Tell whether a URL has a password in it, or the query of a signed link."""
    return bool(PASSWORD.match(url.partition("://")[2]) or SIGNED.match(url))


def as_written(place: str | Path) -> str:
    """Return a path or a URL as people write it, without secrets; of a copy in the cache, its URL.

    Example:
        >>> as_written(Path("s3://bucket/data")), as_written("s3://id:secret@bucket/data")
        ('s3://bucket/data', 's3://***@bucket/data')
    """
    url = url_of(place)
    if url is None:
        text = str(place)
        owners = (copy for copy in COPIES if f"{text}{os.sep}".startswith(copy + os.sep))
        return next((COPIES[copy] + text[len(copy) :] for copy in owners), text)
    if not holds_credentials(url):
        return url
    scheme, _, rest = url.partition("://")
    shown = f"***@{rest.rpartition('@')[2]}" if "@" in rest else rest if SIGNED.match(url) else "***"
    return f"{scheme}://{shown.partition('?')[0]}"
