"""The least makespan agrees with a linear program over all whole allocations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.oracles import (
    least_makespan_on_whole_servers,
)
from support.speedups import MEASURED

from hesrpt import (
    Amdahl,
    PowerLaw,
    Speedup,
    Workload,
    plan,
    verify,
)


@given(
    st.lists(st.floats(0.1, 10), min_size=3, max_size=3),
    st.permutations([PowerLaw(0.4), Amdahl(0.9), MEASURED]),
    st.integers(1, 4),
)
def test_makespan_on_whole_servers_is_that_of_a_linear_program(
    sizes: list[float], speedups: list[Speedup], servers: int
) -> None:
    best = plan(Workload(sizes, speedups), servers, objective="makespan", whole=True)
    whole = [speedup.on_whole_servers() for speedup in speedups]
    optimum = least_makespan_on_whole_servers(np.array(sizes), whole, servers)
    assert best.makespan == pytest.approx(optimum, rel=1e-9)
    assert best.certificate.proven
    assert verify(best) < 1e-9
