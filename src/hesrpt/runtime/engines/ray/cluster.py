"""A Ray cluster as seen by one who shares it: its nodes, and what is free on them.

A server is a bundle of resources. How many fit on a node is what the node has, without what others
hold. What others hold cannot be asked for: it is what is neither free nor ours. Ray's news of what
is free come late, and what of ours has just come or gone may be in them or not: between what others
hold in the one case and in the other, what was believed before is kept.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from math import floor, inf
from typing import Any, NamedTuple

import ray
from ray._private.state import available_resources_per_node
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

from hesrpt.runtime.engines.ray.connection import answers

#: So many seconds after a change of ours, Ray's news of what is free are right.
SETTLED = 1.5
# Ray counts resources in ten thousandths.
_ROUNDING = 1e-6


class Held(NamedTuple):
    """How many servers of ours are on a node."""

    ready: int = 0
    known: int = 0  # Ray's news surely speak of them
    possible: int = 0  # and at most of so many


class Cluster:
    """The nodes of a cluster, and how many servers fit on each."""

    def __init__(self, resources: Mapping[str, float]) -> None:
        self.resources = dict(resources)
        #: By node: how many servers there is room for, those included that are there.
        self.room: dict[str, int] = {}
        self.addresses: dict[str, tuple[str, int]] = {}
        self.unreachable: set[str] = set()
        self.foreign: dict[str, dict[str, float]] = {}
        self._avoided: dict[str, float] = {}  # nodes, and until when
        self._asked: tuple[int, Any] = (0, None)
        self._withdrawn: tuple[int, float] = (0, -inf)  # how many were asked for, and until when

    def look(self, held: Mapping[str, Held]) -> None:
        """Look at the nodes."""
        nodes = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
        free = available_resources_per_node()
        self.addresses = {
            name: (node["NodeManagerAddress"], node["NodeManagerPort"])
            for name, node in nodes.items()
        }
        self._forget(set(nodes))
        self.room = {}
        for name, node in nodes.items():
            if name in self.unreachable:
                continue
            total, ours = node["Resources"], held.get(name, Held())
            fits = self._fits(total, self._of_others(name, total, free.get(name, total), ours))
            if name in self._avoided:
                fits = min(fits, ours.ready)
            if fits > 0:
                self.room[name] = fits

    def _forget(self, nodes: set[str]) -> None:
        """Forget nodes that have gone, and see whether one that had gone is back."""
        now = time.monotonic()
        self.unreachable &= nodes
        if self.unreachable and answers(self.addresses[back := min(self.unreachable)]):
            self.unreachable.discard(back)
        self.foreign = {name: self.foreign[name] for name in self.foreign if name in nodes}
        self._avoided = {
            name: until for name, until in self._avoided.items() if name in nodes and until > now
        }

    def _of_others(
        self, name: str, total: Mapping[str, float], free: Mapping[str, float], ours: Held
    ) -> dict[str, float]:
        """Return what others hold: as before, if that can be."""
        before = self.foreign.get(name, {})
        found = self.foreign[name] = {}
        # What was asked for may have been placed, and is ours too.
        servers, withdrawn = self._withdrawn
        group = max(self._asked[0], servers if time.monotonic() - withdrawn < SETTLED else 0)
        for resource, each in self.resources.items():
            used = total.get(resource, 0.0) - free.get(resource, 0.0)
            least, most = used - (ours.possible + group) * each, used - ours.known * each
            found[resource] = max(min(before.get(resource, 0.0), most), least, 0.0)
        return found

    def _fits(self, total: Mapping[str, float], foreign: Mapping[str, float]) -> int:
        return min(
            floor((total.get(name, 0.0) - foreign.get(name, 0.0)) / each + _ROUNDING)
            for name, each in self.resources.items()
        )

    def has_died(self, node: str) -> bool:
        """Return whether a node is gone: Ray itself says so only much later."""
        alive = node in self.addresses and node not in self.unreachable
        if alive and answers(self.addresses[node]):
            return False
        self.drop(node)
        return True

    def drop(self, node: str) -> None:
        """Take note that a node is gone."""
        self.unreachable.add(node)
        self.room.pop(node, None)

    def avoid(self, node: str, seconds: float) -> None:
        """Start nothing on a node for a while: servers that were to start there did not."""
        self._avoided[node] = time.monotonic() + seconds
        self.room.pop(node, None)

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
        if group is None:
            group = placement_group([self.resources] * servers) if servers else None
            self._asked = (servers if servers else 0, group)
            return
        waits = placement_group_table(group).get("state") in ("PENDING", "RESCHEDULING")
        if servers != asked or not waits:
            remove_placement_group(group)  # and asked again, if need be, at the next look
            self._asked, self._withdrawn = (0, None), (asked, time.monotonic())
