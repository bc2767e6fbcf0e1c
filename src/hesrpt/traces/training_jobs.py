"""Jobs of a training cluster in JSON lines: iterations, and measured step times by workers.

Unlike other traces, these say how jobs speed up. A step that takes t(1) seconds on one worker and
t(k) on k is t(1)/t(k) times as fast there; the speedup of the job is the least concave function
above these points (:class:`hesrpt.Measured`). Its size is iterations · t(1).

A job may have ``goodput`` instead: throughputs (samples per second, by workers) and a statistical
efficiency for each of several batch sizes. Then it always uses the batch size with the greatest
product of both, and an iteration stands for ``batch_size`` samples at an efficiency of 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.files import Block
from hesrpt.speedups import Measured
from hesrpt.traces.building import UNREADABLE, RawJobs, TraceBuilder
from hesrpt.traces.json_jobs import check_labels, get_number, write_text
from hesrpt.traces.trace import Trace
from hesrpt.units import format_count
from hesrpt.validation import shorten

# A job that does not say how many servers it asks for gets the most on which it is this efficient.
_MIN_EFFICIENCY = 0.5
_MAX_VALUE = 1e15  # larger numbers, and smaller ones than its inverse, are mistakes
_MIN_RISE = 0.005  # worth a note


def is_training(line: str | bytes) -> bool:
    """Return whether a line is a training job, or says how many servers the cluster has."""
    record = _parse(line)
    return _is_header(record) or "step_seconds" in record or "goodput" in record


def read_training(text: Iterable[Block], builder: TraceBuilder) -> Trace:
    """Read a list of training jobs; of several workloads, the first."""
    lines = {
        place: line
        for block in text
        for place, line in enumerate(block.lines, block.first_line)
        if line.strip()
    }
    records = {place: _parse(line) for place, line in lines.items()}
    servers = _take_header(records, builder.source)
    workloads = {
        place: write_text(record.get("workload")) for place, record in records.items() if record
    }
    first = next(iter(workloads.values()), "")
    places = [place for place in records if workloads.get(place, first) == first]
    if len(places) < len(records):
        others = len(records) - len(places)
        builder.jobs_read += others
        builder.dropped["were of other workloads"] = others
        builder.notes.append(
            f"the file has {len(set(workloads.values()))} workloads, of which the first is "
            "replayed; for another one, pass only its lines"
        )
    used = [records[place] for place in places]
    check_labels(builder, used)
    jobs = [_describe(record) for record in used]

    def quote(job: int, column: str) -> str:
        return repr(jobs[job].runtime) if column else jobs[job].wrong or lines[places[job]]

    builder.expected["runtime"] = f"iterations and step_seconds that make at most {_MAX_VALUE:g} s"
    same: dict[Measured, Measured] = {}  # equal speedups are one object
    labels = {*builder.kept, *(["user"] if any("user" in record for record in used) else [])}
    builder.add(
        RawJobs(
            places=places,
            names=[
                write_text(record.get("job")) or str(number)
                for number, record in enumerate(used, 1)
            ],
            submit_times=np.array([job.arrival for job in jobs]),
            runtimes=np.array([job.runtime for job in jobs]),
            servers=np.array([job.requested for job in jobs]),
            start_times=np.full(len(jobs), np.nan),
            estimates=np.full(len(jobs), np.nan),
            defects={
                defect: np.array([job.defect == defect for job in jobs])
                for defect in dict.fromkeys(job.defect for job in jobs if job.defect)
            },
            quote=quote,
            labels={name: [write_text(record.get(name)) for record in used] for name in labels},
            speedups=[same.setdefault(job.speedup, job.speedup) for job in jobs],
        )
    )
    usable = [job for job in jobs if not job.defect]
    builder.notes += _describe_assumptions(usable)
    if servers is None and usable:
        servers = int(max(job.speedup.servers[-1] for job in usable))
        builder.notes.append(
            "the file does not say how many servers the cluster has: by default "
            f"{servers:,}, the most that any job was measured on"
        )
    return builder.build(machine_servers=servers)


def _parse(line: str | bytes) -> dict[str, Any]:
    """Return the object on a line; an empty one if the line is something else."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _is_header(record: Mapping[str, Any]) -> bool:
    return list(record) == ["servers"]


def _take_header(records: dict[int, dict[str, Any]], source: str) -> int | None:
    """Return the number of servers if the first line states it, and remove that line."""
    place = next(iter(records))
    if not _is_header(records[place]):
        return None
    servers = records.pop(place)["servers"]
    if not get_number(servers) >= 1 or servers != int(servers) or servers > _MAX_VALUE:
        raise InputError(
            f"{source}:{place}: servers must be a whole number of at least 1, got {servers!r}"
        )
    return int(servers)


