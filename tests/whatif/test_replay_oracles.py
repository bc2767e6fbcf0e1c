"""Replays of whole traces against an event-by-event simulation of EASY written here.

It uses none of the library's code: lists of jobs, searched anew at every event, and the users'
estimates as they are.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.trace_samples import make_trace

from hesrpt.arrays import FloatArray
from hesrpt.traces import Trace
from hesrpt.whatif import StudyOptions, assume_speedup, run_study


def simulate_easy(
    submitted: list[float],
    widths: list[float],
    runtimes: list[float],
    estimates: list[float],
    servers: float,
) -> list[float]:
    """Return when jobs start."""
    starts: dict[int, float] = {}
    waiting: list[int] = []
    arriving = list(range(len(submitted)))
    events = sorted(set(submitted))
    while events:
        now = events.pop(0)
        while arriving and submitted[arriving[0]] <= now:
            waiting.append(arriving.pop(0))
        running = [job for job in starts if starts[job] + runtimes[job] > now]
        free = servers - sum(widths[job] for job in running)
        started = []
        while waiting and widths[waiting[0]] <= free:
            free -= widths[waiting[0]]
            started.append(waiting.pop(0))
        if waiting:
            # When would the first job fit, if all running jobs ended as estimated? Those that
            # should have ended already may end at any moment.
            expected = [(max(starts[job] + estimates[job], now), widths[job]) for job in running]
            expected += [(now + estimates[job], widths[job]) for job in started]
            for reserved in sorted({time for time, _ in expected}):
                available = free + sum(width for time, width in expected if time <= reserved)
                if available >= widths[waiting[0]]:
                    break
            spare = available - widths[waiting[0]]
            for job in waiting[1:]:
                in_time = now + estimates[job] <= reserved
                if widths[job] <= free and (in_time or widths[job] <= spare):
                    free -= widths[job]
                    spare -= 0 if in_time else widths[job]
                    started.append(job)
        for job in started:
            starts[job] = now
        waiting = [job for job in waiting if job not in starts]
        events = sorted({*events, *(now + runtimes[job] for job in started)})
    return [starts[job] for job in range(len(submitted))]


def check_easy(trace: Trace, servers: int) -> None:
    estimates: FloatArray = np.where(np.isnan(trace.estimates), trace.runtimes, trace.estimates)
    expected = simulate_easy(
        trace.submit_times.tolist(),
        trace.servers.tolist(),
        trace.runtimes.tolist(),
        estimates.tolist(),
        servers,
    )
    easy = run_study(trace, StudyOptions(servers=servers, policies=["easy"])).runs["easy"]
    np.testing.assert_allclose(easy.completion_times - trace.runtimes, expected, atol=1e-6)


def test_easy_replays_the_example_as_the_oracle_does(example_trace: Trace) -> None:
    assert np.isfinite(example_trace.estimates).all()
    check_easy(example_trace, 64)
    # With estimates that many jobs overrun.
    rng = np.random.default_rng(2)
    factors = rng.uniform(0.3, 3, len(example_trace))
    wrong = np.rint(example_trace.runtimes * factors) + 1
    assert np.mean(wrong < example_trace.runtimes) > 0.2
    check_easy(replace(example_trace, estimates=wrong), 64)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 30),
            st.integers(1, 8),
            st.integers(1, 20),
            st.none() | st.integers(1, 40),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_easy_replays_any_trace_as_the_oracle_does(
    given_jobs: list[tuple[int, int, int, int | None]],
) -> None:
    submitted, asked, runtimes, estimates = zip(
        *sorted(given_jobs, key=lambda job: job[0]), strict=True
    )
    trace = make_trace(submitted, asked, runtimes, machine_servers=8)
    trace = replace(
        trace,
        submit_times=trace.submit_times - trace.submit_times[0],
        estimates=np.array([np.nan if e is None else float(e) for e in estimates]),
    )
    check_easy(trace, 8)


def test_a_busy_trace_at_its_own_widths_keeps_its_run_times(example_trace: Trace) -> None:
    study = run_study(
        example_trace,
        StudyOptions(
            assumption=assume_speedup("uniform(0.4, 0.9)", max_servers="2x"),
            policies=["easy", "fcfs", "moldable", "equi"],
            malleable=0.5,
            other_limits=False,
        ),
    )
    rigid = ~study.is_malleable
    asked, runtimes = example_trace.servers, example_trace.runtimes
    for policy, unchanged in (
        ("easy", slice(None)),
        ("fcfs", slice(None)),
        ("moldable", rigid),
        ("equi", rigid),
    ):
        tally = study.runs[policy].tally
        assert tally is not None
        held, used = tally.most_servers[unchanged], tally.server_seconds[unchanged]
        np.testing.assert_array_equal(held, asked[unchanged])
        np.testing.assert_allclose(used / held, runtimes[unchanged], rtol=1e-9)


def test_a_lone_job_is_never_faster_under_a_tighter_limit() -> None:
    # The jobs are so far apart that each is alone.
    asked = np.array([1.0, 2.0, 5.0, 16.0, 32.0])
    runtimes = np.array([100.0, 7.5, 3000.0, 20.0, 1.0])
    trace = make_trace((np.arange(5) * 1e6).tolist(), asked.tolist(), runtimes.tolist(), 32)
    policies = ["moldable", "equi", "srpt", "adaptive", "hesrpt"]
    found: list[tuple[FloatArray, dict[str, FloatArray]]] = []
    for limit in ("1", "7", "0.5x,7", "1x,7", "1x", "3x,20", "3x", "none"):
        assumption = assume_speedup(0.6, max_servers=limit)
        study = run_study(
            trace, StudyOptions(assumption=assumption, policies=policies, other_limits=False)
        )
        most = assumption.limit.compute(trace, 32.0)
        for policy in policies:
            times = study.runs[policy].flow_times
            # On k servers a job takes r·(q/k)^p: the work is the same, whatever the limit.
            np.testing.assert_allclose(times, runtimes * (asked / most) ** 0.6, rtol=1e-9)
        found.append((most, {policy: study.runs[policy].flow_times for policy in policies}))
    for (tight, slow), (loose, fast) in product(found, found):
        for policy in policies:
            is_tighter = tight <= loose
            assert np.all(slow[policy][is_tighter] >= fast[policy][is_tighter] * (1 - 1e-9))
