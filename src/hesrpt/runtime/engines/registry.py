"""The engines by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hesrpt.errors import InputError
from hesrpt.runtime.engines.cores import count_cores
from hesrpt.runtime.engines.engine import Engine
from hesrpt.runtime.engines.local import LocalEngine
from hesrpt.validation import check_choice


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """The options of a pool that concern its engine."""

    servers: int | None = None
    address: str | None = None
    resources: Mapping[str, float] | None = None
    runtime_env: Mapping[str, Any] | None = None

    def refuse_cluster_options(self) -> None:
        """Raise an error if there are options that only apply to a cluster."""
        for name in ("address", "resources", "runtime_env"):
            if getattr(self, name) is not None:
                raise InputError("needs engine 'ray'", argument=name)


def create_engine(engine: str | Engine, options: EngineOptions) -> Engine:
    """Create the engine of this name; an engine object is returned unchanged."""
    if not isinstance(engine, str):
        options.refuse_cluster_options()
        return engine
    return ENGINES[check_choice("engine", engine, list(ENGINES))](options)


def _create_local(options: EngineOptions) -> Engine:
    options.refuse_cluster_options()
    return LocalEngine(options.servers or count_cores())


def _create_ray(options: EngineOptions) -> Engine:
    try:
        import ray  # noqa: F401 (an optional dependency)
    except ModuleNotFoundError:
        raise InputError("engine 'ray' needs Ray: pip install 'hesrpt[ray]'") from None
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
