"""Processes that have imported torch and transformers, and nothing of ours: started once for all files of a worker."""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from functools import cache

from support.fresh_process import FreshProcesses, fresh_processes


@cache
def transformers_processes() -> FreshProcesses:
    """Give what runs programs in them, until the tests end."""
    until_the_end = ExitStack()
    atexit.register(until_the_end.close)
    return until_the_end.enter_context(fresh_processes("transformers.pipelines", "torch"))
