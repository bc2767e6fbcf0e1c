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

import httpx
import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.ratios import Ratio, at_most
from hesrpt import Client

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
_LOAD_SECONDS = 30.0
# How long the items take whose delay is measured, in seconds.
_PROBE_SECONDS = 0.05


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
    """Measure the processor time and the delay of items with and without many clients."""
    table = Table("clients", "submits/min", "CPU of the service", "between items", box=None)
    cpu, delay = {}, {}
    rate = _SUBMITS_PER_MINUTE
    with (
        tempfile.TemporaryDirectory() as name,
        start_service(Path(name) / "s") as (url, process),
    ):
        for watchers, submits in ((0, 0), (_WATCHERS, 0), (0, rate), (_WATCHERS, rate)):
            measured = _measure_phase(url, process, watchers, submits)
            cpu[watchers, submits], delay[watchers, submits], _ = measured
            table.add_row(
                str(watchers),
                f"{measured[2]:.0f}",
                f"{100 * measured[0]:.1f}% of a core",
                f"99%: {1000 * measured[1][0]:.1f} ms, worst: {1000 * measured[1][1]:.1f} ms",
            )
    console.print(table)
    loaded, idle = (_WATCHERS, rate), (0, 0)
    return [
        at_most(
            "CPU of 100 clients and 1,000 submits a minute / one core",
            cpu[loaded] - cpu[idle],
            0.1,
        ),
        at_most(
            "delay of an item by them (99 of 100 items) / 50 ms",
            max(delay[loaded][0] - delay[idle][0], 0.0) / 0.05,
            1.0,
        ),
    ]


def _measure_phase(
    url: str, process: psutil.Process, watchers: int, submits: int
) -> tuple[float, tuple[float, float], float]:
    """Return the share of a core that the service used, the time between items, and submits.

    Between the end of an item and the start of the next, 99 of 100 times less than the first number
    passed, and always less than the second. Submits are those a minute that were obeyed.
    """
    with Client(url) as client, watch(url, watchers), submit(url, submits):
        time.sleep(2.0)
        began, used = time.monotonic(), sum(process.cpu_times()[:2])
        before = _count_jobs(client)
        probe = client.map(_probe, range(int(_LOAD_SECONDS / _PROBE_SECONDS)), servers=1)
        spans = probe.results()
        seconds = time.monotonic() - began
        share = (sum(process.cpu_times()[:2]) - used) / seconds
        rate = 60 * (_count_jobs(client) - before) / seconds
    spans.sort()
    gaps = sorted(later[0] - earlier[1] for earlier, later in pairwise(spans))
    return share, (gaps[int(0.99 * len(gaps))], gaps[-1]), rate


def _count_jobs(client: Client) -> int:
    """Return how many jobs the submitters have added."""
    return next((int(each["jobs"]) for each in client.groups() if each["name"] == "load"), 0)


def _probe(item: int) -> tuple[float, float]:
    started = time.time()
    time.sleep(_PROBE_SECONDS)
    return started, time.time()


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


def _submit_steadily(url: str, per_minute: int) -> None:
    with Client(url) as client:
        began = time.monotonic()
        number = 0
        while True:
            number += 1
            client.add(["true"], name="submitted", group="load")
            due = began + number * 60 * _SUBMITTERS / per_minute
            time.sleep(max(due - time.monotonic(), 0.0))


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
