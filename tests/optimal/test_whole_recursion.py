"""Values and allocations of few jobs on whole servers, against the general recursion."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from hesrpt import Amdahl, Measured, PowerLaw, Speedup
from hesrpt.optimal.recursion import compute_job_values
from hesrpt.optimal.whole_recursion import can_be_listed, compute_whole_values
from hesrpt.speedups import SpeedupVector

SPEEDUPS: list[Speedup] = [
    PowerLaw(0.01),
    PowerLaw(0.5),
    PowerLaw(0.999),
    PowerLaw(0.7).limited(3),
    PowerLaw(0.5).time_shared(),
    Amdahl(0.9),
    Measured([1, 2, 4, 8], [1, 1.8, 3, 3.5]),
]
jobs_lists = st.lists(
    st.tuples(st.sampled_from(SPEEDUPS), st.floats(1e-3, 1e3)), min_size=1, max_size=12
)


@given(jobs_lists, st.sampled_from([1, 2, 3, 5, 16, 200]), st.booleans())
@settings(max_examples=60)
def test_few_jobs_get_what_the_general_recursion_gives_them(
    jobs: list[tuple[Speedup, float]], servers: int, is_shared: bool
) -> None:
    chosen = [jobs[0][0] if is_shared else speedup for speedup, _ in jobs]
    weights = np.array([weight for _, weight in jobs])
    speedups = SpeedupVector.create([speedup.on_whole_servers() for speedup in chosen])
    listed = compute_whole_values(speedups, servers, weights)
    general = compute_job_values(speedups, float(servers), weights)
    assert_allclose(listed.values, general.values, rtol=1e-9)
    for present in range(1, len(jobs) + 1):
        start, held = listed.allocate(present)
        assert held.sum() <= servers
        assert_array_equal(held, held.astype(int))
        rates = speedups.take(np.arange(start, present)).rate(held)
        # The phase exactly pays its cost.
        assert_allclose(listed.values[start:present] @ rates, weights[:present].sum(), rtol=1e-9)
        first, expected = general.allocate(present)
        assert_allclose(
            np.append(np.zeros(start), held), np.append(np.zeros(first), expected), atol=1e-6
        )


def test_of_tied_jobs_those_that_end_first_are_served_first() -> None:
    speedups = SpeedupVector.repeat(Amdahl(1.0).on_whole_servers(), 3)  # each server adds the same
    start, held = compute_whole_values(speedups, 4, np.ones(3)).allocate(3)
    assert (start, held.tolist()) == (2, [4.0])


def test_only_few_jobs_and_servers_are_listed() -> None:
    assert can_be_listed(16, 256.0)
    assert not can_be_listed(17, 4.0)
    assert not can_be_listed(2, 257.0)
    assert not can_be_listed(2, 2.5)
    assert not can_be_listed(2, 0.0)


def test_deciding_about_few_jobs_loads_no_compiler() -> None:
    script = (
        "import sys; from hesrpt import Pool\n"
        "with Pool(2) as pool:\n"
        "    jobs = [pool.map(abs, range(20), name=name) for name in 'abc']\n"
        "    assert [job.results() for job in jobs] == [list(range(20))] * 3\n"
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
