"""Sorting by size is stable."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from hesrpt.optimal.closed_form import sort_by_size


@given(st.lists(st.integers(1, 5), min_size=1, max_size=60))
def test_equal_sizes_keep_their_order(sizes: list[int]) -> None:
    order, sizes_in_order = sort_by_size(np.array(sizes, dtype=float))
    assert_array_equal(order, np.argsort(sizes, kind="stable"))
    assert_array_equal(sizes_in_order, np.sort(sizes))
