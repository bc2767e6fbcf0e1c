"""Speedups of every family, for tests of everything that takes a speedup."""

from __future__ import annotations

from hypothesis import strategies as st

from hesrpt import Amdahl, Measured, PowerLaw, Speedup

MEASURED = Measured([1, 2, 4, 8, 16], [1, 1.9, 3.1, 4.0, 3.5])
SPEEDUPS: list[Speedup] = [
    PowerLaw(0.5),
    PowerLaw(0.05).limited(3),
    PowerLaw(0.9).time_shared(),
    Amdahl(0.9),
    Amdahl(1.0),
    Amdahl(0.7).time_shared().limited(4.5),
    MEASURED,
]
measured_curves = st.lists(
    st.tuples(st.integers(1, 20), st.floats(0.1, 8)), min_size=1, max_size=6
).map(lambda points: Measured(*zip(*points, strict=True)))
any_speedup = st.one_of(st.sampled_from(SPEEDUPS), measured_curves)