@dataclass(frozen=True)
class _Job:
    """A job, or why it cannot be used."""

    arrival: float = np.nan
    runtime: float = np.nan  # on the servers that it asks for
    requested: float = np.nan
    has_asked: bool = True
    speedup: Measured = Measured([1], [1])
    rise: float = 0.0  # by what fraction the concave speedup exceeds a measured one, at most
    defect: str = ""
    wrong: str = ""  # the value that is to blame


class _Unusable(Exception):
    """The defect of a job, and the value that is to blame."""


def _describe(record: Mapping[str, Any]) -> _Job:
    try:
        if not record:
            raise _Unusable(UNREADABLE, "")
        arrival = get_number(record.get("arrival"))
        if not 0 <= arrival <= _MAX_VALUE:
            _refuse(record, "arrival", "that is not a number of seconds of at least 0")
        iterations = get_number(record.get("iterations"))
        if not 0 < iterations <= _MAX_VALUE:
            _refuse(record, "iterations", "that are not a number greater than 0")
        steps = _read_steps(record)
        workers = _read_workers(record, len(steps))
        measured = workers[0] * steps[0] / steps
        speedup = Measured(workers, measured)
        concave = speedup.rate(workers)
        requested = workers[concave >= _MIN_EFFICIENCY * workers].max()
        if has_asked := record.get("requested") is not None:
            requested = get_number(record["requested"])
            if not 1 <= requested <= _MAX_VALUE or requested != int(requested):
                _refuse(record, "requested", "that is not a whole number of at least 1")
    except _Unusable as unusable:
        defect, wrong = unusable.args
        return _Job(defect=defect, wrong=wrong)
    return _Job(
        arrival=arrival,
        runtime=iterations * steps[0] * workers[0] / float(speedup(requested)),
        requested=requested,
        has_asked=has_asked,
        speedup=speedup,
        # Past the peak, the job leaves workers idle.
        rise=float((concave / measured)[: measured.argmax() + 1].max()) - 1,
    )


def _refuse(record: Mapping[str, Any], key: str, why: str) -> None:
    value = record.get(key)
    raise _Unusable(f"had no {key}" if value is None else f"had {key} {why}", write_text(value))


def _read_steps(record: Mapping[str, Any]) -> FloatArray:
    """Return the seconds of a step by number of workers."""
    if record.get("goodput") is None:
        steps = _read_numbers(record.get("step_seconds"))
        if not len(steps) or not (steps >= 1 / _MAX_VALUE).all():
            _refuse(record, "step_seconds", "that are not a list of numbers greater than 0")
        return steps
    batch = get_number(record.get("batch_size"))
    if not 0 < batch <= _MAX_VALUE:
        _refuse(record, "batch_size", "that is not a number greater than 0")
    entries = record["goodput"] if isinstance(record["goodput"], list) else []
    goodputs = [
        get_number(entry.get("efficiency")) * _read_numbers(entry.get("throughput"))
        for entry in entries
        if isinstance(entry, dict)
    ]
    if len({len(each) for each in goodputs}) != 1 or len(goodputs) < len(entries):
        _refuse(record, "goodput", "without efficiency and throughput on as many workers for each")
    # A throughput of 0 says that a batch size does not fit.
    if not (np.array(goodputs) >= 0).all() or not (best := np.max(goodputs, axis=0)).all():
        _refuse(record, "goodput", "that is not greater than 0 on each number of workers")
    return batch / best


def _read_workers(record: Mapping[str, Any], number: int) -> FloatArray:
    """Return the numbers of workers that step times were measured on."""
    if record.get("workers") is None:
        return np.arange(1.0, number + 1)
    workers = _read_numbers(record["workers"])
    if not (workers >= 1).all() or (workers % 1).any() or (np.diff(workers) <= 0).any():
        _refuse(record, "workers", "that are not increasing whole numbers of at least 1")
    if len(workers) != number:
        _refuse(record, "workers", f"that are not as many as the step times")
    return workers


def _read_numbers(values: Any) -> FloatArray:
    """Return a list of numbers, with NaN for what is not a number or too large."""
    numbers = np.array([get_number(each) for each in values if isinstance(values, list)])
    return np.where(numbers <= _MAX_VALUE, numbers, np.nan)


def _describe_assumptions(jobs: list[_Job]) -> list[str]:
    """Return sentences on what is assumed of jobs."""
    notes = []
    number = sum(not job.has_asked for job in jobs)
    if number:
        notes.append(
            f"{format_count(number, 'job')} did not ask for a number of servers: under rigid "
            "policies, each gets the most on which it was measured to be at least "
            f"{_MIN_EFFICIENCY:.0%} as efficient as on one"
        )
    rise = max((job.rise for job in jobs), default=0.0)
    if rise > _MIN_RISE:
        notes.append(
            "measured speedups are made concave, so a job is up to "
            f"{rise:.0%} faster than it was measured to be"
        )
    return notes
