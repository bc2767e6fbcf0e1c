"""Numbers for people."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it.

    >>> duration(18360), duration(42.3), duration(400000), duration(0.25)
    ('5.1 h', '42 s', '4.6 d', '0.25 s')
    """
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 3 * 86400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} d"


def plain_number(value: float) -> str:
    """Return a number without units.

    >>> plain_number(0.3536), plain_number(27.84), plain_number(1543.2)
    ('0.354', '27.8', '1,543')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
