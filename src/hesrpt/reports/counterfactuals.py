"""What other policies would have made of a run: all of them replayed on the same work.

The run's own policy is replayed too. How far that is from what was measured is the error of the
model, and the first part of the margin. The second part is what the speedups leave open: they
decide how much faster a job is on more servers than it had. All p that were learned are therefore
raised and lowered by two standard errors, all together, and the policies replayed again.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hesrpt.decisions.core import Core
from hesrpt.decisions.events import (
    Admit,
    CallHook,
    CapacityChanged,
    Command,
    Event,
    Finish,
    ItemsFinished,
    JobArrived,
    Resize,
    Start,
)
from hesrpt.decisions.learning import ItemDurations, SharedEvidence
from hesrpt.display.console import escape
from hesrpt.jobs.job_spec import NOTHING_KNOWN, PLAIN_GROUP, Group, JobSpec, read_groups
from hesrpt.policies import POLICIES, PolicyLike, get_policy
from hesrpt.reports.inspection import RunHistory, find_policy_change, read_history, read_report
from hesrpt.scheduler.live_job import MAX_TIMED_ITEMS
from hesrpt.speedups import PowerLaw, Speedup
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import WHOLE_POOL, Holding, JobRecord
from hesrpt.units import format_duration, format_duration_with_margin

if TYPE_CHECKING:
    from hesrpt.scheduler.driver import Driver

# --- replaying work under another policy: the same scheduler, in simulated time -----------------
#
# The core decides as in a real run, and learns as it goes. Items take as long as they really took,
# scaled to the number of servers that their job holds at each moment: with k items of a job in
# flight, each of them does s(k)/k seconds of its work in a second. A command on k servers does
# s(k).

# How often to replan while no job arrives or ends, in a whole replay: each plan takes about 1 ms.
_MAX_REPLANS = 50


@dataclass(frozen=True, kw_only=True)
class ReplayedJob:
    """The work of a job: how long each item takes alone; of a command, its size."""

    spec: JobSpec
    arrived: float
    seconds: Sequence[float]
    speedup: Speedup  # how it really speeds up, whatever the scheduler believes


class Capacity(NamedTuple):
    """There are ``servers`` servers from ``time`` on."""

    time: float
    servers: int


def replay_run(
    jobs: Sequence[ReplayedJob],
    capacities: Sequence[Capacity],
    policy: PolicyLike,
    resources: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Return when each job ends; jobs that never end, because there are no servers, are left out.

    >>> spec = JobSpec(name="job", items=7)
    >>> from hesrpt import PowerLaw
    >>> job = ReplayedJob(spec=spec, arrived=0.0, seconds=[1.0] * 7, speedup=PowerLaw(0.9999999))
    >>> round(replay_run([job], [Capacity(0.0, 4)], "equi")["job"], 3)
    2.0
    """
    return _Replay(jobs, capacities, policy, resources).run()


@dataclass
class _RunningJob:
    """The items of a job that run, and a clock that shows how much work each has done."""

    job: ReplayedJob
    work: float = 0.0  # what the clock shows
    updated: float = 0.0
    servers: int = 0
    rate: float = 0.0  # how fast the clock goes
    ends: list[tuple[float, int, int, float]] = field(default_factory=list)  # a heap

    @property
    def next_end(self) -> float:
        """When the next item ends."""
        if not self.ends or self.rate <= 0:
            return inf
        return self.updated + max(self.ends[0][0] - self.work, 0.0) / self.rate

    def set_servers(self, time: float, servers: int) -> None:
        """Change the number of servers from now on."""
        self.work += (time - self.updated) * self.rate
        self.updated, self.servers = time, servers
        speed = float(self.job.speedup(servers)) if servers else 0.0
        self.rate = speed / max(servers, 1) if self.job.spec.is_bag else speed


