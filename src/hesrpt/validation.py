"""Checks of values that enter the library. Code behind these checks trusts its arguments.

Each check returns the value in the type the library uses, or raises an InputError that names the
argument, what was expected and what was given.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Sized
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hesrpt.arrays import BoolArray, FloatArray
from hesrpt.errors import InputError


def is_number(text: str) -> bool:
    """Return whether ``text`` can be read as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_number(name: str, value: object) -> float:
    """Return ``value`` as a finite float."""
    try:
        if isinstance(value, (str, bool)):
            raise TypeError  # float() would accept "4" and True
        result = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise _refuse(name, "be a number", value) from None
    if not math.isfinite(result):
        raise _refuse(name, "be finite", value)
    return result


def check_positive(name: str, value: object) -> float:
    """Return ``value`` as a float greater than 0."""
    result = check_number(name, value)
    if result <= 0:
        raise _refuse(name, "be greater than 0", value)
    return result


def check_servers(servers: object, whole: object) -> float:
    """Return a number of servers greater than 0, which must be whole if jobs get whole servers."""
    result = check_positive("servers", servers)
    if check_flag("whole", whole) and result != int(result):
        raise InputError(
            f"must be a whole number for whole servers, got {result:g}", argument="servers"
        )
    return result


def check_at_least(name: str, value: object, minimum: float) -> float:
    """Return ``value`` as a float of at least ``minimum``."""
    result = check_number(name, value)
    if result < minimum:
        raise _refuse(name, f"be at least {minimum:g}", value)
    return result


def check_between(name: str, value: object, low: float, high: float) -> float:
    """Return ``value`` as a float from ``low`` to ``high``, both included."""
    result = check_number(name, value)
    if not low <= result <= high:
        raise _refuse(name, f"lie between {low:g} and {high:g}", value)
    return result


def check_whole_number(name: str, value: object, minimum: int) -> int:
    """Return ``value`` as an int of at least ``minimum``."""
    result = check_number(name, value)
    if result != int(result) or result < minimum:
        raise _refuse(name, f"be a whole number of at least {minimum}", value)
    return int(result)


def check_choice(name: str, value: object, choices: Sequence[str]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        raise _refuse(name, f"be one of {', '.join(choices)}", value)
    return value


def check_flag(name: str, value: object) -> bool:
    """Return ``value`` if it is True or False; other truthy or falsy values are refused."""
    if not isinstance(value, bool | np.bool_):
        raise _refuse(name, "be True or False", value)
    return bool(value)


def check_vector(name: str, values: ArrayLike) -> FloatArray:
    """Return ``values`` as a new one-dimensional array of finite floats."""
    if isinstance(values, Iterator):
        values = list(values)
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "iuf" and not _are_numbers(array):
            raise TypeError  # NumPy would convert "4", True and dates
        result = np.array(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise _refuse(name, "be a list of numbers", values) from None
    if result.ndim != 1:
        raise _refuse(name, "be a flat list of numbers", values)
    _check_each(name, result, np.isfinite(result), "finite")
    return result


def check_positive_vector(name: str, values: ArrayLike) -> FloatArray:
    """Return ``values`` as a new array of floats greater than 0."""
    result = check_vector(name, values)
    _check_each(name, result, result > 0, "greater than 0")
    return result


def check_non_negative_vector(name: str, values: ArrayLike) -> FloatArray:
    """Return ``values`` as a new array of floats of at least 0."""
    result = check_vector(name, values)
    _check_each(name, result, result >= 0, "at least 0")
    return result


def check_same_length(name: str, values: Sized, jobs: int) -> None:
    """Check that ``values`` has one entry for each job."""
    if len(values) != jobs:
        raise InputError(
            f"must have one entry per job: {jobs} expected, {len(values)} given", argument=name
        )


def _are_numbers(values: np.ndarray[Any, Any]) -> bool:
    return values.dtype.kind == "O" and all(
        isinstance(value, Real) and not isinstance(value, bool) for value in values.flat
    )


def _check_each(name: str, values: FloatArray, valid: BoolArray, expected: str) -> None:
    if not valid.all():
        index = int(np.argmin(valid))
        raise _refuse(f"{name}[{index}]", f"be {expected}", float(values[index]))


def _refuse(name: str, expected: str, value: object) -> InputError:
    return InputError(f"must {expected}, got {shorten(value)}", argument=name)


def shorten(value: object, limit: int = 60) -> str:
    """Return the representation of ``value`` for a message, cut to ``limit`` characters."""
    text = repr(value)
    if isinstance(value, float | np.floating) and float(f"{value:g}") == value:
        text = f"{value:g}"  # "0" instead of "0.0" or "np.float64(0.0)"
    return text if len(text) <= limit else text[: limit - 1] + "…"
