"""The calls submitted to an executor, as the items of its job."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from concurrent.futures.process import BrokenProcessPool, _RemoteTraceback
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from queue import SimpleQueue
from typing import Any, TypeVar

import cloudpickle

from hesrpt.engines.engine import Engine, PythonTasks, Task
from hesrpt.errors import InputError, JobError
from hesrpt.jobs.fingerprints import FINGERPRINT_BYTES
from hesrpt.jobs.text import add_source_lines
from hesrpt.pickling import Pickled
from hesrpt.scheduler.calls import Call, CallEnd, Caller
from hesrpt.scheduler.source import Source, SourceListener
from hesrpt.storage.earlier_items import create_keys
from hesrpt.storage.logs import LogPaths

T = TypeVar("T")

_LOG = logging.getLogger("hesrpt")


class LostCallError(JobError, BrokenProcessPool):
    """A call neither returned nor raised an error, for example because its process was killed.

    Code for ``ProcessPoolExecutor`` expects a ``BrokenProcessPool`` then. Here, other calls are not
    affected.
    """


class BrokenExecutorError(JobError, BrokenProcessPool):
    """The initializer of an executor has raised an error in a worker, so no call can be made."""


class CallFuture(Future[T]):
    """The future of a call. In a forked process, nobody would ever finish it."""

    def __init__(self) -> None:
        super().__init__()
        self._process = os.getpid()

    def result(self, timeout: float | None = None) -> T:
        self._check_process()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._check_process()
        return super().exception(timeout)

    def _check_process(self) -> None:
        if os.getpid() != self._process and not self.done():
            raise InputError(
                f"the call belongs to process {self._process}, from which this process was forked"
            )


class CallbackThread:
    """Makes calls one after another; the scheduler's thread must not wait for them.

    They are callbacks of users, which may take long, raise anything, and call us again.
    """

    def __init__(self, name: str, subject: str) -> None:
        self._subject = subject  # what the calls are, as errors name it
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._starting = threading.Lock()

    def start(self) -> None:
        """Start the thread, unless it has been started."""
        with self._starting:
            if self._thread.ident is None:
                self._thread.start()

    def put(self, call: Callable[[], object] | None) -> None:
        """Let the thread make a call; None: let it end once it has made all."""
        self._calls.put(call)

    def join(self) -> None:
        """Wait until the thread has ended; a callback in this very thread need not wait."""
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join()

    def wait_until_idle(self) -> None:
        """Wait until all calls have been made that were put before; not in the thread itself."""
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            is_idle = threading.Event()
            self._calls.put(is_idle.set)
            while not is_idle.wait(0.1) and self._thread.is_alive():
                pass  # it may have been stopped before the call

    def call_now(self, call: Callable[[], object]) -> None:
        """Make a call in the present thread; log what it raises."""
        try:
            call()
        except Exception as error:
            self._log(error)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except BaseException as error:  # callbacks may raise anything
                self._log(error)
            del call  # it may hold a large result

    def _log(self, error: BaseException) -> None:
        name = type(error).__name__
        _LOG.error("hesrpt: %s ended with %s", self._subject, name, exc_info=error)


@dataclass(eq=False)
class _SubmittedCall:
    future: Future[Any]
    packed: Any


class CallSource(Source):
    """Calls as items; a call gets its item number when it is started."""

    delivers_results = True

    def __init__(self, engine: Engine, caller: Caller, timeout: float | None) -> None:
        self.pack_argument, self.timeout = engine.pack_argument, timeout
        self.function = engine.pack_function(caller)
        self.cancelled_call = engine.pack_argument(None)  # runs in place of a cancelled call
        # Reentrant, because the garbage collector may shut down an executor anywhere.
        self.lock = threading.RLock()
        self.waiting: deque[_SubmittedCall] = deque()
        self.running: dict[int, _SubmittedCall | None] = {}  # None: cancelled before it started
        self.started_count = 0
        self.listener: SourceListener | None = None
        self.is_shut_down = self.cancels_waiting = False
        self.broken: str | None = None  # why no call can be made: the initializer has failed
        # Callbacks of futures must not block the scheduler's thread.
        self.resolver = CallbackThread("hesrpt-futures", "a callback of a future")

    # --- called by users of the executor --------------------------------------------------------

    def submit(self, call: Call) -> Future[Any]:
        """Add a call."""
        future: Future[Any] = CallFuture()
        try:
            packed = self.pack_argument(call)
        except InputError as error:
            future.set_exception(error.__cause__ or error)
            packed = None
        with self.lock:
            if self.broken is not None:
                raise BrokenExecutorError(self.broken)
            if self.is_shut_down or self.is_closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if packed is not None:
                self.resolver.start()
                self.waiting.append(_SubmittedCall(future, packed))
                self._report_calls()
        return future

    def shutdown(self, cancel_futures: bool = False) -> None:
        """Accept no further calls; if asked to, cancel those that have not started."""
        with self.lock:
            self.is_shut_down = True
            self.cancels_waiting = self.cancels_waiting or cancel_futures
            if self.listener is not None:
                self.listener.report_end(self._count_calls)

    def _report_calls(self) -> None:
        if self.listener is not None:
            self.listener.report_items(self.started_count + len(self.waiting))

    def _count_calls(self) -> int:
        """Return how many calls there were; the driver calls this once no more are accepted."""
        with self.lock:
            if self.cancels_waiting and self.listener is not None:
                # In the driver's next step, because calls for which servers are free start now.
                self.listener.report_end(self._cancel_waiting)
            return self.started_count + len(self.waiting)

    def _cancel_waiting(self) -> int:
        with self.lock:
            while self.waiting:
                self._finish_later(_cancel, self.waiting.popleft().future)
            return self.started_count

    # --- called by the driver -------------------------------------------------------------------

    def get_keys(self, items: Sequence[int]) -> Sequence[bytes]:
        return create_keys(repeat(bytes(FINGERPRINT_BYTES)), 0, items)  # nobody looks for calls

    def open(self, listener: SourceListener) -> None:
        with self.lock:
            self.listener = listener
            self._report_calls()
            if self.is_shut_down:
                listener.report_end(self._count_calls)

    def create_tasks(
        self, items: Sequence[int], servers: int, logs: LogPaths | None
    ) -> Mapping[int, Task]:
        arguments = list(map(self._start_call, items))
        return PythonTasks(
            items, arguments, function=self.function, timeout=self.timeout, logs=logs
        )

    def _start_call(self, item: int) -> Any:
        """Return the packed call of an item."""
        with self.lock:
            if item not in self.running:
                self.started_count += 1
                self.running[item] = self._take_call()
            call = self.running[item]
        return self.cancelled_call if call is None else call.packed

    def _take_call(self) -> _SubmittedCall | None:
        """Return the next call, or None if it was cancelled or somebody finished its future."""
        if not self.waiting:
            return None
        call = self.waiting.popleft()
        if call.future.done() and not call.future.cancelled():
            return None
        return call if call.future.set_running_or_notify_cancel() else None

    def finish_items(self, items: Sequence[int], results: Sequence[Pickled]) -> None:
        for item, result in zip(items, results, strict=True):
            if (call := self.running.pop(item, None)) is not None:
                self._finish_later(self._resolve, call.future, result)

    def drop_item(self, item: int, error: str) -> None:
        if (call := self.running.pop(item, None)) is not None:
            self._finish_later(call.future.set_exception, LostCallError(error))

    def close(self, reason: str = "the job has ended") -> None:
        with self.lock:
            if self.is_closed:
                return
            self.is_closed = True
            self.listener = None
            ended = [call for call in self.running.values() if call is not None]
            self.running.clear()
            error: BaseException = CancelledError(reason)
            if self.broken is not None:
                error = BrokenExecutorError(self.broken)
                waiting = (self._take_call() for _ in range(len(self.waiting)))
                ended += [call for call in waiting if call is not None]
            self._cancel_waiting()
        for call in ended:
            self._finish_later(call.future.set_exception, error)
        self.resolver.put(None)

    def _finish_later(self, finish: Callable[..., object], *args: Any) -> None:
        self.resolver.put(partial(_finish, finish, *args))

    # --- called by the thread that finishes futures ---------------------------------------------

    def _resolve(self, future: Future[Any], outcome: Pickled) -> None:
        """Finish a future with what :class:`~hesrpt.scheduler.calls.Caller` returned."""
        end: CallEnd
        try:
            pickled, end = cloudpickle.loads(outcome)
            value = cloudpickle.loads(pickled)
        except BaseException as error:  # unpickling runs the user's code
            problem = f"the result cannot be unpickled: {type(error).__name__}: {error}"
            lost = LostCallError(problem)
            lost.__cause__ = error
            future.set_exception(lost)
            return
        if end == "returned":
            future.set_result(value)
        elif end == "raised":
            if isinstance(cause := value.__cause__, _RemoteTraceback):
                cause.tb = add_source_lines(cause.tb)
            future.set_exception(value)
        else:
            problem = f"the initializer raised {type(value).__name__}: {value}"
            self._break(problem)
            broken = BrokenExecutorError(problem)
            broken.__cause__ = value
            future.set_exception(broken)

    def _break(self, problem: str) -> None:
        """Let all calls fail that have not ended, and all later ones."""
        with self.lock:
            self.broken = self.broken or problem
            if self.listener is not None:
                self.listener.report_failure(problem)


def _finish(finish: Callable[..., object], *args: Any) -> None:
    with suppress(InvalidStateError):  # somebody else has finished the future
        finish(*args)


def _cancel(future: Future[Any]) -> None:
    """Cancel a future that has not started, and notify threads that wait for it."""
    if future.cancel():
        future.set_running_or_notify_cancel()