class _Replay:
    """One replay: the core, and an engine that keeps the time."""

    def __init__(
        self,
        jobs: Sequence[ReplayedJob],
        capacities: Sequence[Capacity],
        policy: PolicyLike,
        resources: Mapping[str, float] | None,
    ) -> None:
        self._jobs = {job.spec.name: _RunningJob(job) for job in jobs}
        self._servers = capacities[0].servers
        self._core = Core(self._servers, policy, resources=resources)
        total = sum(sum(job.seconds) for job in jobs)
        self._core.replan_seconds = max(1.0, total / max(self._servers, 1) / _MAX_REPLANS)
        self._coming: list[tuple[float, int, Event]] = []  # a heap
        for job in jobs:
            self._expect(JobArrived(job.arrived, job.spec))
        for capacity in capacities[1:]:
            self._expect(CapacityChanged(capacity.time, capacity.servers))
        self._queue: deque[tuple[str, int]] = deque()  # items that wait for a server
        self._ends: dict[str, float] = {}

    def _expect(self, event: Event) -> None:
        heapq.heappush(self._coming, (event.time, len(self._coming), event))

    def run(self) -> dict[str, float]:
        """Return when each job ends."""
        while events := self._take_events():
            for command in self._core.handle(*events):
                self._carry_out(command, events[-1].time)
        return self._ends

    def _take_events(self) -> list[Event]:
        """Return what happens next, at one moment."""
        active = [job for job in self._jobs.values() if job.ends]
        first = min(active, key=lambda job: job.next_end, default=None)
        item_end = inf if first is None else first.next_end
        time = min(item_end, self._coming[0][0] if self._coming else inf)
        if time == inf:
            return []
        events: list[Event] = []
        while self._coming and self._coming[0][0] <= time:
            *_, event = heapq.heappop(self._coming)
            if isinstance(event, CapacityChanged):
                self._servers = event.servers
            events.append(event)
        if first is not None and item_end <= time:
            events.append(self._end_item(first, time))
        return events

    def _end_item(self, job: _RunningJob, time: float) -> ItemsFinished:
        _, item, servers, started = heapq.heappop(job.ends)
        job.set_servers(time, job.servers - servers)
        if self._queue and self._busy < self._servers:
            name, waiting = self._queue.popleft()
            self._begin(self._jobs[name], waiting, 1, time)
        return ItemsFinished(time, job.job.spec.name, (item,), (time - started,))

    @property
    def _busy(self) -> int:
        return sum(job.servers for job in self._jobs.values())

    def _carry_out(self, command: Command, time: float) -> None:
        job = self._jobs[command.job]
        match command:
            case Start():
                if job.job.spec.is_bag and self._busy >= self._servers:
                    self._queue.append((command.job, command.item))
                else:
                    self._begin(job, command.item, command.servers, time)
            case Resize():
                job.set_servers(time, command.servers)
                ((end, item, _, started),) = job.ends
                job.ends = [(end, item, command.servers, started)]
            case Finish():
                self._ends[command.job] = time
            case Admit() | CallHook():
                pass  # its items are known, and no job waits for hooks
            case _:
                raise AssertionError(f"a replay has no {command}")

    def _begin(self, job: _RunningJob, item: int, servers: int, time: float) -> None:
        job.set_servers(time, job.servers + servers)
        heapq.heappush(job.ends, (job.work + job.job.seconds[item], item, servers, time))


# The policies that a run is compared with.
_ALTERNATIVES = ("adaptive", "fifo", "equi")
#: With more jobs than this, replays take too long: a minute, or a noticeable time after a run.
MAX_JOBS, MAX_JOBS_AT_ONCE = 60, 20
#: How many of the latest jobs to compare policies on, and how few say too little.
RECENT_JOBS, FEWEST_JOBS = 40, 2
# About how many pieces of work to replay: with more items, several in a row make one piece.
_MAX_PIECES = 600
# Give up if there are more pieces than this.
_TOO_MANY_PIECES = 5000
# But keep at least this many pieces of each job for each server, if it has enough items.
_PIECES_PER_SERVER = 8
# If the replay of the run itself is off by more than this fraction, nothing is reported.
_MAX_ERROR = 0.2
# Small differences make policies decide differently, so that flow times differ by this fraction.
_CHANCE = 0.03
# By how much p may be off if a job had fewer servers, times the logarithm of how many times fewer.
_EXTRAPOLATION = 0.1
# How many standard errors p may be off.
_ERRORS = 2.0
# The range of p. A bag of independent items has p = 1.
_MIN_P, _MAX_P = 0.01, 1 - 1e-9


