"""The scheduler's decisions. No clock, no process, no file: events in, commands out.

Three numbers of servers are kept apart: what the policy has *planned* for a job, what is
*requested* for it (no more than it has items left), and what is *observed* (items in flight, or the
width of its command). A job that holds too many starts no further items; servers that come free go
to jobs that hold too few. So shrinks always come before grows, and nothing is taken from an item.

Where items are short, one more than there are servers is handed to the engine, so that no server
waits for the scheduler: it is *ready*, and holds no server until another item ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.policies import HeSrpt, Policy, PolicyLike, State, named, rounded_fairly
from hesrpt.runtime.events import (
    CapacityChanged,
    Command,
    Event,
    Finish,
    ItemFailed,
    ItemFinished,
    ItemsExhausted,
    ItemsRead,
    JobArrived,
    JobCancelled,
    Resize,
    Start,
    Stop,
    Tick,
)
from hesrpt.runtime.jobs import ActiveJob, Flight, common_power, power_like
from hesrpt.runtime.learning import Learned
from hesrpt.speedup import Mixed

# An item of which nothing is known takes so many seconds.
_SOME_SECONDS = 1.0
# Of an item in flight, at least this part is still to do.
_LEAST_LEFT = 0.05
# A command of which nothing is known has at least so many seconds to go.
_LONG = 600.0
# Plans are made anew at least this often, in seconds, for what has been learned.
_REVIEW = 1.0
# Items up to this long, in seconds, are made ready before there is a server for them.
_SHORT = 0.1
# Up to so many jobs, heSRPT in whole servers is computed exactly.
_EXACT = 100


class Core:
    """The state of the scheduler; :meth:`handle` is all there is to it."""

    def __init__(self, servers: int, policy: PolicyLike = "hesrpt") -> None:
        if servers < 0:
            raise InputError(f"servers must be at least 0, got {servers}")
        self.servers = servers
        self.policy = named(policy)
        self.jobs: dict[str, ActiveJob] = {}
        self.planned_at = -np.inf
        self._arrivals = 0
        self._ready: list[tuple[str, int]] = []
        self._hesrpt: dict[float, Policy] = {}
        self._known = Learned()  # of all jobs, for those of which nothing is known

    def handle(self, *events: Event) -> list[Command]:
        """Take note of events, and return what is to be done: stops, resizes, starts."""
        out: list[Command] = []
        anew = sum(self._note(event, out) for event in events) > 0
        time = events[-1].time
        if anew or (time - self.planned_at >= _REVIEW and self.jobs):
            self._plan(time)
            self._let_all_be_known()
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
                return True
            case Tick():
                return False
            case ItemFinished() | ItemFailed() | ItemsRead() | ItemsExhausted() | JobCancelled():
                job = self.jobs.get(event.job)
                if job is None:
                    return False  # it ended while the message was on its way
                return self._note_of_job(event, job, out)

    def _arrive(self, event: JobArrived, out: list[Command]) -> bool:
        if event.job in self.jobs:
            raise InputError(f"there is already a job named {event.job!r}")
        items = 1 if event.spec.resize is not None else event.spec.items
        self._arrivals += 1
        job = ActiveJob(event.job, event.spec, event.time, self._arrivals, items)
        job.done, job.done_count = set(event.done), len(event.done)
        job.read = 0 if event.spec.fed or items is None else None
        self.jobs[event.job] = job
        if job.items is not None and job.left <= 0:
            self._end(job, out)
        return True

    def _note_of_job(
        self,
        event: ItemFinished | ItemFailed | ItemsRead | ItemsExhausted | JobCancelled,
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
            case ItemFinished():
                flight = job.in_flight.pop(event.item, None)
                if flight is None:
                    return False
                self._let_run(event.time, flight)
                news = job.learned.items == 0
                job.done_count += 1
                if job.is_bag:
                    width = max(round((flight.width + len(job.in_flight) + 1) / 2), 1)
                    job.learned.add(width, event.seconds)
                    self._known.add(width, event.seconds)
                else:
                    own = event.seconds * float(job.speedup(flight.servers))
                    job.learned.add(1, job.worked + own)
                if job.items is not None and job.left <= 0:
                    self._end(job, out)
                    return True
                return news or job.most < job.planned
            case ItemFailed():
                flight = job.in_flight.pop(event.item, None)
                if flight is None:
                    return False
                self._let_run(event.time, flight)
                tried = job.attempts[event.item] = job.attempts.get(event.item, 0) + 1
                if tried > job.spec.retries:
                    self._end(job, out, event.error)
                    return True
                job.again.append(event.item)
                return False

    def _let_run(self, time: float, ended: Flight) -> None:
        """Take note that the item that was ready longest has got the server of one that ended."""
        if ended.servers == 0:
            return
        for name, item in list(self._ready):
            self._ready.remove((name, item))
            job = self.jobs.get(name)
            if job is not None and (flight := job.in_flight.get(item)) is not None:
                flight.servers, flight.started = 1, time
                return

    def _end(self, job: ActiveJob, out: list[Command], error: str | None = None) -> None:
        out += [Stop(job.name, item) for item in job.in_flight]
        out.append(Finish(job.name, error))
        del self.jobs[job.name]

    # --- plans --------------------------------------------------------------------------------

    def remaining(self, job: ActiveJob, time: float) -> float:
        """Return how many seconds of work on one server are left of a job, as far as is known."""
        return self._of_bag(job, time) if job.is_bag else self._of_command(job, time)

    def _of_bag(self, job: ActiveJob, time: float) -> float:
        each = job.learned.item_seconds(power_like(job.speedup))
        if job.spec.size is not None and job.items is not None:
            each = job.spec.size / max(job.items, 1)
        elif each is None:
            each = self._known.item_seconds(self._known.p) or _SOME_SECONDS
        in_flight = 0.0
        for flight in job.in_flight.values():
            rate = float(job.speedup(flight.width)) / flight.width
            in_flight += max(1 - (time - flight.started) * rate / each, _LEAST_LEFT)
        left = (job.left - len(job.in_flight) + in_flight) * each
        if job.spec.size is not None and job.items is None:
            return max(job.spec.size - job.done_count * each, left)
        return left

    def _of_command(self, job: ActiveJob, time: float) -> float:
        done = job.worked + sum(
            (time - flight.started) * float(job.speedup(flight.servers))
            for flight in job.in_flight.values()
        )
        # Of unknown length, or longer than said: it may well take as long again.
        if job.spec.size is None:
            return max(done, _LONG)
        return max(job.spec.size - done, _LEAST_LEFT * job.spec.size, done - job.spec.size)

    def _plan(self, time: float) -> None:
        """Ask the policy how many servers each job should have."""
        self.planned_at = time
        fixed = [job for job in self.jobs.values() if self._is_fixed(job, time)]
        for job in fixed:
            job.planned = job.observed
        free = self.servers - sum(job.planned for job in fixed)
        jobs = [job for job in self.jobs.values() if job not in fixed]
        remaining = {job.name: max(self.remaining(job, time), 1e-9) for job in jobs}
        while jobs:
            held = self._ask(jobs, remaining, max(free, 0), time)
            enough = [job for job, servers in zip(jobs, held, strict=True) if servers >= job.most]
            if not enough:
                for job, servers in zip(jobs, held, strict=True):
                    job.planned = int(servers)
                return
            # What a job cannot use passes on: the others are asked again without it.
            for job in enough:
                job.planned = min(job.most, max(free, 0))
                free -= job.planned
            names = {job.name for job in enough}
            jobs = [job for job in jobs if job.name not in names]

    def _let_all_be_known(self) -> None:
        """Give a server to jobs of which nothing is known, so that it becomes known."""
        unknown = [
            job
            for job in self.jobs.values()
            if job.is_bag
            and job.spec.size is None
            and job.learned.items == 0
            and job.planned == 0
            and job.most > 0
        ]
        for job in unknown[: self.servers // 2]:
            richest = max(self.jobs.values(), key=lambda other: other.planned * other.is_bag)
            if richest.planned < 2 or not richest.is_bag:
                return
            richest.planned -= 1
            job.planned = 1

    def _ask(
        self, jobs: list[ActiveJob], remaining: dict[str, float], servers: int, time: float
    ) -> FloatArray:
        if servers == 0:
            return np.zeros(len(jobs))
        each = [job.speedup for job in jobs]
        shared = all(speedup == each[0] for speedup in each)
        state = State(
            time=time,
            servers=float(servers),
            whole=True,
            jobs=np.array([job.number for job in jobs]),
            remaining=np.array([remaining[job.name] for job in jobs]),
            sizes=np.array([remaining[job.name] for job in jobs]),
            arrivals=np.array([job.arrived for job in jobs]),
            weights=np.array([job.spec.weight for job in jobs]),
            speedup=each[0] if shared else Mixed(each),
        )
        policy = self.policy
        if isinstance(policy, HeSrpt) and policy.p is None:
            policy = self._told(round(common_power(each, state.remaining), 2))
            # The optimum in whole servers takes long to find for very many: rounding is as good.
            state.whole = len(jobs) <= _EXACT
        return rounded_fairly(np.asarray(policy(state), dtype=np.float64), float(servers))

    def _told(self, p: float) -> Policy:
        """Return heSRPT with a p; it remembers what it has computed."""
        assert isinstance(self.policy, HeSrpt)
        if p not in self._hesrpt:
            self._hesrpt[p] = replace(self.policy, p=p)
        return self._hesrpt[p]

    def _is_fixed(self, job: ActiveJob, time: float) -> bool:
        """Return whether a running command cannot be resized, or should not be so soon."""
        if job.is_bag or not job.in_flight or job.spec.resize == "affinity":
            return False
        if job.spec.resize == "never":
            return True
        (flight,) = job.in_flight.values()
        gained = 1.0
        if job.width_before:
            speeds = float(job.speedup(job.width_before)), float(job.speedup(flight.servers))
            gained = abs(1 - min(speeds) / max(speeds))
        return (time - job.resized_at) * gained < job.spec.restart_cost

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
                    flight.servers = max(job.planned, 1)
                    yield Resize(job.name, item, flight.servers)
                elif job.spec.resize == "restart" and not self._is_fixed(job, time):
                    yield self._stop_to_restart(job, item, flight, time)

    def _grow(self, time: float) -> Iterable[Command]:
        free = self.servers - self.observed
        by_need = sorted(
            (job for job in self.jobs.values() if job.observed < job.requested),
            key=lambda job: (job.is_bag, self.remaining(job, time) if job.is_bag else 0.0),
        )
        for job in by_need:
            if free <= 0:
                break
            if job.is_bag:
                more = min(job.requested - job.observed, free, job.startable)
                for _ in range(more):
                    yield self._start_item(job, time, 1)
                free -= max(more, 0)
            elif job.in_flight:
                ((item, flight),) = job.in_flight.items()
                more = min(job.planned - flight.servers, free)
                if job.spec.resize == "affinity":
                    flight.servers += more
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
        seconds = self._known.item_seconds(self._known.p)
        if self._ready or seconds is None or seconds > _SHORT or self.observed < self.servers:
            return
        next_to_start = [job for job in self.jobs.values() if job.is_bag and job.startable > 0]
        if next_to_start:
            job = max(next_to_start, key=lambda job: job.planned - job.observed)
            start = self._start_item(job, time, 0)
            self._ready.append((job.name, start.item))
            yield start

    def _start_item(self, job: ActiveJob, time: float, servers: int) -> Start:
        item = job.take_item()
        job.in_flight[item] = Flight(time, len(job.in_flight) + 1, servers)
        return Start(job.name, item)

    def _stop_to_restart(self, job: ActiveJob, item: int, flight: Flight, time: float) -> Stop:
        job.width_before = flight.servers
        job.worked += (time - flight.started) * float(job.speedup(flight.servers))
        del job.in_flight[item]
        return Stop(job.name, item)

    def _start_command(self, job: ActiveJob, width: int, time: float) -> Start:
        job.again.clear()
        job.in_flight[0] = Flight(time, 1, width)
        job.resized_at = time
        return Start(job.name, 0, width)
