"""The engines: objects for ``Pool(engine=...)``, and what an engine of your own is made of.

An engine whose dependencies are not installed cannot be imported, but all others can::

    from hesrpt.engines import RayEngine

    with Pool(engine=RayEngine(address="auto", resources={"GPU": 1})) as pool:
        ...

"""

from typing import TYPE_CHECKING, Any

from hesrpt.engines.engine import (
    CommandTask,
    Engine,
    FinishedItems,
    Outcome,
    PythonTask,
    Task,
    pickle_value,
)
from hesrpt.engines.registry import ENGINES, create_engine, list_engines, load_engine

if TYPE_CHECKING:
    from hesrpt.engines.dask.dask_engine import DaskEngine
    from hesrpt.engines.local.local_engine import LocalEngine
    from hesrpt.engines.ray.ray_engine import RayEngine
    from hesrpt.engines.slurm.slurm_engine import SlurmEngine

__all__ = [
    "CommandTask",
    "DaskEngine",
    "Engine",
    "FinishedItems",
    "LocalEngine",
    "Outcome",
    "PythonTask",
    "RayEngine",
    "SlurmEngine",
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