@dataclass(frozen=True, kw_only=True)
class SimulatedPolicy:
    """The mean flow time that a policy would have given, and how far it may be off."""

    policy: str
    mean_flow_time: float
    margin: float
    flow_times: dict[str, float]  # by job


@dataclass(frozen=True, kw_only=True)
class RunComparison:
    """A run as measured, and simulations of it under its own and other policies."""

    policy: str
    mean_flow_time: float  # of the jobs that are done, as measured; NaN if none is
    simulated: tuple[SimulatedPolicy, ...] = ()  # the run's own policy first
    reason: str | None = None  # why there are no simulations

    def __repr__(self) -> str:
        is_known = not math.isnan(self.mean_flow_time)
        measured = format_duration(self.mean_flow_time) if is_known else "unknown"
        lines = [f"<RunComparison: mean flow time {measured} as measured under {self.policy}"]
        for each in self.simulated:
            mean = format_duration_with_margin(each.mean_flow_time, each.margin)
            lines.append(f"  {each.policy:<16} {mean} simulated")
        if self.reason is not None:
            lines.append(f"  no simulations: {self.reason}")
        return "\n".join(map(escape, lines)) + ">"

    def to_json_value(self) -> dict[str, Any]:
        """Return the comparison as values for JSON."""
        return {
            "measured": {
                "policy": self.policy,
                "mean_flow_time": None if math.isnan(self.mean_flow_time) else self.mean_flow_time,
            },
            "simulated": [vars(each) for each in self.simulated],
            "reason": self.reason,
        }


def compare_policies(history: RunHistory, max_jobs: int = MAX_JOBS) -> RunComparison:
    """Compare a run of not too many jobs with what other policies would have made of it."""
    records = history.records
    own = history.policy if isinstance(history.policy, str) else get_policy(history.policy).name
    measured = [record.flow_time or 0.0 for record in records if record.state == "done"]
    mean = sum(measured) / len(measured) if measured else math.nan
    comparison = RunComparison(policy=own, mean_flow_time=mean)
    obstacle = history.obstacle or _find_obstacle(history, max_jobs)
    if obstacle is None and own not in POLICIES and isinstance(history.policy, str):
        obstacle = f"there is no policy named {own!r} here"
    if obstacle is not None:
        return replace(comparison, reason=obstacle)
    work = _Replayer(history)
    if work.pieces > _TOO_MANY_PIECES:
        return replace(comparison, reason="there is too much work")
    policies: dict[str, PolicyLike] = {own: history.policy}
    policies |= {name: name for name in _ALTERNATIVES if name != own}
    flow_times = {name: work.replay(policy, 0.0) for name, policy in policies.items()}
    error = float(np.abs(np.subtract(flow_times[own], measured)).mean())
    if not error <= _MAX_ERROR * mean:
        reason = f"a simulation of this run is {100 * error / mean:.0f}% off"
        return replace(comparison, reason=reason)
    own_mean = float(np.mean(flow_times[own]))
    simulated = []
    for name, policy in policies.items():
        simulated_mean = float(np.mean(flow_times[name]))
        margin = error * simulated_mean / own_mean
        if name != own and work.has_learned_p:
            others = [float(np.mean(work.replay(policy, shift))) for shift in (-_ERRORS, _ERRORS)]
            margin += max(abs(other - simulated_mean) for other in others)
            margin += _CHANCE * simulated_mean
        if not math.isfinite(simulated_mean + margin):
            continue  # a job would not have ended before the servers were gone
        by_job = zip((record.name for record in records), flow_times[name], strict=True)
        simulated.append(
            SimulatedPolicy(
                policy=name, mean_flow_time=simulated_mean, margin=margin, flow_times=dict(by_job)
            )
        )
    return replace(comparison, simulated=tuple(simulated))


def _find_obstacle(history: RunHistory, max_jobs: int) -> str | None:
    """Return why a run cannot be replayed, or None."""
    records = history.records
    if len(records) > max_jobs:
        hint = f"; hesrpt report compares up to {MAX_JOBS}" if len(records) <= MAX_JOBS else ""
        return f"there are more than {max_jobs} jobs{hint}"
    for record in records:
        if (problem := describe_obstacle(record, history.groups)) is not None:
            return f"job {record.name!r} {problem}"
    return None


