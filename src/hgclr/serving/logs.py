"""What the service writes on standard error: every line with its time, and no fault over and over."""

from __future__ import annotations

import logging
import time
from typing import TextIO

from hgclr.serving.middleware import ACCESS

__all__ = ["SameFault", "start_log"]

QUIET = 1.0
"""Seconds for which a fault that has been told is not told again."""
DIFFERENT = 1000
"""Faults that are told apart."""


def start_log(stream: TextIO | None = None, *, requests: bool = False) -> logging.Handler:
    """Write what the service and its server log, a line each with its time (UTC); ``requests`` adds one for each.

    Standard error is the stream by default. How much else is told is as for the other commands.
    """
    handler = logging.StreamHandler(stream)
    handler.addFilter(SameFault())
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    formatter.converter = time.gmtime
    formatter.default_time_format, formatter.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"
    handler.setFormatter(formatter)
    for name in ("hgclr", "uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    if requests:  # which are quieter than the rest of the log otherwise
        logging.getLogger(ACCESS).setLevel(logging.INFO)
    return handler


class SameFault(logging.Filter):
    """Tell of a fault at most once a second; the next time it is told, with how many others there were."""

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record is to be written."""
        if record.levelno < logging.WARNING:
            return True
        fault, now = (record.name, str(record.msg).partition("\n")[0]), time.monotonic()
        told, untold = self._told.get(fault, (float("-inf"), 0))
        if now - told < QUIET:
            self._told[fault] = told, untold + 1
            return False
        if len(self._told) >= DIFFERENT:
            self._told.clear()
        self._told[fault] = now, 0
        if untold:
            record.msg, record.args = f"({untold} more of these meanwhile) {record.getMessage()}", ()
        return True
