"""What runs in the workers of a Dask cluster: agents, which run items in processes of their own.

A batch of items is a Dask task. The task gives them to the agent of the engine that sent them, and
waits. The agent is a local engine in a thread of the Dask worker. So an item that crashes ends a
process of the agent and not the Dask worker, and items can be stopped and have time limits. If the
Dask worker dies, the guardian of the agent kills what it was running.

Dask knows nothing of this: it sees tasks that wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import shutil
import tempfile
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
from distributed import get_worker

from hesrpt.engines.engine import FinishedItems, Outcome, PackedFunction, PythonTasks, Task
from hesrpt.engines.local.channel import LARGE_BYTES, write_shared_file
from hesrpt.engines.local.local_engine import LocalEngine
from hesrpt.engines.local.output import read_end
from hesrpt.pickling import Pickled
from hesrpt.storage.logs import LogPaths


class AgentOptions(NamedTuple):
    """What an agent has to know before its first batch."""

    engine: str  # the engine that it works for
    servers: int  # how many items it may run at a time
    run: str  # the state directory of the run; empty if it has none


class BatchRequest(NamedTuple):
    """A batch to run."""

    agent: AgentOptions
    process: str  # the worker process that is to run it, and no other
    key: str  # of the Dask task
    number: int
    job: str
    servers: int
    tasks: Mapping[int, Task]  # of calls, the function is a number, see run_batch
    results: Sequence[int]  # which arguments are results that other calls have left in the cluster
    with_output: bool
    forgotten: Sequence[int]  # the numbers of functions that are not needed any more


@dataclass(frozen=True)
class BatchReport:
    """What has become of a batch since the last report."""

    outcomes: Sequence[Outcome | FinishedItems] = ()
    outputs: Mapping[int, bytes] = field(default_factory=dict)  # what items printed
    gone: Sequence[int] = ()  # items that were stopped, and whose processes are gone
    is_last: bool = True  # whether nothing of the batch is left
    was_refused: bool = False  # whether it was withdrawn, and never started
    other_process: str | None = None  # which process this is, if not the one it was meant for


#: Identifies this process. A Dask worker that was restarted may have the address of the last one.
PROCESS = f"{os.getpid()}-{uuid.uuid4().hex}"
# How often a task looks whether Dask has cancelled it, in seconds.
_LOOK_SECONDS = 0.5
# An agent that has had nothing to run for this many seconds ends its processes.
_IDLE_SECONDS = 60.0
# An agent remembers the numbers of this many batches that have ended.
_REMEMBERED_BATCHES = 1000

_agents: dict[str, Agent] = {}
_withdrawn: set[tuple[str, int]] = set()  # batches that must not be started, by engine and number
_lock = threading.Lock()

# --- what Dask calls --------------------------------------------------------------------------


def greet() -> str:
    """Return which process this is; importing this module has shown that hesrpt is installed."""
    return PROCESS


def run_batch(pickled_request: bytes, function: bytes | None, *results: Any) -> BatchReport:
    """Run a batch, and return a report when it has ended or when some of its items have.

    The function of calls comes pickled, and so do arguments that are not short and plain.
    """
    request: BatchRequest = pickle.loads(pickled_request)
    if request.process != PROCESS:
        return BatchReport(other_process=PROCESS)
    agent = _open_agent(request.agent)
    batch = agent.add(request, function, results)
    return BatchReport(was_refused=True) if batch is None else agent.wait(batch, request.key)


def take_report(engine: str, number: int) -> BatchReport:
    """Return what has become so far of a batch that takes long."""
    agent = _agents.get(engine)
    return BatchReport(is_last=False) if agent is None else agent.take_report(number)


def stop_items(engine: str, number: int, items: Sequence[int]) -> bool:
    """Stop items of a batch; return False if the batch was not started, and now never will be."""
    with _lock:
        agent = _agents.get(engine)
        if agent is None or not (number in agent.batches or number in agent.ended):
            _withdrawn.add((engine, number))
            return False
    agent.stop_items(number, items)
    return True


async def close_agent(engine: str) -> dict[int, BatchReport]:
    """End the agent of an engine, and return reports of its batches, by number.

    The event loop of the Dask worker goes on meanwhile.
    """
    with _lock:
        agent = _agents.pop(engine, None)
    return {} if agent is None else await asyncio.to_thread(agent.dismiss)


def _open_agent(options: AgentOptions) -> Agent:
    """Return the agent of an engine; end those that an earlier scheduler of the run has left."""
    with _lock:
        earlier = [
            name
            for name, agent in _agents.items()
            if name != options.engine and options.run and agent.options.run == options.run
        ]
        leftovers = [_agents.pop(name) for name in earlier]
        agent = _agents.get(options.engine)
        if agent is None or agent.is_closed:
            agent = _agents[options.engine] = Agent(options)
    for leftover in leftovers:
        leftover.close()
    return agent


# --- agents -----------------------------------------------------------------------------------


class Agent:
    """Runs batches for one engine. Its thread alone calls the local engine."""

    def __init__(self, options: AgentOptions) -> None:
        self.options = options
        self.batches: dict[int, AgentBatch] = {}  # until they are reported
        self.ended: deque[int] = deque(maxlen=_REMEMBERED_BATCHES)
        self.is_closed = False
        self.failure: Exception | None = None  # why it is closed
        self._is_dismissed = False  # whether the engine is closed, and wants the last reports
        self._owners: dict[tuple[str, int], AgentBatch] = {}
        self._functions: dict[int, PackedFunction] = {}
        self._changed = threading.Condition()
        self._requests: deque[Callable[[], None]] = deque()  # for the thread
        self._engine = LocalEngine(options.servers)
        self._logs = Path(tempfile.mkdtemp(prefix="hesrpt-"))
        self._idle_since = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="hesrpt-agent", daemon=True)
        self._thread.start()

    # --- called by Dask's threads -------------------------------------------------------------

    def add(
        self, request: BatchRequest, function: bytes | None, results: Iterable[Any]
    ) -> AgentBatch | None:
        """Start a batch; return None if it was withdrawn, or cannot be started any more."""
        name = request.agent.engine, request.number
        with _lock, self._changed:
            if self.is_closed or request.number in self.batches or name in _withdrawn:
                _withdrawn.discard(name)
                return None
            batch = AgentBatch(request, str(self._logs / f"{request.number}-"))
            self.batches[request.number] = batch
        for number in request.forgotten:
            self._functions.pop(number, None)
        logs, tasks = batch.logs, request.tasks
        if isinstance(tasks, PythonTasks):
            assert function is not None
            with self._changed:
                packed = self._functions.get(tasks.function)
                if packed is None:
                    packed = self._functions[tasks.function] = self._pack(function)
            arguments = list(tasks.arguments)
            for place, result in zip(request.results, results, strict=True):
                arguments[place] = cloudpickle.dumps(result)
            tasks = replace(tasks, arguments=arguments, function=packed, logs=logs)
        else:
            tasks = {
                item: replace(task, log=None if logs is None else logs.get(item))
                for item, task in tasks.items()
            }
        self._call_soon(lambda: self._start(batch, tasks, request))
        return batch

    def _pack(self, pickled: bytes) -> PackedFunction:
        if len(pickled) <= LARGE_BYTES:
            return self._engine.register_function(PackedFunction(pickled))
        fds = [write_shared_file([pickled])]
        return self._engine.register_function(PackedFunction(b"", fds=fds, is_in_file=True))

    def stop_items(self, number: int, items: Iterable[int]) -> None:
        """Stop items of a batch; its report says when they are gone."""
        if (batch := self.batches.get(number)) is not None:
            self._call_soon(lambda: self._stop(batch, items))

    def wait(self, batch: AgentBatch, key: str) -> BatchReport:
        """Wait until a batch has ended, and report what was not reported before.

        If Dask has cancelled the task, because the engine or its connection is gone, stop the
        batch.
        """
        with self._changed:
            while batch.left and not self.is_closed:
                if self._changed.wait(_LOOK_SECONDS):
                    continue
                task = get_worker().state.tasks.get(key)
                if task is None or task.state == "cancelled":
                    self._call_soon(lambda: self._stop(batch, set(batch.left)))
            if self._is_dismissed:
                return BatchReport(is_last=False)  # whoever dismissed it has the report
            self.ended.append(batch.number)
            del self.batches[batch.number]
            if self.failure is not None:
                raise RuntimeError(f"the agent on the Dask worker failed: {self.failure!r}")
            return batch.take_report(is_last=True)

    def take_report(self, number: int) -> BatchReport:
        """Return what has become of a batch since the last report."""
        with self._changed:
            batch = self.batches.get(number)
            return BatchReport(is_last=False) if batch is None else batch.take_report()

    def dismiss(self) -> dict[int, BatchReport]:
        """End all processes; return reports of the batches that had not ended before."""
        self._is_dismissed = True
        self.close()
        with self._changed:
            return {number: batch.take_report() for number, batch in self.batches.items()}

    def close(self) -> None:
        """End all processes, and wait until they have ended."""
        self._call_soon(self._close)
        self._thread.join()

    def _call_soon(self, request: Callable[[], None]) -> None:
        self._requests.append(request)
        self._engine.wake()

    # --- the agent's own thread ---------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self.is_closed:
                while self._requests and not self.is_closed:
                    self._requests.popleft()()
                if self.is_closed:
                    return
                self._release_stopped()
                outcomes = self._engine.wait_for_outcomes(1.0)
                self._record(outcomes)
                now = time.monotonic()
                if outcomes or self.batches:
                    self._idle_since = now
                elif now - self._idle_since > _IDLE_SECONDS:
                    self._close()
        except Exception as error:
            self.failure = error
            self._close()

    def _close(self) -> None:
        if self.is_closed:
            return
        try:
            self._record(self._engine.close())
        finally:
            with self._changed:
                self.is_closed = True
                self._changed.notify_all()
            shutil.rmtree(self._logs, ignore_errors=True)

    def _start(self, batch: AgentBatch, tasks: Mapping[int, Task], request: BatchRequest) -> None:
        self._engine.servers = request.agent.servers
        self._owners |= {(batch.job, item): batch for item in tasks}
        self._engine.start(batch.job, tasks, request.servers)

    def _stop(self, batch: AgentBatch, items: Iterable[int]) -> None:
        for item in items:
            if item in batch.left - batch.ending:
                batch.ending.add(item)
                self._engine.stop(batch.job, item)

    def _release_stopped(self) -> None:
        """Report stopped items whose processes are gone."""
        with self._changed:
            for batch in self.batches.values():
                if batch.left & batch.ending and not self._engine.is_stopping(batch.job):
                    for item in batch.record_gone():
                        del self._owners[batch.job, item]
                    self._changed.notify_all()

    def _record(self, outcomes: Sequence[Outcome | FinishedItems]) -> None:
        with self._changed:
            for outcome in outcomes:
                items = outcome.items if isinstance(outcome, FinishedItems) else (outcome.item,)
                for item in items:
                    batch = self._owners.pop((outcome.job, item))
                batch.record(outcome)  # all of them belong to one batch
            if outcomes:
                self._changed.notify_all()


class AgentBatch:
    """A batch that an agent runs."""

    def __init__(self, request: BatchRequest, logs: str) -> None:
        self.job, self.number = request.job, request.number
        self.left = set(request.tasks)
        self.ending: set[int] = set()  # items that were stopped, and may not be gone yet
        self.logs = LogPaths(logs, ".log") if request.with_output else None
        self._outcomes: list[Outcome | FinishedItems] = []
        self._outputs: dict[int, bytes] = {}
        self._gone: list[int] = []

    def record(self, outcome: Outcome | FinishedItems) -> None:
        """Record how items have ended; those that were stopped may be done nevertheless."""
        items = outcome.items if isinstance(outcome, FinishedItems) else (outcome.item,)
        self._outcomes.append(_replace_results(outcome, bytes))  # they may be in files
        self._remove(items)

    def record_gone(self) -> list[int]:
        """Record that no process of items that were stopped is left, and return these items."""
        gone = sorted(self.left & self.ending)
        self._remove(gone)
        return gone

    def _remove(self, items: Iterable[int]) -> None:
        self.left.difference_update(items)
        self._gone += self.ending.intersection(items)
        if self.logs is None:
            return
        for item in items:
            log = self.logs.get(item)
            with contextlib.suppress(FileNotFoundError), log.open("rb") as file:
                self._outputs[item] = read_end(file)
                log.unlink()

    def take_report(self, *, is_last: bool = False) -> BatchReport:
        """Return what was recorded since the last report."""
        report = BatchReport(self._outcomes, self._outputs, self._gone, is_last)
        self._outcomes, self._outputs, self._gone = [], {}, []
        return report


def strip_results(report: BatchReport) -> BatchReport:
    """Return a report without the results, which stay in the cluster."""
    stripped = [_replace_results(outcome, lambda result: b"") for outcome in report.outcomes]
    return replace(report, outcomes=stripped)


def load_result(report: BatchReport, item: int) -> Any:
    """Return the result of an item."""
    for outcome in report.outcomes:
        if isinstance(outcome, Outcome) and outcome.item == item:
            return cloudpickle.loads(outcome.result)
        if isinstance(outcome, FinishedItems) and item in outcome.items:
            return cloudpickle.loads(outcome.results[outcome.items.index(item)])
    raise KeyError(item)


def _replace_results(
    outcome: Outcome | FinishedItems, convert: Callable[[Pickled], bytes]
) -> Outcome | FinishedItems:
    """Return an outcome with other results."""
    if isinstance(outcome, FinishedItems):
        results = list(map(convert, outcome.results))
        return FinishedItems(outcome.job, list(outcome.items), list(outcome.seconds), results)
    return replace(outcome, result=convert(outcome.result))
