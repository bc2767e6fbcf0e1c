"""Whether to resize a job that must be stopped and started again for it, and to how many servers.

Numbers in, a number out: nothing here knows who runs the jobs. Jobs are asked about one at a time,
each keeps at least its base, and only servers that are free can be given.

heSRPT gives most servers to the shortest job, then to the next, and so on: with every departure
jobs are resized. That is best if it costs nothing. If jobs are hardly longer than a resize takes,
fewer resizes and shares that are nearer to equal are better. heSRPT with a smaller p gives those,
so a forecast chooses which p to take.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.optimal.closed_form import coefficients
from hesrpt.policies import HeSrpt, round_fairly
from hesrpt.speedups import Limited, PowerLaw, Speedup

__all__ = ["Setting", "forecast", "planned", "resized"]

# Parts of p: heSRPT itself, half way, and next to equal shares.
_MILDER = (1.0, 0.5, 0.01)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is the same for all jobs."""

    servers: int  # all that there are for these jobs
    base: int  # the fewest of a job
    most: int  # of a job
    p: float  # the speedup of the jobs is k^p
    resize_cost: float  # for how many seconds a job stands still when it is resized


def planned(work: FloatArray, setting: Setting, p: float | None = None) -> IntArray:
    """Return the whole servers of each job under heSRPT, with the p of the jobs or another.

    >>> setting = Setting(servers=9, base=1, most=9, p=0.5, resize_cost=0.0)
    >>> planned(np.array([9.0, 4.0, 1.0]), setting)
    array([1, 3, 5])
    >>> planned(np.array([9.0, 4.0, 1.0]), setting, p=0.01)
    array([3, 3, 3])
    """
    return _planned(work, setting, setting.servers, p or setting.p)


def resized(job: int, work: FloatArray, held: IntArray, setting: Setting) -> int | None:
    """Return how many servers a job should have instead of those it holds, or None to leave it.

    Parameters
    ----------
    job
        The place of the job that is asked about, in ``work`` and ``held``.
    work
        What remains of each job, in seconds on one server. Greater than zero.
    held
        The servers of each job, at least the base, also of those that wait for them.
    setting
        What is the same for all jobs.

    Examples
    --------
    Two servers are free. The shorter job gets them, the longer job does not, and neither does a
    job that is about to end.

    >>> setting = Setting(servers=4, base=1, most=4, p=0.8, resize_cost=2.0)
    >>> resized(1, np.array([200.0, 50.0]), np.array([1, 1]), setting)
    3
    >>> resized(0, np.array([200.0, 50.0]), np.array([1, 1]), setting)
    >>> resized(1, np.array([200.0, 2.0]), np.array([1, 1]), setting)
    """
    if setting.servers < setting.base * len(work):
        return None  # jobs queue for their base: one that stops now would have to queue as well
    powers = [part * setting.p for part in _MILDER]
    choices = [_resized(job, work, held, setting, p) for p in powers]
    if len(set(choices)) == 1:
        return choices[0]  # as almost always, and forecasts take long
    ends = [float(forecast(work, held, setting, p).mean()) for p in powers]
    return choices[int(np.argmin(ends))]


def forecast(work: FloatArray, held: IntArray, setting: Setting, p: float) -> FloatArray:
    """Return when jobs end if they are resized, where that pays, to what heSRPT gives them with p.

    >>> setting = Setting(servers=4, base=1, most=4, p=0.5, resize_cost=2.0)
    >>> forecast(np.array([18.0]), np.array([1]), setting, p=0.5)
    array([11.])
    """
    left, held, time = work.astype(np.float64), held.copy(), 0.0
    ends, still_until = np.zeros(len(work)), np.zeros(len(work))
    alive = np.arange(len(work))
    while len(alive):
        free = max(setting.servers - int(held[alive].sum()), 0)
        target = _worthwhile(left[alive], held[alive], setting, p) if free > 0 else held[alive]
        for place in np.argsort(left[alive], kind="stable"):
            job = alive[place]
            new = min(int(target[place]), int(held[job]) + free)
            pays = _saved(left[job], held[job], new, setting.p) > setting.resize_cost
            if pays and still_until[job] <= time:
                free -= new - int(held[job])
                held[job], still_until[job] = new, time + setting.resize_cost
        speed = held[alive].astype(np.float64) ** setting.p
        moves = still_until[alive] <= time
        events = np.where(moves, time + left[alive] / speed, still_until[alive])
        until = float(events.min())
        left[alive] -= np.where(moves, (until - time) * speed, 0.0)
        time = until
        done = moves & (events <= time)
        ends[alive[done]] = time
        alive = alive[~done]
    return ends


