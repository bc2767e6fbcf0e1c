"""Driving a pool step by step: an engine, items and a database that do what a test says.

The driver's thread waits in the engine until the test lets it take a step, so a test sees every
state in between and nothing depends on time.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import cloudpickle
import pytest

from hesrpt.engines.engine import Outcome, PythonTask, Task
from hesrpt.engines.fake import FakeEngine
from hesrpt.scheduler.calls import Caller
from support.waiting import wait_until

# How long to wait for another thread, in seconds: if it takes longer, it is stuck.
_PATIENCE = 60.0

T = TypeVar("T")


class Killed(BaseException):
    """Ends the scheduler's thread at this point, as ``kill -9`` would."""


class KillSwitch:
    """Kills the scheduler at one of the next points at which it meets the outside."""

    def __init__(self) -> None:
        self.points_left: int | None = None
        self.is_dead = False

    def reach(self) -> None:
        """Reach a point: raise Killed if the scheduler is to die here, or is dead already."""
        if self.points_left is not None:
            self.points_left -= 1
            if self.points_left < 0:
                self.is_dead, self.points_left = True, None
        if self.is_dead:
            raise Killed


@dataclass(frozen=True)
class RunningItem:
    """An item that the engine has been given and that has not ended."""

    job: str
    item: int
    task: Task
    servers: int

    @property
    def key(self) -> tuple[str, int]:
        return self.job, self.item


class SteppedEngine(FakeEngine):
    """A fake engine whose clock and whose outcomes are set by a test."""

    def __init__(
        self, servers: int, switch: KillSwitch, *, batch_seconds: float = 0.0, time: float = 0.0
    ) -> None:
        super().__init__(servers)
        self.switch, self.batch_seconds, self.time = switch, batch_seconds, time
        self.running: dict[tuple[str, int], RunningItem] = {}
        self.problems: list[str] = []  # violations of the protocol
        self.changed = threading.Condition()
        self.is_idle = self.is_closed = self.is_woken = self.is_released = False
        self._may_step = False
        self._outcomes: list[Outcome] = []

    def resource_totals(self) -> Mapping[str, float]:
        return {"gpu": 2.0}

    # --- called by the test ---------------------------------------------------------------------

    def step(self, outcomes: Sequence[Outcome] = (), seconds: float = 0.0) -> None:
        """Let the driver take one step, and wait until it has."""
        self.begin_step(outcomes, seconds)
        self.wait_until_idle()

    def begin_step(self, outcomes: Sequence[Outcome] = (), seconds: float = 0.0) -> None:
        """Let the driver take one step, without waiting for it."""
        self.wait_until_idle()
        with self.changed:
            self.time += seconds
            self._outcomes = list(outcomes)
            for outcome in outcomes:
                del self.running[outcome.job, outcome.item]
            self.is_idle, self._may_step = False, True
            self.changed.notify_all()

    def wait_until_idle(self) -> None:
        """Wait until the driver waits for the next step, or has ended."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.is_idle or self.is_closed, _PATIENCE)

    def step_until(self, condition: Callable[[], bool]) -> None:
        """Let the driver take steps until a condition holds."""

        def holds_after_step() -> bool:
            self.step()
            return condition()

        wait_until(holds_after_step)

    def release(self) -> None:
        """Let the driver run without waiting for the test, so that it can be closed."""
        with self.changed:
            self.is_released = True
            self.changed.notify_all()

    # --- called by the driver -------------------------------------------------------------------

    def start(self, job: str, tasks: Mapping[int, Task], servers: int) -> None:
        self.switch.reach()
        for item, task in tasks.items():
            if (job, item) in self.running:
                self.problems.append(f"item {item} of {job!r} was started twice")
            self.running[job, item] = RunningItem(job, item, task, servers)

    def stop(self, job: str, item: int) -> None:
        self.switch.reach()
        if self.running.pop((job, item), None) is None:
            self.problems.append(f"item {item} of {job!r} was stopped, but does not run")

    def resize(self, job: str, item: int, servers: int) -> None:
        self.switch.reach()
        running = self.running.get((job, item))
        if running is None:
            self.problems.append(f"item {item} of {job!r} was resized, but does not run")
        else:
            self.running[job, item] = RunningItem(job, item, running.task, servers)

    def wait_for_outcomes(self, timeout: float) -> list[Outcome]:
        with self.changed:
            self.is_idle = True
            self.changed.notify_all()
            self.changed.wait_for(lambda: self._may_step or self.is_released)
            self._may_step = self.is_woken = False
            outcomes, self._outcomes = self._outcomes, []
        self.switch.reach()
        return outcomes

    def wake(self) -> None:
        with self.changed:
            self.is_woken = True

    def close(self) -> list[Outcome]:
        with self.changed:
            self.is_closed = True
            self.running.clear()
            self.changed.notify_all()
        return []


class GuidedItems:
    """An iterable whose items are read only when the test offers them."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = list(items)
        self.read = 0
        self.offered = 0
        self.changed = threading.Condition()
        self.reader: threading.Thread | None = None
        self.is_blocked = self.has_ended = self.is_abandoned = False

    def __iter__(self) -> Iterator[Any]:
        self.reader = threading.current_thread()
        try:
            while True:
                with self.changed:
                    self.is_blocked = self.read >= self.offered < len(self.items)
                    self.changed.notify_all()
                    self.changed.wait_for(self._may_continue)
                    self.is_blocked = False
                    if self.is_abandoned or self.read >= len(self.items):
                        return
                    self.read += 1
                yield self.items[self.read - 1]
        finally:
            with self.changed:
                self.has_ended = True
                self.changed.notify_all()

    def _may_continue(self) -> bool:
        return self.is_abandoned or self.read < self.offered or self.read >= len(self.items)

    def offer(self, count: int) -> None:
        """Offer further items."""
        with self.changed:
            self.offered = min(self.offered + count, len(self.items))
            self.is_blocked = self.is_blocked and self.read >= self.offered < len(self.items)
            self.changed.notify_all()

    def abandon(self) -> None:
        """End the iterable early, so that its reader can end."""
        with self.changed:
            self.is_abandoned = True
            self.changed.notify_all()

    def wait_for_reader(self) -> None:
        """Wait until everything that was offered has been read."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.is_blocked or self.has_ended, _PATIENCE)
        if self.has_ended and self.reader is not None:
            self.reader.join(_PATIENCE)  # it reports the end afterwards


class SizedGuidedItems(GuidedItems):
    """Guided items whose number is known from the start."""

    def __len__(self) -> int:
        return len(self.items)


class DatabaseFaults:
    """Makes the scheduler's commits fail on request."""

    def __init__(self, switch: KillSwitch) -> None:
        self.switch = switch
        self.fails = False
        self._is_suspended = False

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """Let a block use the database as another process would, without faults."""
        self._is_suspended = True
        try:
            yield
        finally:
            self._is_suspended = False

    def before_commit(self) -> None:
        """Raise an error if the scheduler is to die, or its write is to fail."""
        if not self._is_suspended:
            self.switch.reach()
            if self.fails:
                raise sqlite3.OperationalError("database or disk is full")

    def after_commit(self) -> None:
        """Raise an error if the scheduler is to die."""
        if not self._is_suspended:
            self.switch.reach()


