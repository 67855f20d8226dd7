"""A Ray cluster of several nodes on this machine, without what no test needs of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import ray
from ray.cluster_utils import Cluster

HEAD = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
QUICK = {"health_check_period_ms": 300}
"""How often Ray looks whether a node is there: five times without a sign of life, and it is lost."""


@contextmanager
def ray_cluster(nodes: int, **environment: str) -> Iterator[Cluster]:
    """Give a cluster: a head that computes nothing, and so many nodes of one core, with this in their environment."""
    cluster = Cluster()
    try:
        cluster.add_node(num_cpus=0, object_store_memory=2**27, _system_config=QUICK, **HEAD)
        for _ in range(nodes):
            cluster.add_node(num_cpus=1, object_store_memory=2**27, env_vars=environment)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
