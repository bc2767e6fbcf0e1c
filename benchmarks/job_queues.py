"""When the same mixed jobs end in the queues of hesrpt, task-spooler and GNU parallel."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.ratios import Ratio, at_least
from benchmarks.service_overhead import start_service
from hesrpt import Client

_SERVERS = 4
# The jobs in the order in which they are added: name, items, and seconds of each item.
_JOBS = (("large", 80, 0.1), ("medium", 24, 0.1), ("small", 8, 0.1), ("tiny", 4, 0.05))

#: The end of each job, in seconds after all were added.
Ends = dict[str, float]


def compare_queues(console: Console) -> list[Ratio]:
    """Show the mean flow time of the same jobs in each queue; leave out what is not installed."""
    table = Table("queue", *(name for name, _, _ in _JOBS), "mean flow time", box=None)
    means: dict[str, float] = {}
    queues: dict[str, tuple[str, Callable[[Path], Ends]]] = {
        "hesrpt serve": ("", _run_hesrpt),
        "task-spooler": ("tsp", _run_task_spooler),
        "GNU parallel": ("parallel", _run_parallel),
    }
    for queue, (program, run) in queues.items():
        if program and shutil.which(program) is None:
            console.print(f"{queue} is left out: the program {program} is not installed")
            continue
        with tempfile.TemporaryDirectory() as directory:
            ends = run(Path(directory))
        means[queue] = sum(ends.values()) / len(ends)
        cells = [f"{ends[name]:.2f} s" for name, _, _ in _JOBS]
        table.add_row(queue, *cells, f"{means[queue]:.2f} s")
    console.print(table)
    own = means.pop("hesrpt serve")
    return [
        at_least(f"mean flow time, {queue} / hesrpt serve", mean / own, 1.2)
        for queue, mean in means.items()
    ]


def _run_hesrpt(directory: Path) -> Ends:
    with start_service(directory / "s", servers=_SERVERS) as (url, _), Client(url) as client:
        client.add("true").wait()  # so that the first process has been started
        added = client.submit(
            [
                {
                    "name": name,
                    "items": list(range(items)),
                    "command": f"sleep {seconds} # {{item}}",
                }
                for name, items, seconds in _JOBS
            ]
        )
        return {job.name: job.wait().flow_time or 0.0 for job in added}


def _run_task_spooler(directory: Path) -> Ends:
    """Add each item as a task: task-spooler runs them in order of arrival."""
    variables = os.environ | {
        "TS_SOCKET": str(directory / "socket"),
        "TMPDIR": str(directory),
        "TS_MAXFINISHED": "1000",
    }

    def call(*words: str) -> str:
        done = subprocess.run(
            ["tsp", *words], env=variables, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    call("-S", str(_SERVERS))
    try:
        began = time.monotonic()
        tasks: dict[str, list[str]] = {}
        for name, items, seconds in _JOBS:
            # Not with -n: task-spooler then prints no number of the task to wait for.
            tasks[name] = [call("sleep", str(seconds)) for _ in range(items)]
        ends: Ends = {}

        def wait(name: str) -> None:
            for task in tasks[name]:
                call("-w", task)
            ends[name] = time.monotonic() - began

        _run_at_once(wait)
        return ends
    finally:
        call("-K")


def _run_parallel(directory: Path) -> Ends:
    """Give GNU parallel the items of all jobs in order of arrival; its log has their ends."""
    log = directory / "log"
    variables = os.environ | {"HOME": str(directory)}
    words = [
        "parallel",
        "--will-cite",
        "-j",
        str(_SERVERS),
        "--joblog",
        str(log),
        "sleep {}",
        ":::",
    ]
    seconds = [str(seconds) for _, items, seconds in _JOBS for _ in range(items)]
    began = time.time()
    subprocess.run([*words, *seconds], env=variables, check=True, capture_output=True)
    rows = [line.split("\t") for line in log.read_text().splitlines()[1:]]
    item_ends = {int(row[0]): float(row[2]) + float(row[3]) - began for row in rows}
    ends, last = {}, 0
    for name, items, _ in _JOBS:
        ends[name] = max(item_ends[number] for number in range(last + 1, last + items + 1))
        last += items
    return ends


def _run_at_once(run: Callable[[str], None]) -> None:
    threads = [threading.Thread(target=run, args=(name,)) for name, _, _ in _JOBS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
