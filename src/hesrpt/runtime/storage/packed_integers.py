"""Integers in few bytes, because writing them to a disk is what costs time.

They are written as their differences from the smallest of them, each in 1, 2, 4 or 8 bytes. Numbers
that belong together are often close to each other, except for a few. So a difference that is too
large for the others' width is written in full, at the front, and has a mark in its place: the
largest number of that width.
"""

from __future__ import annotations

import struct

import numpy as np

from hesrpt.arrays import IntArray

# The smallest number, how many differences are written in full, and the bytes of each other one.
_HEADER = struct.Struct("<qQB")
_FULL_BYTES = 8
_TYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32, _FULL_BYTES: np.uint64}
# By the bytes of a difference, what stands for one that is written in full.
_MARKS = {width: 256**width - 1 for width in (1, 2, 4)}


def pack_integers(numbers: IntArray) -> bytes:
    """Return 64-bit integers as bytes; there must be at least one.

    >>> numbers = np.array([1_000_000, 1_000_003, 5_000_000, 1_000_002])
    >>> len(pack_integers(numbers)) - _HEADER.size
    12
    >>> unpack_integers(pack_integers(numbers)).tolist()
    [1000000, 1000003, 5000000, 1000002]
    """
    smallest = int(numbers.min())
    differences = numbers.view(np.uint64) - _wrap(smallest)  # may be above the largest int64
    width, count = _FULL_BYTES, 0
    fewest_bytes = _FULL_BYTES * len(numbers)
    for narrow, mark in _MARKS.items():
        large = int(np.count_nonzero(differences >= mark))
        if (needed := narrow * len(numbers) + _FULL_BYTES * large) < fewest_bytes:
            width, count, fewest_bytes = narrow, large, needed
        if not large:
            break
    full = b""
    if count:
        full = differences[differences >= _MARKS[width]].tobytes()
        differences = np.minimum(differences, _MARKS[width])
    content = differences.astype(_TYPES[width]).tobytes()
    return b"".join((_HEADER.pack(smallest, count, width), full, content))


def unpack_integers(packed: bytes) -> IntArray:
    """Return the integers that were packed."""
    smallest, count, width = _HEADER.unpack_from(packed)
    start = _HEADER.size + _FULL_BYTES * count
    content = np.frombuffer(packed, _TYPES[width], offset=start)
    differences = content.astype(np.uint64)
    if count:
        full = np.frombuffer(packed, np.uint64, count, _HEADER.size)
        differences[content == _MARKS[width]] = full
    return (differences + _wrap(smallest)).view(np.int64)


def count_integers(packed: bytes) -> int:
    """Return how many integers were packed."""
    _, count, width = _HEADER.unpack_from(packed)
    return int((len(packed) - _HEADER.size - _FULL_BYTES * count) // width)


def _wrap(number: int) -> np.uint64:
    """Return a number modulo 2^64, so that sums and differences of arrays wrap around."""
    return np.uint64(number % 2**64)
