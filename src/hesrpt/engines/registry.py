"""The engines by name: those of hesrpt, and those that other packages add as entry points."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

from hesrpt.engines.engine import Engine
from hesrpt.errors import InputError
from hesrpt.validation import check_choice

#: The group of entry points by which other packages add engines. Each refers to a subclass of
#: Engine, or a function that returns an engine; both are called with the number of servers (None:
#: the engine decides) and the engine's options by name.
ENTRY_POINT_GROUP = "hesrpt.engines"

#: The engines of hesrpt. A new one adds one line here.
ENGINES = {
    "local": "hesrpt.engines.local.local_engine:LocalEngine",
    "ray": "hesrpt.engines.ray.ray_engine:RayEngine",
    "dask": "hesrpt.engines.dask.dask_engine:DaskEngine",
    "slurm": "hesrpt.engines.slurm.slurm_engine:SlurmEngine",
}
#: What these need beside hesrpt itself: the module, its title, and the extra that installs it.
_REQUIREMENTS = {
    "ray": ("ray", "Ray", "ray"),
    "dask": ("distributed", "Dask", "dask"),
    "slurm": ("dask_jobqueue", "dask-jobqueue", "slurm"),
}


def list_engines() -> list[str]:
    """Return the names of all engines, with those of other packages last."""
    others = {point.name for point in entry_points(group=ENTRY_POINT_GROUP)} - set(ENGINES)
    return [*ENGINES, *sorted(others)]


def create_engine(
    engine: str | Engine, servers: int | None, options: Mapping[str, Any] | None = None
) -> Engine:
    """Create the engine of this name; an engine object is returned unchanged.

    Options that are None count as not given.
    """
    given = {name: value for name, value in (options or {}).items() if value is not None}
    if isinstance(engine, Engine):
        _check_engine_object(engine, servers, given)
        return engine
    return load_engine(engine, given)(servers, **given)


def load_engine(name: str, options: Mapping[str, Any] | None = None) -> Callable[..., Engine]:
    """Return the class of an engine, or the function that creates it, if it has these options."""
    if name not in tuple(ENGINES):  # finding those of other packages takes time
        check_choice("engine", name, list_engines())
    if name in _REQUIREMENTS:
        module, title, extra = _REQUIREMENTS[name]
        if find_spec(module) is None:
            raise InputError(f"engine {name!r} needs {title}: pip install 'hesrpt[{extra}]'")
    if name in ENGINES:
        point = EntryPoint(name, ENGINES[name], ENTRY_POINT_GROUP)
    else:
        (point, *_) = entry_points(group=ENTRY_POINT_GROUP, name=name)
    try:
        factory: Callable[..., Engine] = point.load()
    except (ImportError, AttributeError) as error:
        raise InputError(f"engine {name!r}, {point.value}, cannot be loaded: {error}") from error
    if options:
        _check_options(name, factory, options)
    return factory


def _check_engine_object(engine: Engine, servers: int | None, options: Mapping[str, Any]) -> None:
    kind = type(engine).__name__
    for name in options:
        raise InputError(f"must be given to the engine object: {kind}({name}=…)", argument=name)
    if servers not in (None, engine.max_capacity()):
        raise InputError(
            f"must be given to the engine object, {kind}(servers), which may use "
            f"{engine.max_capacity():g}; got {servers}",
            argument="servers",
        )


def _check_options(name: str, factory: Callable[..., Engine], options: Mapping[str, Any]) -> None:
    """Raise an error if an engine has no option of a name."""
    parameters = inspect.signature(factory).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return
    known = [each.name for each in parameters][1:]
    for option in options:
        if option not in known:
            choices = f"; its options are {', '.join(known)}" if known else ", which has none"
            raise InputError(f"is not an option of engine {name!r}{choices}", argument=option)
