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
from collections.abc import Callable, Iterable, Sequence
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

from hesrpt.integrations.dask_jobs import SharedExecutor, SharedJob
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
        executor = SharedExecutor(self, name)
        self._announce(executor.job, size, weight)
        return executor

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


def _return(value: Any) -> Any:
    return value
