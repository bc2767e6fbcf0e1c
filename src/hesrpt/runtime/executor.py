"""A job to which calls are submitted: a standard executor that shares servers with other jobs."""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

import cloudpickle

from hesrpt.errors import InputError
from hesrpt.runtime.engines.engine import Engine, Outcome, PythonTask, Task
from hesrpt.runtime.job_handle import Job, JobError
from hesrpt.runtime.sources import SourceListener

P = ParamSpec("P")
T = TypeVar("T")


class Call(NamedTuple):
    """A function and its arguments."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(eq=False)
class _SubmittedCall:
    future: Future[Any]
    packed: Any


class CallSource:
    """Calls as items; a call gets its item number when it is started."""

    delivers_results = True

    def __init__(self, engine: Engine, timeout: float | None) -> None:
        self.pack_argument, self.timeout = engine.pack_argument, timeout
        self.function = engine.pack_function(_make_call)
        self.cancelled_call = engine.pack_argument(None)  # runs in place of a cancelled call
        self.lock = threading.Lock()
        self.waiting: deque[_SubmittedCall] = deque()
        self.running: dict[int, _SubmittedCall | None] = {}  # None: cancelled before it started
        self.started_count = 0
        self.listener: SourceListener | None = None
        self.is_shut_down = self.is_closed = False
        # Futures run arbitrary callbacks, which must not block the scheduler's thread.
        self.resolver = ThreadPoolExecutor(1, thread_name_prefix="hesrpt-futures")

    # --- called by users of the executor --------------------------------------------------------

    def submit(self, call: Call) -> Future[Any]:
        """Add a call."""
        future: Future[Any] = Future()
        try:
            packed = self.pack_argument(call)
        except InputError as error:
            future.set_exception(error)
            packed = None
        with self.lock:
            if self.is_shut_down or self.is_closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if packed is not None:
                self.waiting.append(_SubmittedCall(future, packed))
                self._report_calls()
        return future

    def shutdown(self, cancel_futures: bool) -> None:
        """Accept no further calls."""
        cancelled: list[_SubmittedCall] = []
        with self.lock:
            if cancel_futures:
                cancelled = list(self.waiting)
                self.waiting.clear()
            self.is_shut_down = True
            if self.listener is not None:
                self.listener.report_end(self._count_calls)
        for call in cancelled:
            _cancel(call.future)

    def _report_calls(self) -> None:
        if self.listener is not None:
            self.listener.report_items(self.started_count + len(self.waiting))

    def _count_calls(self) -> int:
        with self.lock:
            return self.started_count + len(self.waiting)

    # --- called by the driver -------------------------------------------------------------------

    def open(self, listener: SourceListener, done_before: frozenset[int]) -> None:
        with self.lock:
            self.listener = listener
            self._report_calls()
            if self.is_shut_down:
                listener.report_end(self._count_calls)

    def create_task(self, item: int, servers: int, log: Path | None) -> Task:
        with self.lock:
            if item not in self.running:
                self.started_count += 1
                self.running[item] = self._take_call()
            call = self.running[item]
        packed = self.cancelled_call if call is None else call.packed
        return PythonTask(function=self.function, argument=packed, timeout=self.timeout, log=log)

    def _take_call(self) -> _SubmittedCall | None:
        """Return the next call, or None if it was cancelled."""
        if not self.waiting:
            return None
        call = self.waiting.popleft()
        return call if call.future.set_running_or_notify_cancel() else None

    def finish_item(self, outcome: Outcome) -> None:
        if (call := self.running.pop(outcome.item, None)) is not None:
            self.resolver.submit(_resolve, call.future, outcome.result)

    def drop_item(self, item: int, error: str) -> None:
        if (call := self.running.pop(item, None)) is not None:
            self.resolver.submit(call.future.set_exception, JobError(error))

    def close(self, reason: str = "the job has ended") -> None:
        with self.lock:
            if self.is_closed:
                return
            self.is_closed = True
            waiting, running = list(self.waiting), list(self.running.values())
            self.waiting.clear()
            self.running.clear()
        for call in waiting:
            self.resolver.submit(_cancel, call.future)
        for started in running:
            if started is not None:
                self.resolver.submit(started.future.set_exception, CancelledError(reason))
        self.resolver.shutdown(wait=False)


def _cancel(future: Future[Any]) -> None:
    """Cancel a future that has not started, and notify threads that wait for it."""
    if future.cancel():
        future.set_running_or_notify_cancel()


def _resolve(future: Future[Any], pickled: bytes) -> None:
    """Set the result or the error of a future from what :func:`_make_call` returned."""
    try:
        result, error = cloudpickle.loads(pickled)
    except Exception as problem:  # a class may not be importable in this process
        result, error = None, problem
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _make_call(call: Call | None) -> tuple[Any, BaseException | None]:
    """Make a call in a worker; return its result and the error that it raised."""
    if call is None:
        return None, None
    function, args, kwargs = call
    try:
        return function(*args, **kwargs), None
    except Exception as error:
        where = "".join(traceback.format_tb(error.__traceback__)[1:])
        error.add_note(f"raised on a server:\n{where}")
        error.__traceback__ = None
        try:
            cloudpickle.loads(cloudpickle.dumps(error))
        except Exception:  # the error cannot be pickled
            return None, JobError(f"{type(error).__name__}: {error}\n{where}")
        return None, error


class PoolExecutor(Executor):
    """One job of a pool, to which calls are submitted; created by :meth:`Pool.executor`."""

    def __init__(self, job: Job[Any], source: CallSource) -> None:
        self.job, self._source = job, source

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submit a call; it runs as soon as the job has a free server."""
        return self._source.submit(Call(fn, args, kwargs))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no further calls; the job ends once all submitted calls have ended."""
        self._source.shutdown(cancel_futures)
        if wait:
            self.job.wait()
            self._source.resolver.shutdown()
