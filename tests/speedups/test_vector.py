"""A vector of speedups evaluates each entry with the speedup of its job."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from hesrpt import Amdahl, Custom, InputError, Measured, PowerLaw, Speedup
from hesrpt.arrays import FloatArray
from hesrpt.speedups import SpeedupVector
from hesrpt.speedups.measured import PiecewiseLinearStack

CURVES = (
    Measured([1, 2, 4, 8, 16], [1, 1.9, 3.1, 4.0, 3.5]),
    Measured([3], [2]),
    Measured([1, 1.5, 2], [1, 1.2, 1.3]),
)
LOGARITHM = Custom(np.log1p).tabulate(20.0)  # a table too large to be stacked
MIXED: tuple[Speedup, ...] = (
    PowerLaw(0.5),
    Amdahl(0.9),
    PowerLaw(0.3).limited(4),
    *CURVES,
    PowerLaw(0.2),
    Amdahl(0.5).time_shared(),
    PowerLaw(0.5),
    PowerLaw(0.8).limited(2.5),
    Amdahl(0.7).on_whole_servers(),
    PowerLaw(0.4).time_shared().limited(3),
    LOGARITHM,
    LOGARITHM.limited(2.0),
    Amdahl(0.95).time_shared(),
    CURVES[0].limited(3),
)
VECTORS = {
    "different": SpeedupVector.create(MIXED),
    "one family": SpeedupVector.create(PowerLaw(p) for p in np.linspace(0.1, 0.9, 16)),
    "shared": SpeedupVector.repeat(PowerLaw(0.5), 16),
}
every_vector = pytest.mark.parametrize("speedups", VECTORS.values(), ids=VECTORS.keys())
entries = st.lists(st.floats(0, 20), min_size=16, max_size=16).map(np.array)
some_jobs = st.lists(st.integers(0, 15), min_size=1, max_size=20).map(np.array)


def assert_evaluates_each_job(speedups: SpeedupVector, values: FloatArray) -> None:
    for method in ("rate", "slope", "slope_before"):
        each = [float(getattr(s, method)(v)) for s, v in zip(speedups, values, strict=True)]
        assert_allclose(getattr(speedups, method)(values), each, rtol=1e-14, atol=1e-15)
    whole = np.floor(values)
    each = [float(s.gain(k)) for s, k in zip(speedups, whole, strict=True)]
    assert_allclose(speedups.gain(whole), each, rtol=1e-14, atol=1e-15)
    for method in ("demand", "inverse"):
        each = [float(getattr(s, method)(v, 9.0)) for s, v in zip(speedups, values, strict=True)]
        assert_allclose(getattr(speedups, method)(values, 9.0), each, rtol=1e-14, atol=1e-15)
    each = [float(s.knee(values[[i]], 9.0)[0]) for i, s in enumerate(speedups)]
    assert_allclose(speedups.knee(values, 9.0), each, rtol=1e-12, atol=1e-15)


@every_vector
@given(values=entries)
def test_each_entry_is_evaluated_by_its_job(speedups: SpeedupVector, values: FloatArray) -> None:
    assert_evaluates_each_job(speedups, values)


@every_vector
@given(values=entries, jobs=some_jobs)
def test_selection_evaluates_the_selected_jobs(
    speedups: SpeedupVector, values: FloatArray, jobs: list[int]
) -> None:
    selected = np.array(jobs)
    part = speedups.take(selected)
    assert list(part) == [speedups[job] for job in jobs]
    assert_evaluates_each_job(part, values[selected])


@every_vector
def test_jobs_beyond_the_end_are_refused(speedups: SpeedupVector) -> None:
    assert speedups[-1] == speedups[15]
    with pytest.raises(IndexError):
        speedups[16]


@every_vector
def test_on_whole_servers_all_demands_are_whole(speedups: SpeedupVector) -> None:
    demand = speedups.on_whole_servers().demand(np.linspace(0.01, 1, 16), 9.0)
    assert_array_equal(demand, np.rint(demand))


def test_equal_speedups_are_shared() -> None:
    assert SpeedupVector.create([PowerLaw(0.5), PowerLaw(0.5)]).shared == PowerLaw(0.5)
    assert SpeedupVector.create([PowerLaw(0.5), PowerLaw(0.6)]).shared is None


def test_exponent_is_that_of_all_jobs() -> None:
    same = SpeedupVector.create([PowerLaw(0.5), PowerLaw(0.5).limited(3)])
    assert same.exponent == 0.5
    assert SpeedupVector.create([PowerLaw(0.5), PowerLaw(0.6)]).exponent is None
    assert SpeedupVector.repeat(Amdahl(0.5), 2).exponent is None


@pytest.mark.parametrize("other", [MIXED[::-1], MIXED[:5], [PowerLaw(0.5)] * 3])
def test_vectors_are_compared_job_by_job(other: list[Speedup]) -> None:
    vector = VECTORS["different"]
    expected = [mine == theirs for mine, theirs in zip(MIXED, other, strict=False)]
    assert_array_equal(vector.equals(SpeedupVector.create(other)), expected)
    reverse = np.arange(len(MIXED))[::-1]
    expected = [mine == theirs for mine, theirs in zip(MIXED, MIXED[::-1], strict=True)]
    assert_array_equal(vector.equals(vector.take(reverse)), expected)


def test_every_speedup_is_checked() -> None:
    vector = SpeedupVector.create([PowerLaw(0.5), Custom(lambda k: k**2)])
    with pytest.raises(InputError, match="must be concave"):
        vector.check(10.0)


class TestPiecewiseLinearStack:
    stack = PiecewiseLinearStack.create(CURVES)

    @pytest.mark.parametrize("method", ["rate", "slope", "slope_before", "gain"])
    @given(st.lists(st.floats(0, 20), min_size=3, max_size=3))
    def test_functions_of_servers(self, method: str, at: list[float]) -> None:
        each = [getattr(s, method)(np.asarray(k)) for s, k in zip(CURVES, at, strict=True)]
        assert_allclose(getattr(self.stack, method)(np.array(at)), each, rtol=1e-14, atol=1e-15)

    @pytest.mark.parametrize("method", ["demand", "inverse"])
    @given(st.lists(st.floats(0, 5), min_size=3, max_size=3))
    def test_functions_of_prices_and_rates(self, method: str, at: list[float]) -> None:
        each = [getattr(s, method)(np.asarray(k), 3.5) for s, k in zip(CURVES, at, strict=True)]
        found = getattr(self.stack, method)(np.array(at), 3.5)
        assert_allclose(found, each, rtol=1e-14, atol=1e-15)
