"""A job to which calls are submitted: a standard executor that shares servers with other jobs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from itertools import islice, repeat
from typing import Any, ParamSpec, TypeVar

from hesrpt.pool.job_handle import Job
from hesrpt.scheduler.call_source import CallSource
from hesrpt.scheduler.calls import call_with_each
from hesrpt.scheduler.driver import Driver

P = ParamSpec("P")
T = TypeVar("T")


class PoolExecutor(Executor):
    """One job of a pool, to which calls are submitted; created by :meth:`Pool.executor`.

    An executor that nobody refers to any longer is shut down: the submitted calls still end.
    """

    def __init__(self, job: Job[Any], driver: Driver, source: CallSource) -> None:
        self.job, self._driver, self._source = job, driver, source
        weakref.finalize(self, _shut_down, driver, source).atexit = False

    def __repr__(self) -> str:
        return repr(self.job).replace("<Job", "<PoolExecutor", 1)

    def _repr_html_(self) -> str:
        """Return the state of the job as HTML, which notebooks show."""
        return self.job._repr_html_()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submit a call; it runs as soon as the job has a free server."""
        self._driver.check_process()
        return self._source.submit((fn, args, kwargs))

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        """Call a function with the items of iterables; yield the results in their order.

        Parameters
        ----------
        fn
            A callable that takes as many arguments as there are iterables.
        iterables
            They are read at once, before the first result is returned.
        timeout
            Seconds to wait for the results; after that, a TimeoutError is raised.
        chunksize
            How many calls to send to a worker at once. Larger chunks are faster for short calls.
        """
        if chunksize < 1:
            raise ValueError(f"chunksize must be at least 1, got {chunksize}")
        if chunksize == 1:
            return super().map(fn, *iterables, timeout=timeout)
        chunks = _split(zip(*iterables, strict=False), chunksize)
        results = super().map(call_with_each, repeat(fn), chunks, timeout=timeout)
        return _yield_and_forget(results)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no further calls; the job ends once all submitted calls have ended."""
        if self._driver.was_forked:
            return  # the executor belongs to the parent process
        self._source.shutdown(cancel_futures)
        if wait:
            self.job.wait()
            self._source.resolver.join()

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        """Wait for all calls; but Ctrl-C stops them, as it does with a ``ProcessPoolExecutor``."""
        is_interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        if is_interrupted and not self._driver.was_forked:
            self.job.cancel()
        self.shutdown()


def _shut_down(driver: Driver, source: CallSource) -> None:
    """Shut down the source of an executor that was garbage-collected."""
    if not driver.was_forked:
        source.shutdown()


def _split(values: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(values)
    while chunk := list(islice(iterator, size)):
        yield chunk


def _yield_and_forget(lists: Iterator[list[T]]) -> Iterator[T]:
    """Yield the values in lists without keeping them in memory."""
    for values in lists:
        values.reverse()
        while values:
            yield values.pop()
