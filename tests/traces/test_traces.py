"""Reading traces in each format."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.trace_samples import (
    CSV,
    NAN,
    SACCT,
    SAMPLES,
    SWF,
    SWF_DAMAGED,
    assert_jobs,
    assert_valid,
    write_file,
)

from hesrpt import InputError
from hesrpt.traces import Trace, read_trace, swf


def test_swf_is_read(tmp_path: Path) -> None:
    path = write_file(tmp_path, SWF)
    trace = read_trace(path)
    assert_jobs(
        trace,
        submit_times=[0, 5, 10],
        runtimes=[60, 10, 30.5],
        servers=[4, 2, 8],  # the requested servers if the allocated ones are unknown
        start_times=[5, 14, NAN],
        estimates=[120, 10, NAN],
    )
    assert trace.names == ("1", "5", "2")
    assert trace.machine_servers == 1024
    assert trace.start_date == datetime.fromtimestamp(1_000_000_100, UTC)
    assert trace.source == str(path)
    assert trace.jobs_read == 5
    assert trace.dropped == {"had no run time": 1, "had run time 0": 1}
    assert trace.summary == "3 of 5 jobs used; 1 had no run time; 1 had run time 0"
    assert_valid(trace)


def test_unreadable_and_short_lines_of_swf_are_handled(tmp_path: Path) -> None:
    trace = read_trace(write_file(tmp_path, SWF_DAMAGED))
    assert trace.names == ("1", "5", "2", "6")
    assert_jobs(
        trace, servers=[4, 2, 8, 2], runtimes=[60, 10, 30.5, 7], start_times=[5, 14, NAN, 30]
    )
    assert trace.dropped == {
        "line could not be read": 2,
        "had no run time": 1,
        "had run time 0": 1,
        "had no servers": 1,
    }
    assert trace.summary.startswith(
        "4 of 9 jobs used; 2 lines could not be read; 1 had no run time"
    )
    assert_valid(trace)


def test_swf_without_header_keeps_ties_in_file_order(tmp_path: Path) -> None:
    row = "{} {} 0 5 1 -1 -1 1 -1 -1 1 1 1 1 1 -1 -1 -1\r\n"
    text = "".join(row.format(k, t) for k, t in [(4, 7), (2, 7), (9, 6), (1, 7)])
    trace = read_trace(write_file(tmp_path, text))
    assert trace.names == ("9", "4", "2", "1")
    assert (trace.machine_servers, trace.start_date) == (None, None)
    assert trace.summary == "4 of 4 jobs used"


@pytest.mark.parametrize(
    ("header", "machine"),
    [("MaxNodes: 12", 12), ("maxprocs: 0", None), ("MaxProcs: -1\n; MaxNodes: 7 (of 9)", 7)],
)
def test_swf_header_gives_the_machine_size(
    tmp_path: Path, header: str, machine: int | None
) -> None:
    assert read_trace(write_file(tmp_path, f"; {header}\n1 0 0 5 1\n")).machine_servers == machine


SWF_FIELDS = st.sampled_from(["-1", "0", "3", "7.25", "1e3", "12", "x", "9" * 30, "nan", ""])


@given(st.lists(st.lists(SWF_FIELDS, min_size=17, max_size=19), min_size=1, max_size=4))
def test_fast_and_careful_parsers_of_swf_agree(rows: list[list[str]]) -> None:
    texts = ["8 " + " ".join(row) for row in rows]
    for fast, careful in zip(swf._parse_fields(texts), swf._parse_line_by_line(texts), strict=True):
        np.testing.assert_array_equal(fast, careful)


def test_sacct_is_read(tmp_path: Path) -> None:
    trace = read_trace(write_file(tmp_path, SACCT))
    assert trace.names == ("11_4", "10", "15")
    assert_jobs(
        trace,
        submit_times=[0, 60, 300],
        runtimes=[90.5, 3600, 330],  # the first one is computed from start and end
        servers=[1, 16, 2],
        start_times=[660, 90, NAN],
        estimates=[NAN, 86400, 300],
    )
    assert trace.start_date == datetime(2024, 5, 1, 11, 59)
    assert trace.machine_servers is None
    assert trace.summary == "3 of 6 jobs used; 2 had not ended; 1 had run time 0"
    assert_valid(trace)


def test_sacct_columns_may_be_raw_and_in_any_order_and_case(tmp_path: Path) -> None:
    text = (
        "\nTimelimitRaw|nnodes|SUBMIT|elapsedraw|End|JobIDRaw|JobName|\n"
        '10|3|2024-05-01T12:00:00|50|2024-05-01T12:00:50|1|say "hi|\n'
        "10|3|2024-05-01T12:00:00|50|Unknown|2|still running|\n"
        "Timelimitraw|x\n   \n"
    )
    trace = read_trace(write_file(tmp_path, text))
    assert_jobs(trace, estimates=[600], servers=[3], runtimes=[50])
    assert trace.dropped == {"had not ended": 1, "line could not be read": 1}


def test_user_can_map_columns_of_sacct(tmp_path: Path) -> None:
    text = "JobID|Submit|Elapsed|AllocCPUS|NNodes\n1|2024-05-01T12:00:00|10:00|64|2\n"
    path = write_file(tmp_path, text)
    assert_jobs(read_trace(path), servers=[64])
    assert_jobs(read_trace(path, columns={"servers": "nnodes"}), servers=[2])


def test_csv_is_read(tmp_path: Path) -> None:
    trace = read_trace(write_file(tmp_path, CSV))
    assert trace.names == ("b", "a")
    assert_jobs(
        trace, submit_times=[0, 100], runtimes=[86401, 60], servers=[1, 4], start_times=[NAN, NAN]
    )
    assert trace.start_date is None
    assert trace.dropped == {"had no run time": 1, "had no servers": 1}
    assert_valid(trace)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_csv_may_have_any_separator_and_spelling(tmp_path: Path, separator: str) -> None:
    rows = [
        ["Submit Time", "Start-Time", "FINISHED", "Cores", "TimeLimit"],
        ["2024-05-01 12:00:00+02:00", "2024-05-01T10:00:10Z", "2024-05-01T10:01", "2", "1:00:00"],
        ["2024-05-01T10:00:05.5", "", "", "2", ""],
    ]
    trace = read_trace(write_file(tmp_path, "\n".join(separator.join(row) for row in rows)))
    assert_jobs(
        trace, submit_times=[0], runtimes=[50], servers=[2], start_times=[10], estimates=[3600]
    )
    assert trace.start_date == datetime(2024, 5, 1, 10, tzinfo=UTC)
    assert trace.names == ("1",)
    assert trace.dropped == {"had no run time": 1}


def test_start_times_come_from_waits_and_never_precede_the_submission(tmp_path: Path) -> None:
    text = "time,run,nodes,wait\n0,9,1,30\n5,9,1,0:10\n6,9,1,-4\n"
    assert_jobs(read_trace(write_file(tmp_path, text)), start_times=[30, 15, NAN])
    text = "time,run,nodes,start\n10,9,1,9\n10,9,1,2024-05-01\n10,9,1,11\n"
    assert_jobs(read_trace(write_file(tmp_path, text)), start_times=[NAN, NAN, 1])


def test_jobs_with_invalid_values_are_dropped_and_counted(tmp_path: Path) -> None:
    rows = [
        "0,1,1",
        "-5,1,1",
        "1e16,1,1",
        "inf,1,1",
        "2024-05-01,1,1",
        "soon,1,1",
        ",1,1",
        "1,-1,1",
        "1,1e16,1",
        "1,long,1",
        "1,2024-05-01,1",
        "1,none,1",
        "1,0:00,1",
        "1,1,-1",
        "1,1,inf",
        "1,1,all",
        "1,1,1:00",
        "1,1,N/A",
        "1,1",
        "1,1,1,1",
        "2,2,2,",
        ",,",
    ]
    trace = read_trace(write_file(tmp_path, "submit,runtime,servers\n" + "\n".join(rows)))
    assert_jobs(trace, submit_times=[0, 2], runtimes=[1, 2], servers=[1, 2])
    assert trace.dropped == {
        "line could not be read": 2,
        "had no submission time": 1,
        "had an invalid submission time": 5,
        "had no run time": 1,
        "had run time 0": 1,
        "had an invalid run time": 4,
        "had no servers": 1,
        "had an invalid number of servers": 4,
    }
    assert trace.jobs_read == 21


def test_stray_quotation_mark_drops_one_job_for_each_line_it_joins(tmp_path: Path) -> None:
    text = 'submit,runtime,servers\n0,1,1\n"1,1,1\n2,1,1\n"3,1,1\n4,1,1\n'
    trace = read_trace(write_file(tmp_path, text))
    assert_jobs(trace, submit_times=[0, 4])
    assert trace.dropped == {"line could not be read": 3}
    first = read_trace(write_file(tmp_path, text.replace("0,1,1\n", "", 1)))
    assert first.dropped == {"line could not be read": 3}
    quoted = 'submit,runtime,servers,name\n0,1,1,"two\nlines"\n'
    assert len(read_trace(write_file(tmp_path, quoted))) == 1


def test_concatenated_files_are_read(tmp_path: Path) -> None:
    assert read_trace(write_file(tmp_path, CSV + CSV)).jobs_read == 8
    twice = gzip.compress(SACCT.encode(), mtime=0) + gzip.compress(SACCT.encode())
    assert read_trace(write_file(tmp_path, twice)).jobs_read == 12


def test_user_can_map_columns_of_csv(tmp_path: Path) -> None:
    path = write_file(tmp_path, "When,took,gpus,nodes,time\n7,2,8,1,5\n")
    columns = {"submit": "when", "runtime": "took", "servers": "nodes"}
    assert_jobs(read_trace(path, columns=columns), runtimes=[2], servers=[1])
    trace = read_trace(path, columns={"runtime": "took", "start": "When", "servers": "gpus"})
    # A mapped column is not used as submission time.
    assert_jobs(trace, start_times=[2], servers=[8])


class FakeStandardInput:
    """Replaces ``sys.stdin``."""

    closed = False

    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


@pytest.mark.parametrize("text", SAMPLES.values(), ids=SAMPLES)
def test_gzip_line_ends_and_standard_input_make_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    plain = read_trace(write_file(tmp_path, text))

    def read_variants() -> Iterator[Trace]:
        zipped = gzip.compress(text.encode(), mtime=0)
        yield read_trace(write_file(tmp_path, zipped))
        yield read_trace(write_file(tmp_path, b"\xef\xbb\xbf" + text.replace("\n", "\r").encode()))
        for data in (text.encode(), zipped):
            stdin = FakeStandardInput(data)
            monkeypatch.setattr(sys, "stdin", stdin)
            trace = read_trace("-")
            assert not stdin.buffer.closed
            assert trace.source == "standard input"
            yield trace

    for trace in read_variants():
        for column in ("submit_times", "runtimes", "servers", "start_times", "estimates"):
            np.testing.assert_array_equal(getattr(trace, column), getattr(plain, column))
        assert trace.names == plain.names
        assert trace.machine_servers == plain.machine_servers
        assert trace.start_date == plain.start_date
        assert trace.summary == plain.summary


def test_closed_standard_input_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="standard input is closed"):
        read_trace("-")


def test_long_traces_are_read_in_blocks_and_report_progress(tmp_path: Path) -> None:
    row = "{} {} 0 5 1 -1 -1 1 -1 -1 1 1 1 1 1 -1 -1 -1 \n"
    text = "".join(row.format(k, k) for k in range(40_000)) + "oops\n"
    lines_read: list[int] = []
    trace = read_trace(write_file(tmp_path, text), progress=lines_read.append)
    assert_jobs(trace, submit_times=range(40_000))
    assert trace.names[-1] == "39999"
    assert trace.dropped == {"line could not be read": 1}
    assert len(lines_read) > 1
    assert lines_read[-1] == 40_001
    with pytest.raises(InputError, match="trace:40001: line could not be read, got 'oops'"):
        read_trace(tmp_path / "trace", strict=True)
    rows = "".join(f"{k},1,1\n" for k in range(25_000))
    trace = read_trace(write_file(tmp_path, "submit,run,cpus\n" + rows))
    assert trace.names[-1] == "25000"
    assert_jobs(trace, submit_times=range(25_000))


def test_selected_jobs_form_a_trace(tmp_path: Path) -> None:
    trace = read_trace(write_file(tmp_path, SWF))
    late = trace.select(trace.submit_times > 0, "came too early")
    assert_jobs(late, submit_times=[5, 10], runtimes=[10, 30.5], start_times=[14, NAN])
    assert late.names == ("5", "2")
    assert late.start_date == trace.start_date
    assert late.summary == trace.summary.replace("3 of", "2 of") + "; 1 came too early"
    fewer = late.select(np.array([True, False]), "came too early")
    assert fewer.dropped["came too early"] == 2
    assert trace.select(np.ones(3, bool), "never").dropped == trace.dropped
    with pytest.raises(InputError, match=r"no job remains: 0 of 5 jobs used; .*; 3 were dull"):
        trace.select(np.zeros(3, bool), "were dull")
    with pytest.raises(InputError, match="keep must have True or False for each of 3 jobs"):
        trace.select(np.ones(2, bool), "too few")
