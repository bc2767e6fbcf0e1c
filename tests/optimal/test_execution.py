"""Allocations that are computed on demand do not depend on the order of the requests."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_array_equal

from hesrpt import (
    Amdahl,
    Workload,
    plan,
)


def test_phases_can_be_requested_in_any_order() -> None:
    rng = np.random.default_rng(0)
    sizes, weights = rng.pareto(1.5, 40) + 1, rng.uniform(0.1, 1, 40)
    found = plan(Workload(sizes, Amdahl(0.9), weights=weights), 30, objective="weighted")
    in_sequence = [found.timeline.servers(phase) for phase in range(40)]
    for phase in rng.permutation(40):
        assert_array_equal(found.timeline.servers(int(phase)), in_sequence[phase])
