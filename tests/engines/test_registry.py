"""Engines by name, engine objects, and engines of other packages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest

from hesrpt import InputError, Pool, engines
from hesrpt.engines import Engine, LocalEngine, Outcome, Task, create_engine, list_engines, registry
from hesrpt.engines.fake import FakeEngine


class SmallestEngine(Engine):
    """Defines nothing but what every engine must define; calls functions at once."""

    def __init__(self, servers: int | None, *, greeting: str = "") -> None:
        self.servers, self.greeting = servers or 3, greeting
        self.outcomes: list[Outcome] = []

    def capacity(self) -> int:
        return self.servers

    def start(self, job: str, tasks: Mapping[int, Task], servers: int) -> None:
        for item in tasks:
            task: Any = tasks[item]
            result = engines.pickle_value(f"{self.greeting} {task.function(task.argument)}")
            self.outcomes.append(Outcome(job, item, 0.001, result=result))

    def stop(self, job: str, item: int) -> None:
        raise AssertionError("nothing is running")

    def wait_for_outcomes(self, timeout: float) -> list[Outcome]:
        outcomes, self.outcomes = self.outcomes, []
        return outcomes

    def wake(self) -> None:
        pass

    def close(self) -> list[Outcome]:
        self.outcomes.clear()
        return []


@pytest.fixture
def other_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that another package is installed, which adds two engines."""
    places = {"smallest": f"{__name__}:SmallestEngine", "broken": "no_such_module:Engine"}
    points = EntryPoints(
        EntryPoint(name, place, registry.ENTRY_POINT_GROUP) for name, place in places.items()
    )
    monkeypatch.setattr(registry, "entry_points", points.select)


@pytest.mark.usefixtures("other_package")
def test_engine_of_another_package_is_found_by_its_entry_point() -> None:
    assert list_engines() == [*registry.ENGINES, "broken", "smallest"]
    with Pool(engine="smallest", greeting="hello") as pool:
        assert pool.servers == 3
        assert pool.map(str.upper, ["ann", "bob"]).results() == ["hello ANN", "hello BOB"]
    with pytest.raises(InputError, match="engine 'broken', no_such_module:Engine, cannot be load"):
        Pool(engine="broken")
    with pytest.raises(InputError, match=r"size is not an option of engine 'smallest'.* greeting"):
        Pool(engine="smallest", size=3)


def test_defaults_are_those_of_an_engine_that_can_do_little() -> None:
    engine = SmallestEngine(2)
    assert engine.max_capacity() == engine.widest_command() == 2
    assert not any((engine.can_resize, engine.can_suspend, engine.can_keep_results))
    assert engine.batch_seconds == 0.0
    assert engine.resource_totals() == {}
    with pytest.raises(NotImplementedError):
        engine.resize("a", 0, 1)


def test_engine_objects_bring_their_options() -> None:
    fake = FakeEngine(2)
    assert create_engine(fake, None) is fake
    assert create_engine(fake, 2, {"address": None}) is fake
    with pytest.raises(InputError, match=r"address must be given to the engine object: FakeEngine"):
        Pool(engine=fake, address="auto")
    with pytest.raises(InputError, match=r"servers must be .* which may use 2; got 3"):
        Pool(3, engine=fake)
    with Pool(engine=LocalEngine(1, resources={"gpu": 2})) as pool:
        assert pool.servers == 1
        assert pool.map(abs, [-1]).results() == [1]


def test_unknown_engines_and_options_are_refused() -> None:
    with pytest.raises(InputError, match=r"engine must be one of local, ray.*, got 'slum'"):
        create_engine("slum", None)
    with pytest.raises(InputError, match="address is not an option of engine 'local'"):
        Pool(address="auto")


def test_missing_dependency_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"engine 'ray' needs Ray: pip install 'hesrpt\[ray\]'"):
        Pool(engine="ray")


def test_engines_are_imported_when_they_are_used() -> None:
    script = (
        "import sys, hesrpt.engines; sys.exit('ray' in sys.modules or 'distributed' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
    with pytest.raises(AttributeError, match="has no attribute 'SlumEngine'"):
        engines.SlumEngine  # noqa: B018
