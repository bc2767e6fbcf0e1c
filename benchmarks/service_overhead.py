"""What the service costs: against ``hesrpt run``, and while many clients watch and submit."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise, repeat
from pathlib import Path
from typing import NamedTuple

import httpx
import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.ratios import Ratio, at_most
from hesrpt import Client
from hesrpt.scheduler.requests import submit_jobs
from hesrpt.service.job_requests import read_jobs

_HESRPT = [sys.executable, "-m", "hesrpt"]
_JOB = """
[[job]]
name = "job {0}"
items = {{range = [0, {1}]}}
command = "sleep 0.02 && : {{item}}"
"""
_JOBS = "".join(_JOB.format(number, 40 * number) for number in (1, 2, 3))
_WATCHERS, _SUBMITS_PER_MINUTE = 100, 1000
_SUBMITTERS = 4
_LOAD_SECONDS, _IDLE_SECONDS = 20.0, 5.0
_START_SECONDS = 3.0
# How long the items take whose delay is measured, in seconds.
_PROBE_SECONDS = 0.05
_PROBE = f"date +%s.%N && sleep {_PROBE_SECONDS} && date +%s.%N && : {{item}}"


def measure_overhead(console: Console) -> list[Ratio]:
    """Run the same jobs by ``hesrpt run`` and by a service that somebody watches."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "jobs.toml").write_text(_JOBS)
        command = [*_HESRPT, "run", "jobs.toml", "--servers", "2", "--state", "run", "--json"]
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True)
        run_times = [job["flow_time"] for job in json.loads(done.stdout)["jobs"]]
        with (
            start_service(directory / "service") as (url, _),
            Client(url) as client,
            watch(url, 1),
        ):
            jobs = client.submit(directory / "jobs.toml")
            service_times = [job.wait().flow_time or 0.0 for job in jobs]
    table = Table("", "mean flow time", box=None)
    means = {"run": _mean(run_times), "serve": _mean(service_times)}
    for program, mean in means.items():
        table.add_row(f"hesrpt {program}", f"{mean:.3f} s")
    console.print(table)
    return [
        at_most("mean flow time, hesrpt serve / hesrpt run", means["serve"] / means["run"], 1.1)
    ]


def measure_load(console: Console) -> list[Ratio]:
    """Measure what many clients cost the service: processor time, and delays of items.

    One job with many short items runs all the time, and shows the delays. Running the jobs that the
    clients submit costs something too, however they come, so the same jobs are also added through
    the state directory.
    """
    table = Table("jobs come", "clients", "a minute", "CPU", "between items", box=None)
    rate = _SUBMITS_PER_MINUTE
    found = {}
    with tempfile.TemporaryDirectory() as name:
        state = Path(name) / "s"
        with start_service(state) as (url, process):
            idle = _measure_idle(process)
            table.add_row("nothing runs", "0", "0", f"{100 * idle:.1f}% of a core", "")
            for way, place, watchers, submits in (
                ("not at all", url, 0, 0),
                ("by directory", str(state), 0, rate),
                ("by HTTP", url, 0, rate),
                ("by HTTP", url, _WATCHERS, rate),
            ):
                with watch(url, watchers), submit(place, submits):
                    phase = _measure_phase(url, process)
                found[way, watchers] = phase
                table.add_row(
                    way,
                    str(watchers),
                    f"{phase.submits:.0f}",
                    f"{100 * phase.cpu:.1f}% of a core",
                    f"half: {1000 * phase.middle_gap:.1f} ms, "
                    f"99%: {1000 * phase.usual_gap:.1f} ms, worst: {1000 * phase.worst_gap:.1f} ms",
                )
    console.print(table)
    loaded, unloaded = found["by HTTP", _WATCHERS], found["not at all", 0]
    clients = "CPU of 100 clients and 1,000 submits a minute / one core"
    return [
        at_most(f"{clients}, over a service without them", loaded.cpu - unloaded.cpu, 0.1),
        at_most(
            f"{clients}, over the same jobs by directory",
            loaded.cpu - found["by directory", 0].cpu,
            0.1,
        ),
        at_most(
            "worst delay of an item by them / 50 ms",
            (loaded.worst_gap - unloaded.middle_gap) / 0.05,
            1.0,
        ),
    ]


class _Phase(NamedTuple):
    """What was measured while the service had something to do."""

    cpu: float  # the share of a core that it used
    middle_gap: float  # the median time between an item and the next
    usual_gap: float  # 99 of 100 times, less than this passed
    worst_gap: float
    submits: float  # that were obeyed, a minute


