"""The engines by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hesrpt.errors import InputError
from hesrpt.runtime.engines.engine import Engine
from hesrpt.runtime.engines.local import LocalEngine, count_cores


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What users may say about an engine."""

    servers: int | None = None
    address: str | None = None
    resources: Mapping[str, float] | None = None
    runtime_env: Mapping[str, Any] | None = None

    def refuse_cluster_options(self) -> None:
        """Raise an error if there are options that only a cluster understands."""
        if any(option is not None for option in (self.address, self.resources, self.runtime_env)):
            raise InputError("address, resources and runtime_env only apply to engine 'ray'")


def create_engine(engine: str | Engine, options: EngineOptions) -> Engine:
    """Create an engine by its name; an engine that was created already is returned as it is."""
    if not isinstance(engine, str):
        options.refuse_cluster_options()
        return engine
    if engine not in ENGINES:
        raise InputError(f"unknown engine {engine!r}; choose one of {', '.join(ENGINES)}")
    return ENGINES[engine](options)


def _create_local(options: EngineOptions) -> Engine:
    options.refuse_cluster_options()
    return LocalEngine(options.servers or count_cores())


def _create_ray(options: EngineOptions) -> Engine:
    try:
        import ray  # noqa: F401 (an optional dependency)
    except ModuleNotFoundError:
        raise InputError(
            "engine 'ray' needs Ray, which is not installed: pip install 'hesrpt[ray]'"
        ) from None
    from hesrpt.runtime.engines.ray.ray_engine import RayEngine

    return RayEngine(
        options.servers,
        address=options.address,
        resources=options.resources,
        runtime_env=options.runtime_env,
    )


#: How to create each engine. A new engine adds one line here.
ENGINES: dict[str, Callable[[EngineOptions], Engine]] = {
    "local": _create_local,
    "ray": _create_ray,
}
