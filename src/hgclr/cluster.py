"""Connect to a Ray cluster, or start Ray on this machine."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hgclr.errors import HGCLRError, first_line, require_extra

OBJECT_STORE = 2**29
"""Bytes of shared memory for Ray, where hgclr starts it."""
NEEDS = "every node needs hgclr and must see the same model and files"


@contextmanager
def connected(address: str | None, *, kept: str) -> Iterator[None]:
    """Connect to the cluster at an address, or start Ray here and stop it in the end; leave a connection as it is.

    A failure of Ray becomes an `HGCLRError`, which says which part of the work is ``kept``, such as ``finished files``;
    an error in our own code keeps its traceback.
    """
    require_extra("ray", extra="ray", capability="The engine ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reads it on import
    import ray

    connecting = not ray.is_initialized()
    if connecting:
        logging.getLogger("ray").setLevel(logging.ERROR)
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address is None:
            options |= {"include_dashboard": False, "object_store_memory": OBJECT_STORE}
        try:
            ray.init(address or "local", **options)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            raise HGCLRError(f"no Ray cluster at {address or 'this machine'}: {first_line(error)}") from error
    try:
        yield
    except ray.exceptions.UserCodeException:
        raise
    except ray.exceptions.RayError as error:
        raise HGCLRError(f"Ray: {first_line(error)} ({NEEDS}; {kept} are kept)") from error
    finally:
        if connecting:
            ray.shutdown()
