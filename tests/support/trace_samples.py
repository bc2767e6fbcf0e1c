"""A trace in each format, and assertions that hold for every trace.

All jobs are made up.
"""

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
# An array with tasks that never started, a heterogeneous job whose parts are apart, and steps.
SACCT_PARTS = """\
JobID|State|Submit|Start|End|Elapsed|AllocCPUS|Timelimit|
20_4|COMPLETED|2024-05-01T12:00:00|2024-05-01T12:00:00|2024-05-01T12:10:00|00:10:00|2|01:00:00|
20_4.batch|COMPLETED|2024-05-01T12:00:00|2024-05-01T12:00:00|2024-05-01T12:10:00|00:10:00|2||
20_[5-7,9%2]|PENDING|2024-05-01T12:00:00|Unknown|Unknown|00:00:00|2|01:00:00|
30+0|COMPLETED|2024-05-01T13:00:00|2024-05-01T13:01:00|2024-05-01T13:11:00|00:10:00|4|00:30:00|
30+0.0|COMPLETED|2024-05-01T13:01:00|2024-05-01T13:01:00|2024-05-01T13:11:00|00:10:00|4||
40|FAILED|2024-05-01T13:02:00|2024-05-01T13:02:00|2024-05-01T13:03:00|00:01:00|1|00:30:00|
30+1|COMPLETED|2024-05-01T13:00:00|2024-05-01T13:01:00|2024-05-01T13:10:30|00:09:30|32|00:45:00|
"""
SACCT_WITHOUT_HEADER = "".join(SACCT_PARTS.splitlines(keepends=True)[1:])
CSV_HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
81,u1,vcA,8,32,1,COMPLETED,2020-05-04 10:00:00,2020-05-04 10:00:20,2020-05-04 11:00:20,3600,20
82,u2,vcA,1,4,1,CANCELLED,2020-05-04 10:00:30,2020-05-04 10:00:30,2020-05-04 10:00:40,10,0
83,u2,vcB,0,4,1,FAILED,2020-05-04 10:05:00,2020-05-04 10:05:00,2020-05-04 10:06:00,60,0
"""
CSV_OPENB = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
pod-1,8000,30720,4,1000,,LS,Succeeded,1000,1600,1010
pod-2,4000,15360,1,250,V100M16|V100M32,BE,Running,1020,1060,1020
pod-3,4000,15360,0,0,,BE,Succeeded,1025,1060,1025
pod-4,4000,15360,1,1000,,LS,Pending,1030,1900,
"""
CSV_BATSIM = """\
job_id,workload_name,submission_time,requested_number_of_resources,requested_time,success,starting_time,\
execution_time,finish_time,waiting_time,turnaround_time,stretch
a,w0,10,4,100,1,15,60,75,5,65,1.08
b,w0,12,2,50,0,75,50,125,63,113,2.26
"""
BATSIM = """\
{"nb_res": 16,
 "jobs": [
  {"id": "waits", "subtime": 5, "res": 4, "profile": "short", "walltime": 100},
  {"id": 2, "subtime": 0, "res": 2, "profile": "twice"},
  {"id": "killed", "subtime": 7.5, "res": 1, "profile": "twice", "walltime": 50},
  {"id": "computes", "subtime": 8, "res": 8, "profile": "flops", "walltime": 300},
  {"id": "unknown", "subtime": 9, "res": 8, "profile": "flops"},
  {"id": "endless", "subtime": 9, "res": 8, "profile": "itself"}
 ],
 "profiles": {
  "short": {"type": "delay", "delay": 20.5},
  "long": {"type": "DelayProfile", "delay": 40},
  "twice": {"type": "composed", "repeat": 2, "seq": ["short", "long"]},
  "itself": {"type": "SequentialCompositionProfile", "seq": ["short", "itself"]},
  "flops": {"type": "parallel_homogeneous", "cpu": 1e9, "com": 0}
 }}
"""
ELASTISIM = """\
{"jobs": [
  {"type": "rigid", "submit_time": 0, "num_nodes": 4, "walltime": 900,
   "application_model": "/elsewhere/waiting_model.json", "arguments": {"steps": 10, "work": 80}},
  {"type": "malleable", "submit_time": 30, "num_nodes_min": 2, "num_nodes_max": 16,
   "application_model": "waiting_model.json", "arguments": {"steps": 10, "work": 80}},
  {"type": "moldable", "submit_time": 40, "num_nodes_min": 1, "num_nodes_max": 8, "walltime": 120,
   "application_model": "no_such_model.json"},
  {"type": "rigid", "submit_time": 50, "num_nodes": 1, "application_model": "no_such_model.json"}
]}
"""
SACCT_JSON = """\
{"meta": {"Slurm": {"release": "24.05.4"}},
 "jobs": [
  {"job_id": 51, "name": "new", "array": {"job_id": 0, "task_id": {"set": false, "number": 0}},
   "het": {"job_id": 0, "job_offset": {"set": false, "number": 0}},
   "state": {"current": ["COMPLETED"]},
   "time": {"submission": 1700000000, "start": 1700000060, "end": 1700000160, "elapsed": 100,
            "limit": {"set": true, "infinite": false, "number": 30}},
   "tres": {"allocated": [{"type": "mem", "count": 900}, {"type": "cpu", "count": 16}]},
   "required": {"CPUs": 8}},
  {"job_id": 53, "array": {"job_id": 52, "task_id": {"set": true, "number": 7}, "task": ""},
   "state": {"current": "TIMEOUT"},
   "time": {"submission": 1700000010, "start": 1700000010, "elapsed": 60, "limit": 1},
   "tres": {"allocated": []}, "required": {"CPUs": 3}},
  {"job_id": 52, "array": {"job_id": 52, "task_id": {"set": false, "number": 0}, "task": "8-12%2"},
   "state": {"current": ["PENDING"]},
   "time": {"submission": 1700000010, "start": 0, "end": 0, "elapsed": 0,
            "limit": {"set": false, "infinite": true, "number": 0}}},
  {"job_id": 61, "het": {"job_id": 61, "job_offset": {"set": true, "number": 0}},
   "state": {"current": ["COMPLETED"]},
   "time": {"submission": 1700000020, "start": 1700000030, "elapsed": 50},
   "tres": {"allocated": [{"type": "cpu", "count": 4}]}},
  {"job_id": 62, "het": {"job_id": 61, "job_offset": {"set": true, "number": 1}},
   "state": {"current": ["COMPLETED"]},
   "time": {"submission": 1700000020, "start": 1700000030, "elapsed": 45},
   "tres": {"allocated": [{"type": "cpu", "count": 20}]}}
 ],
 "errors": []}
"""
PHILLY = """\
[{"status": "Pass", "vc": "v1", "jobid": "application_1", "submitted_time": "2017-10-07 01:00:00",
  "attempts": [
   {"start_time": "2017-10-07 01:01:00", "end_time": "2017-10-07 01:02:00",
    "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]},
   {"start_time": "2017-10-07 02:00:00", "end_time": "2017-10-07 02:10:00",
    "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu5", "gpu7"]}]}]},
 {"status": "Killed", "vc": "v1", "jobid": "application_2", "submitted_time": "2017-10-07 00:59:00",
  "attempts": []},
 {"status": "Failed", "vc": "v1", "jobid": "application_3", "submitted_time": "2017-10-07 01:05:00",
  "attempts": [{"start_time": "2017-10-07 01:05:30", "end_time": null,
                "detail": [{"ip": "m3", "gpus": ["gpu0"]}]}]},
 {"status": "Failed", "vc": "v2", "jobid": "application_4", "submitted_time": "2017-10-07 01:06:00",
  "attempts": [{"start_time": null, "end_time": "2017-10-07 01:07:00", "detail": []},
               {"start_time": "2017-10-07 01:08:00", "end_time": "2017-10-07 01:08:30",
                "detail": [{"ip": "m3", "gpus": ["gpu0"]}]}]}
]
"""
# A job for each way to say how long a step takes, a blank line, and a job of another workload.
TRAINING = """\
{"cluster_servers": 8, "workload": 1, "job": "vision", "arrival": 100, "iterations": 60, \
"step_seconds": [2, 1, 0.8], "requested": 2, "user": "ann"}
{"workload": 1, "job": "ranking", "arrival": 90, "iterations": 5e2, "step_seconds": [0.5], \
"user": "bob"}
{"workload": 1, "arrival": 120.5, "iterations": 10, "workers": [2, 4, 8], \
"step_seconds": [3, 2, 2.5]}

{"workload": 1, "job": "language", "arrival": 130, "iterations": 100, "batch_size": 8, "goodput": \
[{"batch_size": 8, "efficiency": 1, "throughput": [4, 6]}, \
{"batch_size": 32, "efficiency": 0.75, "throughput": [0, 16]}]}
{"workload": 2, "job": "another", "arrival": 0, "iterations": 1, "step_seconds": [1]}
"""
SAMPLES = {
    "swf": SWF,
    "damaged": SWF_DAMAGED,
    "sacct": SACCT,
    "sacct with arrays and parts": SACCT_PARTS,
    "csv": CSV,
    "helios": CSV_HELIOS,
    "openb": CSV_OPENB,
    "batsim": BATSIM,
    "elastisim": ELASTISIM,
    "sacct --json": SACCT_JSON,
    "philly": PHILLY,
    "training": TRAINING,
}
