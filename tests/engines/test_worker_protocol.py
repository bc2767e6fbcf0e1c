"""The protocol between scheduler and workers, under every order of its steps.

The engine and the workers are the real ones, but the workers run in threads that stop before each
of their steps: receiving messages, taking a token, calling the function, sending an answer. A test
chooses who makes the next step, lets time pass, stops items, and kills workers between any two
steps, even in the middle of a message. A worker that is not chosen is like one that was suspended,
and what it has sent arrives late.

Values carry the names of their items, so each result shows whether it belongs to its item. Some
items fail at first, and some have results so large that they travel in files.
"""

from __future__ import annotations

import os
import pickle
import random
import select
import signal
import socket
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from support.local_engine import split_outcomes

from hesrpt.engines.engine import Outcome, PythonTasks
from hesrpt.engines.local import local_engine as local
from hesrpt.engines.local import worker, workers_and_commands
from hesrpt.engines.local.channel import Channel, Message, close_all
from hesrpt.engines.local.local_engine import LocalEngine
from hesrpt.engines.local.supervisor import GoneReport

WORKERS = 2
# Results that are larger than this travel in files here, in bytes.
LARGE_BYTES = 100

# The names of items that have failed.
FAILED: set[str] = set()


def get_result(name: str) -> str:
    """Return the result of an item, and now and then a large one."""
    return f"result of {name}" + LARGE_BYTES * "." * (int(name[2:]) % 5 == 3)


def run_item(name: str) -> str:
    """Run an item; some fail the first time."""
    if int(name[2:]) % 7 == 2 and name not in FAILED:
        FAILED.add(name)
        raise ValueError(name)
    return get_result(name)


class Clock:
    """A clock that moves only if a test lets it."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


CLOCK = Clock()


class Killed(BaseException):
    """Ends the thread of a worker that was killed."""


class Gate:
    """Stops a thread before each of its steps."""

    def __init__(self) -> None:
        self._go, self._is_waiting = threading.Semaphore(0), threading.Semaphore(0)
        self.is_killed = self.is_over = False

    def wait(self) -> None:
        """In the worker: wait for permission to make the next step."""
        if not self.is_killed:
            self._is_waiting.release()
            self._go.acquire()
        if self.is_killed:
            raise Killed

    def step(self) -> None:
        """In the test: let the worker make a step, and wait until it has."""
        if not self.is_over:
            self._go.release()
            self._is_waiting.acquire()

    def wait_for_start(self) -> None:
        self._is_waiting.acquire()

    def end(self) -> None:
        """In the worker: say that there will be no further steps."""
        self.is_over = True
        self._is_waiting.release()


class GatedChannel(Channel):
    """The worker's end of its connection."""

    def __init__(self, connection: socket.socket, gate: Gate) -> None:
        super().__init__(connection, has_fds=True)
        self.gate, self.cut = gate, 0  # how many bytes of a message a killed worker sends

    def receive(self, *, everything: bool = False) -> list[Message]:
        while True:
            self.gate.wait()
            if select.select([self.connection], [], [], 0)[0]:
                return super().receive(everything=everything)

    def send(
        self,
        head: tuple[Any, ...],
        body: bytes | Sequence[bytes | memoryview] = b"",
        fds: Sequence[int] = (),
    ) -> None:
        try:
            self.gate.wait()
        except Killed:
            ours, theirs = socket.socketpair()
            with ours, theirs:
                Channel(ours).send(head, body)
                message = theirs.recv(2**20)
            self.connection.send(message[: min(self.cut, len(message) - 1)])
            raise
        super().send(head, body, fds)


