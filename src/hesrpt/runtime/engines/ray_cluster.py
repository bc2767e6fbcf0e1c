"""A Ray cluster as seen by one who shares it: its nodes, and what is free on them.

A server is a bundle of resources. How many fit on a node is what the node has, without what others
hold. What others hold cannot be asked for: it is what is neither free nor ours. Ray's news of what
is free come late, and what of ours has just come or gone may be in them or not: between what others
hold in the one case and in the other, what was believed before is kept.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from math import floor
from typing import Any

import ray
from ray._private.state import available_resources_per_node
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

from hesrpt.errors import InputError

# Ray counts resources in ten thousandths.
_ROUNDING = 1e-6
# How long to wait for an answer from a node, in seconds.
_ANSWER = 1.0


def connect(address: str | None, runtime_env: Mapping[str, Any] | None) -> bool:
    """Connect to a cluster; return whether that is ours to undo."""
    if address is not None and address.startswith("ray://"):
        raise InputError(
            f"address {address!r}: the scheduler must run on a node of the cluster, for instance "
            "by `ray job submit`; a client's connection does not tell it what it must know"
        )
    if ray.is_initialized():
        connected = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", connected):
            raise InputError(
                f"address {address!r}: this process is connected to Ray at {connected!r} already"
            )
        return False  # whoever has connected may use it, and will disconnect
    host, _, port = (address or "").rpartition(":")
    if host and port.isdigit() and not _answers((host, int(port))):  # Ray would try for minutes
        raise InputError(f"no Ray cluster at {address!r}: nobody answers there")
    if runtime_env is not None and not isinstance(runtime_env, Mapping):
        raise InputError(f"runtime_env must be a dictionary, as for ray.init, got {runtime_env!r}")
    options = {} if runtime_env is None else {"runtime_env": dict(runtime_env)}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        where = "Ray cannot be started" if address is None else f"no Ray cluster at {address!r}"
        raise InputError(f"{where}: {error}") from None
    return True


def as_options(resources: Mapping[str, float], servers: int) -> dict[str, Any]:
    """Return the resources of some servers as Ray wants them to be said."""
    total = {name: amount * servers for name, amount in resources.items()}
    known = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    options: dict[str, Any] = {known[name]: total.pop(name) for name in known if name in total}
    return {"num_cpus": 0, **options, "resources": total}


def _answers(address: tuple[str, int]) -> bool:
    """Return whether somebody listens there."""
    try:
        socket.create_connection(address, timeout=_ANSWER).close()
    except OSError:
        return False
    return True


class Cluster:
    """The nodes of a cluster, and how many servers fit on each."""

    def __init__(self, resources: Mapping[str, float]) -> None:
        self.resources = dict(resources)
        #: By node: how many servers there is room for, those included that are there.
        self.room: dict[str, int] = {}
        self.addresses: dict[str, tuple[str, int]] = {}
        self.unreachable: set[str] = set()
        self.foreign: dict[str, dict[str, float]] = {}
        self._asked: tuple[int, Any] = (0, None)

    def look(self, held: Mapping[str, tuple[int, int]]) -> None:
        """Look at the nodes; ``held`` is how many servers of ours each holds, at least and most."""
        nodes = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
        free = available_resources_per_node()
        self.addresses = {
            name: (node["NodeManagerAddress"], node["NodeManagerPort"])
            for name, node in nodes.items()
        }
        self.unreachable = {
            name
            for name in self.unreachable
            if name in nodes and not _answers(self.addresses[name])
        }
        self.foreign = {name: self.foreign[name] for name in self.foreign if name in nodes}
        self.room = {}
        for name, node in nodes.items():
            if name in self.unreachable:
                continue
            total = node["Resources"]
            least, most = held.get(name, (0, 0))
            used = {
                resource: total.get(resource, 0.0) - free.get(name, total).get(resource, 0.0)
                for resource in self.resources
            }
            self.foreign[name] = {
                resource: self._between(
                    self.foreign.get(name, {}).get(resource, 0.0),
                    used[resource] - most * each,
                    used[resource] - least * each,
                )
                for resource, each in self.resources.items()
            }
            fits = self._fits(total, self.foreign[name])
            if fits > 0:
                self.room[name] = fits

    @staticmethod
    def _between(before: float, least: float, most: float) -> float:
        """Return what others hold: as before, if that can be."""
        return max(min(before, most), least, 0.0)

    def _fits(self, total: Mapping[str, float], foreign: Mapping[str, float]) -> int:
        return min(
            floor((total.get(name, 0.0) - foreign.get(name, 0.0)) / each + _ROUNDING)
            for name, each in self.resources.items()
        )

    def has_died(self, node: str) -> bool:
        """Return whether a node is gone: Ray itself says so only much later."""
        if (
            node in self.addresses
            and node not in self.unreachable
            and _answers(self.addresses[node])
        ):
            return False
        self.unreachable.add(node)
        self.room.pop(node, None)
        return True

    def could_ever_fit(self) -> bool:
        """Return whether there is a node that a server fits on, were it empty."""
        return any(self._fits(node["Resources"], {}) > 0 for node in ray.nodes() if node["Alive"])

    def described(self) -> str:
        """Return what the nodes have, for people."""
        shown = [
            {
                name: amount
                for name, amount in node["Resources"].items()
                if not name.startswith(("node:", "object_store_memory", "memory"))
            }
            for node in ray.nodes()
            if node["Alive"]
        ]
        return "; ".join(map(str, shown)) or "there are no nodes"

    def ask_for(self, servers: int) -> None:
        """Let an autoscaler know that so many more servers could be used.

        As a placement group that waits: it is gone when we are, and gets in nobody's way. Once
        there is room for it, it is taken back, and the room is used.
        """
        asked, group = self._asked
        if group is not None:
            table = placement_group_table(group)
            if servers == asked and table.get("state") in ("PENDING", "RESCHEDULING"):
                return
            remove_placement_group(group)
        bundles = [self.resources] * servers
        self._asked = (servers, placement_group(bundles) if servers else None)
