"""What a trial runs: random jobs of random items, for a pool's script or for ``hesrpt run``."""

from __future__ import annotations

import random
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos import items as items_module
from chaos.items import BARRED, Item
from chaos.script import RETRIES

# How items of Python jobs and of commands may misbehave. A command that exits with code 0 is done.
_PYTHON_KINDS = [
    *("exit", "exec", "child", "crash", "hang", "fork", "daemon", "bare daemon", "error", "noise")
]
_COMMAND_KINDS = [kind for kind in _PYTHON_KINDS if kind not in ("exit", "exec")]
# A misbehaving item hangs until this time limit, in seconds.
_TIMEOUT = 3.0


@dataclass
class PlannedJob:
    """A job of a trial."""

    name: str
    items: list[Item]
    is_streamed: bool = False
    resize: str | None = None  # for a command on several servers
    in_shell: bool = False
    is_barred: bool = False  # whether its items fail until the trial lets them pass
    options: dict[str, Any] = field(default_factory=dict)  # other keys of the API
    on_error: str | None = None  # if set, failed items are retried by hand, not by the scheduler

    @property
    def keys(self) -> list[str]:
        return [item.key for item in self.items]


@dataclass
class Plan:
    """The jobs of a trial, and which faults of disks it has."""

    uses_pool: bool  # a script with a pool; otherwise ``hesrpt run``
    servers: int
    jobs: list[PlannedJob]
    calls: list[Item] = field(default_factory=list)  # submitted to an executor
    forks: bool = False  # whether the script forks
    edits: bool = False  # whether each resume gives other items, and in another order
    disk_fault: str | None = None  # "full disk" or "file size limit", in the first life


def create_plan(rng: random.Random, directory: Path) -> Plan:
    """Create a random plan."""
    servers = rng.choice([2, 3, 4])
    disk_fault = rng.choice([*[None] * 8, "full disk", "file size limit"])
    if rng.random() < 0.55 or disk_fault:
        jobs = [_create_python_job(rng, directory, n) for n in range(rng.randint(1, 4))]
        if disk_fault:
            big = [_create_item(directory, f"d-{n}", rng, size=700_000) for n in range(20)]
            jobs.append(PlannedJob("disk", big))
        calls = [_create_item(directory, f"call-{n}", rng) for n in range(rng.choice([0, 8]))]
        return Plan(
            uses_pool=True,
            servers=servers,
            jobs=jobs,
            calls=calls,
            forks=rng.random() < 0.2,
            edits=rng.random() < 0.4,
            disk_fault=disk_fault,
        )
    jobs = [_create_command_job(rng, directory, f"job{n}") for n in range(rng.randint(1, 3))]
    if rng.random() < 0.6:
        jobs.append(_create_wide_job(rng, directory, "wide", rng.uniform(0.5, 2)))
    return Plan(uses_pool=False, servers=servers, jobs=jobs)


def _create_python_job(rng: random.Random, directory: Path, number: int) -> PlannedJob:
    name = rng.choice(["twin", f"job{number}"])  # two jobs may have the same name
    count = rng.randint(5, 70)
    items = []
    for n in range(count):
        kind, size = "plain", 0
        if rng.random() < 0.15:
            kind = rng.choice(_PYTHON_KINDS)
        elif rng.random() < 0.12:
            size = rng.choice([200_000, 3_000_000, 12_000_000])
            if rng.random() < 0.05:
                size = 50_000_000
        items.append(_create_item(directory, f"{number}-{n}", rng, kind, size))
    if rng.random() < 0.3:
        items += [_create_item(directory, f"{number}-again", rng, "repeated", 100)] * 3
    on_error = rng.choice([None, None, "raise", "keep"])
    return PlannedJob(name, items, is_streamed=rng.random() < 0.4, on_error=on_error)


def _create_command_job(rng: random.Random, directory: Path, name: str) -> PlannedJob:
    prefix = f"{name}-{rng.randrange(10**9)}"
    items = []
    for n in range(rng.randint(3, 50)):
        kind = rng.choice(_COMMAND_KINDS) if rng.random() < 0.15 else "plain"
        items.append(_create_item(directory, f"{prefix}-{n}", rng, kind))
    return PlannedJob(name, items, in_shell=rng.random() < 0.6)


