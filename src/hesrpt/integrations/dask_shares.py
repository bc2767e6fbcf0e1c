"""The part of the Dask integration that runs in Dask's scheduler: who may start how many items.

It is a scheduler plugin around the same core that decides in a :class:`hesrpt.Pool`. Clients
announce their jobs as events of Dask's log; tasks that end and workers that come and go are seen by
the plugin's hooks; the items that may start are sent to their clients as events again. All of these
are public interfaces of Dask.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any, NamedTuple

from distributed import SchedulerPlugin

from hesrpt.policies import PolicyLike
from hesrpt.runtime.decisions.core import Core
from hesrpt.runtime.decisions.events import (
    CapacityChanged,
    Event,
    Finish,
    ItemFailed,
    ItemFinished,
    ItemsExhausted,
    ItemsRead,
    JobArrived,
    JobCancelled,
    Start,
)
from hesrpt.runtime.job_spec import JobSpec

__all__ = ["JOBS_TOPIC", "SharesPlugin", "name_starts_topic"]

#: The topic of Dask's event log under which clients announce their jobs.
JOBS_TOPIC = "hesrpt-jobs"
# Short items start in batches, so that they do not wait for messages: seconds of work of each.
_BATCH_SECONDS = 0.1


def name_starts_topic(client: str) -> str:
    """Return the topic under which a client learns which of its items may start."""
    return f"hesrpt-starts-{client}"


class _AnnouncedJob(NamedTuple):
    client: str
    has_graphs: bool  # whether an item is a graph of several tasks


class SharesPlugin(SchedulerPlugin):  # type: ignore[misc]
    """Decides how many tasks of each announced job may be in Dask's scheduler at a time.

    The key of a task is a pair: the id of its job, which is unique in the cluster, and the number
    of the item.
    """

    name = "hesrpt-shares"
    idempotent = True  # the first client's plugin stays

    def __init__(self, policy: PolicyLike = "adaptive") -> None:
        self._core = Core(0, policy, batch_seconds=_BATCH_SECONDS)
        self._jobs: dict[str, _AnnouncedJob] = {}  # that have not ended
        self._started: dict[tuple[str, int], float] = {}  # when each item in flight started
        self._scheduler: Any = None

    async def start(self, scheduler: Any) -> None:
        """Begin with the workers that are there."""
        self._scheduler = scheduler
        self._count_threads(scheduler)

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """Share the threads of a new worker, too."""
        self._count_threads(scheduler)

    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        """Plan without a worker that is gone; Dask itself runs its tasks elsewhere."""
        self._count_threads(scheduler, without=worker)

    def remove_client(self, scheduler: Any, client: str) -> None:
        """Forget the jobs of a client that is gone."""
        for name in [name for name, job in self._jobs.items() if job.client == client]:
            self._handle(JobCancelled(time.monotonic(), name))

    def log_event(self, topic: str, msg: Any) -> None:
        """Take in what a client announces about a job."""
        if topic != JOBS_TOPIC:
            return
        now, job = time.monotonic(), msg["job"]
        match msg["action"]:
            case "submit":
                self._jobs[job] = _AnnouncedJob(msg["client"], msg["has_graphs"])
                spec = JobSpec(
                    name=job,
                    kind=msg["kind"],
                    items=msg["items"],
                    size=msg["size"],
                    weight=msg["weight"],
                    retries=0,  # Dask has its own
                    on_error="keep",
                    is_executor=msg["items"] is None,
                )
                self._handle(JobArrived(now, spec))
            case "add":
                self._handle(ItemsRead(now, job, msg["items"]))
            case "close":
                self._handle(ItemsExhausted(now, job, msg["items"]))
            case "cancel":
                self._handle(JobCancelled(now, job))

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Notice the end of an item."""
        if type(key) is not tuple or key not in self._started:
            return
        now = time.monotonic()
        job, item = key
        if finish == "memory":
            seconds = now - self._started.pop(key)
            if not self._jobs[job].has_graphs:  # then Dask knows better how long it ran
                for phase in kwargs.get("startstops") or ():
                    if phase["action"] == "compute":
                        seconds = phase["stop"] - phase["start"]
            self._handle(ItemFinished(now, job, item, max(seconds, 1e-6)))
        elif finish in ("erred", "forgotten"):
            del self._started[key]
            self._handle(ItemFailed(now, job, item, finish))

    def _count_threads(self, scheduler: Any, without: str = "") -> None:
        workers = scheduler.workers.items()
        threads = sum(state.nthreads for address, state in workers if address != without)
        self._handle(CapacityChanged(time.monotonic(), threads))

    def _handle(self, event: Event) -> None:
        """Advance the core, and tell clients which items may start."""
        starts: dict[str, list[int]] = defaultdict(list)
        for command in self._core.handle(event):
            if isinstance(command, Start):
                starts[command.job] += command.items
            elif isinstance(command, Finish):
                self._forget(command.job)
        now = time.monotonic()
        for job, items in starts.items():
            self._started.update(dict.fromkeys(((job, item) for item in items), now))
            topic = name_starts_topic(self._jobs[job].client)
            self._scheduler.log_event(topic, {"job": job, "items": items})

    def _forget(self, job: str) -> None:
        self._jobs.pop(job, None)
        for key in [key for key in self._started if key[0] == job]:
            del self._started[key]