def _measure_idle(process: psutil.Process) -> float:
    """Return the share of a core that the service uses while it has nothing to do."""
    time.sleep(_START_SECONDS)
    # After its start, it loads what it needs for many jobs, or compiles that.
    while _measure_share(process, 1.0) > 0.1:
        pass
    return _measure_share(process, _IDLE_SECONDS)


def _measure_share(process: psutil.Process, seconds: float) -> float:
    used = _read_cpu_time(process)
    time.sleep(seconds)
    return (_read_cpu_time(process) - used) / seconds


def _read_cpu_time(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _measure_phase(url: str, process: psutil.Process) -> _Phase:
    with Client(url) as client:
        time.sleep(2.0)
        began, used = time.monotonic(), _read_cpu_time(process)
        before = _count_jobs(client)
        items = list(range(int(_LOAD_SECONDS / _PROBE_SECONDS)))
        probe = client.add(_PROBE, items=items, name="probe", servers=1)
        probe.wait()
        seconds = time.monotonic() - began
        share = (_read_cpu_time(process) - used) / seconds
        rate = 60 * (_count_jobs(client) - before) / seconds
        spans = sorted(_read_span(each.text) for each in client.read_logs(probe.name))
    gaps = sorted(later[0] - earlier[1] for earlier, later in pairwise(spans))
    middle, usual = gaps[len(gaps) // 2], gaps[int(0.99 * len(gaps))]
    return _Phase(share, middle, usual, gaps[-1], rate)


def _count_jobs(client: Client) -> int:
    """Return how many jobs the submitters have added."""
    return next((int(each["jobs"]) for each in client.groups() if each["name"] == "load"), 0)


def _read_span(text: str) -> tuple[float, float]:
    """Return when an item of the probe began and ended."""
    began, ended = map(float, text.split())
    return began, ended


# --- the service and its clients ----------------------------------------------------------------


@contextmanager
def start_service(
    state: Path, *options: str, servers: int = 2
) -> Iterator[tuple[str, psutil.Process]]:
    """Run a service; yield its URL with the token, and its process."""
    command = [*_HESRPT, "serve", "--state", str(state), "--servers", str(servers), "--port", "0"]
    with subprocess.Popen(
        [*command, "--on-stop", "stop", *options], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if found := re.search(r"open +(http\S+)", line):
                    break
            else:
                raise RuntimeError("the service has not started")
            yield found[1], psutil.Process(process.pid)
        finally:
            process.terminate()


@contextmanager
def watch(url: str, clients: int) -> Iterator[None]:
    """Let clients follow the events, in a process of their own."""
    with _run_in_process(_watch, url, clients):
        yield


@contextmanager
def submit(url: str, per_minute: int) -> Iterator[None]:
    """Add jobs that do nothing at a steady rate, in a process of its own."""
    with _run_in_process(_submit, url, per_minute):
        yield


@contextmanager
def _run_in_process(target: object, url: str, number: int) -> Iterator[None]:
    if number == 0:
        yield
        return
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=target, args=(url, number), daemon=True)  # type: ignore[arg-type]
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def _watch(url: str, clients: int) -> None:
    address, _, token = url.partition("/?token=")

    async def follow(http: httpx.AsyncClient) -> None:
        async with http.stream("GET", "/api/v1/events") as answer:
            async for _ in answer.aiter_raw():
                pass

    async def follow_all() -> None:
        headers = {"Authorization": f"Bearer {token}"}
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(
            base_url=address, headers=headers, timeout=None, limits=limits
        ) as http:
            await asyncio.gather(*(follow(http) for _ in range(clients)))

    asyncio.run(follow_all())


def _submit(url: str, per_minute: int) -> None:
    """Submit from several threads, so that one that waits for its answer holds up no other."""
    with ThreadPoolExecutor(_SUBMITTERS) as threads:
        list(threads.map(_submit_steadily, repeat(url, _SUBMITTERS), repeat(per_minute)))


def _submit_steadily(place: str, per_minute: int) -> None:
    """Submit jobs to the URL of a service, or to its state directory."""
    client = Client(place) if place.startswith("http") else None
    (spec,) = read_jobs({"name": "submitted", "command": ["true"], "group": "load"}, ())
    began = time.monotonic()
    number = 0
    while True:
        number += 1
        if client is None:
            submit_jobs(Path(place), [spec])
        else:
            client.add(["true"], name="submitted", group="load")
        due = began + number * 60 * _SUBMITTERS / per_minute
        time.sleep(max(due - time.monotonic(), 0.0))


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
