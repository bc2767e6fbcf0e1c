"""Decides whether to resize a job, which means restarting it, and to how many servers.

Numbers in, a number out: this module does not know what runs the jobs. The caller asks about one
job at a time. Every job keeps a minimum number of servers, and only free servers can be given away.

Under heSRPT, the shorter a job, the more servers it gets, so every departure resizes jobs. That is
optimal if resizing is free. If jobs hardly take longer than a resize, fewer resizes and more equal
shares are better. heSRPT with a smaller p gives more equal shares, so we forecast the mean
completion time for several values of p and use the best.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.optimal.closed_form import coefficients
from hesrpt.policies import HeSrpt, round_fairly
from hesrpt.speedups import Limited, PowerLaw, Speedup

__all__ = ["ResizeSetting", "choose_resize", "forecast_completion_times", "plan_servers"]

# The values of p to try, as fractions of the real one: heSRPT itself, a compromise, nearly EQUI.
_FRACTIONS_OF_P = (1.0, 0.5, 0.01)


@dataclass(frozen=True, kw_only=True)
class ResizeSetting:
    """The servers, and the parameters that all jobs share."""

    servers: int  # of all jobs together
    min_servers: int  # of each job
    max_servers: int  # of each job
    p: float  # k servers run a job k^p times as fast
    resize_cost: float  # seconds that a resize pauses a job


def plan_servers(work: FloatArray, setting: ResizeSetting, p: float | None = None) -> IntArray:
    """Return the whole servers of each job under heSRPT; ``p`` replaces the one of the setting.

    >>> setting = ResizeSetting(servers=9, min_servers=1, max_servers=9, p=0.5, resize_cost=0.0)
    >>> plan_servers(np.array([9.0, 4.0, 1.0]), setting)
    array([1, 3, 5])
    >>> plan_servers(np.array([9.0, 4.0, 1.0]), setting, p=0.01)
    array([3, 3, 3])
    """
    limits = setting.servers, setting.min_servers, setting.max_servers
    plan = np.empty(len(work), dtype=np.int64)
    plan[np.argsort(work, kind="stable")] = _plan_by_rank(len(work), *limits, p or setting.p)
    return plan


def choose_resize(job: int, work: FloatArray, held: IntArray, setting: ResizeSetting) -> int | None:
    """Return how many servers a job should have from now on, or None to leave it as it is.

    Parameters
    ----------
    job
        The index of the job in ``work`` and ``held``.
    work
        The remaining size of each job, in seconds on one server. Greater than zero.
    held
        The servers of each job, at least the minimum; for a waiting job, those it waits for.
    setting
        The servers, and the parameters that all jobs share.

    Examples
    --------
    Two servers are free. The shorter job gets them; the longer job does not, and neither does a
    job that is about to end.

    >>> setting = ResizeSetting(servers=4, min_servers=1, max_servers=4, p=0.8, resize_cost=2.0)
    >>> choose_resize(1, np.array([200.0, 50.0]), np.array([1, 1]), setting)
    3
    >>> choose_resize(0, np.array([200.0, 50.0]), np.array([1, 1]), setting)
    >>> choose_resize(1, np.array([200.0, 2.0]), np.array([1, 1]), setting)
    """
    if setting.servers < setting.min_servers * len(work):
        return None  # jobs are queueing: this one would queue again after it stops
    powers = [fraction * setting.p for fraction in _FRACTIONS_OF_P]
    choices = [_choose_resize(job, work, held, setting, p) for p in powers]
    if len(set(choices)) == 1:
        return choices[0]  # the usual case; forecasts are slow
    means = [float(forecast_completion_times(work, held, setting, p).mean()) for p in powers]
    return choices[int(np.argmin(means))]


def forecast_completion_times(
    work: FloatArray, held: IntArray, setting: ResizeSetting, p: float
) -> FloatArray:
    """Forecast when each job ends if worthwhile resizes follow heSRPT with ``p``.

    >>> setting = ResizeSetting(servers=4, min_servers=1, max_servers=4, p=0.5, resize_cost=2.0)
    >>> forecast_completion_times(np.array([18.0]), np.array([1]), setting, p=0.5)
    array([11.])
    """
    remaining, held, time = work.astype(np.float64), held.copy(), 0.0
    ends, paused_until = np.zeros(len(work)), np.zeros(len(work))
    alive = np.arange(len(work))
    while len(alive):
        free = max(setting.servers - int(held[alive].sum()), 0)
        target = held[alive]
        if free > 0:
            target = _plan_worthwhile(remaining[alive], held[alive], setting, p)
        for place in np.argsort(remaining[alive], kind="stable"):
            job = alive[place]
            new = min(int(target[place]), int(held[job]) + free)
            pays = _is_worthwhile(remaining[job], held[job], new, setting)
            if pays and paused_until[job] <= time:
                free -= new - int(held[job])
                held[job], paused_until[job] = new, time + setting.resize_cost
        speed = held[alive].astype(np.float64) ** setting.p
        runs = paused_until[alive] <= time
        events = np.where(runs, time + remaining[alive] / speed, paused_until[alive])
        next_event = float(events.min())
        remaining[alive] -= np.where(runs, (next_event - time) * speed, 0.0)
        time = next_event
        done = runs & (events <= time)
        ends[alive[done]] = time
        alive = alive[~done]
    return ends


def _choose_resize(
    job: int, work: FloatArray, held: IntArray, setting: ResizeSetting, p: float
) -> int | None:
    """Return the new servers of a job under heSRPT with ``p``, or None to leave it as it is."""
    target = _plan_worthwhile(work, held, setting, p)
    free = setting.servers - int(held.sum())
    if target[job] > held[job]:
        new = min(int(target[job]), int(held[job]) + max(free, 0))
        return new if _is_worthwhile(work[job], held[job], new, setting) else None
    if target[job] == held[job]:
        return None
    if free < 0:  # other jobs cannot even start; make room, unless this job ends soon anyway
        ends_soon = work[job] * float(held[job]) ** -setting.p <= setting.resize_cost
        return None if ends_soon else int(target[job])
    return _choose_shrink(job, work, held, target, setting)


def _plan_worthwhile(
    work: FloatArray, held: IntArray, setting: ResizeSetting, p: float
) -> IntArray:
    """Return a plan in which jobs that would gain less than a resize costs keep their servers."""
    target, servers = held.copy(), setting.servers
    undecided = np.arange(len(work))
    while len(undecided):
        plan = plan_servers(work[undecided], replace(setting, servers=servers), p)
        grows = plan > held[undecided]
        stays = grows & ~_is_worthwhile(work[undecided], held[undecided], plan, setting)
        if not stays.any():
            target[undecided] = plan
            break
        servers -= int(held[undecided][stays].sum())
        undecided = undecided[~stays]
    return target


def _is_worthwhile(work: Any, held: Any, new: Any, setting: ResizeSetting) -> Any:
    """Return whether new numbers of servers save jobs more seconds than a resize costs."""
    saved = work * (np.float64(held) ** -setting.p - np.float64(new) ** -setting.p)
    return saved > setting.resize_cost


def _choose_shrink(
    job: int, work: FloatArray, held: IntArray, target: IntArray, setting: ResizeSetting
) -> int | None:
    """Return the number of servers to shrink a job to, or None if shrinking does not pay off.

    Up to a common factor, Δ(k) is the value of a unit of work of the k-th largest job: the total
    completion time of all jobs falls by it when the unit is done. Total completion time is linear
    in the remaining size. So until the first job ends, the plan earns Δ(k) times the change in
    speed of each job, every second.
    """
    shrinks, grows = target < held, target > held
    needed = int(np.sum((target - held)[grows])) - (setting.servers - int(held.sum()))
    if needed <= 0:
        return None
    old_speed = held.astype(np.float64) ** setting.p
    new_speed = target.astype(np.float64) ** setting.p
    value = np.empty(len(work))
    value[np.argsort(work, kind="stable")[::-1]] = coefficients(len(work), setting.p)
    changes = shrinks | grows
    seconds = float(np.min((work / np.maximum(old_speed, new_speed))[changes]))
    gain = seconds * float(np.sum((value * (new_speed - old_speed))[changes]))
    # A job that shrinks will grow again later, so it is paused twice.
    loss = float(np.sum((value * old_speed)[grows]) + 2 * np.sum((value * old_speed)[shrinks]))
    if gain <= setting.resize_cost * loss:
        return None
    return max(int(target[job]), int(held[job]) - needed)


@lru_cache(maxsize=1 << 14)
def _plan_by_rank(
    jobs: int, servers: int, min_servers: int, max_servers: int, p: float
) -> IntArray:
    """Return heSRPT's whole servers within the limits of a job, smallest job first.

    Cached, because forecasts ask for the same rows again and again.
    """
    row = np.full(jobs, min_servers)
    while servers > min_servers * jobs:
        is_limited = max_servers < servers
        speedup: Speedup = Limited(PowerLaw(p), max_servers) if is_limited else PowerLaw(p)
        shares = HeSrpt(p=p).row(jobs, servers, speedup, whole=False)
        whole = round_fairly(shares, servers)
        enough = int(np.sum(whole >= min_servers))
        if enough == jobs:
            row[:jobs] = whole
            break
        # The largest jobs, which would get too little, get the minimum; the others share the rest.
        servers -= min_servers * (jobs - enough)
        jobs = enough
    row.setflags(write=False)
    return row
