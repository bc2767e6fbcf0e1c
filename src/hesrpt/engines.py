"""The engines: objects for ``Pool(engine=...)``, and what an engine of your own is made of.

An engine whose dependencies are not installed cannot be imported, but all others can::

    from hesrpt.engines import RayEngine

    with Pool(engine=RayEngine(address="auto", resources={"GPU": 1})) as pool:
        ...

"""

from typing import TYPE_CHECKING, Any

from hesrpt.runtime.engines.engine import (
    CommandTask,
    Engine,
    FinishedItems,
    Outcome,
    PythonTask,
    Task,
    pickle_value,
)
from hesrpt.runtime.engines.registry import ENGINES, create_engine, list_engines, load_engine

if TYPE_CHECKING:
    from hesrpt.runtime.engines.dask.dask_engine import DaskEngine
    from hesrpt.runtime.engines.local import LocalEngine
    from hesrpt.runtime.engines.ray.ray_engine import RayEngine

__all__ = [
    "CommandTask",
    "DaskEngine",
    "Engine",
    "FinishedItems",
    "LocalEngine",
    "Outcome",
    "PythonTask",
    "RayEngine",
    "Task",
    "create_engine",
    "list_engines",
    "pickle_value",
]


def __getattr__(name: str) -> Any:
    """Import an engine when it is first used."""
    for engine, place in ENGINES.items():
        if place.endswith(f":{name}"):
            return load_engine(engine)
    raise AttributeError(f"module 'hesrpt.engines' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
