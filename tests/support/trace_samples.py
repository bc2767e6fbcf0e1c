"""A trace in each format, and assertions that hold for every trace."""

from __future__ import annotations

import gzip
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hesrpt.traces import Trace

NAN = math.nan


def write_file(directory: Path, data: str | bytes, name: str = "trace") -> Path:
    path = directory / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def make_trace(
    submit_times: Sequence[float],
    servers: Sequence[float],
    runtimes: Sequence[float],
    machine_servers: int | None = 8,
) -> Trace:
    jobs = len(submit_times)
    return Trace(
        source="made up",
        submit_times=np.array(submit_times, float),
        runtimes=np.array(runtimes, float),
        servers=np.array(servers, float),
        start_times=np.full(jobs, np.nan),
        estimates=np.full(jobs, np.nan),
        names=tuple(map(str, range(jobs))),
        machine_servers=machine_servers,
        jobs_read=jobs,
        dropped={},
    )


def assert_jobs(trace: Trace, **expected: Sequence[float]) -> None:
    for column, values in expected.items():
        np.testing.assert_array_equal(getattr(trace, column), np.array(values, float), column)


def assert_valid(trace: Trace) -> None:
    assert len(trace) == len(trace.names) >= 1
    assert trace.jobs_read == len(trace) + sum(trace.dropped.values())
    assert trace.submit_times[0] == 0
    assert np.isfinite(trace.submit_times).all()
    assert (np.diff(trace.submit_times) >= 0).all()
    assert (np.isfinite(trace.runtimes) & (trace.runtimes > 0)).all()
    assert (np.isfinite(trace.servers) & (trace.servers >= 1)).all()
    assert (trace.servers == np.ceil(trace.servers)).all()
    assert (np.isnan(trace.start_times) | (trace.start_times >= trace.submit_times)).all()
    assert (np.isnan(trace.estimates) | (trace.estimates > 0)).all()
    assert not np.isinf(trace.start_times).any()
    assert not np.isinf(trace.estimates).any()


SWF = """\
; Computer: a small one
; UnixStartTime: 1000000000
; MaxNodes: 32
; MaxProcs: 1,024

  1  100   5    60   4 -1 -1   8  120 -1 1 1 1 1 1 -1 -1 -1
  2  110  -1  30.5  -1 -1 -1   8   -1 -1 5 1 1 1 1 -1 -1 -1
  3  110   0     0   1 -1 -1   1   10 -1 1 1 1 1 1 -1 -1 -1
  4  120   0    -1   1 -1 -1   1   10 -1 5 1 1 1 1 -1 -1 -1
  5  105   9    10   0 -1 -1   2   10 -1 0 1 1 1 1 -1 -1 -1
"""
# Some lines are short or unreadable, a job has no servers, and the last line is a part of job 5.
SWF_DAMAGED = (
    SWF + "6 130 0 7 2\n7 130 0 7\n8 140 0 seven 2\n9 150 0 7 -1\n5 105 9 5 2 5 5 5 5 5 2\n"
)
SWF_GZIPPED = gzip.compress(SWF.encode(), mtime=0)
SACCT = """\
JobID|State|Submit|Start|End|Elapsed|AllocCPUS|Timelimit
10|COMPLETED|2024-05-01T12:00:00|2024-05-01T12:00:30|2024-05-01T13:00:30|01:00:00|16|1-00:00:00
10.batch|COMPLETED|2024-05-01T12:00:30|2024-05-01T12:00:30|2024-05-01T13:00:30|01:00:00|16|
10.0|COMPLETED|2024-05-01T12:00:30|2024-05-01T12:00:30|2024-05-01T13:00:30|01:00:00|16|
11_4|FAILED|2024-05-01T11:59:00|2024-05-01T12:10:00|2024-05-01T12:11:30.5||1|UNLIMITED
12|RUNNING|2024-05-01T12:01:00|2024-05-01T12:01:00|Unknown|00:20:00|4|02:00:00
13|PENDING|2024-05-01T12:02:00|Unknown|Unknown|00:00:00|0|02:00:00
14|CANCELLED by 7|2024-05-01T12:03:00|None|2024-05-01T12:03:10|00:00:00|0|Partition_Limit
15|TIMEOUT|2024-05-01T12:04:00|Unknown|2024-05-01T12:40:00|05:30|2|05:00
"""
CSV = """\
job_id,submit_time,duration,num_gpus,user
a,1000,60,4,x
b,900,1-00:00:01,0.5,y
c,1100,nan,1,z
d,1100,5,0,z
"""
SAMPLES = {"swf": SWF, "damaged": SWF_DAMAGED, "sacct": SACCT, "csv": CSV}