class GatedWorker(worker.Worker):
    """A worker in a thread."""

    def __init__(self, fds: Sequence[int]) -> None:
        connection = socket.socket(fileno=fds[0])
        super().__init__(connection, *fds[1:])
        self.gate, self.fds = Gate(), fds
        self.channel = self.gated = GatedChannel(connection, self.gate)
        self.thread = threading.Thread(target=self._run_thread, daemon=True)
        self.thread.start()
        self.gate.wait_for_start()

    def _run_thread(self) -> None:
        try:
            self.run()
        except Killed:
            pass
        finally:
            self.channel.connection.close()
            close_all(self.fds[1:])
            self.gate.end()

    def kill(self, cut: int = 0) -> None:
        self.gated.cut = cut
        self.gate.is_killed = True
        self.gate.step()
        self.thread.join(60)
        assert not self.thread.is_alive()

    def _take_token(self, token: bytes) -> bool:
        self.gate.wait()
        return super()._take_token(token)

    def _call(self, number: int, argument: Any) -> Any:
        self.gate.wait()
        return super()._call(number, argument)

    def has_left_processes(self) -> bool:
        return False  # those that it would see are not of its items


class ModelSupervision:
    """Starts workers as threads. A killed one is gone when the test says so."""

    is_broken, guardian_end, guardian_pid, supervisor_pid = False, None, None, None

    def __init__(self, mark: str) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.channel, self._theirs = Channel(ours), Channel(theirs)
        self.workers: dict[int, GatedWorker] = {}
        self.dying: list[int] = []

    def start(self, number: int, arguments: Sequence[str], *, fds: list[int], **_: Any) -> None:
        close_all(fds[:2])
        self.workers[number] = GatedWorker(fds[2:])

    def request(self, kind: str, number: int) -> None:
        assert kind == "kill"
        if number in self.workers and number not in self.dying:
            self.dying.append(number)

    def end(self, number: int, cut: int = 0) -> None:
        """Let a worker die now, and report it."""
        self.workers.pop(number).kill(cut)
        self.dying = [each for each in self.dying if each != number]
        self._theirs.send(("gone", *GoneReport(number, int(signal.SIGKILL), 0.0)))

    def receive(self) -> list[GoneReport]:
        return [
            GoneReport._make(values) for (_, *values), _, _ in self.channel.receive(everything=True)
        ]

    def dismiss(self) -> None:
        for number in list(self.workers):
            self.workers.pop(number).kill()
        self.channel.close()
        self._theirs.close()


@pytest.fixture(autouse=True)
def _model(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=CLOCK.monotonic)
    for module in (local, workers_and_commands):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(worker, "read_clock", CLOCK.monotonic)
    monkeypatch.setattr(worker, "LARGE_BYTES", LARGE_BYTES)
    monkeypatch.setattr(local, "GRACE_SECONDS", 0.0)  # closing need not wait for workers
    monkeypatch.setattr(local, "Supervision", ModelSupervision)
    monkeypatch.setattr(os, "register_at_fork", lambda **_: None)


