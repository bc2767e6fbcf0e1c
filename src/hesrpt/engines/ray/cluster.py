"""The connection to a Ray cluster, and its nodes: how many servers fit on each beside others' work.

A server is a bundle of resources. A node has room for as many servers as fit into its resources
minus those that others use. Ray does not report what others use: it is whatever is neither free nor
ours. But Ray reports free resources late, so a report may or may not include the servers that we
have just started or stopped. Each report therefore implies a lower and an upper bound on what
others use, and we clamp our previous estimate between the two.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from functools import cache
from math import floor, inf
from typing import Any, NamedTuple

import ray
from ray._private import ray_constants
from ray._private.state import available_resources_per_node
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

from hesrpt.errors import InputError

#: Seconds after which Ray's report of free resources includes a change that we made.
REPORT_DELAY = 1.5
# Ray counts resources in units of 1/10,000.
_ROUNDING = 1e-6


class OwnServers(NamedTuple):
    """How many servers we have on a node, and how many of them Ray's report includes."""

    ready: int = 0
    surely_reported: int = 0  # started long ago, so the report includes them
    possibly_reported: int = 0  # including those just started or stopped: an upper bound


class _Request(NamedTuple):
    """A request for more servers, as a placement group that waits for resources."""

    servers: int = 0
    group: Any = None
    withdrawn_at: float = -inf


class ClusterView:
    """The nodes of a cluster as last seen, and how many servers fit on each."""

    def __init__(self, resources: Mapping[str, float]) -> None:
        self.resources = dict(resources)
        #: How many servers each node has room for, counting ours that are there already.
        self.room: dict[str, int] = {}
        self._addresses: dict[str, tuple[str, int]] = {}
        self._unreachable: set[str] = set()
        self._used_by_others: dict[str, dict[str, float]] = {}
        self._avoided_until: dict[str, float] = {}
        self._request = _Request()
        self._withdrawn = _Request()

    def refresh(self, own_servers: Mapping[str, OwnServers]) -> None:
        """Ask Ray for the nodes and their free resources, and work out the room on each."""
        nodes = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
        free = available_resources_per_node()
        self._addresses = {
            name: (node["NodeManagerAddress"], node["NodeManagerPort"])
            for name, node in nodes.items()
        }
        self._update_known_nodes(set(nodes))
        self.room = {}
        for name, node in nodes.items():
            if name in self._unreachable:
                continue
            total, ours = node["Resources"], own_servers.get(name, OwnServers())
            used = self._estimate_use_by_others(name, total, free.get(name, total), ours)
            room = self._count_fitting(total, used)
            if name in self._avoided_until:
                room = min(room, ours.ready)
            if room > 0:
                self.room[name] = room

    def _update_known_nodes(self, nodes: set[str]) -> None:
        """Forget nodes that Ray no longer lists, and probe one that did not answer before."""
        now = time.monotonic()
        self._unreachable &= nodes
        if self._unreachable:
            node = min(self._unreachable)
            if accepts_connections(self._addresses[node]):
                self._unreachable.discard(node)
        self._used_by_others = {
            name: used for name, used in self._used_by_others.items() if name in nodes
        }
        self._avoided_until = {
            name: until
            for name, until in self._avoided_until.items()
            if name in nodes and until > now
        }

    def _estimate_use_by_others(
        self, node: str, total: Mapping[str, float], free: Mapping[str, float], ours: OwnServers
    ) -> dict[str, float]:
        """Estimate what others use, clamping the previous estimate between the report's bounds."""
        previous = self._used_by_others.get(node, {})
        estimate = self._used_by_others[node] = {}
        # Ray may have placed servers that we requested, or still count a request we withdrew.
        is_recent = time.monotonic() - self._withdrawn.withdrawn_at < REPORT_DELAY
        requested = max(self._request.servers, self._withdrawn.servers if is_recent else 0)
        for resource, amount in self.resources.items():
            used = total.get(resource, 0.0) - free.get(resource, 0.0)
            lower = used - (ours.possibly_reported + requested) * amount
            upper = used - ours.surely_reported * amount
            estimate[resource] = max(min(previous.get(resource, 0.0), upper), lower, 0.0)
        return estimate

    def _count_fitting(self, total: Mapping[str, float], used: Mapping[str, float]) -> int:
        return min(
            floor((total.get(name, 0.0) - used.get(name, 0.0)) / amount + _ROUNDING)
            for name, amount in self.resources.items()
        )

    def probe(self, node: str) -> bool:
        """Return whether a node still answers; if not, mark it as unreachable.

        Ray itself notices the death of a node much later.
        """
        is_known = node in self._addresses and node not in self._unreachable
        if is_known and accepts_connections(self._addresses[node]):
            return True
        self.mark_unreachable(node)
        return False

    def mark_unreachable(self, node: str) -> None:
        """Start no server on a node until it answers again."""
        self._unreachable.add(node)
        self.room.pop(node, None)

    def avoid(self, node: str, seconds: float) -> None:
        """Start no server on a node for a while, because one failed to start there."""
        self._avoided_until[node] = time.monotonic() + seconds
        self.room.pop(node, None)

    def can_fit_server(self) -> bool:
        """Return whether any node, if it were empty, would have room for a server."""
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        return any(self._count_fitting(total, {}) > 0 for total in nodes)

    def describe_nodes(self) -> str:
        """Return the resources of the nodes, for an error message."""
        hidden = ("node:", "object_store_memory", "memory")
        nodes = [
            {
                name: amount
                for name, amount in node["Resources"].items()
                if not name.startswith(hidden)
            }
            for node in ray.nodes()
            if node["Alive"]
        ]
        return "; ".join(map(str, nodes)) or "there are no nodes"

    def request_servers(self, servers: int) -> None:
        """Tell Ray's autoscaler how many more servers we could use.

        The request is a placement group that waits for resources. It disappears with our connection
        and delays nobody else. Once Ray can place it, we withdraw it and use the resources.
        """
        request = self._request
        if request.group is None:
            if servers:
                self._request = _Request(servers, placement_group([self.resources] * servers))
            return
        is_waiting = placement_group_table(request.group).get("state") in (
            "PENDING",
            "RESCHEDULING",
        )
        if servers != request.servers or not is_waiting:
            remove_placement_group(request.group)  # the next call makes a new request if needed
            self._request = _Request()
            self._withdrawn = request._replace(withdrawn_at=time.monotonic())


