"""A job as its owner sees it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cloudpickle

from hesrpt.errors import InputError
from hesrpt.runtime.driver import Driver, LiveJob
from hesrpt.runtime.events import JobCancelled


class JobError(RuntimeError):
    """A job has failed, or was cancelled."""


class Job:
    """A job in a pool."""

    def __init__(self, driver: Driver, live: LiveJob) -> None:
        self._driver, self._live = driver, live

    def __repr__(self) -> str:
        total = "?" if self._live.items is None else self._live.items
        return f"<Job {self.name!r}: {self.state}, {self._live.done} of {total} items>"

    @property
    def name(self) -> str:
        """What the job is called."""
        return self._live.name

    @property
    def state(self) -> str:
        """One of "running", "done", "failed" and "cancelled"."""
        if self._live.ended is None:
            return "running"
        if self._live.error is None:
            return "done"
        return "cancelled" if self._live.error == "cancelled" else "failed"

    @property
    def error(self) -> str | None:
        """Why it failed."""
        return self._live.error

    @property
    def done(self) -> int:
        """How many items are done."""
        return self._live.done

    @property
    def items(self) -> int | None:
        """How many items there are, if that is known."""
        return self._live.items

    @property
    def flow_time(self) -> float:
        """How long it took, from its arrival to its end; so far, if it has not ended."""
        end = self._driver.now if self._live.ended is None else self._live.ended
        return end - self._live.arrived

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the job has ended; return whether it has."""
        return self._driver.wait(lambda: self._live.ended is not None, timeout)

    def results(self, timeout: float | None = None) -> list[Any]:
        """Wait for the job, and return what its items returned, in their order.

        Raises JobError if it failed.
        """
        return list(self.iter_results(timeout))

    def iter_results(self, timeout: float | None = None) -> Iterator[Any]:
        """Wait for the job, and yield what its items returned, one after the other."""
        self._wait_for_success(timeout)
        if self._live.source.delivers_results:
            raise InputError(f"job {self.name!r}: the futures of its executor have the results")
        if self._live.references:
            for _, reference in sorted(self._live.references.items()):
                yield self._driver.engine.fetch(reference)
            return
        for _, result in self._driver.results(self._live):
            yield cloudpickle.loads(result)

    def refs(self, timeout: float | None = None) -> list[Any]:
        """Wait for the job, and return references to its results, which stay in the cluster.

        They are Ray's, in the order of the items: ``ray.get`` fetches them, and ``map`` takes them
        as items. It must have been asked for: ``pool.map(..., keep=True)``. A result is lost if the
        node dies that holds it.
        """
        self._wait_for_success(timeout)
        if self._live.done and not self._live.references:
            raise InputError(f"job {self.name!r}: its results were not kept; say map(…, keep=True)")
        return [reference for _, reference in sorted(self._live.references.items())]

    def _wait_for_success(self, timeout: float | None) -> None:
        if not self.wait(timeout):
            raise TimeoutError(f"job {self.name!r} has not ended after {timeout:g} s")
        if self._live.error is not None:
            raise JobError(f"job {self.name!r} {self.state}: {self._live.error}")

    def cancel(self) -> None:
        """End the job; what is running of it is stopped."""
        self._driver.tell(JobCancelled(self._driver.now, self.name))
