"""A Ray cluster of two nodes on this machine, one processor each, the second of which may die."""

import os

import pytest


class TwoNodes:
    """``address``, and the death and return of the second node."""

    def __init__(self):
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        from ray.cluster_utils import Cluster

        self.cluster = Cluster()
        self.size = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
        self.cluster.add_node(include_dashboard=False, **self.size)
        self.second, self.kills = None, 0

    @property
    def address(self):
        return self.cluster.address

    def whole(self):
        if self.second is None:
            # Until the cluster knows that the last one is dead, a new driver may choose it as its
            # own node, and end with it.
            self.cluster.wait_for_nodes(timeout=120)
            self.second = self.cluster.add_node(**self.size)
        return self

    def kill(self):
        """All processes of the second node, as when its machine loses power."""
        self.cluster.remove_node(self.second, allow_graceful=False)
        self.second = None
        self.kills += 1


@pytest.fixture(scope="session")
def cluster():
    # Not of "ray" itself: where it is not installed, a directory of that name would do.
    pytest.importorskip(
        "ray.cluster_utils", reason="ray is missing: pip install 'roughformer[ray]'"
    )
    nodes = TwoNodes()
    yield nodes
    nodes.cluster.shutdown()


@pytest.fixture
def two_nodes(cluster):
    return cluster.whole()
