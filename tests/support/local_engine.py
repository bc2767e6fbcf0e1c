"""Driving an engine with real processes, without a pool."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hesrpt.engines.engine import Engine, FinishedItems, Outcome, PythonTask
from hesrpt.engines.local.local_engine import LocalEngine


@contextlib.contextmanager
def open_engine(servers: int = 2) -> Iterator[LocalEngine]:
    """Create an engine, and close it at the end."""
    engine = LocalEngine(servers)
    try:
        yield engine
    finally:
        engine.close()


def python_task(
    engine: Engine, function: Callable[[Any], Any], argument: Any = None, **options: Any
) -> PythonTask:
    """Pack a function and its argument."""
    return PythonTask(
        function=engine.pack_function(function), argument=engine.pack_argument(argument), **options
    )


def collect_outcomes(
    engine: Engine, count: int, seconds: float = 90.0
) -> dict[tuple[str, int], Outcome]:
    """Wait for a number of outcomes, and return them by job and item."""
    outcomes: dict[tuple[str, int], Outcome] = {}
    deadline = time.monotonic() + seconds
    while len(outcomes) < count and time.monotonic() < deadline:
        for outcome in split_outcomes(engine.wait_for_outcomes(0.2)):
            key = (outcome.job, outcome.item)
            assert key not in outcomes, "reported twice"
            outcomes[key] = outcome
    return outcomes


def split_outcomes(outcomes: Sequence[Outcome | FinishedItems]) -> Iterator[Outcome]:
    """Yield the outcome of each item by itself."""
    for outcome in outcomes:
        if isinstance(outcome, Outcome):
            yield outcome
        else:
            job, *columns = outcome
            for item, seconds, result in zip(*columns, strict=True):
                yield Outcome(job, item, seconds, result=result)


def run_item(engine: Engine, function: Callable[[Any], Any], argument: Any = None) -> Outcome:
    """Run one item, and return its outcome."""
    engine.start("item", {0: python_task(engine, function, argument)}, 1)
    return collect_outcomes(engine, 1)["item", 0]


def run_until(engine: Engine, condition: Callable[[], bool], seconds: float = 90.0) -> None:
    """Let an engine work until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"the condition did not hold within {seconds:g} s"
        assert engine.wait_for_outcomes(0.02) == []
