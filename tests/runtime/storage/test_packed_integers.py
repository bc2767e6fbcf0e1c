"""Integers in few bytes: whatever they are, the same ones are read again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hesrpt.runtime.storage.packed_integers import (
    count_integers,
    pack_integers,
    unpack_integers,
)

SMALLEST, LARGEST = -(2**63), 2**63 - 1
HEADER_BYTES = len(pack_integers(np.array([0]))) - 1
# Numbers at which another width begins, and numbers beside them.
EDGES = [
    sign * 2**bits + more
    for sign in (-1, 1)
    for bits in (0, 7, 8, 15, 16, 31, 32, 62)
    for more in (-2, -1, 0, 1)
]


@given(
    st.lists(
        st.one_of(
            st.integers(SMALLEST, LARGEST),
            st.integers(-300, 300),
            st.sampled_from([*EDGES, SMALLEST, LARGEST]),
        ),
        min_size=1,
        max_size=60,
    )
)
def test_the_same_integers_are_read_again(numbers: list[int]) -> None:
    packed = pack_integers(np.array(numbers, dtype=np.int64))
    assert unpack_integers(packed).tolist() == numbers
    assert count_integers(packed) == len(numbers)
    assert len(packed) <= HEADER_BYTES + 8 * len(numbers)


@pytest.mark.parametrize(
    ("largest_difference", "width"),
    [
        (0, 1),
        (254, 1),
        (255, 2),
        (2**16 - 2, 2),
        (2**16 - 1, 4),
        (2**32 - 2, 4),
        (2**32 - 1, 8),
        (2**63 - 1, 8),
        (2**64 - 1, 8),
    ],
)
def test_each_takes_as_few_bytes_as_the_largest_difference(
    largest_difference: int, width: int
) -> None:
    for smallest in (SMALLEST, -1000, 0, 1_000_000, LARGEST - largest_difference):
        if (largest := smallest + largest_difference) <= LARGEST:
            numbers = [smallest, *[largest] * 50]
            packed = pack_integers(np.array(numbers, dtype=np.int64))
            assert len(packed) == HEADER_BYTES + width * len(numbers)
            assert unpack_integers(packed).tolist() == numbers


def test_few_large_ones_do_not_widen_the_others() -> None:
    numbers = [*range(200), LARGEST, 255, SMALLEST + 2**63, 10**6]
    packed = pack_integers(np.array(numbers, dtype=np.int64))
    assert len(packed) == HEADER_BYTES + len(numbers) + 3 * 8
    assert unpack_integers(packed).tolist() == numbers
