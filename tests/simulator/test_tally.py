"""Tallies of simulations: resizes and server time of each job, against the recorded phases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hesrpt import PowerLaw, Workload
from hesrpt.simulator import loop
from hesrpt.simulator.simulation import Simulation, run_simulation


@given(
    st.lists(st.tuples(st.floats(0, 20), st.floats(0.5, 30)), min_size=1, max_size=12),
    st.sampled_from(["equi", "srpt", "hesrpt"]),
    st.sampled_from([0.0, 0.5, 3.0]),
    st.booleans(),
)
def test_tally_agrees_with_the_recorded_phases(
    jobs: list[tuple[float, float]], policy: str, resize_cost: float, differ: bool
) -> None:
    arrivals, sizes = zip(*jobs, strict=True)
    law = PowerLaw(0.6)
    speedup = [law.limited(1 + n % 5) for n in range(len(jobs))] if differ else law
    requested = np.array([1.0 + n % 3 for n in range(len(jobs))])
    workload = Workload(sizes, speedup, arrivals=arrivals, requested=requested)
    options = {"whole": True, "resize_cost": resize_cost, "approximate_p": 0.6}
    simulation = run_simulation(workload, 6, policy, **options, tallying=True)  # type: ignore[arg-type]
    tally = simulation.tally
    assert tally is not None
    plain = run_simulation(workload, 6, policy, **options)  # type: ignore[arg-type]
    np.testing.assert_array_equal(simulation.completion_times, plain.completion_times)
    assert plain.tally is None
    resizes, most = np.zeros(len(jobs), dtype=int), np.zeros(len(jobs))
    seconds, beyond, lost = np.zeros(len(jobs)), np.zeros(len(jobs)), np.zeros(len(jobs))
    held, has_started = np.zeros(len(jobs)), np.zeros(len(jobs), dtype=bool)
    resumes = np.full(len(jobs), -np.inf)
    for start, end, servers in _list_phases(plain):
        for job in range(len(jobs)):
            if servers[job] > 0 and has_started[job] and servers[job] != held[job]:
                resizes[job] += 1
                resumes[job] = start + resize_cost
            has_started[job] |= servers[job] > 0
            lost[job] += servers[job] * max(min(end, resumes[job]) - start, 0)
        held = servers
        most = np.maximum(most, servers)
        seconds += servers * (end - start)
        beyond += np.maximum(servers - requested, 0) * (end - start)
    np.testing.assert_array_equal(tally.resizes, resizes)
    np.testing.assert_array_equal(tally.most_servers, most)
    np.testing.assert_allclose(tally.server_seconds, seconds, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(tally.server_seconds_beyond, beyond, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(tally.server_seconds_lost, lost, rtol=1e-9, atol=1e-9)
    assert tally.server_seconds.sum() == pytest.approx(simulation.timeline.server_seconds())


def _list_phases(simulation: Simulation) -> list[tuple[float, float, np.ndarray]]:
    """Return start, end and servers of each phase."""
    ends = simulation.timeline.ends.tolist()
    return [
        (start, end, simulation.timeline.servers(phase))
        for phase, (start, end) in enumerate(zip([0.0, *ends[:-1]], ends, strict=True))
    ]


def test_long_runs_are_counted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = Workload.poisson(rate=2, jobs=300, speedup=PowerLaw(0.5), seed=1)
    options = {"whole": True, "resize_cost": 0.1, "tallying": True}
    whole = run_simulation(workload, 4, "equi", **options).tally  # type: ignore[arg-type]
    monkeypatch.setattr(loop, "EVENTS_AT_A_TIME", 8)
    parts = run_simulation(workload, 4, "equi", **options).tally  # type: ignore[arg-type]
    assert whole is not None
    assert parts is not None
    np.testing.assert_array_equal(whole.resizes, parts.resizes)
    np.testing.assert_allclose(whole.server_seconds_lost, parts.server_seconds_lost)
