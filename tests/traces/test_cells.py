"""Times, durations and numbers in the cells of a trace."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from hesrpt.traces.building import TimeKind, parse_durations, parse_numbers, parse_times

DATES = st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)).map(
    lambda date: date.replace(microsecond=0)
)
OFFSETS = st.integers(-12 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.lists(DATES, min_size=1, max_size=5), st.sampled_from(["T", " "]))
def test_dates_are_seconds_since_1970(dates: list[datetime], separator: str) -> None:
    times, kinds = parse_times([date.isoformat(separator) for date in dates])
    assert times.tolist() == [date.replace(tzinfo=UTC).timestamp() for date in dates]
    assert set(kinds) == {TimeKind.LOCAL_DATE}


@given(DATES, OFFSETS)
def test_time_zones_are_respected(date: datetime, zone: timezone) -> None:
    local = date.replace(tzinfo=zone)
    times, kinds = parse_times([local.isoformat(), date.isoformat() + "Z"])
    assert times.tolist() == [local.timestamp(), date.replace(tzinfo=UTC).timestamp()]
    assert set(kinds) == {TimeKind.ZONED_DATE}


@given(st.integers(0, 400), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_durations_of_slurm_are_seconds(days: int, hours: int, minutes: int, seconds: int) -> None:
    clock = f"{hours:02}:{minutes:02}:{seconds:02}"
    expected = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds()
    texts = [f"{days}-{clock}", clock, f"{minutes:02}:{seconds:02}", str(expected)]
    assert parse_durations(texts).tolist() == [
        expected,
        expected - days * 86400,
        minutes * 60 + seconds,
        expected,
    ]


@given(st.lists(st.text(max_size=12), min_size=1, max_size=4))
def test_any_texts_are_parsed_one_by_one(texts: list[str]) -> None:
    for parse in (parse_numbers, parse_durations, lambda cells: parse_times(cells)[0]):
        together = parse(texts)
        for text, value in zip(texts, together.tolist(), strict=True):
            alone = float(parse([text])[0])
            assert alone == value or (math.isnan(alone) and math.isnan(value))
