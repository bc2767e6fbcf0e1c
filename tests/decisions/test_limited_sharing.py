"""Sharing servers between jobs that need several at once, or can use only so many."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hesrpt.arrays import IntArray
from hesrpt.decisions.allocation import Ask, Need, share_servers


def share_equally(places: IntArray, servers: int) -> IntArray:
    each, extra = divmod(servers, len(places))
    return np.array([each + (place < extra) for place in range(len(places))])


def serve_first(places: IntArray, servers: int) -> IntArray:
    return np.array([servers] + [0] * (len(places) - 1))


def favour_first(places: IntArray, servers: int) -> IntArray:
    """Give most to the first job, and some to the others, as heSRPT does."""
    plan, left = [], servers
    for _ in places:
        plan.append(-(-left // 2))
        left -= plan[-1]
    plan[0] += left
    return np.array(plan)


def leave_half_idle(places: IntArray, servers: int) -> IntArray:
    return share_equally(places, servers // 2)


def share(ask: Ask, servers: int, *needs: Need) -> list[int]:
    held, _ = share_servers(ask, needs, servers)
    found: list[int] = held.tolist()
    return found


def need(fewest: int, most: int, promise: int = 0, is_overdue: bool = False) -> Need:
    return Need(fewest=fewest, most=most, promise=promise, is_overdue=is_overdue)


def test_job_gets_its_fewest_servers_or_none() -> None:
    assert share(share_equally, 4, need(1, 9), need(3, 9)) == [1, 3]  # 2 is closer to 3 than to 0
    assert share(share_equally, 4, need(1, 9), need(1, 9), need(3, 9)) == [2, 2, 0]
    assert share(share_equally, 3, need(2, 9), need(3, 3)) == [3, 0]


def test_servers_that_are_too_few_are_reported() -> None:
    _, denied = share_servers(share_equally, [need(1, 9), need(1, 9), need(4, 9)], 4)
    assert denied.tolist() == [0, 0, 1]


def test_promised_servers_come_first() -> None:
    assert share(serve_first, 4, need(1, 9), need(2, 9, promise=1)) == [2, 2]
    assert share(serve_first, 3, need(1, 9), need(2, 9, promise=1), need(2, 9, promise=2)) == [
        0,
        1,
        2,
    ]


def test_overdue_job_is_served_before_others() -> None:
    jobs = need(1, 9), need(1, 9), need(1, 9)
    assert share(share_equally, 4, *jobs, need(4, 4)) == [2, 1, 1, 0]
    assert share(share_equally, 4, *jobs, need(4, 4, is_overdue=True)) == [0, 0, 0, 4]


def test_policy_may_leave_servers_idle() -> None:
    assert share(leave_half_idle, 8, need(0, 9), need(0, 9)) == [2, 2]
    assert share(leave_half_idle, 8, need(0, 9), need(3, 9)) == [2, 3]


needs = st.builds(
    lambda fewest, room, promise, is_overdue: need(fewest, fewest + room, promise, is_overdue),
    st.integers(0, 7),
    st.integers(0, 5),
    st.sampled_from([0, 0, 0, 1, 2]),
    st.booleans(),
)
policies = st.sampled_from([share_equally, serve_first, favour_first])


@given(policies, st.lists(needs, min_size=1, max_size=9), st.integers(0, 12))
def test_every_plan_is_feasible_and_wastes_nothing(ask: Ask, jobs: list[Need], total: int) -> None:
    held = share(ask, total, *jobs)
    left = total - sum(held)
    assert left >= 0
    for servers, job in zip(held, jobs, strict=True):
        assert servers <= job.most
        if not job.promise:
            assert servers == 0 or servers >= job.fewest
        if servers > 0:
            assert left == 0 or servers == job.most  # it could use another server
        else:
            assert left < max(job.fewest, 1) or job.most == 0  # it could start


@given(policies, st.lists(needs, min_size=1, max_size=9), st.integers(0, 12))
def test_promises_are_kept_as_far_as_there_are_servers(
    ask: Ask, jobs: list[Need], total: int
) -> None:
    held = share(ask, total, *jobs)
    promised = sum(job.fewest for job in jobs if job.promise)
    for servers, job in zip(held, jobs, strict=True):
        if job.promise and promised <= total:
            assert servers >= job.fewest
