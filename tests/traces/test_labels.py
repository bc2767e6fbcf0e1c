"""Users and other columns of traces, kept as text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.trace_samples import CSV, ELASTISIM, PHILLY, SACCT, SACCT_PARTS, SWF, write_file

from hesrpt import InputError
from hesrpt.traces import read_trace


def test_users_are_kept_in_the_order_of_submission(tmp_path: Path) -> None:
    trace = read_trace(write_file(tmp_path, CSV))
    assert trace.names == ("b", "a")
    assert trace.labels["user"].tolist() == ["y", "x"]
    part = trace.select(np.array([False, True]), "were not chosen")
    assert part.labels["user"].tolist() == ["x"]
    assert "user" not in read_trace(write_file(tmp_path, SACCT)).labels
    mapped = read_trace(write_file(tmp_path, CSV), columns={"user": "job_id"})
    assert mapped.labels["user"].tolist() == ["b", "a"]


def test_unknown_users_of_swf_are_empty(tmp_path: Path) -> None:
    lines = SWF.replace("120 -1 1 1 1", "120 -1 1 -1 7")
    trace = read_trace(write_file(tmp_path, lines), labels=["group"])
    assert trace.labels["user"].tolist() == ["", "1", "1"]
    assert trace.labels["group"].tolist() == ["7", "1", "1"]
    nobody = "1 100 5 60 4 -1 -1 8 120 -1 1 -1 -1 -1 -1 -1 -1 -1\n"
    assert read_trace(write_file(tmp_path, nobody)).labels == {}


def test_other_columns_are_kept_on_request(tmp_path: Path) -> None:
    trace = read_trace(write_file(tmp_path, CSV), labels=["duration"])
    assert trace.labels["duration"].tolist() == ["1-00:00:01", "60"]
    with pytest.raises(InputError, match="has no column 'x'; its columns are: job_id, submit_time"):
        read_trace(write_file(tmp_path, CSV), labels=["x"])
    with pytest.raises(InputError, match="has no column 'x'; SWF has user, group, application"):
        read_trace(write_file(tmp_path, SWF), labels=["x"])


def test_users_and_keys_of_json_are_kept(tmp_path: Path) -> None:
    users = PHILLY.replace('"vc": "v1",', '"vc": "v1", "user": "eve",')
    trace = read_trace(write_file(tmp_path, users), labels=["vc"])
    assert trace.labels["user"].tolist() == ["eve", ""]
    assert trace.labels["vc"].tolist() == ["v1", "v2"]
    types = read_trace(write_file(tmp_path, ELASTISIM), labels=["type"]).labels["type"]
    assert types.tolist() == ["rigid", "moldable"]
    with pytest.raises(InputError, match="no job has 'x'; the first has 'type, submit_time"):
        read_trace(write_file(tmp_path, ELASTISIM), labels=["x"])


def test_components_of_a_job_have_one_user(tmp_path: Path) -> None:
    users = SACCT_PARTS.replace("|\n", "|ann|\n").replace("Timelimit|ann|", "Timelimit|User|")
    trace = read_trace(write_file(tmp_path, users))
    assert trace.labels["user"].tolist() == ["ann"] * 3
