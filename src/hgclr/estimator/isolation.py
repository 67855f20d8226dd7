"""Let a fit leave nothing behind in the process: no random state, no settings of libraries, no cached tokens."""

from __future__ import annotations

import logging
import os
import random
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from hgclr.files import cache_dir

__all__ = ["alone", "quiet_libraries", "shown_log"]

_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def alone(cache: Path) -> Iterator[None]:
    """Train in here: one thread at a time, with the process's random state and cache as they were before and after.

    Training seeds the generators of Python, numpy and torch, which belong to the whole process: two fits in two
    threads would not repeat, and a user's own random numbers would. And it keeps tokens for later runs, which the
    documents of a fold of a cross-validation do not have.

    Args:
        cache: takes the tokens in the place of the user's cache.
    """
    import torch

    with _ONE_AT_A_TIME, torch.random.fork_rng():
        python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (it is this one that training seeds)
        user_cache, chosen = cache_dir(), os.environ.get("HGCLR_CACHE")
        cache.mkdir(parents=True, exist_ok=True)
        if (known := user_cache / "hardware.json").is_file():
            shutil.copy(known, cache)  # what this machine can do need not be tried again
        os.environ["HGCLR_CACHE"] = str(cache)
        try:
            yield
        finally:
            if chosen is None:
                del os.environ["HGCLR_CACHE"]
            else:
                os.environ["HGCLR_CACHE"] = chosen
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Turn the bars and notices of transformers and datasets off, and back to what they were."""
    import datasets
    from transformers.utils import logging as transformers_logging

    level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    dataset_bars = not datasets.are_progress_bars_disabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()
        if dataset_bars:
            datasets.enable_progress_bars()


@contextmanager
def shown_log(verbose: int) -> Iterator[None]:
    """Show what the library is doing on standard error, if asked to and nobody has set up another place for it."""
    if not verbose:
        yield
        return
    logger, handler = logging.getLogger("hgclr"), logging.StreamHandler()
    level = logger.level
    if not logger.hasHandlers():
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
