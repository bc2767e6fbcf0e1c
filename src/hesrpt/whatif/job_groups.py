"""Groups of jobs, to see who gains and who pays: by size, by servers, by user, by kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from hesrpt.arrays import BoolArray, FloatArray, IntArray
from hesrpt.traces import Trace

#: Users with a row of their own, at most.
MAX_USERS = 10


class JobGroup(NamedTuple):
    """Some jobs of a trace."""

    title: str
    members: BoolArray


class SizeClass(NamedTuple):
    """The jobs between two quantiles of the server-seconds used, given as fractions."""

    title: str
    low: float
    high: float


SIZE_CLASSES = (
    SizeClass("the smallest half", 0.0, 0.5),
    SizeClass("the next 40%", 0.5, 0.9),
    SizeClass("the next 9%", 0.9, 0.99),
    SizeClass("the largest 1%", 0.99, 1.0),
)


def group_by_size(trace: Trace) -> list[JobGroup]:
    """Return classes of jobs by the server-seconds that they used."""
    jobs = len(trace)
    ranks = np.empty(jobs)
    ranks[np.argsort(trace.servers * trace.runtimes, kind="stable")] = np.arange(jobs)
    return _drop_empty(
        JobGroup(title, (ranks >= low * jobs) & (ranks < high * jobs))
        for title, low, high in SIZE_CLASSES
    )


def group_by_servers(trace: Trace) -> list[JobGroup]:
    """Return classes of jobs by the servers that they asked for: 1, 2 to 8, 9 to 64, and so on."""
    groups = [JobGroup("1 server", trace.servers == 1)]
    low, largest = 2, int(trace.servers.max())
    while low <= largest:
        high = min((low - 1) * 8, largest)
        members = (trace.servers >= low) & (trace.servers <= high)
        title = f"{low:,} servers" if low == high else f"{low:,} to {high:,} servers"
        groups.append(JobGroup(title, members))
        low = high + 1
    return _drop_empty(groups)


def group_by_kind(is_malleable: BoolArray) -> list[JobGroup]:
    """Return the malleable jobs and the rigid ones, if there are both."""
    groups = [JobGroup("malleable", is_malleable), JobGroup("rigid", ~is_malleable)]
    return groups if all(group.members.any() for group in groups) else []


def group_by_user(trace: Trace) -> list[JobGroup]:
    """Return the jobs of the users with the most server-hours, and those of all other users."""
    numbered = number_users(trace)
    if numbered is None:
        return []
    users, user_of_job = numbered
    hours = np.bincount(user_of_job, weights=trace.servers * trace.runtimes)
    order = np.argsort(-hours, kind="stable")
    shown = order if len(users) <= MAX_USERS + 1 else order[:MAX_USERS]
    groups = [JobGroup(f"user {users[user]}", user_of_job == user) for user in shown.tolist()]
    others = ~np.isin(user_of_job, shown)
    if others.any():
        groups.append(JobGroup(f"{len(users) - len(shown):,} other users", others))
    return groups


def number_users(trace: Trace) -> tuple[list[str], IntArray] | None:
    """Return the users and the number of each job's user; None if the trace has fewer than two.

    Jobs whose user is unknown count as those of one user, "unknown".
    """
    if "user" not in trace.labels:
        return None
    names, user_of_job = np.unique(trace.labels["user"], return_inverse=True)
    if len(names) < 2:
        return None
    return [name or "unknown" for name in names.tolist()], user_of_job


def average_by_user(values: FloatArray, user_of_job: IntArray) -> FloatArray:
    """Return the mean of each user's values."""
    return np.bincount(user_of_job, weights=values) / np.bincount(user_of_job)


def jain_index(values: FloatArray) -> float:
    """Return Jain's index of fairness, (Σx)² / (n Σx²): 1 if all are equal, 1/n if one has all.

    >>> jain_index(np.array([2.0, 2.0])), jain_index(np.array([1.0, 0.0]))
    (1.0, 0.5)
    """
    scaled = values / values.max()  # squares could overflow
    return float(scaled.sum() ** 2 / (len(scaled) * (scaled @ scaled)))


def _drop_empty(groups: Iterable[JobGroup]) -> list[JobGroup]:
    return [group for group in groups if group.members.any()]
