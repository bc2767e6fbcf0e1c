"""Rigid disciplines: worked examples, a slow reference, and invariants."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hesrpt import InputError, Pool, PowerLaw, Workload, compare, simulate
from hesrpt.arrays import FloatArray
from hesrpt.policies import Easy, Fcfs, RigidDiscipline
from hesrpt.simulator.backfilling import find_starts, run_times

LAW = PowerLaw(0.7)


def create_rigid_jobs(
    jobs: Sequence[tuple[float, float, float]], estimates: list[float] | None = None
) -> Workload:
    """Return a workload from tuples of submission time, servers and run time."""
    submitted, servers, runtime = np.array(jobs, dtype=np.float64).T
    return Workload(
        runtime * LAW(servers),
        LAW,
        arrivals=submitted,
        requested=servers,
        estimates=estimates,
    )


def list_starts(
    jobs: Sequence[tuple[float, float, float]], policy: RigidDiscipline, servers: float = 4
) -> list[float]:
    found = find_starts(create_rigid_jobs(jobs), servers, policy).starts
    return np.round(found, 9).tolist()  # type: ignore[no-any-return]


def start_jobs(
    workload: Workload, servers: float, policy: RigidDiscipline
) -> tuple[FloatArray, FloatArray]:
    """Return start times and reservations."""
    found = find_starts(workload, servers, policy)
    return found.starts, found.reservations


# --- worked examples --------------------------------------------------------------------------


def test_first_come_first_served() -> None:
    jobs = [(0, 3, 10), (1, 2, 5), (2, 1, 1)]
    # The second job does not fit. The third would, but must not overtake.
    assert list_starts(jobs, Fcfs()) == [0, 10, 10]


def test_short_job_is_backfilled() -> None:
    jobs = [(0, 3, 10), (1, 2, 5), (2, 1, 8), (2, 1, 1)]
    # Job 1 will start at 10. Job 2 ends by then; job 3 must wait for a server.
    assert list_starts(jobs, Easy()) == [0, 10, 2, 10]
    # A longer job 2 could still start: job 1 leaves two servers over.
    jobs[2] = (2, 1, 100)
    assert list_starts(jobs, Easy()) == [0, 10, 2, 10]


def test_a_job_that_would_delay_the_first_is_not_backfilled() -> None:
    jobs = [(0, 3, 10), (1, 4, 5), (2, 1, 9), (2, 1, 8)]
    # All servers are reserved for job 1 from 10 on. Job 2 would end at 11, job 3 ends at 10.
    assert list_starts(jobs, Easy()) == [0, 10, 15, 2]


def test_spare_servers_are_given_only_once() -> None:
    jobs = [(0, 5, 10), (1, 4, 5), (2, 1, 50), (2, 1, 50), (2, 1, 50)]
    # Job 1 leaves 2 of 6 servers over from 10 on; only one is free before.
    assert list_starts(jobs, Easy(), 6) == [0, 10, 2, 10, 15]


def test_estimates_decide_which_jobs_may_overtake() -> None:
    jobs = [(0.0, 3.0, 10.0), (1.0, 4.0, 5.0), (2.0, 1.0, 3.0)]
    found, _ = start_jobs(create_rigid_jobs(jobs), 4, Easy())
    assert found.tolist() == pytest.approx([0, 10, 2])
    # By its estimate, job 2 would delay job 1.
    found, reserved = start_jobs(create_rigid_jobs(jobs, [10, 5, 20]), 4, Easy())
    assert found.tolist() == pytest.approx([0, 10, 15])
    # By the estimate of job 0, job 1 has a reservation for 30. It starts when job 0 really ends.
    found, reserved = start_jobs(create_rigid_jobs(jobs, [30, 5, 20]), 4, Easy())
    assert reserved[1] == pytest.approx(30)
    assert found.tolist() == pytest.approx([0, 10, 2])


def test_overruns_are_not_foreseen() -> None:
    jobs = [(0.0, 3.0, 10.0), (1.0, 4.0, 5.0), (2.0, 1.0, 6.0), (6.0, 1.0, 3.0)]
    # Job 0 says 5 and runs for 10, so job 1 has a reservation for 5: job 2 would delay it. From 5
    # on, job 0 may end at any moment, so job 3 is not backfilled either, though it would fit.
    found, reserved = start_jobs(create_rigid_jobs(jobs, [5, 5, 6, 3]), 4, Easy())
    assert reserved[1] == pytest.approx(5)
    assert found.tolist() == pytest.approx([0, 10, 15, 15])


def test_the_schedule_is_complete() -> None:
    run = simulate(create_rigid_jobs([(0, 3, 10), (1, 2, 5), (2, 1, 8)]), 4, "easy")
    assert run.policy == "easy"
    assert run.completion_times.tolist() == pytest.approx([10, 15, 10])
    assert run.mean_flow_time == pytest.approx((10 + 14 + 8) / 3)
    assert run.servers_at(1.5).tolist() == [3, 0, 0]
    assert run.servers_at(9.0).tolist() == [3, 0, 1]
    assert run.servers_at(12.0).tolist() == [0, 2, 0]
    assert [phase.end for phase in run.phases()] == pytest.approx([2, 10, 15])
    assert run.utilisation == pytest.approx((30 + 10 + 8) / (4 * 15))
    assert run.timeline.total_servers().tolist() == [3, 4, 2]
    compared = compare(run.workload, 4, ["fcfs", "easy", "hesrpt"])
    assert compared["easy"].mean_flow_time == run.mean_flow_time
    run.plot()


def test_invalid_use_of_rigid_disciplines_is_rejected() -> None:
    with pytest.raises(InputError, match="requested is missing: policy easy"):
        simulate(Workload([1.0], LAW), 4, "easy")
    with pytest.raises(InputError, match="job 0 requests 5 servers, but there are only 4"):
        simulate(create_rigid_jobs([(0, 5, 1)]), 4, "fcfs")
    with pytest.raises(InputError, match="cannot share servers between running jobs"):
        Pool(1, "easy")
    with pytest.raises(InputError, match="requested"):
        Workload([1.0, 2.0], LAW, requested=[1.0])


# --- a slow reference, and invariants ---------------------------------------------------------

SERVERS = 8
jobs = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, SERVERS), st.integers(1, 20)),
    min_size=1,
    max_size=40,
)


def simulate_easy_in_seconds(workload: Workload, estimates: FloatArray) -> list[float]:
    """Return the start times under EASY, second by second, for times that are whole seconds.

    Estimates are taken as they are: overruns are not foreseen. Decisions are made in the seconds in
    which a job is submitted or ends.
    """
    assert workload.requested is not None
    assert workload.arrivals is not None
    runtime = np.round(run_times(workload)).astype(int)
    order = list(np.argsort(workload.arrivals, kind="stable"))
    submitted = set(workload.arrivals.astype(int).tolist())
    starts: dict[int, int] = {}
    time = 0
    while len(starts) < len(order):
        if time not in {start + runtime[job] for job, start in starts.items()} | submitted:
            time += 1
            continue
        running = [job for job, start in starts.items() if start + runtime[job] > time]
        free = SERVERS - sum(workload.requested[job] for job in running)
        queue = [job for job in order if workload.arrivals[job] <= time and job not in starts]
        while queue and workload.requested[queue[0]] <= free:
            job = queue.pop(0)
            starts[job] = time
            running.append(job)
            free -= workload.requested[job]
        if queue:
            first = queue[0]
            reserved = time
            while True:  # find the first second in which the first job fits
                held = sum(
                    workload.requested[job]
                    for job in running
                    if starts[job] + estimates[job] > reserved
                )
                if SERVERS - held >= workload.requested[first]:
                    break
                reserved += 1
            spare = SERVERS - held - workload.requested[first]
            for job in queue[1:]:
                ends = time + estimates[job]
                if workload.requested[job] <= free and (
                    ends <= reserved or workload.requested[job] <= spare
                ):
                    starts[job] = time
                    free -= workload.requested[job]
                    if ends > reserved:
                        spare -= workload.requested[job]
        time += 1
    return [float(starts[job]) for job in range(len(order))]


@given(jobs, st.lists(st.integers(1, 40), min_size=40, max_size=40))
def test_easy_agrees_with_a_simulation_second_by_second(
    given_jobs: list[tuple[int, int, int]], guesses: list[int]
) -> None:
    estimates = np.array(guesses[: len(given_jobs)], dtype=np.float64)
    workload = create_rigid_jobs(
        [(float(a), float(q), float(r)) for a, q, r in given_jobs], list(estimates)
    )
    starts, _ = start_jobs(workload, SERVERS, Easy())
    assert np.round(starts, 6).tolist() == simulate_easy_in_seconds(workload, estimates)


@given(jobs, st.sampled_from([Fcfs(), Easy()]))
def test_invariants(given_jobs: list[tuple[int, int, int]], policy: RigidDiscipline) -> None:
    workload = create_rigid_jobs([(float(a), float(q), float(r)) for a, q, r in given_jobs])
    assert workload.arrivals is not None
    assert workload.requested is not None
    starts, reserved = start_jobs(workload, SERVERS, policy)
    run = simulate(workload, SERVERS, policy)
    # No job starts before it is submitted, and jobs never hold more servers than there are.
    assert np.all(starts >= workload.arrivals)
    assert run.timeline.total_servers().max() <= SERVERS
    # Estimates are exact, so jobs that overtake never delay a reservation.
    has_reservation = ~np.isnan(reserved)
    assert np.all(starts[has_reservation] <= reserved[has_reservation] + 1e-9)
    # Reservations are made in the order of submission.
    order = np.argsort(workload.arrivals, kind="stable")
    if isinstance(policy, Fcfs):
        assert np.all(np.diff(starts[order]) >= 0)
    in_order = reserved[order][~np.isnan(reserved[order])]
    assert np.all(np.diff(in_order) >= -1e-9)
    # The first job in the queue never waits once it fits.
    first = order[0]
    assert starts[first] == workload.arrivals[first]
    for job, next_job in pairwise(order):
        ready = max(starts[job], workload.arrivals[next_job])
        held = run.servers_at(float(ready))
        if isinstance(policy, Fcfs) and starts[next_job] > ready:
            assert SERVERS - held.sum() < workload.requested[next_job]
