"""The resources of servers as Ray understands them."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any


def build_actor_options(resources: Mapping[str, float], servers: int) -> dict[str, Any]:
    """Return the options of a Ray actor that holds the resources of some servers.

    >>> build_actor_options({"CPU": 2, "licence": 1}, 3)
    {'num_cpus': 6, 'resources': {'licence': 3}}
    """
    total = {name: amount * servers for name, amount in resources.items()}
    if total.get("GPU", 0.0) > 1:
        total["GPU"] = ceil(total["GPU"] - 1e-6)  # above 1, Ray accepts whole GPUs only
    known = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    options: dict[str, Any] = {known[name]: total.pop(name) for name in known if name in total}
    return {"num_cpus": 0, **options, "resources": total}


def count_threads(resources: Mapping[str, float], servers: int) -> int:
    """Return how many threads libraries should start on some servers: as many as these have CPUs.

    >>> count_threads({"CPU": 4}, 2), count_threads({"CPU": 0.5}, 1), count_threads({"GPU": 1}, 2)
    (8, 1, 2)
    """
    return max(int(resources.get("CPU", 1) * servers), 1)
