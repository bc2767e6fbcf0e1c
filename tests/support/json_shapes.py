"""Whether two JSON values have the same keys and kinds of values."""

from __future__ import annotations

from typing import Any


def find_difference(example: Any, real: Any, place: str = "") -> str | None:
    """Return where an example differs from a real value; null and empty ones fit everything."""
    if example is None or real is None:
        return None
    if isinstance(example, dict) and isinstance(real, dict):
        if not example or not real:
            return None
        if example.keys() != real.keys():
            return f"{place or 'keys'}: {sorted(example.keys() ^ real.keys())}"
        found = (find_difference(example[key], real[key], f"{place}.{key}") for key in example)
        return next(filter(None, found), None)
    if isinstance(example, list) and isinstance(real, list):
        return find_difference(example[0], real[0], f"{place}[]") if example and real else None
    kinds = [_get_kind(value) for value in (example, real)]
    return None if kinds[0] is kinds[1] else f"{place}: {example!r} and {real!r}"


def _get_kind(value: Any) -> type:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float if is_number else type(value)
