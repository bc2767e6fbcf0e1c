"""Durations, sizes and numbers as text: what users write, and what they read."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

MINUTE, HOUR, DAY, WEEK = 60.0, 3600.0, 86400.0, 604800.0  # seconds

_UNITS = {"s": 1.0, "m": MINUTE, "h": HOUR, "d": DAY, "w": WEEK}
_NUMBER = r"[0-9]+(?:\.[0-9]*)?"
_AMOUNT = rf"({_NUMBER})\s*([smhdw])"
_AMOUNTS = re.compile(rf"(?:{_AMOUNT}\s*)+", re.IGNORECASE)
_BYTES = re.compile(rf"({_NUMBER})\s*([kmgtp]?)(i?)b?", re.IGNORECASE)
_CLOCK = re.compile(rf"(?:([0-9]+)-)?((?:[0-9]+:){{0,2}}{_NUMBER})")


def parse_duration(text: str) -> float:
    """Return the seconds that a text stands for, or raise ``ValueError``.

    It may be a number of seconds, amounts with units (s, m, h, d, w), or a time as Slurm prints it:
    ``MM:SS``, ``HH:MM:SS``, ``D-HH``, ``D-HH:MM`` or ``D-HH:MM:SS``.

    >>> parse_duration("90"), parse_duration("1h 30m"), parse_duration("1-12:00:00")
    (90.0, 5400.0, 129600.0)
    """
    text = text.strip()
    if _AMOUNTS.fullmatch(text):
        pairs = re.findall(_AMOUNT, text.lower())
        seconds = sum(float(amount) * _UNITS[unit] for amount, unit in pairs)
    elif match := _CLOCK.fullmatch(text):
        days, clock = match.groups()
        parts = [float(part) for part in clock.split(":")]
        padding = [0.0] * (3 - len(parts))
        # After days, the first part is hours; otherwise the last part is seconds.
        hours, minutes, rest = padding + parts if days is None else parts + padding
        seconds = float(days or 0) * DAY + hours * HOUR + minutes * MINUTE + rest
    else:
        seconds = math.inf
    if seconds == math.inf:
        raise ValueError(f"not a duration: {text!r}")
    return seconds


def parse_bytes(text: str) -> float:
    """Return the bytes that a text stands for, or raise ``ValueError``.

    KB, MB, GB, TB and PB are powers of 1,000, and KiB, MiB and so on powers of 1,024.

    >>> parse_bytes("4GB"), parse_bytes("512 MiB"), parse_bytes("100")
    (4000000000.0, 536870912.0, 100.0)
    """
    match = _BYTES.fullmatch(text.strip())
    if match is None or (match[3] and not match[2]):
        raise ValueError(f"not a number of bytes: {text!r}")
    power = " kmgtp".index(match[2].lower() or " ")
    return float(match[1]) * (1024.0 if match[3] else 1000.0) ** power


def format_bytes(amount: float) -> str:
    """Return a number of bytes to three significant digits, in the unit that suits it.

    >>> format_bytes(100), format_bytes(4e9), format_bytes(1536e3)
    ('100 B', '4 GB', '1.54 MB')
    """
    power = 0
    while amount >= 999.5 and power < 5:
        amount, power = amount / 1000, power + 1
    return f"{format_number(amount)} {['B', 'KB', 'MB', 'GB', 'TB', 'PB'][power]}"


class TimeUnit(NamedTuple):
    """A unit of time."""

    seconds: float
    symbol: str


def choose_time_unit(seconds: float) -> TimeUnit:
    """Return the unit in which to show durations up to ``seconds``."""
    if seconds < 2 * MINUTE:
        return TimeUnit(1.0, "s")
    if seconds < 2 * HOUR:
        return TimeUnit(MINUTE, "min")
    if seconds < 3 * DAY:
        return TimeUnit(HOUR, "h")
    return TimeUnit(DAY, "d")


def format_duration(seconds: float, unit: TimeUnit | None = None) -> str:
    """Return a duration to three significant digits, in the unit that suits it or in another one.

    >>> format_duration(0.000479), format_duration(42.34), format_duration(18360)
    ('0.479 ms', '42.3 s', '5.1 h')
    """
    if unit is None:
        unit = TimeUnit(1e-3, "ms") if 0 < seconds < 0.01 else choose_time_unit(seconds)
    return f"{format_number(seconds / unit.seconds)} {unit.symbol}"


def format_duration_with_margin(seconds: float, margin: float) -> str:
    """Return a duration with a margin in the same unit, which is rounded up to the same digits.

    >>> format_duration_with_margin(2.934, 0.0061), format_duration_with_margin(130, 30)
    ('2.93 ± 0.01 s', '2.17 ± 0.50 min')
    """
    unit = choose_time_unit(seconds)
    value, width = seconds / unit.seconds, margin / unit.seconds
    digits = 2 - math.floor(math.log10(value)) if value > 0 else 2
    digits = min(max(digits, 0), 3)
    width = math.ceil(round(width * 10**digits, 6)) / 10**digits
    return f"{value:,.{digits}f} ± {width:,.{digits}f} {unit.symbol}"


def format_number(value: float) -> str:
    """Return a number to three significant digits, or to the nearest whole number above 100.

    >>> format_number(0.3536), format_number(27.84), format_number(1543.2)
    ('0.354', '27.8', '1,543')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def format_count(number: float, noun: str) -> str:
    """Return a number of things in words.

    >>> format_count(1, "job"), format_count(1200, "policy"), format_count(2.5, "server")
    ('1 job', '1,200 policies', '2.5 servers')
    """
    whole = number == int(number) if math.isfinite(number) else False
    text = f"{int(number):,}" if whole else f"{number:,g}"
    if number == 1:
        return f"{text} {noun}"
    return f"{text} {noun[:-1]}ies" if noun.endswith("y") else f"{text} {noun}s"
