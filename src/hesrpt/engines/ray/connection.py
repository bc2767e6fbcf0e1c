"""The connection to a Ray cluster, which all pools of a process share."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import ray
from ray._private import ray_constants

from hesrpt.errors import InputError

# Seconds to wait until a node accepts a connection.
_CONNECT_TIMEOUT = 1.0

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
        return str(ray.get_runtime_context().gcs_address)


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
