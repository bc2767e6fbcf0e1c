"""The errors a user can cause, and the checks at the door that raise them.

Values are checked once, where they enter the library; the code behind the door trusts them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hesrpt.arrays import BoolArray, FloatArray

__all__ = ["CertificateError", "FitError", "InputError", "OverloadWarning", "PolicyError"]


class InputError(ValueError):
    """A value given by the user is not what was expected; the message names both."""


class FitError(InputError):
    """The measured points do not determine the speedup that was asked for."""


class PolicyError(InputError):
    """A policy has decided what cannot be done; the message says when, and what."""


class OverloadWarning(UserWarning):
    """Jobs arrive faster than they can be served, so averages mean little."""


class CertificateError(ValueError):
    """A plan or its certificate does not hold what it claims."""


def is_number(text: str) -> bool:
    """Return whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def number(name: str, value: object) -> float:
    """Return ``value`` as a finite float, or raise an error that names it."""
    try:
        if isinstance(value, str):
            raise TypeError  # "4" is no number
        result = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must be a number, got {_brief(value)}") from None
    if not math.isfinite(result):
        raise InputError(f"{name} must be finite, got {value!r}")
    return result


def positive(name: str, value: object) -> float:
    """Return ``value`` as a float greater than zero."""
    result = number(name, value)
    if result <= 0:
        raise InputError(f"{name} must be greater than 0, got {value!r}")
    return result


def vector(name: str, values: ArrayLike) -> FloatArray:
    """Return ``values`` as a flat float array of its own, none of them NaN or infinite."""
    if isinstance(values, Iterator):
        values = list(values)
    try:
        given = np.asarray(values)
        if given.dtype.kind not in "iuf" and not _are_numbers(given):
            raise TypeError  # "4" is no number, nor are truth values or dates
        result = np.array(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must be a list of numbers, got {_brief(values)}") from None
    if result.ndim != 1:
        raise InputError(f"{name} must be a flat list of numbers, got {_brief(values)}")
    _reject(name, result, ~np.isfinite(result), "finite")
    return result


def positive_vector(name: str, values: ArrayLike) -> FloatArray:
    """Return ``values`` as a float array, all of them greater than zero."""
    result = vector(name, values)
    _reject(name, result, result <= 0, "greater than 0")
    return result


def non_negative_vector(name: str, values: ArrayLike) -> FloatArray:
    """Return ``values`` as a float array, none of them below zero."""
    result = vector(name, values)
    _reject(name, result, result < 0, "at least 0")
    return result


def same_length(name: str, values: Sequence[object] | FloatArray, jobs: int) -> None:
    """Check that there is one of ``values`` for each job."""
    if len(values) != jobs:
        raise InputError(
            f"{name} must have one entry per job: {jobs} expected, {len(values)} given"
        )


def flag(name: str, value: object) -> bool:
    """Return ``value`` as a truth value; "no" is none."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} must be True or False, got {_brief(value)}")
    return bool(value)


def _are_numbers(values: np.ndarray[Any, Any]) -> bool:
    return values.dtype.kind == "O" and all(
        isinstance(value, Real) and not isinstance(value, bool) for value in values.flat
    )


def _reject(name: str, values: FloatArray, bad: BoolArray, expected: str) -> None:
    if bad.any():
        where = int(np.argmax(bad))
        raise InputError(f"{name}[{where}] must be {expected}, got {float(values[where])!r}")


def _brief(value: object, most: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= most else text[: most - 1] + "…"