class Run:
    """An engine, the items that it was given, and what it has reported."""

    def __init__(self) -> None:
        self.engine = LocalEngine(WORKERS)
        self.function = self.engine.pack_function(run_item)
        FAILED.clear()
        self.in_flight: set[tuple[str, int]] = set()
        self.stopped: set[tuple[str, int]] = set()
        self.results: dict[tuple[str, int], str] = {}
        self.again: list[tuple[str, int]] = []  # lost or failed: the core would start them again
        self.next_item = {"a": 0, "b": 0}

    @property
    def supervision(self) -> ModelSupervision:
        return self.engine.supervision  # type: ignore[return-value]

    def start(self, job: str, items: Sequence[int]) -> None:
        names = [self.engine.pack_argument(f"{job} {item}") for item in items]
        self.in_flight |= {(job, item) for item in items}
        self.engine.start(job, PythonTasks(items, names, function=self.function), 1)

    def start_new(self, job: str, count: int) -> None:
        first = self.next_item[job]
        self.next_item[job] += count
        self.start(job, range(first, first + count))

    def start_again(self) -> None:
        again, self.again = self.again, []
        for job, item in again:
            self.start(job, [item])

    def stop(self, job: str) -> None:
        """Stop all items of a job, as when it is cancelled."""
        items = sorted(item for each, item in self.in_flight if each == job)
        if items:
            self.engine.stop_items(job, items)
            self.stopped |= {(job, item) for item in items}
            self.in_flight -= self.stopped

    def advance(self) -> None:
        """Let the scheduler make a step."""
        for outcome in split_outcomes(self.engine.wait_for_outcomes(0.0)):
            self.record(outcome)

    def record(self, outcome: Outcome) -> None:
        key = (outcome.job, outcome.item)
        assert key not in self.results, f"{key} is done twice"
        if outcome.is_done:
            assert key in self.in_flight | self.stopped, f"{key} was not asked for"
            result = pickle.loads(outcome.result)
            assert result == get_result(f"{outcome.job} {outcome.item}")
            self.results[key] = result
        else:
            assert key in self.in_flight, f"{key} was not asked for, or was stopped"
            if "ValueError" in (error := outcome.error or ""):
                assert error.endswith(f"{outcome.job} {outcome.item}")
            self.again.append(key)
        self.in_flight.discard(key)

    def let_all_end(self) -> None:
        """Let everybody make steps until nothing is left to do."""
        for _ in range(10_000):
            if not self.in_flight and not self.again:
                return
            CLOCK.now += 0.001
            self.start_again()
            self.advance()
            for number in list(self.supervision.dying):
                self.supervision.end(number)
            for each in list(self.supervision.workers.values()):
                each.gate.step()
        raise AssertionError(f"these never end: {self.in_flight}")


# What may happen next, and how often it does.
WEIGHTS = {
    "work": 50,
    "schedule": 25,
    "wait": 10,
    "start": 8,
    "again": 2,
    "stop": 1,
    "kill": 2,
    "bury": 2,
}


def choose_step(rng: random.Random) -> tuple[Any, ...]:
    """Choose who makes the next step, or what happens to them."""
    (kind,) = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
    match kind:
        case "work":
            return kind, rng.randrange(WORKERS), rng.choice([1, 1, 2, 3, 8])
        case "wait":
            return kind, rng.choice([0.005, 0.011, 0.06])
        case "start":
            return kind, rng.choice("ab"), rng.randint(1, 5)
        case "stop":
            return kind, rng.choice("ab")
        case "kill":
            return kind, rng.randrange(WORKERS), rng.randrange(200)
    return (kind,)


def carry_out(run: Run, step: tuple[Any, ...]) -> None:
    supervision = run.supervision
    workers = list(supervision.workers) if supervision is not None else []
    match step:
        case ("work", place, count) if workers:
            for _ in range(count):
                supervision.workers[workers[place % len(workers)]].gate.step()
        case ("schedule",):
            run.advance()
        case ("start", job, count):
            run.start_new(job, count)
        case ("wait", seconds):
            CLOCK.now += seconds
        case ("again",):
            run.start_again()
        case ("stop", job):
            run.stop(job)
        case ("kill", place, cut) if workers:
            supervision.end(workers[place % len(workers)], cut)
        case ("bury",) if supervision is not None and supervision.dying:
            supervision.end(supervision.dying[0])


def check_some_order(seed: int) -> None:
    run, rng = Run(), random.Random(seed)
    try:
        run.start_new("a", 4)
        for _ in range(150):
            carry_out(run, choose_step(rng))
        run.let_all_end()
        wanted = {(job, item) for job, last in run.next_item.items() for item in range(last)}
        assert wanted - run.stopped <= set(run.results)
    except AssertionError as error:
        error.add_note(f"seed {seed}")
        raise
    finally:
        for outcome in split_outcomes(run.engine.close()):
            run.record(outcome)


def test_every_result_belongs_to_its_item() -> None:
    for seed in range(100):
        check_some_order(seed)


@pytest.mark.slow
def test_every_result_belongs_to_its_item_in_many_orders() -> None:
    for seed in range(100, 2000):
        check_some_order(seed)
