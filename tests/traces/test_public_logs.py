"""Public logs of GPU clusters, and workloads of simulators, read without options."""

from __future__ import annotations

import json
from datetime import datetime
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.trace_samples import (
    BATSIM,
    CSV_BATSIM,
    CSV_HELIOS,
    CSV_OPENB,
    ELASTISIM,
    NAN,
    PHILLY,
    SACCT_JSON,
    SWF,
    assert_jobs,
    assert_valid,
    write_file,
)

from hesrpt import InputError
from hesrpt.traces import read_trace


def test_helios_is_read(tmp_path: Path) -> None:
    trace = read_trace(write_file(tmp_path, CSV_HELIOS))
    assert trace.names == ("81", "82")
    assert_jobs(
        trace, submit_times=[0, 30], runtimes=[3600, 10], servers=[8, 1], start_times=[20, 30]
    )
    assert trace.start_date == datetime(2020, 5, 4, 10)
    assert trace.summary == "2 of 3 jobs used; 1 had no servers"
    assert trace.notes == (
        "the servers of a job are in column 'gpu_num', not in 'cpu_num' or 'node_num'",
    )
    nodes = read_trace(tmp_path / "trace", columns={"servers": "node_num"})
    assert (len(nodes), nodes.notes) == (3, ())


def test_pods_of_alibaba_are_read(tmp_path: Path) -> None:
    trace = read_trace(write_file(tmp_path, CSV_OPENB))
    assert trace.names == ("pod-1", "pod-2")
    assert_jobs(
        trace, submit_times=[0, 20], runtimes=[590, 40], servers=[4, 1], start_times=[10, 20]
    )
    assert trace.summary == "2 of 4 jobs used; 1 had no run time; 1 had no servers"


def test_jobs_that_batsim_has_simulated_are_read(tmp_path: Path) -> None:
    trace = read_trace(write_file(tmp_path, CSV_BATSIM), strict=True)
    assert_jobs(trace, runtimes=[60, 50], servers=[4, 2], start_times=[5, 65], estimates=[100, 50])


def test_philly_is_read(tmp_path: Path) -> None:
    trace = read_trace(write_file(tmp_path, PHILLY))
    assert trace.names == ("application_1", "application_4")
    assert_jobs(
        trace,
        submit_times=[0, 360],
        runtimes=[660, 30],  # of all attempts whose times are known
        servers=[4, 1],
        start_times=[60, NAN],
    )
    assert trace.start_date == datetime(2017, 10, 7, 1)
    assert trace.summary == "2 of 4 jobs used; 1 had not ended; 1 had no run time"
    assert_valid(trace)


def test_workloads_of_batsim_are_read(tmp_path: Path) -> None:
    trace = read_trace(write_file(tmp_path, BATSIM))
    assert trace.names == ("2", "waits", "killed", "computes")
    assert_jobs(
        trace,
        submit_times=[0, 5, 7.5, 8],
        runtimes=[121, 20.5, 50, 300],  # two rounds of both delays; a delay; two walltimes
        servers=[2, 4, 1, 8],
        estimates=[NAN, 100, 50, 300],
    )
    assert trace.machine_servers == 16
    assert trace.summary == "4 of 6 jobs used; 2 had no run time"
    assert trace.notes == (
        "the walltime stands for the run time of 1 job, which the workload does not say: how long "
        "a job computes depends on the simulated machine",
    )
    with pytest.raises(InputError, match=r"trace:jobs\[4\]: job 'unknown' had no run time"):
        read_trace(tmp_path / "trace", strict=True)


def test_workloads_of_elastisim_are_read(tmp_path: Path) -> None:
    trace = read_trace(write_file(tmp_path, ELASTISIM))
    assert trace.names == ("0", "2")
    assert_jobs(
        trace,
        submit_times=[0, 40],
        servers=[4, 8],
        runtimes=[900, 120],
        estimates=[900, 120],
    )
    assert trace.summary == "2 of 4 jobs used; 2 had no run time"
    assert trace.notes == (
        "the walltime stands for the run time of 2 jobs, which the workload does not say: how long "
        "a job computes depends on the simulated machine",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"jobs": [', "trace:1: is not JSON: Expecting value (column 11)"),
        ("[1, 2]", "trace: is JSON, but not sacct --json, a workload of Batsim, a workload of"),
        ('{"a": 1, "b": 2}', "or Philly's job log; the document has the keys 'a, b'"),
        ('{"jobs": 3, "profiles": {}}', "trace: jobs must be a list, got 3"),
        ('{"jobs": [], "profiles": {}}', "trace: contains no jobs"),
        ('{"jobs": ["x"], "profiles": {}}', "trace:jobs[0]: line could not be read, got '"),
        ("[" * 200_000, "trace: cannot be read as JSON"),
        ('{"jobs": ' + "9" * 5000 + "}", "trace: cannot be read as JSON"),
        (b'{"jobs": "\xff"}', "trace: is not UTF-8 text"),
    ],
)
def test_json_that_is_no_trace_is_refused(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_trace(write_file(tmp_path, text))
    assert message in str(caught.value)


def test_formats_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = write_file(tmp_path, BATSIM)
    with pytest.raises(InputError, match=r"format must be that of .*trace, got 'philly'"):
        read_trace(path, format="philly")
    with pytest.raises(InputError, match=r"columns does not apply to .*trace, got submit=subtime"):
        read_trace(path, columns={"submit": "subtime"})
    with pytest.raises(InputError, match="is not JSON"):
        read_trace(write_file(tmp_path, SWF), format="batsim")


def test_json_may_be_one_long_line(tmp_path: Path) -> None:
    document = json.loads(BATSIM)
    document["jobs"] = [
        {"id": "job" * 1000 + str(k), "subtime": k, "res": 1, "profile": "short"}
        for k in range(1_000)
    ]
    text = json.dumps(document)
    assert len(text) > 3_000_000
    assert len(read_trace(write_file(tmp_path, text))) == 1_000


JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 10**20), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
DOCUMENTS = [json.loads(text) for text in (BATSIM, ELASTISIM, PHILLY, SACCT_JSON)]


REPLACEMENTS = st.dictionaries(st.integers(0, 60), JSON_VALUES, min_size=1, max_size=4)


@given(st.sampled_from(DOCUMENTS), REPLACEMENTS)
def test_any_values_in_a_document_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, document: object, replacements: dict[int, object]
) -> None:
    """Replace some values of a document by others, of any type."""
    numbers = count()

    def replace(value: object) -> object:
        number = next(numbers)
        if number in replacements:
            return replacements[number]
        if isinstance(value, dict):
            return {key: replace(inner) for key, inner in value.items()}
        return [replace(inner) for inner in value] if isinstance(value, list) else value

    path = write_file(tmp_path_factory.getbasetemp(), json.dumps(replace(document)))
    try:
        trace = read_trace(path)
    except InputError:
        return
    assert_valid(trace)
