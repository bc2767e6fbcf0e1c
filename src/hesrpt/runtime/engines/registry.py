"""Which engine, by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hesrpt.errors import InputError
from hesrpt.runtime.engines.engine import Engine
from hesrpt.runtime.engines.local import LocalEngine, cores_here

ENGINES = ("local", "ray")


def made(
    engine: str | Engine,
    servers: int | None = None,
    address: str | None = None,
    resources: Mapping[str, float] | None = None,
    runtime_env: Mapping[str, Any] | None = None,
) -> Engine:
    """Return an engine that is ready to run items."""
    if engine == "ray":
        return _ray(servers, address, resources, runtime_env)
    if address is not None or resources is not None or runtime_env is not None:
        raise InputError("address, resources and runtime_env are for engine 'ray'")
    if not isinstance(engine, str):
        return engine
    if engine != "local":
        raise InputError(f"unknown engine {engine!r}; there are: {', '.join(ENGINES)}")
    return LocalEngine(servers or cores_here())


def _ray(
    servers: int | None,
    address: str | None,
    resources: Mapping[str, float] | None,
    runtime_env: Mapping[str, Any] | None,
) -> Engine:
    try:
        import ray  # noqa: F401 (a part that not everybody has)
    except ModuleNotFoundError:
        raise InputError(
            "engine 'ray' needs Ray, which is not installed: pip install 'hesrpt[ray]'"
        ) from None
    from hesrpt.runtime.engines.ray.ray_engine import RayEngine

    return RayEngine(servers, address, resources, runtime_env)
