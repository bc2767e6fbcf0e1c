"""The jobs of a shared client of Dask: what callers hold of them."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from math import inf
from typing import Any, NamedTuple, Protocol

from distributed import Client
from distributed import Future as DaskFuture

from hesrpt.errors import JobError

__all__ = ["SharedExecutor", "SharedJob"]


class JobOwner(Protocol):
    """What jobs need of their shared client."""

    client: Client

    def log(self, job: str, action: str, **values: Any) -> None:
        """Tell the plugin in Dask's scheduler about a job."""

    def do_later(self, job: SharedJob, action: Callable[[], None]) -> None:
        """Let the thread that talks to Dask do something for a job."""

    def forget(self, job: SharedJob) -> None:
        """Keep a job no longer that has ended."""


class SharedJob:
    """A job of a shared client: its items, and their Dask futures once they start."""

    def __init__(
        self,
        shared: JobOwner,
        name: str,
        submit: Callable[[str, Sequence[int]], list[DaskFuture]],
        items: int | None,
    ) -> None:
        # As a prefix of keys, it groups the job's tasks in Dask's dashboard.
        self.id = f"{name}-{uuid.uuid4().hex}"
        self.name, self.items = name, items
        self._shared, self._submit = shared, submit
        self._futures: dict[int, DaskFuture] = {}
        self._ended = 0
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def __repr__(self) -> str:
        return f"<SharedJob {self.name!r}: {self._ended} of {self.items} items ended>"

    def results(self, timeout: float | None = None) -> list[Any]:
        """Wait for all items and return their results in order; raise the first error.

        ``timeout`` is in seconds; after that, a TimeoutError is raised.
        """
        results: list[Any] = self._shared.client.gather(self.futures(timeout))
        return results

    def futures(self, timeout: float | None = None) -> list[DaskFuture]:
        """Wait for all items and return their Dask futures in order.

        Their results stay on the workers, and other tasks can use them.
        """
        deadline = time.monotonic() + (inf if timeout is None else timeout)
        with self._changed:
            while not self._changed.wait_for(self._has_ended, min(deadline - time.monotonic(), 1)):
                if time.monotonic() >= deadline:
                    raise TimeoutError(f"job {self.name!r} has not ended within {timeout:g} s")
                if self._shared.client.status == "closed":
                    raise JobError(f"job {self.name!r} has lost its Dask client, which is closed")
        if self._error is not None:
            raise self._error
        return [self._futures[item] for item in sorted(self._futures)]

    def cancel(self) -> None:
        """Stop the job: nothing of it starts any more, and Dask forgets what has not ended."""
        self.fail(JobError(f"job {self.name!r} was cancelled"))

    # --- with the shared client -----------------------------------------------------------------

    def start(self, items: Sequence[int]) -> None:
        """Submit items to Dask."""
        if self._error is not None:
            return
        for item, future in zip(items, self._submit(self.id, items), strict=True):
            self._futures[item] = future
            future.add_done_callback(partial(self._end_item, item))

    def fail(self, error: BaseException) -> None:
        """End the job with an error, unless it has ended."""
        with self._changed:
            if self._has_ended():
                return
            self._error = error
            self._changed.notify_all()
        self._shared.forget(self)
        if self._shared.client.status == "running":
            self._shared.log(self.id, "cancel")
            self._shared.client.cancel(list(self._futures.values()))

    def close(self, items: int) -> None:
        """Learn how many items there are in the end."""
        with self._changed:
            self.items = items
            self._notice_end()

    def _has_ended(self) -> bool:
        return self._error is not None or self._ended == self.items

    def _end_item(self, item: int, future: DaskFuture) -> None:
        """Count an item that has ended; Dask calls this in a thread of its own."""
        with self._changed:
            self._ended += 1
            self._notice_end()

    def _notice_end(self) -> None:
        if self._has_ended():
            self._changed.notify_all()
            self._shared.forget(self)


class _Call(NamedTuple):
    future: Future[Any]
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class CallJob(SharedJob):
    """A job whose items are calls, which are added one by one."""

    def __init__(self, shared: JobOwner, name: str) -> None:
        super().__init__(shared, name, self._submit_calls, None)
        self._calls: dict[int, _Call] = {}  # that have not ended
        self._added = self._announced = 0
        self._is_closed = False

    def add(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Future[Any]:
        """Add a call."""
        with self._changed:
            if self._is_closed or self._error is not None:
                raise RuntimeError("cannot schedule new futures after shutdown")
            call = self._calls[self._added] = _Call(Future(), function, args, kwargs)
            self._added += 1
        self._shared.do_later(self, self._announce_calls)
        return call.future

    def finish(self, *, cancel_futures: bool) -> None:
        """Accept no further calls."""
        with self._changed:
            self._is_closed = True
            waiting = [call.future for call in self._calls.values()] if cancel_futures else []
        for future in waiting:
            future.cancel()
        self._shared.do_later(self, self._close)

    def fail(self, error: BaseException) -> None:
        """End the job with an error, and all calls that have not ended."""
        super().fail(error)
        with self._changed:
            calls = list(self._calls.values()) if self._error is not None else []
        for call in calls:
            if not call.future.cancel() and not call.future.done():
                call.future.set_exception(error)

    def _announce_calls(self) -> None:
        """Tell the plugin how many calls there are, once for all that have come since."""
        count = self._added
        if count > self._announced and self._error is None:
            self._announced = count
            self._shared.log(self.id, "add", items=count)

    def _close(self) -> None:
        self._announce_calls()
        self._shared.log(self.id, "close", items=self._added)
        self.close(self._added)

    def _submit_calls(self, job: str, numbers: Sequence[int]) -> list[DaskFuture]:
        return [self._submit_call((job, number), self._calls[number]) for number in numbers]

    def _submit_call(self, key: tuple[str, int], call: _Call) -> DaskFuture:
        function, args, kwargs = call.function, call.args, call.kwargs
        if not call.future.set_running_or_notify_cancel():
            function, args, kwargs = bool, (), {}  # the plugin waits for its end
        return self._shared.client.submit(_call, function, args, kwargs, key=key, pure=False)

    def _end_item(self, item: int, future: DaskFuture) -> None:
        """Pass the outcome on, and let Dask forget it."""
        call = self._calls.pop(item)
        if not call.future.done():
            try:
                call.future.set_result(future.result())
            except Exception as error:
                call.future.set_exception(error)
        self._futures.pop(item, None)
        super()._end_item(item, future)


class SharedExecutor(Executor):
    """A standard executor whose calls form one job of a shared client."""

    def __init__(self, shared: JobOwner, name: str) -> None:
        self.job = CallJob(shared, name)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a call; it starts as soon as the job may use a thread."""
        return self.job.add(fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no further calls; the job ends once all submitted calls have ended."""
        self.job.finish(cancel_futures=cancel_futures)
        if wait:
            self.job.futures()


def _call(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return function(*args, **kwargs)
