"""Settings of the property tests, and a Ray cluster that no one else uses."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings

# Reproducible by default; more and random ones on request.

settings.register_profile("reproducible", deadline=None, derandomize=True, max_examples=60)
settings.register_profile("thorough", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "reproducible"))


@pytest.fixture(scope="session")
def new_cluster() -> Iterator[Callable[[int], Any]]:
    """Make Ray clusters, each with a head of so many CPUs; nothing is left of them."""
    from ray.cluster_utils import Cluster

    made: list[Any] = []
    # Not below pytest's own directories: the names of sockets must be short.
    directory = tempfile.mkdtemp(prefix="ray")

    def make(cpus: int) -> Any:
        head = {
            "num_cpus": cpus, "include_dashboard": False, "temp_dir": directory,
            "object_store_memory": 100 * 2**20,
        }  # fmt: skip
        made.append(Cluster(initialize_head=True, head_node_args=head))
        return made[-1]

    yield make
    for cluster in made:
        cluster.shutdown()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def ray_address(new_cluster: Callable[[int], Any]) -> str:
    """Return the address of a small cluster."""
    return str(new_cluster(4).address)
