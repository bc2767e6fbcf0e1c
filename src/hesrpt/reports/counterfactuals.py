"""What other policies would have made of a run: all of them replayed on the same work.

The run's own policy is replayed too. How far that is from what was measured is the error of the
model, and the first part of the margin. The second part is what the speedups leave open: they
decide how much faster a job is on more servers than it had. All p that were learned are therefore
raised and lowered by two standard errors, all together, and the policies replayed again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hesrpt.decisions.learning import ItemDurations
from hesrpt.display.escaping import escape
from hesrpt.jobs.groups import PLAIN_GROUP, Group
from hesrpt.jobs.job_spec import NOTHING_KNOWN
from hesrpt.policies import POLICIES, PolicyLike, get_policy
from hesrpt.reports.run_replay import Capacity, ReplayedJob, replay_run
from hesrpt.scheduler.run_history import RunHistory
from hesrpt.speedups import PowerLaw, Speedup
from hesrpt.storage.journal_entries import JobRecord
from hesrpt.units import format_duration, format_duration_with_margin

# The policies that a run is compared with.
_ALTERNATIVES = ("adaptive", "fifo", "equi")
#: With more jobs than this, replays take too long: a minute, or a noticeable time after a run.
MAX_JOBS, MAX_JOBS_AT_ONCE = 60, 20
# About how many pieces of work to replay: with more items, several in a row make one piece.
_MAX_PIECES = 600
# Give up if there are more pieces than this.
_TOO_MANY_PIECES = 5000
# But keep at least this many pieces of each job for each server, if it has enough items.
_PIECES_PER_SERVER = 8
# If the replay of the run itself is off by more than this fraction, nothing is reported.
_MAX_ERROR = 0.2
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
            "simulated": [
                {
                    "policy": each.policy,
                    "mean_flow_time": each.mean_flow_time,
                    "margin": each.margin,
                    "flow_times": each.flow_times,
                }
                for each in self.simulated
            ],
            "reason": self.reason,
        }


def compare_policies(history: RunHistory, max_jobs: int = MAX_JOBS) -> RunComparison:
    """Compare a run of not too many jobs with what other policies would have made of it."""
    records = history.records
    own = _get_name(history.policy)
    measured = [record.flow_time or 0.0 for record in records if record.state == "done"]
    mean = sum(measured) / len(measured) if measured else math.nan
    obstacle = history.obstacle or _find_obstacle(history, max_jobs)
    if obstacle is None and own not in POLICIES and isinstance(history.policy, str):
        obstacle = f"there is no policy named {own!r} here"
    if obstacle is not None:
        return RunComparison(policy=own, mean_flow_time=mean, reason=obstacle)
    work = _Replayer(history)
    if work.pieces > _TOO_MANY_PIECES:
        return RunComparison(policy=own, mean_flow_time=mean, reason="there is too much work")
    policies: dict[str, PolicyLike] = {own: history.policy}
    policies |= {name: name for name in _ALTERNATIVES if name != own}
    flow_times = {name: work.replay(policy, 0.0) for name, policy in policies.items()}
    error = float(np.abs(np.subtract(flow_times[own], measured)).mean())
    if not error <= _MAX_ERROR * mean:
        reason = f"a simulation of this run is {100 * error / mean:.0f}% off"
        return RunComparison(policy=own, mean_flow_time=mean, reason=reason)
    own_mean = float(np.mean(flow_times[own]))
    simulated = []
    for name, policy in policies.items():
        simulated_mean = float(np.mean(flow_times[name]))
        margin = error * simulated_mean / own_mean
        if name != own and work.has_learned_p:
            others = [float(np.mean(work.replay(policy, shift))) for shift in (-_ERRORS, _ERRORS)]
            margin += max(abs(other - simulated_mean) for other in others)
        names = [record.name for record in records]
        simulated.append(
            SimulatedPolicy(
                policy=name,
                mean_flow_time=simulated_mean,
                margin=margin,
                flow_times=dict(zip(names, flow_times[name], strict=True)),
            )
        )
    return RunComparison(policy=own, mean_flow_time=mean, simulated=tuple(simulated))


def _get_name(policy: PolicyLike) -> str:
    return policy if isinstance(policy, str) else get_policy(policy).name


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
        self._learned = [_learn(history, record) for record in history.records]

    @property
    def has_learned_p(self) -> bool:
        """Whether a speedup is an estimate, and matters: one job alone has all servers anyway."""
        return len(self._learned) > 1 and any(error > 0 for _, error in self._learned)

    def replay(self, policy: PolicyLike, shift: float) -> list[float]:
        """Return the flow times under a policy, with each p shifted by so many standard errors."""
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


def _learn(history: RunHistory, record: JobRecord) -> tuple[Speedup, float]:
    """Return the speedup of a job, and the standard error of its p."""
    if record.spec.speedup is not None:
        return record.spec.speedup, 0.0
    durations = ItemDurations(prior=record.spec.prior)
    timings = history.timings.get(record.number, ())
    if record.spec.is_bag and timings:
        widths = history.trace_servers(record.number).measure_widths(timings)
        for width, timing in zip(widths.tolist(), timings, strict=True):
            durations.add(round(width), timing.seconds)
    speedup = PowerLaw(durations.p) if timings else record.speedup or PowerLaw(durations.p)
    return speedup, durations.p_error


def _shift(speedup: Speedup, shift: float) -> Speedup:
    if shift == 0 or not isinstance(speedup, PowerLaw):
        return speedup
    return PowerLaw(min(max(speedup.p + shift, _MIN_P), _MAX_P))
