"""Workloads check, copy and freeze their arguments; generators have the right distributions."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hesrpt import (
    Amdahl,
    Custom,
    InputError,
    PowerLaw,
    Workload,
    plan,
)


def test_iterators_and_arrays_are_accepted() -> None:
    speedups = np.array([PowerLaw(0.5), Amdahl(0.9)])
    workload = Workload((size for size in (3, 2)), speedups)  # type: ignore[arg-type]
    assert_array_equal(workload.sizes, [3, 2])
    assert workload.speedups.shared is None
    assert plan(workload, 4, order=iter([1, 0])).makespan > 0


def test_workloads_are_frozen_copies() -> None:
    sizes = np.array([3.0, 2.0])
    workload = Workload(sizes, Custom(np.log1p))
    sizes[0] = 99
    assert workload.sizes[0] == 3
    with pytest.raises(ValueError, match="read-only"):
        workload.sizes[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        plan(workload, 3).completion_times[0] = 1
    assert workload.names == ("0", "1")
    assert "2 jobs, sizes 2 to 3" in repr(workload)


def test_generators_are_seeded_and_have_the_right_means() -> None:
    speedup = PowerLaw(0.5)
    for sizes in ("exponential", "deterministic", "hyperexponential"):
        sampled = Workload.poisson(4, 200_000, sizes=sizes, mean_size=3, seed=1, speedup=speedup)
        assert sampled.sizes.mean() == pytest.approx(3, rel=0.03)
        assert sampled.arrivals is not None
        assert sampled.arrivals[-1] == pytest.approx(50_000, rel=0.02)
    pareto = Workload.pareto(200_000, shape=2.5, minimum=2, seed=1, speedup=speedup)
    assert pareto.sizes.min() >= 2
    assert np.mean(pareto.sizes > 4) == pytest.approx(2**-2.5, rel=0.03)
    again = Workload.pareto(200_000, shape=2.5, minimum=2, seed=1, speedup=speedup)
    assert_array_equal(pareto.sizes, again.sizes)
    custom = Workload.poisson(
        1, 3, sizes=lambda rng, jobs: np.arange(1.0, jobs + 1), speedup=speedup
    )
    assert_array_equal(custom.sizes, [1, 2, 3])


def test_head_has_the_first_jobs_to_arrive() -> None:
    stream = Workload([5, 6, 7], PowerLaw(0.5), arrivals=[2, 0, 1], names=["a", "b", "c"])
    head = stream.head(2)
    assert head.names == ("b", "c")
    assert head.sizes.tolist() == [6, 7]
    mixed = Workload([1, 2, 3], [PowerLaw(0.5), PowerLaw(0.6), PowerLaw(0.7)], weights=[1, 2, 3])
    assert mixed.head(2).speedups[1] == PowerLaw(0.6)
    assert mixed.head(10).sizes.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: Workload.pareto(0, speedup=PowerLaw(0.5)), "jobs must be a whole number"),
        (lambda: Workload.pareto(3, shape=0, speedup=PowerLaw(0.5)), "shape must be greater than"),
        (lambda: Workload.poisson(0, 5, speedup=PowerLaw(0.5)), "rate must be greater than 0"),
        (
            lambda: Workload.poisson(1, 5, sizes="normal", speedup=PowerLaw(0.5)),
            "sizes must be one of exponential, .* got 'normal'",
        ),
        (
            lambda: Workload([1], PowerLaw(0.5)).head(1.5),  # type: ignore[arg-type]
            "jobs must be a whole number",
        ),
    ],
)
def test_invalid_generator_arguments_are_reported(create: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        create()  # type: ignore[operator]
