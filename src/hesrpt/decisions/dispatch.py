"""Which items start, stop and change their servers, once servers are planned for each job.

Shrinks come before grows. No clock, no process, no file: this is a part of the core's decisions.

When items are short, the engine is given one more item than there are servers, so that no server
waits for the scheduler. This *queued* item holds no server until another item ends. Items that are
very short, compared with the time that starting one takes, go in *batches*: a server is given
several at once, and a batch is queued for each server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import inf

from hesrpt.decisions.active_job import ActiveJob, BatchInFlight, Tally
from hesrpt.decisions.allocation import Allocator, keeps_width
from hesrpt.decisions.events import Command, Continue, Resize, Start, Stop, Suspend
from hesrpt.decisions.waiting_line import WaitingLine

# Items up to this long, in seconds, are queued in the engine before a server is free.
_SHORT_SECONDS = 0.1
# Towards the end of a job, batches become shorter, down to this fraction of the usual length.
_SHRINKING = 10
#: The most items that a server is given at once, unless its engine says otherwise.
MAX_BATCH = 10_000


class Dispatcher:
    """Starts the items of the core's jobs on the servers that are planned for them."""

    def __init__(
        self,
        jobs: Mapping[str, ActiveJob],
        line: WaitingLine,
        allocator: Allocator,
        batch_seconds: float,
        max_batch: int,
    ) -> None:
        self.jobs, self.allocator = jobs, allocator
        self.line, self.tally = line, Tally()
        self.batch_seconds = batch_seconds  # how long a batch should keep a server busy
        self.max_batch = max_batch  # the most items in a batch
        # In the engine without a server; those of jobs that have ended are passed over.
        self._queued: list[tuple[str, BatchInFlight]] = []

    def shrink(self, time: float) -> Iterable[Command]:
        """Take servers from commands that hold more than planned."""
        for job in self.line.contenders:
            if job.is_bag:
                continue
            for item, in_flight in list(job.in_flight.items()):
                if in_flight.servers <= job.planned:
                    continue
                if job.is_paused:
                    yield self._pause_command(job, item, in_flight, time)
                elif job.spec.resize == "affinity":
                    width = max(job.planned, job.min_servers)
                    if width < in_flight.servers:
                        job.set_servers(in_flight, width)
                        yield Resize(job.name, item, width)
                elif job.spec.resize == "restart" and not keeps_width(job, time):
                    yield self._stop_to_restart(job, item, in_flight, time)

    def grow(self, servers: int, time: float) -> Iterable[Command]:
        """Give free servers to jobs that hold fewer than requested."""
        while self._queued and self.tally.observed < servers:  # nobody holds these servers
            self.pass_on_server(time)
        free = servers - self.tally.observed
        if free > 0:
            yield from self._share_free(free, time)
        yield from self._queue_item(servers, time)

    def _share_free(self, free: int, time: float) -> Iterable[Command]:
        needy = [job for job in self.line.contenders if job.observed < job.requested]
        # Commands first: they need several servers at once. Then bags, shortest first.
        if len(needy) > 1:
            needy.sort(
                key=lambda job: (
                    job.is_bag,
                    self.allocator.estimate_remaining(job, time) if job.is_bag else 0.0,
                )
            )
        for job in needy:
            if free <= 0:
                break
            if job.is_bag:
                more = min(job.requested - job.observed, free, job.startable_items)
                # A batch must leave at least one item for each server that starts after it.
                for later_starts in range(more - 1, -1, -1):
                    if not job.has_resources:
                        break
                    yield self._start_items(job, time, 1, job.startable_items - later_starts)
                    free -= 1
            elif job.in_flight:
                ((item, in_flight),) = job.in_flight.items()
                more = min(job.planned - in_flight.servers, free)
                if in_flight.suspended_at is not None:
                    if more < job.fewest_to_start:
                        continue
                    job.go_on(in_flight, more, time)
                    free -= more
                    yield Continue(job.name, item, more)
                elif job.spec.resize == "affinity":
                    job.set_servers(in_flight, in_flight.servers + more)
                    free -= more
                    yield Resize(job.name, item, in_flight.servers)
                elif more == job.planned - in_flight.servers:
                    free += in_flight.servers
                    yield self._stop_to_restart(job, item, in_flight, time)
                    free -= job.planned
                    yield self._start_command(job, job.planned, time)
            elif free >= job.fewest_to_start and job.has_resources:
                width = min(job.planned, free)
                free -= width
                yield self._start_command(job, width, time)

    def pass_on_server(self, time: float) -> None:
        """Record what has taken over the server of a batch that ended: what was queued first."""
        while self._queued:
            name, batch = self._queued.pop(0)
            owner = self.jobs.get(name)
            if owner is not None and batch in owner.batches:
                owner.set_servers(batch, 1)
                batch.started, batch.width = time, owner.observed
                return

    def _queue_item(self, servers: int, time: float) -> Iterable[Command]:
        """If items are short and all servers are busy, queue one more item in the engine.

        If they are so short that they go in batches, queue a batch for each server: several
        servers may need one before the scheduler is awake.
        """
        self._queued = [
            (name, batch)
            for name, batch in self._queued
            if name in self.jobs and batch in self.jobs[name].batches
        ]
        durations = self.allocator.all_durations
        if not durations.counts or durations.mean_seconds > _SHORT_SECONDS:
            return
        limit = servers if durations.mean_seconds <= self.batch_seconds else 1
        while len(self._queued) < limit and self.tally.observed >= servers:
            job = self._choose_job_to_queue()
            if job is None:
                return
            start = self._start_items(job, time, 0, job.startable_items)
            self._queued.append((job.name, job.in_flight[start.item]))
            yield start

    def _choose_job_to_queue(self) -> ActiveJob | None:
        """Return the job that lacks most servers, if it counts those that it will take over."""
        # A queued item may take over the server of another job, so leave room for it.
        queued = Counter(name for name, _ in self._queued)
        job, most_missing = None, -inf
        for candidate in self.line.contenders:
            held = candidate.observed + queued[candidate.name]
            missing = candidate.planned - held
            if (
                missing > most_missing
                and candidate.is_bag
                and not candidate.need  # whose item ends next may hold other resources
                and candidate.startable_items > 0
                and held < (candidate.spec.max_servers or inf)
            ):
                job, most_missing = candidate, missing
        return job

    def _start_items(self, job: ActiveJob, time: float, servers: int, max_items: int) -> Start:
        width = max(job.observed + servers, 1)
        items = job.take_items(min(self._batch_size(job), max_items))
        batch = BatchInFlight(time, width, servers)
        job.add_in_flight(items, batch)
        return Start(job.name, items[0], next_items=items[1:] or (), gpus=batch.gpus)

    def _batch_size(self, job: ActiveJob) -> int:
        """Return how many items to give a server at once."""
        if self.batch_seconds == 0 or job.durations.items == 0:
            return 1
        # Items that take more than half of that travel alone, and are recorded as they end.
        fitting = min(int(self.batch_seconds / job.durations.mean_seconds), self.max_batch)
        # Shrink batches towards the end, so that all servers finish at about the same time.
        fair = job.waiting_items // (2 * max(job.planned, 1))
        return max(min(fitting, max(fair, fitting // _SHRINKING)), 1)

    def _pause_command(
        self, job: ActiveJob, item: int, in_flight: BatchInFlight, time: float
    ) -> Suspend | Stop:
        if job.spec.resize == "restart":
            return self._stop_to_restart(job, item, in_flight, time)
        job.suspend(in_flight, time)
        return Suspend(job.name, item)

    def _stop_to_restart(
        self, job: ActiveJob, item: int, in_flight: BatchInFlight, time: float
    ) -> Stop:
        job.previous_width = in_flight.servers
        job.work_done += (time - in_flight.started) * float(job.speedup(in_flight.servers))
        job.remove_in_flight((item,))
        return Stop(job.name, item)

    def _start_command(self, job: ActiveJob, width: int, time: float) -> Start:
        job.retry_queue.clear()
        batch = BatchInFlight(time, width, width)
        job.add_in_flight((0,), batch)
        job.resized_at = time
        job.waited_work, job.denied = 0.0, 0
        return Start(job.name, 0, width, gpus=batch.gpus)
