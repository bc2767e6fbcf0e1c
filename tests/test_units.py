"""Parsing and printing durations and numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hesrpt.units import format_count, format_duration, format_number, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        (" 1.5 ", 1.5),
        ("90s", 90),
        ("1H 30 m", 5400),
        ("2w1d", 15 * 86400),
        ("01:30", 90),
        ("1:00:00.5", 3600.5),
        ("1-12", 129600),
        ("1-12:30", 131400),
    ],
)
def test_durations_are_parsed(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "soon", "-5", "nan", "inf", "1e3", "5 y", "1:2:3:4", "2024-05-01", "9" * 400]
)
def test_invalid_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.000479, "0.479 ms"),
        (0.0123, "0.0123 s"),
        (119.4, "119 s"),
        (150, "2.5 min"),
        (7199, "120 min"),
        (7200, "2 h"),
        (259200, "3 d"),
        (1e8, "1,157 d"),
    ],
)
def test_durations_are_printed_in_a_suitable_unit(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_numbers_are_printed_to_three_digits() -> None:
    assert [format_number(x) for x in (0.35361, 27.84, 99.96, 1543.2)] == [
        "0.354",
        "27.8",
        "100",
        "1,543",
    ]


@given(st.integers(0, 10**9), st.sampled_from(["job", "policy", "measured curve"]))
def test_only_one_thing_is_singular(number: int, noun: str) -> None:
    text = format_count(number, noun)
    assert text.startswith(f"{number:,} ")
    assert text.endswith(noun) == (number == 1)
    assert format_count(float(number), noun) == text
