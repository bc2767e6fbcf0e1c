"""When active jobs will end, if nothing unexpected happens.

The remaining work of each job is what the scheduler plans with: learned, or as given. The policy
shares the servers, each job goes on at the rate of its share until the first of them ends, and so
on. This takes one decision of the policy for each end, and nothing is compiled.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from hesrpt.arrays import IntArray
from hesrpt.decisions.active_job import ActiveJob
from hesrpt.decisions.allocation import Allocator, Need, describe_jobs, limit_speedup, share_servers
from hesrpt.decisions.core import Core
from hesrpt.policies import State

# Only the first ends are predicted: those of a hundred jobs may take a policy a second.
_MAX_ENDS = 50
# How long a forecast holds, in seconds; and at least this many times as long as it took.
_HOLDS_SECONDS, _HOLDS_FACTOR = 0.5, 200.0
# How long to wait for a forecast that is being made, in seconds.
_PATIENCE = 0.003


@dataclass(frozen=True, kw_only=True)
class RemainingWork:
    """The active jobs at one moment, and the work that remains of each."""

    state: State  # with the weight of those that wait until some of these have ended
    names: list[str]
    needs: list[Need]
    are_known: list[bool]  # whether the sizes are given or learned, rather than assumed
    allocator: Allocator  # which knows what the policy has learned so far


def collect_remaining_work(core: Core, time: float) -> RemainingWork:
    """Collect the jobs that can run, with their remaining work; fast, unlike the prediction."""
    first = core.line.list_first(_MAX_ENDS + core.servers)
    jobs, needs, sizes, speedups = [], [], [], []
    for job in first:
        if job.is_paused or job.max_servers_later == 0 or not (job.is_bag or job.max_servers):
            continue
        need = _describe_need(job)
        jobs.append(job)
        needs.append(need)
        sizes.append(max(core.estimator.estimate_remaining(job, time), 1e-6))
        speedups.append(limit_speedup(job.speedup, need.most, core.servers))
    allocator = Allocator(core.allocator.policy, core.estimator)
    if core.allocator.calibration is not None:
        allocator.resume_calibration(core.allocator.calibration)
    state = describe_jobs(jobs, np.array(sizes), core.servers, time, speedups)
    state.jobs, state.others = np.arange(len(jobs)), float(len(core.jobs) - len(first))
    return RemainingWork(
        state=state,
        names=[job.name for job in jobs],
        needs=needs,
        are_known=[job.is_size_known and job.items is not None for job in jobs],
        allocator=allocator,
    )


def _describe_need(job: ActiveJob) -> Need:
    """Return how many servers an active job will have, once its known items have been read."""
    if job.is_bag:
        most = max(job.max_servers_later, 1)
        return Need(fewest=min(job.spec.min_servers, most), most=most, promise=1)
    if job.spec.resize == "never" and job.observed > 0:
        return Need(fewest=job.observed, most=job.observed, promise=2)
    return Need(fewest=job.min_servers, most=job.max_servers)


def predict_ends(work: RemainingWork) -> dict[str, float]:
    """Return when the active jobs will end, without jobs of unknown size.

    Only the first ends are predicted. The result is empty if there are no servers.
    """
    start, whole_servers = work.state, int(work.state.servers)
    if whole_servers < 1 or not any(work.are_known):
        return {}
    remaining = start.remaining.copy()
    ends: dict[str, float] = {}
    present, now = start.jobs, 0.0

    def ask(places: IntArray, servers: int) -> IntArray:
        jobs = present[places]
        if servers == 0:
            return np.zeros(len(jobs), dtype=np.int64)
        state = replace(start.take(jobs), time=now, servers=float(servers))
        state.remaining = state.sizes = remaining[jobs]
        return work.allocator.decide(state)

    # When more jobs have ended, others take their places.
    most = min(_MAX_ENDS, len(present) - whole_servers) if start.others else _MAX_ENDS
    while len(present) and len(ends) < most:
        needs = [work.needs[job] for job in present.tolist()]
        held, _ = share_servers(ask, needs, whole_servers)
        rates = start.speedups.take(present).rate(held.astype(np.float64))
        with np.errstate(divide="ignore"):
            seconds = remaining[present] / rates
        step = float(seconds.min())
        if step == inf:
            break  # the policy serves none of them
        now += step
        remaining[present] -= rates * step
        has_ended = seconds <= step * (1 + 1e-9)
        ends |= {work.names[job]: start.time + now for job in present[has_ended].tolist()}
        present = present[~has_ended]
    is_known = dict(zip(work.names, work.are_known, strict=True))
    return {name: end for name, end in ends.items() if is_known[name]}


class Forecaster:
    """Keeps the latest forecast of a run, and makes another one when it is asked for.

    A policy may take long for it. So neither the scheduler nor a ``repr`` waits: they recall the
    latest one, while another is made in a thread of its own.
    """

    def __init__(self, core: Core, collect: Callable[[], RemainingWork]) -> None:
        self.ends: Mapping[str, float] = {}
        self._core, self._collect = core, collect
        self._holds_until, self._rests_until, self._arrivals = -inf, -inf, 0
        self._thread: threading.Thread | None = None

    def predict(self) -> Mapping[str, float]:
        """Return when jobs will end."""
        if not self._holds():
            arrivals, started = self._core.arrivals, time.monotonic()
            self.ends = predict_ends(self._collect())
            ended = time.monotonic()
            self._rests_until = ended + _HOLDS_FACTOR * (ended - started)
            self._holds_until = max(self._rests_until, ended + _HOLDS_SECONDS)
            self._arrivals = arrivals
        return self.ends

    def recall(self, patience: float = _PATIENCE) -> Mapping[str, float]:
        """Return when jobs will end, as was known some moments ago.

        If another forecast is made, wait for it, but no longer than ``patience`` seconds. Jobs that
        keep arriving do not make one each: forecasts take a small part of the time only.
        """
        is_busy = self._thread is not None and self._thread.is_alive()
        if not is_busy and not self._holds() and time.monotonic() >= self._rests_until:
            # Others may call this at the same moment; a second thread does no harm.
            thread = threading.Thread(
                target=self._predict_quietly, name="hesrpt-forecast", daemon=True
            )
            thread.start()
            self._thread = thread
            thread.join(patience)
        return self.ends

    def _predict_quietly(self) -> None:
        with suppress(Exception):  # of the policy: the scheduler meets it too, and reports it
            self.predict()

    def _holds(self) -> bool:
        return time.monotonic() < self._holds_until and self._arrivals == self._core.arrivals