def describe_obstacle(record: JobRecord, groups: Mapping[str, Group]) -> str | None:
    """Return why a job cannot be replayed, or None.

    A replay knows only what held for a group in the end, so its earlier jobs do not fit.
    """
    spec = record.spec
    group = groups.get(spec.group, PLAIN_GROUP)
    if record.state == "cancelled":
        return "was cancelled"
    if record.state != "done":
        return "has failed"
    if record.failures:
        return "had items that failed and ran again"
    if spec.was_reopened or spec.retried:
        return "had ended before, and was continued"
    if spec.was_paused:
        return "was paused"
    if spec.given_weight is not None:
        return "was given another weight while it ran"
    if group.changed is not None and record.arrived < group.changed:
        return f"came before group {spec.group!r} was paused, resumed or given another weight"
    if spec.is_executor:
        return "was given its calls while it ran"
    if spec.resize == "restart":
        return "restarts when its number of servers changes"
    return None


class _Replayer:
    """The work of a run, ready to be replayed."""

    def __init__(self, history: RunHistory) -> None:
        self._history = history
        self._capacities = [
            Capacity(max(time, history.first_start), servers)
            for time, servers in history.get_capacities()
        ]
        total = sum(record.done for record in history.records)
        self._pieces_per_item = min(_MAX_PIECES / max(total, 1), 1.0)
        self.pieces = sum(map(self._count_pieces, history.records))
        self._learned = _learn(history)

    @property
    def has_learned_p(self) -> bool:
        """Whether a speedup is an estimate, and matters: one job alone has all servers anyway."""
        return len(self._learned) > 1 and any(error > 0 for _, error in self._learned)

    def replay(self, policy: PolicyLike, shift: float) -> list[float]:
        """Return the flow times under a policy, with each p shifted by some standard errors."""
        records = self._history.records
        jobs = [
            self._create_job(record, _shift(speedup, shift * error))
            for record, (speedup, error) in zip(records, self._learned, strict=True)
        ]
        ends = replay_run(jobs, self._capacities, policy, self._history.resources)
        return [ends.get(record.name, np.inf) - record.arrived for record in records]

    def _create_job(self, record: JobRecord, speedup: Speedup) -> ReplayedJob:
        spec, seconds = record.spec, self._measure_seconds(record, speedup)
        # What a resumed job has learned from its own earlier items was not known when it arrived.
        prior = NOTHING_KNOWN if spec.resumed else spec.prior
        if prior.item_seconds is not None:
            scale = record.done / max(len(seconds), 1) if spec.is_bag else 1.0
            prior = replace(prior, item_seconds=prior.item_seconds * scale)
        group = self._history.groups.get(spec.group, PLAIN_GROUP)
        names = {each.name for each in self._history.records}
        return ReplayedJob(
            spec=replace(
                spec,
                items=len(seconds),
                is_streamed=False,
                prior=prior,
                weight=spec.weight * group.weight,
                after=tuple(name for name in spec.after if name in names),
            ),
            arrived=max(record.arrived, self._history.first_start),
            seconds=seconds,
            speedup=speedup,
        )

    def _count_pieces(self, record: JobRecord) -> int:
        least = _PIECES_PER_SERVER * self._history.servers
        return min(record.done, max(round(record.done * self._pieces_per_item), least))

    def _measure_seconds(self, record: JobRecord, speedup: Speedup) -> list[float]:
        """Return the work of the pieces of a job, each alone; of a command, its size.

        The seconds during which the job held servers and no item ran are shared out evenly: they
        are the cost of starting items, or were lost when the scheduler was stopped.
        """
        held = self._history.trace_servers(record.number)
        if not record.spec.is_bag:
            work = held.integrate(np.asarray(speedup(held.servers.astype(float))))[-1]
            return [float(work) or record.item_seconds]
        timings, pieces = self._history.timings.get(record.number, ()), self._count_pieces(record)
        if pieces == 0:
            return []
        server_seconds = held.count_server_seconds()
        if not timings:
            width = np.maximum(held.servers, 1).astype(float)
            work = held.integrate(np.asarray(speedup(width)) * (held.servers > 0))[-1]
            return [float(work) / pieces] * pieces
        seconds = held.measure_work(speedup, timings)
        lost = max(server_seconds - sum(timing.seconds for timing in timings), 0.0)
        scale = seconds.sum() / max(sum(timing.seconds for timing in timings), 1e-9)
        seconds = seconds + lost * scale / len(seconds)
        return [float(part.sum()) for part in np.array_split(seconds, pieces)]