@contextmanager
def faulty_database(faults: DatabaseFaults) -> Iterator[None]:
    """Let commits to databases that are opened in this block fail as ``faults`` says."""

    class FaultyConnection(sqlite3.Connection):
        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            if sql != "COMMIT":
                return super().execute(sql, *parameters)
            faults.before_commit()
            cursor = super().execute(sql, *parameters)
            faults.after_commit()
            return cursor

    connect = sqlite3.connect
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            sqlite3,
            "connect",
            lambda *args, **options: connect(*args, **{"factory": FaultyConnection, **options}),
        )
        yield


def finish(running: RunningItem, serial: int, seconds: float = 1.0) -> Outcome:
    """Return the outcome of an item that is done; its result says what ran."""
    return Outcome(running.job, running.item, seconds, result=_create_result(running, serial))


def drain(stream: Iterator[T]) -> list[T]:
    """Return what a stream with ``timeout=0`` yields now."""
    found: list[T] = []
    try:
        while True:
            found.append(next(stream))
    except (TimeoutError, StopIteration):
        return found


def compute(running: RunningItem) -> Outcome:
    """Call the function of an item; return the outcome with its result."""
    assert isinstance(running.task, PythonTask)
    result = cloudpickle.dumps(running.task.function(running.task.argument))
    return Outcome(running.job, running.item, 1.0, result=result)


def _create_result(running: RunningItem, serial: int) -> bytes:
    if not isinstance(running.task, PythonTask):
        return b""
    function, argument = running.task.function, running.task.argument
    if isinstance(function, Caller):  # of an executor
        return bytes(cloudpickle.dumps(function(argument)))
    return bytes(cloudpickle.dumps((function.__name__, argument, serial)))
