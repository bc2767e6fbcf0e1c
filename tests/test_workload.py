"""Workloads copy, check and freeze what they are given."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hesrpt import (
    Amdahl,
    Custom,
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