def _resized(job: int, work: FloatArray, held: IntArray, setting: Setting, p: float) -> int | None:
    target = _worthwhile(work, held, setting, p)
    free = setting.servers - int(held.sum())
    if target[job] > held[job]:
        new = min(int(target[job]), int(held[job]) + max(free, 0))
        pays = _saved(work[job], held[job], new, setting.p) > setting.resize_cost
        return new if pays else None
    if target[job] == held[job]:
        return None
    if free < 0:  # others cannot even run, unless this one is about to make room anyhow
        ends_soon = work[job] * float(held[job]) ** -setting.p <= setting.resize_cost
        return None if ends_soon else int(target[job])
    return _given_up(job, work, held, target, setting)


def _worthwhile(work: FloatArray, held: IntArray, setting: Setting, p: float) -> IntArray:
    """Return the plan without what does not pay: who gains too little from growing stays as is."""
    target, servers = held.copy(), setting.servers
    rest = np.arange(len(work))
    while len(rest):
        plan = _planned(work[rest], setting, servers, p)
        saved = _saved(work[rest], held[rest], plan, setting.p)
        stays = (plan > held[rest]) & (saved <= setting.resize_cost)
        if not stays.any():
            target[rest] = plan
            break
        servers -= int(held[rest][stays].sum())
        rest = rest[~stays]
    return target


def _saved(work: Any, held: Any, new: Any, p: float) -> Any:
    """Return by how many seconds jobs end earlier with new servers."""
    return work * (np.float64(held) ** -p - np.float64(new) ** -p)


def _given_up(
    job: int, work: FloatArray, held: IntArray, target: IntArray, setting: Setting
) -> int | None:
    """Return what a job keeps if it pays that others get some of its servers.

    A unit of the work of the k-th largest job is worth Δ(k), up to a common factor: by so much the
    total time of all jobs falls when it is done. Total time is linear in the work that remains, so
    until the first job ends the plan earns Δ(k) times the difference in speed, each second.
    """
    gives, gets = target < held, target > held
    needed = int(np.sum((target - held)[gets])) - (setting.servers - int(held.sum()))
    if needed <= 0:
        return None
    now, then = held.astype(np.float64) ** setting.p, target.astype(np.float64) ** setting.p
    value = np.empty(len(work))
    value[np.argsort(work, kind="stable")[::-1]] = coefficients(len(work), setting.p)
    changed = gives | gets
    seconds = float(np.min((work / np.maximum(now, then))[changed]))
    earned = seconds * float(np.sum((value * (then - now))[changed]))
    # Who gives servers up will want them back later, and stands still a second time.
    still = float(np.sum((value * now)[gets]) + 2 * np.sum((value * now)[gives]))
    if earned <= setting.resize_cost * still:
        return None
    return max(int(target[job]), int(held[job]) - needed)


def _planned(work: FloatArray, setting: Setting, servers: int, p: float) -> IntArray:
    target = np.empty(len(work), dtype=np.int64)
    row = _row(len(work), servers, setting.base, setting.most, p)
    target[np.argsort(work, kind="stable")] = row
    return target


@lru_cache(maxsize=1 << 14)
def _row(jobs: int, servers: int, base: int, most: int, p: float) -> IntArray:
    """Return heSRPT's whole servers, smallest job first, no job below the base or above the most.

    Forecasts ask for the same ones again and again.
    """
    row = np.full(jobs, base)
    while servers > base * jobs:
        speedup: Speedup = PowerLaw(p) if most >= servers else Limited(PowerLaw(p), most)
        shares = HeSrpt(p=p).row(jobs, servers, speedup, whole=False)
        whole = round_fairly(shares, servers)
        enough = int(np.sum(whole >= base))
        if enough == jobs:
            row[:jobs] = whole
            break
        # The largest, with less than the base, get the base; the others share what that leaves.
        servers -= base * (jobs - enough)
        jobs = enough
    row.setflags(write=False)
    return row
