"""Conversions of TOML values; each returns None for a wrong value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hesrpt.jobs.toml_tables import TomlTable, is_whole
from hesrpt.units import parse_duration

#: The largest whole number that has a meaning in a jobs file.
MAX_NUMBER = 1_000_000
_MAX_AMOUNT = 1e300
_DURATION = 'a number of seconds, or a duration such as "90s", "15m", "2h" or "1d"'


def get_seconds(table: TomlTable, key: str, default: float | None) -> float | None:
    """Return a duration of a table in seconds."""
    if key not in table.values:
        return default
    seconds = table.require(key, _DURATION, to_seconds)
    if seconds <= 0:
        raise table.create_value_error(key, "greater than 0")
    return seconds


def to_string(value: Any) -> str | None:
    """Return a string that is not empty."""
    return value if isinstance(value, str) and value and "\0" not in value else None


def to_boolean(value: Any) -> bool | None:
    """Return true or false."""
    return value if isinstance(value, bool) else None


def to_text(value: Any) -> str | None:
    """Return a string, which may be empty."""
    return value if isinstance(value, str) else None


def to_command(value: Any) -> str | tuple[str, ...] | None:
    """Return a line, or a program and its arguments."""
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        return tuple(value)
    return value if isinstance(value, str) and value else None


def to_variables(value: Any) -> dict[str, str] | None:
    """Return the variables of an environment; numbers become strings."""
    if not isinstance(value, dict):
        return None
    if all(isinstance(each, str) or _is_number(each) for each in value.values()):
        return {name: str(each) for name, each in value.items()}
    return None


def to_seconds(value: Any) -> float | None:
    """Return a duration in seconds."""
    try:
        seconds = parse_duration(value) if isinstance(value, str) else value
    except ValueError:
        return None
    return float(seconds) if _is_number(seconds) else None


def to_fraction(value: Any) -> float | None:
    """Return a number between 0 and 1."""
    return float(value) if _is_number(value) and 0 < value < 1 else None


def to_positive(value: Any) -> float | None:
    """Return a number greater than 0."""
    return float(value) if _is_number(value) and value > 0 else None


def to_whole_number(minimum: int) -> Callable[[Any], int | None]:
    """Return a conversion to a whole number of at least ``minimum``."""
    return lambda value: value if is_whole(value) and minimum <= value <= MAX_NUMBER else None


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and -_MAX_AMOUNT < value < _MAX_AMOUNT