def _create_wide_job(rng: random.Random, directory: Path, key: str, seconds: float) -> PlannedJob:
    resize = rng.choice(["restart", "restart", "affinity", "never"])
    item = Item(str(directory), key, rng.choice(["plain", "child"]), seconds)
    return PlannedJob("wide", [item], resize=resize, in_shell=rng.random() < 0.5)


def create_served_job(rng: random.Random, directory: Path) -> PlannedJob:
    """Create a job for a service: of commands, a command on several servers, or one that fails."""
    if rng.random() < 0.15:
        key = f"wide-{rng.randrange(10**9)}"
        return _create_wide_job(rng, directory, key, round(rng.uniform(0.2, 1.0), 3))
    job = _create_command_job(rng, directory, rng.choice(["twin", "job0", "job1", "job2"]))
    del job.items[rng.randint(1, 10) :]
    if rng.random() < 0.2:
        job.is_barred, job.options = True, {"retries": 0}
        job.items = [item._replace(kind=BARRED) for item in job.items]
    return job


def _create_item(
    directory: Path, key: str, rng: random.Random, kind: str = "plain", size: int = 0
) -> Item:
    seconds = round(rng.choice([0.0, 0.02, 0.1, 0.4]) * rng.random(), 4)
    return Item(str(directory), key, kind, seconds, size)


def edit_items(rng: random.Random, job: PlannedJob, directory: Path, life: int) -> None:
    """Change the items of a job as a user may between two runs: remove, add, reorder."""
    if rng.random() < 0.3:
        job.items.pop(rng.randrange(len(job.items)))
    if rng.random() < 0.3 or not job.items:
        key = f"{job.name}-{life}-{rng.randrange(10**9)}"
        job.items.append(_create_item(directory, key, rng))
    rng.shuffle(job.items)


def create_submission(rng: random.Random, directory: Path) -> PlannedJob:
    """Create a job to submit; its name may be taken."""
    job = _create_command_job(rng, directory, rng.choice(["job0", "job1", "late"]))
    job.items = job.items[:8]
    return job


def describe_for_script(jobs: list[PlannedJob]) -> list[dict[str, Any]]:
    """Return Python jobs as the script reads them."""
    return [
        {
            "name": job.name,
            "items": job.items,
            "is_streamed": job.is_streamed,
            "on_error": job.on_error,
            "timeout": _TIMEOUT if any(item.kind == "hang" for item in job.items) else None,
        }
        for job in jobs
    ]


def describe_for_service(job: PlannedJob) -> dict[str, Any]:
    """Return a job of commands as the HTTP API takes it; a jobs file has the same keys."""
    program = [sys.executable, "-S", "-E", str(Path(items_module.__file__).resolve())]
    program.append(job.items[0].directory)
    arguments = [f"{item.key}/{item.kind}/{item.seconds}" for item in job.items]
    argument = "{item}" if job.resize is None else arguments[0]
    command: str | list[str] = [*program, argument]
    if job.in_shell:  # the shell stays, as the parent of the program
        quoted = argument if job.resize is None else shlex.quote(argument)
        command = f"{shlex.join(program)} {quoted}; exit $?"
    values: dict[str, Any] = {"name": job.name, "command": command}
    values |= {"retries": RETRIES, "timeout": _TIMEOUT, "p": 0.8}
    if job.resize is None:
        return values | {"items": arguments} | job.options
    return values | {"resize": job.resize, "restart_cost": 0.01} | job.options


def write_jobs_file(jobs: list[PlannedJob], path: Path) -> None:
    """Write commands to a jobs file."""
    tables = []
    for job in jobs:
        keys = describe_for_service(job).items()
        tables.append("\n".join(["[[job]]", *(f"{key} = {value!r}" for key, value in keys)]))
    path.write_text("\n\n".join(tables) + "\n")
