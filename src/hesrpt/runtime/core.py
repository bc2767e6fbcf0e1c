"""The scheduler's decisions. No clock, no process, no file: events in, commands out.

Three numbers of servers are kept apart: what the policy has *planned* for a job, what is
*requested* for it (no more than it has items left), and what is *observed* (items in flight, or the
width of its command). A job that holds too many starts no further items; servers that come free go
to jobs that hold too few. So shrinks always come before grows, and nothing is taken from an item.

Where items are short, one more than there are servers is handed to the engine, so that no server
waits for the scheduler: it is *ready*, and holds no server until another item ends. Where handing
out itself takes time, as on a cluster, a server is given several short items in one go.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from hesrpt.errors import InputError
from hesrpt.policies import PolicyLike
from hesrpt.runtime.allocation import Planner, is_fixed
from hesrpt.runtime.events import (
    CapacityChanged,
    Command,
    Drop,
    Event,
    Finish,
    ItemFailed,
    ItemFinished,
    ItemLost,
    ItemsExhausted,
    ItemsRead,
    JobArrived,
    JobCancelled,
    Resize,
    Start,
    Stop,
    Tick,
)
from hesrpt.runtime.jobs import ActiveJob, Flight

# Plans are made anew at least this often, in seconds, for what has been learned.
_REVIEW = 1.0
# Items up to this long, in seconds, are made ready before there is a server for them.
_SHORT = 0.1
#: No more items than this are given to a server in one go.
MOST_IN_BATCH = 100
# An item that has lost its server so often is taken to be the cause.
_MOST_LOSSES = 10


class Core:
    """The state of the scheduler; :meth:`handle` is all there is to it."""

    def __init__(
        self, servers: int, policy: PolicyLike = "hesrpt", batch_seconds: float = 0.0
    ) -> None:
        if servers < 0:
            raise InputError(f"servers must be at least 0, got {servers}")
        self.servers = self.widest = servers
        self.batch_seconds = batch_seconds  # a server should be busy so long with what it is given
        self.planner = Planner(policy)
        self.jobs: dict[str, ActiveJob] = {}
        self.planned_at = -inf
        self._arrivals = 0
        self._ready: list[tuple[str, int]] = []

    def handle(self, *events: Event) -> list[Command]:
        """Take note of events, and return what is to be done: stops, resizes, starts."""
        out: list[Command] = []
        anew = sum(self._note(event, out) for event in events) > 0
        time = events[-1].time
        if anew or (time - self.planned_at >= _REVIEW and self.jobs):
            self.planned_at = time
            self.planner.plan(list(self.jobs.values()), self.servers, time)
            out += self._shrink(time)
        elif all(isinstance(event, Tick) for event in events):
            return out
        out += self._grow(time)
        return out

    # --- events -------------------------------------------------------------------------------

    def _note(self, event: Event, out: list[Command]) -> bool:
        """Return whether a new plan is needed at once."""
        match event:
            case JobArrived():
                return self._arrive(event, out)
            case CapacityChanged():
                self.servers = event.servers
                self.widest = event.servers if event.widest is None else event.widest
                for job in self.jobs.values():
                    job.widest = self.widest
                return True
            case Tick():
                return False
            case _:
                active = self.jobs.get(event.job)
                if active is None:
                    return False  # it ended while the message was on its way
                return self._note_of_job(event, active, out)

    def _arrive(self, event: JobArrived, out: list[Command]) -> bool:
        if event.job in self.jobs:
            raise InputError(f"there is already a job named {event.job!r}")
        items = 1 if event.spec.resize is not None else event.spec.items
        self._arrivals += 1
        job = ActiveJob(event.job, event.spec, event.time, self._arrivals, items)
        job.done, job.done_count = set(event.done), len(event.done)
        job.widest = self.widest
        job.read = 0 if event.spec.fed or items is None else None
        self.jobs[event.job] = job
        if job.items is not None and job.left <= 0:
            self._end(job, out)
        return True

    def _note_of_job(
        self,
        event: ItemFinished | ItemFailed | ItemLost | ItemsRead | ItemsExhausted | JobCancelled,
        job: ActiveJob,
        out: list[Command],
    ) -> bool:
        match event:
            case ItemsRead():
                job.read = event.items
                return job.items is None
            case ItemsExhausted():
                job.items = event.items
                if job.left <= 0:
                    self._end(job, out)
                return True
            case JobCancelled():
                self._end(job, out, event.error)
                return True
            case ItemFinished() | ItemFailed() | ItemLost():
                held = job.observed
                flight = job.land(event.item)
                if flight is None:
                    return False
                self._let_run(event.time, flight)
                if isinstance(event, ItemFinished):
                    return self._finished(event, job, flight, held, out)
                return self._not_done(event, job, out)

    def _finished(
        self, event: ItemFinished, job: ActiveJob, flight: Flight, held: int, out: list[Command]
    ) -> bool:
        news = job.learned.items == 0
        if job.is_bag:
            width = max(round((flight.width + held) / 2), 1)
            job.learned.add(width, event.seconds)
            self.planner.known.add(width, event.seconds)
        else:
            own = event.seconds * float(job.speedup(flight.servers))
            job.learned.add(1, job.worked + own)
        return self._settled(job, out) or news

    def _settled(self, job: ActiveJob, out: list[Command]) -> bool:
        """Take note that an item needs nothing more."""
        job.done_count += 1
        if job.items is not None and job.left <= 0:
            self._end(job, out)
            return True
        return job.most < job.planned

    def _not_done(self, event: ItemFailed | ItemLost, job: ActiveJob, out: list[Command]) -> bool:
        """Do an item again, unless it has failed too often."""
        if isinstance(event, ItemLost):
            lost = job.losses[event.item] = job.losses.get(event.item, 0) + event.ran
            too_often = lost > _MOST_LOSSES
            error = f"item {event.item}: its server was lost {lost} times"
        else:
            tried = job.attempts[event.item] = job.attempts.get(event.item, 0) + 1
            too_often, error = tried > job.spec.retries, event.error
        if not too_often:
            job.again.append(event.item)
            return False
        if job.spec.calls:
            out.append(Drop(job.name, event.item, error))
            return self._settled(job, out)
        self._end(job, out, error)
        return True

    def _let_run(self, time: float, ended: Flight) -> None:
        """Take note that the item that was ready longest has got the server of one that ended."""
        if ended.servers == 0:
            return
        for name, item in list(self._ready):
            self._ready.remove((name, item))
            job = self.jobs.get(name)
            if job is not None and (flight := job.in_flight.get(item)) is not None:
                job.hold(flight, 1)
                flight.started, flight.width = time, job.observed
                return

    def _end(self, job: ActiveJob, out: list[Command], error: str | None = None) -> None:
        out += [Stop(job.name, item) for item in job.in_flight]
        out.append(Finish(job.name, error))
        del self.jobs[job.name]

    # --- commands -----------------------------------------------------------------------------

    @property
    def observed(self) -> int:
        """How many servers are held in all."""
        return sum(job.observed for job in self.jobs.values())

    def _shrink(self, time: float) -> Iterable[Command]:
        for job in self.jobs.values():
            for item, flight in list(job.in_flight.items()):
                if job.is_bag or flight.servers <= job.planned:
                    continue
                if job.spec.resize == "affinity":
                    job.hold(flight, max(job.planned, 1))
                    yield Resize(job.name, item, flight.servers)
                elif job.spec.resize == "restart" and not is_fixed(job, time):
                    yield self._stop_to_restart(job, item, flight, time)

    def _grow(self, time: float) -> Iterable[Command]:
        free = self.servers - self.observed
        by_need = sorted(
            (job for job in self.jobs.values() if job.observed < job.requested),
            key=lambda job: (job.is_bag, self.planner.remaining(job, time) if job.is_bag else 0.0),
        )
        for job in by_need:
            if free <= 0:
                break
            if job.is_bag:
                more = min(job.requested - job.observed, free, job.startable)
                for others in range(more - 1, -1, -1):
                    yield self._start_items(job, time, 1, job.startable - others)
                free -= max(more, 0)
            elif job.in_flight:
                ((item, flight),) = job.in_flight.items()
                more = min(job.planned - flight.servers, free)
                if job.spec.resize == "affinity":
                    job.hold(flight, flight.servers + more)
                    free -= more
                    yield Resize(job.name, item, flight.servers)
                elif more == job.planned - flight.servers:
                    free += flight.servers
                    yield self._stop_to_restart(job, item, flight, time)
                    free -= job.planned
                    yield self._start_command(job, job.planned, time)
            elif free >= job.planned or job.spec.resize == "affinity":
                width = min(job.planned, free)
                free -= width
                yield self._start_command(job, width, time)
            else:
                free = 0  # what comes free is kept until there is enough

        yield from self._make_ready(time)

    def _make_ready(self, time: float) -> Iterable[Command]:
        """Hand out one short item more than there are servers."""
        self._ready = [
            (name, item)
            for name, item in self._ready
            if name in self.jobs and item in self.jobs[name].in_flight
        ]
        seconds = self.planner.known.item_seconds(self.planner.known.p)
        if self._ready or seconds is None or seconds > _SHORT or self.observed < self.servers:
            return
        next_to_start = [job for job in self.jobs.values() if job.is_bag and job.startable > 0]
        if next_to_start:
            job = max(next_to_start, key=lambda job: job.planned - job.observed)
            start = self._start_items(job, time, 0, job.startable)
            self._ready.append((job.name, start.item))
            yield start

    def _start_items(self, job: ActiveJob, time: float, servers: int, most: int) -> Start:
        width = max(job.observed + servers, 1)
        # What has failed or was lost is done on its own: it may be the cause.
        count = 1 if job.again else min(self._batch(job), most)
        first, *also = [job.take_item() for _ in range(count)]
        job.fly(first, Flight(time, width, servers))
        for item in also:
            job.fly(item, Flight(time, width, 0))
        return Start(job.name, first, also=tuple(also))

    def _batch(self, job: ActiveJob) -> int:
        """Return how many items a server should be given in one go."""
        if self.batch_seconds == 0 or job.learned.items == 0:
            return 1
        # Less and less towards the end, so that all servers end at about the same time.
        fair = job.waiting // (2 * max(job.planned, 1))
        return max(min(int(self.batch_seconds / job.learned.mean_seconds), fair, MOST_IN_BATCH), 1)

    def _stop_to_restart(self, job: ActiveJob, item: int, flight: Flight, time: float) -> Stop:
        job.width_before = flight.servers
        job.worked += (time - flight.started) * float(job.speedup(flight.servers))
        job.land(item)
        return Stop(job.name, item)

    def _start_command(self, job: ActiveJob, width: int, time: float) -> Start:
        job.again.clear()
        job.fly(0, Flight(time, 1, width))
        job.resized_at = time
        return Start(job.name, 0, width)
