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
from collections.abc import Iterable
from typing import Any

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.files import Block
from hesrpt.speedups import Measured
from hesrpt.traces.building import RawJobs, TraceBuilder
from hesrpt.traces.json_jobs import get_member, get_number, write_text
from hesrpt.traces.trace import Trace
from hesrpt.units import format_count
from hesrpt.validation import shorten

# A job that does not say how many servers it asks for gets the most on which it is this efficient.
_MIN_EFFICIENCY = 0.8
_MAX_VALUE = 1e15  # larger numbers, and smaller ones than its inverse, are mistakes


def is_training(line: str | bytes) -> bool:
    """Return whether a line is a training job."""
    return not {"step_seconds", "goodput"}.isdisjoint(_parse(line))


def _parse(line: str | bytes) -> dict[str, Any]:
    """Return the object on a line; an empty one if the line is something else."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def read_training(text: Iterable[Block], builder: TraceBuilder) -> Trace:
    """Read a list of training jobs; of several workloads, the first. A bad line is an error."""
    records = {
        number: _parse(line)
        for block in text
        for number, line in enumerate(block.lines, block.first_line)
        if line.strip()
    }
    for number, record in records.items():
        if not record:
            raise InputError(f"{builder.source}:{number}: is not a JSON object")
    first = next(iter(records.values()))
    workload = first.get("workload")
    used = {line: each for line, each in records.items() if each.get("workload") == workload}
    if others := len(records) - len(used):
        builder.jobs_read += others
        builder.dropped["were of other workloads"] = others
        builder.notes.append(
            "the file has several workloads, of which the first is replayed; for another one, pass "
            "only its lines"
        )
    keys = {"user", *builder.kept}
    jobs = [_read_job(each, f"{builder.source}:{number}") for number, each in used.items()]
    arrivals, runtimes, requests, speedups = zip(*jobs, strict=True)
    builder.add(
        RawJobs(
            places=list(used),
            names=[write_text(each.get("job")) or str(number) for number, each in used.items()],
            submit_times=np.array(arrivals),
            runtimes=np.array(runtimes),
            servers=np.array(requests),
            start_times=np.full(len(jobs), np.nan),
            estimates=np.full(len(jobs), np.nan),
            defects={},
            quote=lambda job, column: f"{runtimes[job]:g}",  # all other values are good
            labels={key: [write_text(each.get(key)) for each in used.values()] for key in keys},
            speedups=speedups,
        )
    )
    if number := sum("requested" not in record for record in used.values()):
        builder.notes.append(
            f"{format_count(number, 'job')} did not ask for a number of servers: under rigid "
            "policies, each gets the most on which it was measured to be at least "
            f"{_MIN_EFFICIENCY:.0%} as efficient as on one"
        )
    servers = int(first.get("cluster_servers", max(speedup.servers[-1] for speedup in speedups)))
    if "cluster_servers" not in first:
        builder.notes.append(
            "the file does not say how many servers the cluster has: by default "
            f"{servers:,}, the most that any job was measured on"
        )
    return builder.build(machine_servers=servers)


def _read_job(record: dict[str, Any], place: str) -> tuple[float, float, float, Measured]:
    """Return when a job arrives, how long it runs, on how many servers, and its speedup."""

    def check(is_good: object, key: str, expected: str) -> None:
        if not is_good:
            got = shorten(write_text(record[key])) if key in record else "nothing"
            raise InputError(f"{place}: {key} must be {expected}, got {got}")

    arrival, iterations, batch = (
        get_number(record.get(key)) for key in ("arrival", "iterations", "batch_size")
    )
    check(0 <= arrival <= _MAX_VALUE, "arrival", "a number of seconds of at least 0")
    check(0 < iterations <= _MAX_VALUE, "iterations", "a number greater than 0")
    if "goodput" not in record:
        steps = _read_numbers(record.get("step_seconds"))
        check(_are_positive(steps), "step_seconds", "a list of numbers greater than 0")
    else:
        goodput = _read_goodput(record["goodput"])
        check(_are_positive(goodput), "goodput", "objects with efficiency and throughput")
        check(0 < batch <= _MAX_VALUE, "batch_size", "a number greater than 0")
        steps = batch / goodput
    workers = np.arange(1.0, len(steps) + 1)
    if "workers" in record:
        workers = _read_numbers(record["workers"])
        is_rising = _are_positive(np.diff(workers, prepend=0)) and not (workers % 1).any()
        check(is_rising, "workers", "a list of increasing whole numbers of at least 1")
        check(len(workers) == len(steps), "workers", "as many numbers as there are step times")
    for key in ("requested", "cluster_servers"):
        number = get_number(record.get(key, 1))
        check(1 <= number <= _MAX_VALUE and number % 1 == 0, key, "a whole number of at least 1")
    speedup = Measured(workers, workers[0] * steps[0] / steps)
    efficient = workers[speedup.rate(workers) >= _MIN_EFFICIENCY * workers].max()
    requested = float(record.get("requested", efficient))
    runtime = iterations * workers[0] * steps[0] / float(speedup(requested))
    return arrival, runtime, requested, speedup


def _are_positive(numbers: FloatArray) -> bool:
    return len(numbers) > 0 and bool((numbers >= 1 / _MAX_VALUE).all())


def _read_numbers(values: Any) -> FloatArray:
    """Return a list of numbers, with NaN for what is negative, too large or not a number."""
    numbers = np.array([get_number(each) for each in values] if isinstance(values, list) else [])
    return np.where((numbers >= 0) & (numbers <= _MAX_VALUE), numbers, np.nan)


def _read_goodput(entries: Any) -> FloatArray:
    """Return the greatest efficiency times throughput by workers; empty if lists do not match."""
    goodputs = [
        _read_numbers([get_member(each, "efficiency")])
        * _read_numbers(get_member(each, "throughput"))
        for each in (entries if isinstance(entries, list) else [])
    ]
    matches = len({len(each) for each in goodputs}) == 1
    return np.max(goodputs, axis=0) if matches else np.empty(0)
