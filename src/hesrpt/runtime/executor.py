"""A job to which calls are submitted: a standard executor that shares servers with other jobs."""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import cloudpickle

from hesrpt.errors import InputError
from hesrpt.runtime.engines.engine import Engine, Outcome, PythonTask, Task
from hesrpt.runtime.job_handle import Job, JobError
from hesrpt.runtime.sources import Feed

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(eq=False)
class _Call:
    """What somebody has submitted."""

    future: Future[Any]
    packed: Any


class CallSource:
    """Items that are calls; they get their numbers as they are started."""

    takes_results = True

    def __init__(self, engine: Engine, timeout: float | None) -> None:
        self.pack, self.timeout = engine.pack_argument, timeout
        self.function = engine.pack_function(_call)
        self.nothing = engine.pack_argument(None)
        self.lock = threading.Lock()
        self.waiting: deque[_Call] = deque()
        self.running: dict[int, _Call | None] = {}
        self.taken = 0
        self.to: Feed | None = None
        self.shut = self.closed = False
        # Futures call back whomever they like: not in the thread that schedules.
        self.resolver = ThreadPoolExecutor(1, thread_name_prefix="hesrpt-futures")

    # --- called by those who submit -------------------------------------------------------------

    def submit(
        self, call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
    ) -> Future[Any]:
        """Add a call."""
        future: Future[Any] = Future()
        try:
            packed = self.pack(call)
        except InputError as error:
            future.set_exception(error)
            packed = None
        with self.lock:
            if self.shut or self.closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if packed is not None:
                self.waiting.append(_Call(future, packed))
                self._tell()
        return future

    def shutdown(self, cancel_futures: bool) -> None:
        """Take note that nothing more will be submitted."""
        dropped: list[_Call] = []
        with self.lock:
            if cancel_futures:
                dropped = list(self.waiting)
                self.waiting.clear()
            self.shut = True
            if self.to is not None:
                self.to.exhausted(self._count)
        for call in dropped:
            _cancel(call.future)

    def _tell(self) -> None:
        if self.to is not None:
            self.to.read(self.taken + len(self.waiting))

    def _count(self) -> int:
        with self.lock:
            return self.taken + len(self.waiting)

    # --- called by the driver -------------------------------------------------------------------

    def feed(self, to: Feed, done: frozenset[int]) -> None:
        with self.lock:
            self.to = to
            self._tell()
            if self.shut:
                to.exhausted(self._count)

    def task(self, item: int, servers: int, log: Path | None) -> Task:
        with self.lock:
            if item not in self.running:
                self.taken += 1
                self.running[item] = self._next()
            call = self.running[item]
        packed = self.nothing if call is None else call.packed
        return PythonTask(function=self.function, argument=packed, timeout=self.timeout, log=log)

    def _next(self) -> _Call | None:
        """Return the next call that nobody has cancelled."""
        if not self.waiting:
            return None
        call = self.waiting.popleft()
        return call if call.future.set_running_or_notify_cancel() else None

    def done(self, outcome: Outcome) -> None:
        if (call := self.running.pop(outcome.item, None)) is not None:
            self.resolver.submit(_resolve, call.future, outcome.result)

    def failed(self, item: int, error: str) -> None:
        if (call := self.running.pop(item, None)) is not None:
            self.resolver.submit(call.future.set_exception, JobError(error))

    def close(self, why: str = "the job has ended") -> None:
        with self.lock:
            if self.closed:
                return
            self.closed = True
            waiting, running = list(self.waiting), list(self.running.values())
            self.waiting.clear()
            self.running.clear()
        for call in waiting:
            self.resolver.submit(_cancel, call.future)
        for one in running:
            if one is not None:
                self.resolver.submit(one.future.set_exception, CancelledError(why))
        self.resolver.shutdown(wait=False)


def _cancel(future: Future[Any]) -> None:
    """Cancel what has not been started, and let those know who wait for it."""
    if future.cancel():
        future.set_running_or_notify_cancel()


def _resolve(future: Future[Any], told: bytes) -> None:
    """Say what a call has returned, or raised."""
    try:
        result, error = cloudpickle.loads(told)
    except Exception as problem:  # it may not be known here how to make it
        result, error = None, problem
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _call(call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]] | None) -> Any:
    """Return what a call returns, and the error that it raises."""
    if call is None:
        return None, None
    function, args, kwargs = call
    try:
        return function(*args, **kwargs), None
    except Exception as error:
        where = "".join(traceback.format_tb(error.__traceback__)[1:])
        error.add_note(f"raised by a server:\n{where}")
        error.__traceback__ = None
        try:
            cloudpickle.loads(cloudpickle.dumps(error))
        except Exception:  # it does not survive the journey
            return None, JobError(f"{type(error).__name__}: {error}\n{where}")
        return None, error


class PoolExecutor(Executor):
    """One job of a pool, to which calls are submitted; made by :meth:`Pool.executor`."""

    def __init__(self, job: Job, source: CallSource) -> None:
        self.job, self._source = job, source

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submit a call; it gets a server when it is this job's turn."""
        return self._source.submit((fn, args, kwargs))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; the job ends when all that were submitted are done."""
        self._source.shutdown(cancel_futures)
        if wait:
            self.job.wait()
            self._source.resolver.shutdown()
