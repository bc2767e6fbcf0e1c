"""Damaged and invalid traces: read without their bad lines, or refused with a clear error."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.trace_samples import (
    CSV,
    SACCT,
    SAMPLES,
    SWF,
    SWF_GZIPPED,
    assert_jobs,
    assert_valid,
    write_file,
)

from hesrpt import InputError
from hesrpt.traces import read_trace
from hesrpt.traces.formats import FORMATS


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("a,b\n1,2\n", {}, "trace:1 holds 'submit': none has a usual name (submit, submittime,"),
        ("a,b\n1,2\n", {}, "its columns are: a, b"),
        ("\nsubmit,run\n1,2\n", {}, "trace:2 holds 'servers': none has a usual name"),
        ("submit,nodes,end\n1,2,3\n", {}, "trace:1 holds 'runtime': none has a usual name"),
        ("submit,run,cpus,nodes\n", {}, "trace:1 holds 'servers': 'cpus' or 'nodes'; for example"),
        ("submit,run,gpus\n", {"size": "run"}, "columns must map some of submit, runtime,"),
        ("submit,run,gpus\n", {"runtime": "x"}, "column 'x', which does not exist in"),
        ("submit,x,x,gpus\n", {"runtime": "x"}, "column 'x', which appears more than once in"),
        ("submit,run,gpus\n", {}, "trace: contains no jobs"),
        ("; a comment\n", {}, "trace: contains no jobs"),
        (SWF, {"submit": "x"}, "trace, got submit=x: the columns of SWF have fixed"),
        (
            "Submit|Elapsed|NCPUS\n",
            {},
            "trace:1: has no column jobid, which tells jobs from job steps; add JobID",
        ),
        (
            "submit,run,gpus\n1,0,1\n2,0,1\n3,1,0\n",
            {},
            "trace: contains no usable job: 0 of 3 jobs used; 2 had run time 0; 1 had no servers; "
            "for example, ",
        ),
        ("", {}, "trace: is empty"),
        (" \n\n", {}, "trace: is empty"),
        (b"\xef\xbb\xbf", {}, "trace: is empty"),
        (gzip.compress(b"", mtime=0), {}, "trace: is empty"),
        (SWF_GZIPPED[:-12], {}, "trace: the gzip data is damaged after line "),
        (SWF_GZIPPED + b"more", {}, "the gzip data is damaged after line 10"),
        (b"\x1f\x8bnonsense", {}, "trace: the gzip data is damaged after line 0"),
        (CSV.encode() + b"\xff,\n", {}, "trace:6: is not UTF-8 text"),
        (CSV.encode() + b"\0,\n", {}, "trace:6: is not text: it contains a zero byte"),
        (CSV.encode("utf-16"), {}, "trace:1: is not"),
        (CSV + '"' + "x" * 140_000 + "\n", {}, "trace:6: field larger than field limit"),
        (CSV + "x" * 2_200_000, {}, "trace:6: the line is longer than 1,048,576 bytes"),
        ("\x01\x02\n", {}, r"columns are: '\x01\x02'"),
    ],
)
def test_invalid_files_are_refused_with_a_clear_error(
    tmp_path: Path, text: str | bytes, columns: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        read_trace(write_file(tmp_path, text), columns=columns)
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value) or message.startswith("columns must map")


def test_missing_files_and_unknown_formats_are_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing: cannot be read: No such file"):
        read_trace(tmp_path / "missing")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_trace(tmp_path)
    with pytest.raises(InputError, match="cannot be read: embedded null"):
        read_trace("a\0b")
    with pytest.raises(InputError, match=r"format must be one of swf, sacct, .*, csv, got 'xls'"):
        read_trace(tmp_path, format="xls")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SWF, "trace:8: job '3' had run time 0$"),
        (
            "\n1 5 5 7 2\n\n2 5 5 y 2\n3 5 5 0 2\n",
            "trace:4: line could not be read, got '2 5 5 y 2'",
        ),
        ("1 5 5 7 2\n2 5 5 0 2\n3 5 x 0 2\n", "trace:2: job '2' had run time 0$"),
        (SACCT, "trace:6: job '12' had not ended, got '12, RUNNING, 2024-05-01T12:01:00,"),
        (CSV, "trace:4: job 'c' had no run time, got 'nan'"),
        ("submit,start,end,gpus\n1,2,2,1\n", "trace:2: job '1' had run time 0, got '2 to 2'"),
        ("submit,run,gpus\n1,2,-1\n", "had an invalid number of servers, got '-1'"),
    ],
)
def test_strict_names_the_first_unusable_job(tmp_path: Path, text: str, message: str) -> None:
    first = text.lstrip()[0]
    with pytest.raises(InputError) as caught:
        read_trace(write_file(tmp_path, text), strict=True, format="swf" if first == "1" else None)
    assert message in f"{caught.value}$"


def test_strict_accepts_a_trace_without_unusable_jobs(tmp_path: Path) -> None:
    assert len(read_trace(write_file(tmp_path, "\n".join(CSV.split("\n")[:3])), strict=True)) == 2


def assert_read_or_refused(directory: Path, data: bytes) -> None:
    path = write_file(directory, data)
    for name in (None, *FORMATS):
        for strict in (False, True):
            try:
                trace = read_trace(path, format=name, strict=strict)
            except InputError:
                continue
            assert_valid(trace)


@given(
    data=st.binary(max_size=200),
    before=st.sampled_from([b"", b"\x1f\x8b\x08", *map(str.encode, SAMPLES.values())]),
)
def test_no_input_crashes_the_reader(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, before: bytes
) -> None:
    assert_read_or_refused(tmp_path_factory.getbasetemp(), before + data)


EDITS = st.lists(
    st.tuples(
        st.sampled_from(["delete", "insert", "flip", "copy"]),
        st.floats(0, 1, exclude_max=True),
        st.one_of(st.sampled_from(b'\n\r",;|\t -.:e90naT'), st.integers(0, 255)),
        st.integers(1, 40),
    ),
    min_size=1,
    max_size=8,
)


def apply_edits(data: bytes, edits: list[tuple[str, float, int, int]]) -> bytes:
    result = bytearray(data)
    for kind, where, byte, length in edits:
        at = int(where * len(result))
        if kind == "delete":
            del result[at : at + length]
        elif kind == "insert":
            result[at:at] = bytes([byte])
        elif kind == "copy":
            result[at:at] = result[at : at + length]
        elif result:
            result[at] ^= byte
    return bytes(result)


@given(text=st.sampled_from(list(SAMPLES.values())), edits=EDITS, is_gzipped=st.booleans())
def test_damaged_traces_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory,
    text: str,
    edits: list[tuple[str, float, int, int]],
    is_gzipped: bool,
) -> None:
    data = gzip.compress(text.encode(), mtime=0) if is_gzipped else text.encode()
    assert_read_or_refused(tmp_path_factory.getbasetemp(), apply_edits(data, edits))


JOBS = st.lists(
    st.tuples(st.integers(1, 10**9), st.integers(1, 10**7), st.integers(1, 10**5)),
    min_size=1,
    max_size=6,
)


@given(JOBS, st.booleans())
def test_same_jobs_in_every_format_give_the_same_trace(
    tmp_path_factory: pytest.TempPathFactory, jobs: list[tuple[int, int, int]], has_dates: bool
) -> None:
    directory = tmp_path_factory.getbasetemp()
    zero = datetime(1970, 1, 1)
    sacct, table = "JobID|Submit|ElapsedRaw|NCPUS\n", "arrival\truntime\tprocs\tid\n"
    lines = ""
    profiles = {str(k): {"type": "delay", "delay": jobs[k][1]} for k in range(len(jobs))}
    simulated: list[dict[str, object]] = []
    accounted: list[dict[str, object]] = []
    for k, (submit, runtime, servers) in enumerate(jobs):
        date = datetime.fromtimestamp(submit, UTC).replace(tzinfo=None)
        sacct += f"{k}|{date.isoformat()}|{runtime}|{servers}\n"
        table += f"{date if has_dates else submit}\t{runtime}\t{servers}\t{k}\n"
        simulated.append({"id": k, "subtime": submit, "res": servers, "profile": str(k)})
        times = {"submission": submit, "elapsed": runtime}
        accounted.append({"job_id": k, "time": times, "required": {"CPUs": servers}})
        lines += f"{k} {submit} -1 {runtime} {servers}{' -1' * 13}\n"
    order = sorted(range(len(jobs)), key=lambda k: jobs[k][0])
    first = jobs[order[0]][0]
    batsim = json.dumps({"jobs": simulated, "profiles": profiles})
    for text in (sacct, table, lines, batsim, json.dumps({"jobs": accounted})):
        trace = read_trace(write_file(directory, text), strict=True)
        assert_jobs(
            trace,
            submit_times=[jobs[k][0] - first for k in order],
            runtimes=[jobs[k][1] for k in order],
            servers=[jobs[k][2] for k in order],
        )
        assert trace.names == tuple(map(str, order))
        if trace.start_date is not None:
            assert (trace.start_date.replace(tzinfo=None) - zero).total_seconds() == first