# --- the connection, which all pools of a process share -------------------------------------------

# Seconds to wait until a node accepts a connection.
_CONNECT_TIMEOUT = 1.0

_LOG = logging.getLogger("hesrpt")

_lock = threading.Lock()
_users = 0
_is_ours = False  # False if other code called ray.init(), which must then disconnect as well


def connect(address: str | None) -> str:
    """Connect to a cluster, or use the existing connection; return the cluster's address."""
    global _users, _is_ours
    if address is not None and address.startswith("ray://"):
        raise InputError(
            f"{address!r} is a Ray client connection, which does not report the free resources of "
            "nodes; run the scheduler on a node of the cluster, for example by `ray job submit`",
            argument="address",
        )
    with _lock:
        if ray.is_initialized():
            connected = str(ray.get_runtime_context().gcs_address)
            if address not in (None, "auto", connected) and not (_is_ours and address == "local"):
                raise InputError(
                    f"must be {connected!r}, to which this process is already connected, "
                    f"got {address!r}",
                    argument="address",
                )
        else:
            _initialise_ray(address)
            _users, _is_ours = 0, True
        _users += 1
        found = str(ray.get_runtime_context().gcs_address)
    if (address or os.environ.get("RAY_ADDRESS") or "local") != "local":
        _warn_of_unprotected_cluster(found)
    return found


@cache  # once for each cluster, however many pools use it
def _warn_of_unprotected_cluster(address: str) -> None:
    """Say who can run code in a cluster without tokens, and what to do about it."""
    if os.environ.get("RAY_AUTH_MODE", "disabled").lower() == "disabled":
        _LOG.warning(
            "hesrpt: the Ray cluster at %s is not protected: everybody who can connect to it can "
            "run code as the user who runs it; use RAY_AUTH_MODE=token, or let only people whom "
            "you trust reach it",
            address,
        )


def _initialise_ray(address: str | None) -> None:
    host, _, port = (address or "").rpartition(":")
    # Ray itself would retry for minutes.
    if host and port.isdigit() and not accepts_connections((host, int(port))):
        raise InputError(
            f"{address!r} is not a Ray cluster: nothing answers there", argument="address"
        )
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address is None and not os.environ.get("RAY_ADDRESS"):
            # As Ray does: connect to the cluster that this machine belongs to, or start one.
            with contextlib.suppress(ConnectionError):
                ray.init(address="auto", **options)
                return
            address = "local"
        if address == "local":
            with _use_loopback():
                ray.init(address, include_dashboard=False, _node_ip_address="127.0.0.1", **options)
        else:
            ray.init(address, **options)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        if address in (None, "local"):
            raise InputError(f"Ray cannot be started: {error}") from None
        problem = f"{address!r} is not a Ray cluster: {error}"
        raise InputError(problem, argument="address") from None


@contextlib.contextmanager
def _use_loopback() -> Iterator[None]:
    """Let Ray listen only to this machine, as it does by default on macOS and Windows.

    Anybody who can connect to Ray can run code in it, and Ray has no argument for this.
    """
    previous = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = previous


def is_connected(cluster_address: str) -> bool:
    """Return whether this process is still connected to a cluster.

    Check this before calling Ray, which would start its own cluster if it is not connected.
    """
    return bool(ray.is_initialized() and ray.get_runtime_context().gcs_address == cluster_address)


def disconnect(cluster_address: str) -> None:
    """Undo one :func:`connect`; the last one closes the connection, if it is ours."""
    global _users, _is_ours
    with _lock:
        _users = max(_users - 1, 0)
        if _users == 0 and _is_ours and is_connected(cluster_address):
            _is_ours = False
            ray.shutdown()


def accepts_connections(address: tuple[str, int]) -> bool:
    """Return whether anything listens at a host and port."""
    try:
        socket.create_connection(address, timeout=_CONNECT_TIMEOUT).close()
    except OSError:
        return False
    return True
