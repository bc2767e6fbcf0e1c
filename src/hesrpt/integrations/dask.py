"""Several users of one Dask cluster share its threads by the sizes of their jobs.

Plain Dask runs tasks in the order in which their graphs arrive, so a short job waits behind a long
one. A :class:`SharedClient` hands tasks to Dask only as fast as its jobs may use threads. A plugin
in Dask's scheduler decides that for all shared clients together, with the policy of a pool.

>>> from distributed import Client, LocalCluster
>>> from hesrpt.integrations.dask import SharedClient
>>> with LocalCluster(n_workers=2, processes=False, dashboard_address=":0") as cluster:
...     with Client(cluster) as client, SharedClient(client) as shared:
...         large = shared.map(pow, range(100), [2] * 100, name="large")
...         small = shared.map(abs, [-1, -2], name="small")
...         print(small.results(), sum(large.results()))
[1, 2] 328350
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from math import inf
from queue import SimpleQueue
from types import TracebackType
from typing import Any

from hesrpt.errors import InputError, JobError
from hesrpt.policies import PolicyLike
from hesrpt.validation import check_positive

try:
    import dask
    from distributed import Client
    from distributed import Future as DaskFuture
except ImportError as missing:
    raise ImportError(
        "hesrpt.integrations.dask needs Dask: pip install 'hesrpt[dask]'"
    ) from missing

from hesrpt.integrations.dask_shares import JOBS_TOPIC, SharesPlugin, name_starts_topic

__all__ = ["SharedClient", "SharedExecutor", "SharedJob"]

# How long to wait for Dask's scheduler to answer, in seconds.
_ANSWER_SECONDS = 30.0


class SharedClient:
    """A Dask client whose jobs share the cluster with those of other shared clients, by size.

    hesrpt must be installed where Dask's scheduler runs. The ``policy`` of the first shared client
    of a cluster counts. Tasks that are submitted to Dask directly take part in Dask's own order
    only.

    Parameters
    ----------
    client
        A Dask client, which stays open when the shared client is closed.
    policy
        How jobs share the threads, as in :class:`hesrpt.Pool`.
    """

    def __init__(self, client: Client, policy: PolicyLike = "adaptive") -> None:
        self.client = client
        self._jobs: dict[str, SharedJob] = {}
        self._actions: SimpleQueue[tuple[SharedJob, Callable[[], None]] | None] = SimpleQueue()
        self._topic = name_starts_topic(client.id)
        self._is_subscribed = threading.Event()
        client.register_plugin(SharesPlugin(policy))
        client.subscribe_topic(self._topic, self._receive)
        deadline = time.monotonic() + _ANSWER_SECONDS
        while not self._is_subscribed.wait(0.02):  # messages before the subscription are lost
            if time.monotonic() > deadline:
                raise JobError(f"Dask's scheduler has not answered within {_ANSWER_SECONDS:g} s")
            client.log_event(self._topic, None)
        # Graphs are submitted here: Dask's event loop, which receives the starts, must not wait.
        self._thread = threading.Thread(target=self._act, name="hesrpt-dask", daemon=True)
        self._thread.start()

    def __enter__(self) -> SharedClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancel the jobs that have not ended. The Dask client stays open."""
        for job in list(self._jobs.values()):
            job.cancel()
        self._actions.put(None)
        self._thread.join()
        self.client.unsubscribe_topic(self._topic)

    @property
    def servers(self) -> int:
        """The number of threads of all workers."""
        return sum(self.client.nthreads().values())

    def map(
        self,
        function: Callable[..., Any],
        *iterables: Iterable[Any],
        name: str | None = None,
        size: float | None = None,
        weight: float = 1.0,
    ) -> SharedJob:
        """Call a function with each of the items, as one job.

        Parameters
        ----------
        function
            A callable that takes as many arguments as there are iterables.
        iterables
            They are read at once.
        name
            A name for the job, which Dask's dashboard shows. Default: that of the function.
        size
            Seconds of work in one thread. Default: learned from the items that have ended.
        weight
            How much the job counts in comparison with others.
        """
        columns = [list(iterable) for iterable in iterables]
        if len(set(map(len, columns))) != 1:
            lengths = ", ".join(str(len(column)) for column in columns) or "none"
            raise InputError(f"must have the same length, got {lengths}", argument="iterables")

        def submit(job: str, numbers: Sequence[int]) -> list[DaskFuture]:
            chosen = [[column[number] for number in numbers] for column in columns]
            keys = [(job, number) for number in numbers]
            futures: list[DaskFuture] = self.client.map(function, *chosen, key=keys, pure=False)
            return futures

        given_name = name or str(getattr(function, "__name__", "map"))
        return self._announce(SharedJob(self, given_name, submit, len(columns[0])), size, weight)

    def compute(
        self,
        collections: Sequence[Any],
        *,
        name: str = "compute",
        size: float | None = None,
        weight: float = 1.0,
    ) -> SharedJob:
        """Compute several Dask collections, such as delayed values, as one job.

        Each collection is an item: its graph is submitted as a whole when it may start. It counts
        as one thread, so that shares are exact if the graphs are chains.
        """

        def submit(job: str, numbers: Sequence[int]) -> list[DaskFuture]:
            wrapped = [
                dask.delayed(_return)(collections[number], dask_key_name=(job, number))
                for number in numbers
            ]
            futures: list[DaskFuture] = self.client.compute(wrapped)
            return futures

        job = SharedJob(self, name, submit, len(collections))
        return self._announce(job, size, weight, has_graphs=True)

    def executor(
        self, name: str = "executor", *, size: float | None = None, weight: float = 1.0
    ) -> SharedExecutor:
        """Return an executor whose calls form one job; joblib can use it, see ``on_pool``."""
        return SharedExecutor(self, name, size, weight)

    # --- with the plugin ------------------------------------------------------------------------

    def _announce(
        self, job: SharedJob, size: float | None, weight: float, has_graphs: bool = False
    ) -> SharedJob:
        if size is not None:
            check_positive("size", size)
        check_positive("weight", weight)
        if job.items != 0:
            self._jobs[job.id] = job
            self.log(
                job.id,
                "submit",
                client=self.client.id,
                kind=job.name,
                items=job.items,
                size=size,
                weight=weight,
                has_graphs=has_graphs,
            )
        return job

    def log(self, job: str, action: str, **values: Any) -> None:
        """Tell the plugin about a job."""
        self.client.log_event(JOBS_TOPIC, {"job": job, "action": action, **values})

    def do_later(self, job: SharedJob, action: Callable[[], None]) -> None:
        """Let the thread that talks to Dask do something for a job."""
        self._actions.put((job, action))

    def forget(self, job: SharedJob) -> None:
        """Keep a job no longer that has ended."""
        self._jobs.pop(job.id, None)

    def _receive(self, event: tuple[float, Any]) -> None:
        """Take in which items may start, in Dask's event loop."""
        _, message = event
        if message is None:
            self._is_subscribed.set()
        elif (job := self._jobs.get(message["job"])) is not None:
            self.do_later(job, lambda: job.start(message["items"]))

    def _act(self) -> None:
        while (entry := self._actions.get()) is not None:
            job, action = entry
            try:
                action()
            except Exception as error:  # such as arguments that cannot be pickled
                job.fail(error)


