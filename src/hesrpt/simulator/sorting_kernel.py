"""Sorting a list of jobs that is nearly sorted, compiled."""

from __future__ import annotations

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import compiled

# A list with more displaced entries than this, on average, is sorted by merging.
_MAX_MOVES = 8


@compiled
def sort_by_key(
    entries: IntArray, count: int, keys: FloatArray, ties: IntArray, scratch: IntArray
) -> None:
    """Sort the first ``count`` entries by their keys, and entries with equal keys by ``ties``.

    A list that is nearly sorted takes a time in proportion to its length.
    """
    moves = _MAX_MOVES * count
    place = 1
    while place < count and moves >= 0:
        entry = entries[place]
        key, tie = keys[entry], ties[entry]
        at = place
        while at > 0:
            before = entries[at - 1]
            if keys[before] < key or (keys[before] == key and ties[before] <= tie):
                break
            entries[at] = before
            at -= 1
        entries[at] = entry
        moves -= place - at
        place += 1
    if place == count or count < 2:
        return
    width = 1
    while width < count:
        for start in range(0, count, 2 * width):
            middle, end = min(start + width, count), min(start + 2 * width, count)
            left, right = start, middle
            for at in range(start, end):
                takes_left = right >= end
                if not takes_left and left < middle:
                    first, second = entries[left], entries[right]
                    takes_left = keys[first] < keys[second] or (
                        keys[first] == keys[second] and ties[first] <= ties[second]
                    )
                if takes_left:
                    scratch[at] = entries[left]
                    left += 1
                else:
                    scratch[at] = entries[right]
                    right += 1
        for at in range(count):
            entries[at] = scratch[at]
        width *= 2