def _learn(history: RunHistory) -> list[tuple[Speedup, float]]:
    """Return the speedup of each job, and the standard error of its p."""
    shared, jobs = SharedEvidence(), []
    for record in history.records:
        durations = ItemDurations(prior=record.spec.prior, shared=shared)
        jobs.append(durations)
        timings = history.timings.get(record.number, ())
        if record.spec.is_bag and timings:
            widths = history.trace_servers(record.number).measure_widths(timings)
            for width, timing in zip(widths.tolist(), timings, strict=True):
                durations.add(width, timing.seconds)
    learned = []
    for record, durations in zip(history.records, jobs, strict=True):
        known, widest = durations.believe(), max(durations.counts, default=1)
        measured = None if record.number in history.timings else record.speedup
        given = record.spec.speedup
        speedup = given or measured or PowerLaw(known.p)
        # What happens on more servers than the job had, nobody knows.
        unknown = _EXTRAPOLATION * max(math.log(history.servers / widest), 0.0)
        learned.append((speedup, math.hypot(known.error, unknown) if given is None else 0.0))
    return learned


def _shift(speedup: Speedup, shift: float) -> Speedup:
    if shift == 0 or not isinstance(speedup, PowerLaw):
        return speedup
    return PowerLaw(min(max(speedup.p + shift, _MIN_P), _MAX_P))


# --- what to compare: a whole run, or its latest jobs while it goes on ----------------------------


def describe_history(driver: Driver) -> RunHistory:
    """Return what happened in a run whose jobs have ended."""
    policy = driver.core.allocator.policy
    if driver.journal is not None:
        return replace(read_report(driver.journal.directory).history, policy=policy)
    with driver.condition:
        jobs = list(driver.jobs.values())
        return RunHistory(
            policy=policy,
            servers=driver.peak_servers,
            first_start=driver.first_start or 0.0,
            records=[job.to_record() for job in jobs],
            resources=driver.engine.resource_totals(),
            groups=driver.list_groups(),
            holdings=driver.holdings.copy(),
            timings={
                job.number: sorted(job.timings)
                for job in jobs
                if len(job.timings) <= MAX_TIMED_ITEMS
            },
        )


def read_recent_history(directory: Path, most: int = RECENT_JOBS) -> RunHistory | None:
    """Return what happened to the latest jobs that can be replayed; None if there are too few.

    All other jobs count as given: the servers that they held are not there.
    """
    with closing(Journal.read(directory)) as journal:
        groups = journal.get_value("groups", {}, parse=read_groups)
        fit = [
            record
            for record in journal.read_records()
            if record.ended is not None
            and describe_obstacle(record, groups) is None
            and not record.spec.after
            and not record.spec.resources
        ]
        records = sorted(fit, key=lambda record: record.ended or 0.0)[-most:]
        records.sort(key=lambda record: (record.arrived, record.number))
        if len(records) < FEWEST_JOBS:
            return None
        history = read_history(journal, records, find_policy_change(journal))
    return replace(
        history,
        first_start=min(record.arrived for record in records),
        holdings=subtract_others(history.holdings, {record.number for record in records}),
        resources={},  # these jobs need none
    )


def subtract_others(holdings: Sequence[Holding], numbers: set[int]) -> list[Holding]:
    """Return the servers that some jobs held, and the servers that all others left for them."""
    kept: list[Holding] = []
    total = others = 0
    held: dict[int, int] = {}
    for time, job, servers in holdings:
        if job in numbers:
            kept.append(Holding(time, job, servers))
            continue
        if job == WHOLE_POOL:
            total = servers
        else:
            others += servers - held.get(job, 0)
            held[job] = servers
        kept.append(Holding(time, WHOLE_POOL, max(total - others, 0)))
    return kept
