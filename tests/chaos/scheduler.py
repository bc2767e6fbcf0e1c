"""One life of a trial's scheduler: the process, and the faults that hit it while it runs."""

from __future__ import annotations

import os
import random
import resource
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from chaos.items import append_line, read_start_time
from chaos.processes import VARIABLE, Process, find_forks_of_script, find_marked
from hesrpt.engines.local.processes import die_with_parent

#: What may be killed, with how often; two names are killed at the same instant.
KILLS: dict[tuple[str, ...], int] = {
    ("scheduler",): 18,
    ("worker",): 35,
    ("guardian",): 8,
    ("supervisor",): 8,
    ("keeper",): 8,
    ("scheduler", "guardian"): 4,
    ("scheduler", "supervisor"): 4,
    ("scheduler", "worker"): 3,
    ("guardian", "supervisor"): 3,
    ("supervisor", "worker"): 2,
    ("supervisor", "keeper"): 2,
    ("keeper", "worker"): 3,
}
# The bytes that a file may have under a "file size limit".
_FILE_SIZE_LIMIT = 2_000_000


class Scheduler:
    """A running scheduler."""

    def __init__(
        self, command: list[str], *, mark: str, directory: Path, output: Path, role: str
    ) -> None:
        self.mark, self.directory = mark, directory
        self.role = role  # what it is called in counts of kills
        self.output, self.errors = output, output.with_suffix(".err")
        self.has_size_limit = False
        self.was_killed = False
        paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._command = command
        self.environment = {
            **os.environ,
            VARIABLE: mark,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONFAULTHANDLER": "1",
        }

    def start(self, has_size_limit: bool = False) -> None:
        """Start the process."""
        limit = _FILE_SIZE_LIMIT if has_size_limit else resource.RLIM_INFINITY
        with self.output.open("wb") as output, self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                self._command,
                stdout=output,
                stderr=errors,
                env=self.environment,
                preexec_fn=partial(_prepare, limit),
                start_new_session=True,
            )
        self.start_time = read_start_time(self.process.pid)

    def find_targets(self) -> dict[str, list[Process]]:
        """Return the processes of the run by their role."""
        targets: dict[str, list[Process]] = {}
        own = find_forks_of_script(self.directory) | {self.process.pid}
        for process in find_marked(self.mark):
            if process.pid not in own:
                targets.setdefault(process.role, []).append(process)
        if self.process.poll() is None:
            itself = Process(self.process.pid, self.start_time, "scheduler", "")
            targets["scheduler"] = [itself]
        return targets

    def kill_something(self, rng: random.Random, kills: Counter[str]) -> bool:
        """Kill one process, or two at the same instant; return whether there was one."""
        targets = self.find_targets()
        possible = {kill: weight for kill, weight in KILLS.items() if targets.keys() >= set(kill)}
        if not possible or (list(possible) == [("scheduler",)] and rng.random() < 0.95):
            return False
        (chosen,) = rng.choices(list(possible), list(possible.values()))
        victims = [rng.choice(targets[role]) for role in chosen]
        stops_first = len(victims) > 1 and rng.random() < 0.5
        if stops_first:  # so that none can react to the other's death
            for victim in victims:
                victim.send(signal.SIGSTOP)
        names = " ".join(
            f"{role}={victim.pid}" for role, victim in zip(chosen, victims, strict=True)
        )
        append_line(self.directory / "faults.log", time.monotonic(), "kill", names, stops_first)
        for role, victim in zip(chosen, victims, strict=True):
            self.was_killed |= role == "scheduler"
            if victim.kill():
                kills[" + ".join(chosen).replace("scheduler", self.role)] += 1
        return True

    def pause_something(self, rng: random.Random) -> None:
        """Stop a process for a moment."""
        targets = self.find_targets()
        if targets:
            victim = rng.choice(targets[rng.choice(sorted(targets))])
            append_line(self.directory / "faults.log", time.monotonic(), "pause", victim)
            if victim.send(signal.SIGSTOP):
                time.sleep(rng.choice([0.02, 0.2, 1.0]))
                victim.send(signal.SIGCONT)

    def abort(self) -> str:
        """End a scheduler that hangs; return where its threads were."""
        self.process.send_signal(signal.SIGABRT)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.process.kill()
        self.process.wait()
        return self.read_errors(4000)

    def read_errors(self, length: int = 600) -> str:
        """Return the end of what the scheduler wrote to standard error."""
        return self.errors.read_text(errors="replace")[-length:]


def hold_database_lock(database: Path, seconds: float) -> None:
    """Keep everybody else from writing to a database for a while."""
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(f"file:{database}?mode=rw", uri=True, timeout=5)) as connection,
    ):
        connection.execute("BEGIN IMMEDIATE")
        time.sleep(seconds)
        connection.rollback()


def _prepare(file_size_limit: int) -> None:
    """Prepare the new process: it must not outlive the campaign."""
    die_with_parent(signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_size_limit, resource.RLIM_INFINITY))
