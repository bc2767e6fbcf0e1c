"""The connection to a Ray cluster, which all pools of a process share."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Mapping
from math import ceil
from typing import Any

import ray

from hesrpt.errors import InputError

# How long to wait for an answer from a node, in seconds.
_ANSWER = 1.0

_lock = threading.Lock()
_users = 0
_is_ours = False  # otherwise whoever has connected will disconnect


def connect(address: str | None) -> str:
    """Connect to a cluster, unless this process is connected; return where it is."""
    global _users, _is_ours
    if address is not None and address.startswith("ray://"):
        raise InputError(
            f"address {address!r}: the scheduler must run on a node of the cluster, for instance "
            "by `ray job submit`; a client's connection does not tell it what it must know"
        )
    with _lock:
        if ray.is_initialized():
            connected = str(ray.get_runtime_context().gcs_address)
            if address not in (None, "auto", connected) and not (_is_ours and address == "local"):
                raise InputError(
                    f"address {address!r}: this process is connected to Ray at {connected!r} "
                    "already"
                )
        else:
            _begin(address)
            _users, _is_ours = 0, True
        _users += 1
        return str(ray.get_runtime_context().gcs_address)


def _begin(address: str | None) -> None:
    host, _, port = (address or "").rpartition(":")
    if host and port.isdigit() and not answers((host, int(port))):  # Ray would try for minutes
        raise InputError(f"no Ray cluster at {address!r}: nobody answers there")
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        where = "Ray cannot be started" if address is None else f"no Ray cluster at {address!r}"
        raise InputError(f"{where}: {error}") from None


def is_connected(session: str) -> bool:
    """Return whether Ray is still there: a call of it would start another one otherwise."""
    return bool(ray.is_initialized() and ray.get_runtime_context().gcs_address == session)


def disconnect(session: str) -> None:
    """Undo :func:`connect`, when nobody else uses the connection."""
    global _users, _is_ours
    with _lock:
        _users = max(_users - 1, 0)
        if _users == 0 and _is_ours and is_connected(session):
            _is_ours = False
            ray.shutdown()


def answers(address: tuple[str, int]) -> bool:
    """Return whether somebody listens there."""
    try:
        socket.create_connection(address, timeout=_ANSWER).close()
    except OSError:
        return False
    return True


def as_options(resources: Mapping[str, float], servers: int) -> dict[str, Any]:
    """Return the resources of some servers as Ray wants them to be said."""
    total = {name: amount * servers for name, amount in resources.items()}
    if total.get("GPU", 0.0) > 1:
        total["GPU"] = ceil(total["GPU"] - 1e-6)  # Ray knows no such fraction
    known = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    options: dict[str, Any] = {known[name]: total.pop(name) for name in known if name in total}
    return {"num_cpus": 0, **options, "resources": total}


def checked(resources: Mapping[str, float]) -> dict[str, float]:
    """Return what a server is, or raise an error."""
    if not isinstance(resources, Mapping) or not resources:
        raise InputError(f"resources must be like {{'CPU': 1}}, got {resources!r}")
    for name, amount in resources.items():
        number = isinstance(amount, int | float) and not isinstance(amount, bool)
        if not number or not 1e-4 <= amount < 1e15:
            raise InputError(
                f"resources: {name!r} must be a number greater than 0 (at least 0.0001), "
                f"got {amount!r}"
            )
    return dict(resources)
