"""Minimising a smooth function of variables that must not be negative, in few evaluations.

The method is L-BFGS with projections. SciPy's calls a linear algebra library, whose threads keep
all cores busy for longer than a small problem takes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from hesrpt.arrays import FloatArray

# How many changes of position and gradient are remembered.
_MEMORY = 30
# A step must gain this fraction of what the gradient promises. Otherwise a shorter one is tried, at
# least and at most by these factors, and this many times.
_ENOUGH, _SHORTEST, _LONGEST, _MAX_TRIALS = 1e-4, 0.1, 0.5, 10
# The search ends when a step gains less than this fraction.
_NO_GAIN = 1e-9

Changes = deque[tuple[FloatArray, FloatArray]]


def minimise(
    find_value: Callable[[FloatArray], tuple[float, FloatArray]], start: FloatArray, most: int
) -> FloatArray:
    """Return about where a function is least, after at most ``most`` evaluations.

    ``find_value`` returns its value and its gradient.

    >>> minimise(lambda x: (float((x - 1) @ (x - 1)), 2 * (x - 1)), np.array([5.0, 0.0]), 20)
    array([1., 1.])
    """
    here = start
    value, gradient = find_value(here)
    changes: Changes = deque(maxlen=_MEMORY)
    evaluations = 1
    while evaluations < most:
        is_free = (here > 0) | (gradient < 0)
        free_gradient = np.where(is_free, gradient, 0.0)
        direction = np.where(is_free, -_apply_two_loop_recursion(changes, free_gradient), 0.0)
        slope = float(direction @ free_gradient)
        if slope >= 0:  # what is remembered does not suit the variables that are free
            changes.clear()
            direction, slope = -free_gradient, -float(free_gradient @ free_gradient)
        if slope == 0:
            break
        step = 1.0
        for _ in range(min(_MAX_TRIALS, most - evaluations)):
            there = np.maximum(here + step * direction, 0.0)
            new_value, new_gradient = find_value(there)
            evaluations += 1
            promised = float(gradient @ (there - here))
            if new_value <= value + _ENOUGH * promised:
                break
            # Where a parabola through what is known has its minimum.
            rise = new_value - value - promised
            best = -0.5 * promised / rise if rise > 0 else 0.0
            step *= min(max(best, _SHORTEST), _LONGEST)
        else:
            if not changes:
                break
            changes.clear()
            continue
        if np.dot(there - here, new_gradient - gradient) > 0:
            changes.append((there - here, new_gradient - gradient))
        gain = value - new_value
        here, value, gradient = there, new_value, new_gradient
        if gain <= _NO_GAIN * abs(value):
            break
    return here


def _apply_two_loop_recursion(changes: Changes, gradient: FloatArray) -> FloatArray:
    """Return the gradient times the inverse of the second derivatives, as far as known."""
    parts = []
    result = gradient
    for moved, turned in reversed(changes):
        part = float(moved @ result) / float(moved @ turned)
        result = result - part * turned
        parts.append(part)
    if changes:
        moved, turned = changes[-1]
        result = result * (float(moved @ turned) / float(turned @ turned))
    for (moved, turned), part in zip(changes, reversed(parts), strict=True):
        result = result + (part - float(turned @ result) / float(moved @ turned)) * moved
    return result
