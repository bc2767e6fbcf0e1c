"""Slurm's accounting: arrays, heterogeneous jobs, steps, and output without a header."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.trace_samples import (
    NAN,
    SACCT_JSON,
    SACCT_PARTS,
    SACCT_WITHOUT_HEADER,
    assert_jobs,
    assert_valid,
    write_file,
)

from hesrpt import InputError
from hesrpt.traces import Trace, read_trace
from hesrpt.traces.table import SlurmId, count_tasks, parse_id


def assert_parts_are_read(trace: Trace, estimates: list[float]) -> None:
    assert trace.names == ("20_4", "30", "40")
    assert_jobs(
        trace,
        submit_times=[0, 3600, 3720],
        runtimes=[600, 600, 60],  # of a heterogeneous job, until its last component ends …
        servers=[2, 36, 1],  # … on the servers of all of them
        start_times=[0, 3660, 3720],
        estimates=estimates,
    )
    assert trace.summary == "3 of 7 jobs used; 4 had not ended"  # four tasks of the array
    assert_valid(trace)


def test_arrays_components_and_steps_are_told_apart(tmp_path: Path) -> None:
    trace = read_trace(write_file(tmp_path, SACCT_PARTS))
    assert_parts_are_read(trace, estimates=[3600, 2700, 1800])


def test_bars_at_the_ends_of_lines_do_not_matter(tmp_path: Path) -> None:
    header, *rows = SACCT_PARTS.splitlines()
    for bare_header in (header, header.rstrip("|")):
        for bare_rows in (rows, [row.removesuffix("|") for row in rows]):
            trace = read_trace(write_file(tmp_path, "\n".join([bare_header, *bare_rows])))
            assert_parts_are_read(trace, estimates=[3600, 2700, 1800])


def test_columns_without_a_header_have_numbers(tmp_path: Path) -> None:
    path = write_file(tmp_path, SACCT_WITHOUT_HEADER)
    named = SACCT_PARTS.splitlines()[0].split("|")
    ours = {"submit": "Submit", "runtime": "Elapsed", "servers": "AllocCPUS", "start": "Start"}
    columns = {name: str(named.index(theirs) + 1) for name, theirs in ours.items()}
    assert_parts_are_read(read_trace(path, columns=columns), estimates=[NAN, NAN, NAN])
    columns |= {"estimate": str(named.index("Timelimit") + 1)}
    assert_parts_are_read(read_trace(path, columns=columns), estimates=[3600, 2700, 1800])
    with pytest.raises(InputError, match=r"trace:3: job '20_.5-7,9%2.' had not ended"):
        read_trace(path, columns=columns, strict=True)


def test_columns_without_a_header_must_be_named(tmp_path: Path) -> None:
    path = write_file(tmp_path, "1|2024-05-01T12:00:00|00:10:00|16|2|COMPLETED\n")
    with pytest.raises(InputError) as caught:
        read_trace(path, columns={"servers": "5"})
    assert str(caught.value) == (
        f"columns must say which columns of {path}:1 hold submit, runtime and servers, such as "
        "submit=2,runtime=5,servers=6: sacct printed no header (--noheader); the first row is "
        "'1|2024-05-01T12:00:00|00:10:00|16|2|COMPLETED'"
    )
    with pytest.raises(InputError, match=r"trace:1: is not the output of sacct.*got 'a,b'"):
        read_trace(write_file(tmp_path, "a,b\n1,2\n"), format="sacct")


def test_json_of_sacct_is_read(tmp_path: Path) -> None:
    path = write_file(tmp_path, SACCT_JSON)
    trace = read_trace(path)
    assert trace.names == read_trace(path, format="sacct").names
    assert trace.names == ("51", "52_7", "61")
    assert_jobs(
        trace,
        submit_times=[0, 10, 20],
        runtimes=[100, 60, 50],
        servers=[16, 3, 24],
        start_times=[60, 10, 30],
        estimates=[1800, 60, NAN],
    )
    assert trace.start_date == datetime.fromtimestamp(1_700_000_000, UTC)
    assert trace.summary == "3 of 8 jobs used; 5 had not ended"
    assert_valid(trace)


NUMBERS = st.integers(0, 10**9)
RANGES = st.lists(st.tuples(NUMBERS, st.integers(0, 50), st.integers(1, 9)), min_size=1, max_size=5)


@given(RANGES, st.one_of(st.none(), st.integers(1, 99)))
def test_tasks_of_ranges_are_counted(ranges: list[tuple[int, int, int]], limit: int | None) -> None:
    text = ",".join(f"{first}-{first + length}:{step}" for first, length, step in ranges)
    text += "" if limit is None else f"%{limit}"
    expected = sum(len(range(first, first + n + 1, step)) for first, n, step in ranges)
    assert count_tasks(text) == expected
    found = parse_id(f"7_[{text}]")
    assert found is not None
    assert found.tasks == expected


@given(
    NUMBERS,
    st.one_of(st.none(), NUMBERS),
    st.one_of(st.none(), NUMBERS),
    st.one_of(st.none(), st.sampled_from(["batch", "extern", "0", "interactive"])),
)
def test_ids_are_parsed(
    job: int, task: int | None, component: int | None, step: str | None
) -> None:
    whole = str(job) if task is None else f"{job}_{task}"
    text = whole if component is None else f"{whole}+{component}"
    text += "" if step is None else f".{step}"
    assert parse_id(f" {text} ") == SlurmId(whole, component is not None, step is not None)


@given(st.text(alphabet="0123456789_[]-+.,%:ab ", max_size=20))
def test_any_text_is_an_id_or_none(text: str) -> None:
    found = parse_id(text)
    assert found is None or (1 <= found.tasks <= 4_000_001 and text.strip().startswith(found.job))


@pytest.mark.parametrize("ranges", ["", "5-1", "1-5:0", "1,...", "1-999999999999", "x", "1-" * 40])
def test_ranges_that_make_no_sense_count_as_one_task(ranges: str) -> None:
    assert count_tasks(ranges) == 1