class SharedJob:
    """A job of a :class:`SharedClient`: its items, and their Dask futures once they start."""

    def __init__(
        self,
        shared: SharedClient,
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
            future.add_done_callback(self._count_end)

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

    def _count_end(self, future: DaskFuture) -> None:
        with self._changed:
            self._ended += 1
            self._notice_end()

    def _notice_end(self) -> None:
        if self._has_ended():
            self._changed.notify_all()
            self._shared.forget(self)


class SharedExecutor(Executor):
    """A standard executor whose calls form one job of a :class:`SharedClient`."""

    def __init__(self, shared: SharedClient, name: str, size: float | None, weight: float) -> None:
        self._shared = shared
        self._calls: list[tuple[Future[Any], Callable[..., Any], Any, Any] | None] = []
        self._lock = threading.Lock()
        self._announced = 0
        self._is_shut_down = False
        self.job = shared._announce(SharedJob(shared, name, self._start, None), size, weight)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a call; it starts as soon as the job may use a thread."""
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("cannot schedule new futures after shutdown")
            future: Future[Any] = Future()
            self._calls.append((future, fn, args, kwargs))
        self._shared.do_later(self.job, self._announce_calls)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no further calls; the job ends once all submitted calls have ended."""
        with self._lock:
            self._is_shut_down = True
            futures = [call[0] for call in self._calls if call is not None]
        if cancel_futures:
            for future in futures:
                future.cancel()
        self._shared.do_later(self.job, self._close)
        if wait:
            self.job.futures()

    def _announce_calls(self) -> None:
        """Tell the plugin how many calls there are, once for all that have come since."""
        count = len(self._calls)
        if count > self._announced:
            self._announced = count
            self._shared.log(self.job.id, "add", items=count)

    def _close(self) -> None:
        self._announce_calls()
        self._shared.log(self.job.id, "close", items=len(self._calls))
        self.job.close(len(self._calls))

    def _start(self, job: str, numbers: Sequence[int]) -> list[DaskFuture]:
        return [self._start_call(job, number) for number in numbers]

    def _start_call(self, job: str, number: int) -> DaskFuture:
        call, self._calls[number] = self._calls[number], None
        assert call is not None
        future, function, args, kwargs = call
        if not future.set_running_or_notify_cancel():
            function, args, kwargs = _return, (None,), {}
        run = self._shared.client.submit(
            _call, function, args, kwargs, key=(job, number), pure=False
        )
        run.add_done_callback(lambda ended: _pass_on(ended, future))
        return run


def _return(value: Any) -> Any:
    return value


def _call(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return function(*args, **kwargs)


def _pass_on(ended: DaskFuture, future: Future[Any]) -> None:
    """Pass the outcome of a Dask future on to one of the standard library."""
    if future.cancelled():
        return
    try:
        future.set_result(ended.result())
    except Exception as error:
        future.set_exception(error)
