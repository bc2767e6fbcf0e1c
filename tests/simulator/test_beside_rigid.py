"""Malleable jobs beside rigid ones, and moldable jobs, against slow simulations written here."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hesrpt import InputError, PowerLaw, Workload, simulate
from hesrpt.policies import Easy, Moldable
from hesrpt.simulator.backfilling import find_starts

SERVERS = 8
LAW = PowerLaw(0.6)
# Submission time, servers asked for, run time on these, whether the job is rigid.
JOBS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, SERVERS), st.floats(1, 20), st.booleans()),
    min_size=1,
    max_size=15,
)
Job = tuple[int, int, float, bool]


def create_jobs(jobs: list[Job], limit: float = SERVERS) -> Workload:
    submitted, asked, runtime, rigid = (np.array(column) for column in zip(*jobs, strict=True))
    return Workload(
        runtime * asked**LAW.p,
        [LAW if is_rigid else LAW.limited(limit) for is_rigid in rigid],
        arrivals=submitted,
        requested=asked,
        rigid=rigid,
    )


def share_what_rigid_jobs_leave(
    jobs: list[Job], starts: dict[int, float], limit: float, smallest_first: bool
) -> list[float]:
    """Return when jobs end: rigid ones run from their start, the others share what is left.

    Either the smallest job gets all it can use, in whole servers, or all get equal shares.
    """
    ends = {job: starts[job] + jobs[job][2] for job in starts}
    remaining = {
        job: runtime * asked**LAW.p
        for job, (_, asked, runtime, rigid) in enumerate(jobs)
        if not rigid
    }
    changes = sorted({*ends.values(), *starts.values(), *(float(job[0]) for job in jobs)})
    now = 0.0
    while remaining:
        present = [job for job in remaining if jobs[job][0] <= now]
        running = [job for job in starts if starts[job] <= now < ends[job]]
        left = float(SERVERS - sum(jobs[job][1] for job in running))
        rates = {}
        for job in sorted(present, key=lambda job: (remaining[job], job)):
            if smallest_first:
                held = min(left, limit)
                left -= held
            else:
                held = left / len(present)
            rates[job] = held**LAW.p if held > 0 else 0.0
        next_change = min((time for time in changes if time > now), default=np.inf)
        until_end = min(
            (remaining[job] / rate for job, rate in rates.items() if rate > 0), default=np.inf
        )
        passed = min(next_change - now, until_end)
        for job, rate in rates.items():
            remaining[job] -= rate * passed
        now = now + passed
        for job in [job for job in present if remaining[job] <= 1e-9]:
            ends[job] = now
            del remaining[job]
    return [ends[job] for job in range(len(jobs))]


@given(JOBS, st.sampled_from([2, 3, SERVERS]))
def test_malleable_jobs_share_what_rigid_jobs_leave(jobs: list[Job], limit: int) -> None:
    rigid = [job for job, (*_, is_rigid) in enumerate(jobs) if is_rigid]
    alone: dict[int, float] = {}
    if rigid:  # as if they were alone: tests/simulator/test_backfilling.py tests EASY
        found = find_starts(create_jobs([jobs[job] for job in rigid]), SERVERS, Easy())
        alone = dict(zip(rigid, found.starts.tolist(), strict=True))
    for policy, smallest_first in (("srpt", True), ("equi", False)):
        most = limit if smallest_first else SERVERS
        run = simulate(create_jobs(jobs, most), SERVERS, policy, whole=smallest_first)
        expected = share_what_rigid_jobs_leave(jobs, alone, most, smallest_first)
        np.testing.assert_allclose(run.completion_times, expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(run.workload.arrival_times, [job[0] for job in jobs])
        assert run.job_seconds == pytest.approx(run.total_flow_time, rel=1e-6)


@given(JOBS)
def test_all_policies_leave_rigid_jobs_alone(jobs: list[Job]) -> None:
    workload = create_jobs(jobs, 4)
    rigid = np.array([job[3] for job in jobs])
    runs = [
        simulate(workload, SERVERS, policy, whole=True)
        for policy in ("adaptive", "hesrpt", "optimal", "equi")
    ]
    for run in runs:
        np.testing.assert_array_equal(run.completion_times[rigid], runs[0].completion_times[rigid])
        assert np.all(
            run.flow_times
            >= workload.sizes
            / workload.speedups.rate(np.full(len(jobs), float(SERVERS)))
            * (1 - 1e-9)
        )
        assert run.timeline.total_servers().max() <= SERVERS


def test_rigid_jobs_need_their_servers() -> None:
    with pytest.raises(InputError, match="requested is missing: rigid jobs run on"):
        Workload([1.0], LAW, rigid=[True])
    with pytest.raises(InputError, match="rigid must be a list with True or False"):
        Workload([1.0], LAW, requested=[1.0], rigid=[1.0])
    with pytest.raises(InputError, match="rigid must have"):
        Workload([1.0], LAW, requested=[1.0], rigid=[True, False])
    with pytest.raises(InputError, match="job 0 requests 9 servers, but there are only 8"):
        simulate(Workload([1.0], LAW, requested=[9.0], rigid=[True]), SERVERS, "equi")
    assert Workload([1.0], LAW, requested=[1.0], rigid=[False]).rigid is None


# --- moldable jobs ------------------------------------------------------------------------------


def mold(jobs: list[Job], estimates: list[float]) -> list[tuple[float, float]]:
    """Return the start and the width of each job, found by looking at every event anew."""
    order = sorted(range(len(jobs)), key=lambda job: (jobs[job][0], job))
    started: dict[int, tuple[float, float]] = {}

    def time_on(job: int, width: float, of: float) -> float:
        return float(of * (jobs[job][1] / width) ** LAW.p)

    def end(job: int, of: float) -> float:
        start, width = started[job]
        return start + (of if jobs[job][3] else time_on(job, width, of))

    now = float(jobs[order[0]][0])
    while len(started) < len(jobs):
        running = [job for job in started if end(job, jobs[job][2]) > now + 1e-9]
        queue = [job for job in order if jobs[job][0] <= now and job not in started]
        free = SERVERS - sum(started[job][1] for job in running)
        share = max(SERVERS // (len(running) + len(queue)), 1) if running or queue else 1
        wish = {job: float(jobs[job][1]) if jobs[job][3] else min(share, 4.0) for job in queue}
        reserved, spare = np.inf, 0.0
        while queue:
            first = queue[0]
            width = wish[first]
            if width > free:
                expected = sorted((max(end(job, estimates[job]), now), job) for job in running)
                available = free
                for time, job in expected:
                    if available >= width and time > reserved:
                        break
                    reserved = time if available < width else reserved
                    available += started[job][1]
                spare = available - width
                own = estimates[first]
                if jobs[first][3] or free < 1:
                    break
                sooner = now + time_on(first, free, own) <= reserved + time_on(first, width, own)
                if not sooner:
                    break
                width = free
            started[first] = (now, width)
            running.append(queue.pop(0))
            free -= width
            reserved = np.inf
        for job in queue[1:]:
            width, of = wish[job], estimates[job]
            in_time = now + (of if jobs[job][3] else time_on(job, width, of)) <= reserved
            if width <= free and (in_time or width <= spare):
                started[job] = (now, width)
                running.append(job)
                free -= width
                spare -= 0 if in_time else width
        ends = [end(job, jobs[job][2]) for job in running]
        later = [float(job[0]) for job in jobs if job[0] > now]
        now = min([time for time in ends if time > now + 1e-9] + later, default=now)
    return [started[job] for job in range(len(jobs))]


@given(JOBS, st.lists(st.floats(0.5, 3), min_size=15, max_size=15))
def test_moldable_jobs_choose_their_width_once(jobs: list[Job], factors: list[float]) -> None:
    # Times that differ by less than rounding would be a matter of luck.
    jobs = [
        (a, q if rigid else min(q, 4), round(r, 2) + 0.001 * n, rigid)
        for n, (a, q, r, rigid) in enumerate(jobs)
    ]
    estimates = [job[2] * factor for job, factor in zip(jobs, factors, strict=False)]
    workload = create_jobs(jobs, 4)
    workload = Workload(
        workload.sizes,
        list(workload.speedups),
        arrivals=workload.arrivals,
        requested=workload.requested,
        estimates=estimates,
        rigid=[job[3] for job in jobs],
    )
    found = find_starts(workload, SERVERS, Moldable())
    expected = mold(jobs, estimates)
    np.testing.assert_allclose(found.starts, [start for start, _ in expected], atol=1e-6)
    np.testing.assert_array_equal(found.widths, [width for _, width in expected])
    run = simulate(workload, SERVERS, "moldable")
    times = workload.sizes / workload.speedups.rate(found.widths)
    np.testing.assert_allclose(run.completion_times, found.starts + times, rtol=1e-9)
    assert run.timeline.total_servers().max() <= SERVERS
    assert run.tally is not None
    assert not run.tally.resizes.any()


def test_moldable_job_takes_an_equal_share() -> None:
    # Alone, a job takes all it can use. The second one finds 2 servers free: on those it ends at
    # 10 + 16/2^0.6 = 20.6, which is sooner than on 4 servers from 20 on.
    workload = Workload(
        [20 * 6**0.6, 16.0], [LAW.limited(6), LAW.limited(6)], arrivals=[0, 10], requested=[1, 1]
    )
    found = find_starts(workload, SERVERS, Moldable())
    assert found.widths.tolist() == [6, 2]
    assert found.starts.tolist() == [0, 10]
    # A longer job waits for its share.
    longer = Workload(
        [20 * 6**0.6, 160.0], [LAW.limited(6), LAW.limited(6)], arrivals=[0, 10], requested=[1, 1]
    )
    found = find_starts(longer, SERVERS, Moldable())
    assert found.widths.tolist() == [6, 6]
    assert found.starts.tolist() == pytest.approx([0, 20])
