"""What all trials have in common: a directory, randomness, findings, and the end of processes."""

from __future__ import annotations

import os
import random
import shutil
import time
from abc import ABC, abstractmethod
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from chaos.evidence import Findings, check_copies
from chaos.items import get_events_path
from chaos.processes import Process, find_forks_of_script, find_marked, find_recorded

# How long processes may take to disappear after their scheduler, in seconds.
_ORPHAN_SECONDS = 20.0


@dataclass
class TrialReport:
    """What a trial did and found."""

    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)  # faults that are not kills
    lives: int = 0  # how often the scheduler was started
    items: int = 0
    longest_answer: float = 0.0  # of the HTTP API, in seconds
    findings: Findings = field(default_factory=Findings)
    directory: Path | None = None  # kept if something was found


class Trial(ABC):
    """A state directory whose scheduler is killed again and again."""

    def __init__(
        self, directory: Path, seed: int, *, max_kills: int, max_items: int, patience: float
    ) -> None:
        self.directory, self.patience = directory, patience
        self.rng = random.Random(seed)
        self.kills_left, self.max_items = max_kills, max_items
        self.mark = f"{seed}-{os.getpid()}"
        self.report = TrialReport(seed)
        self.findings = self.report.findings
        (directory / "locks").mkdir(parents=True)
        self.state = directory / "state"

    @property
    def database(self) -> Path:
        return self.state / "state.db"

    def run(self) -> TrialReport:
        """Run the trial to its end; clean up unless something was found."""
        try:
            self.run_lives()
        finally:
            self.check_orphans("at the end")
            for process in self.find_processes():
                process.kill()
            self.clean_up()
        check_copies(self.directory, self.findings)
        if self.findings.total:
            self.report.directory = self.directory
        else:
            shutil.rmtree(self.directory, ignore_errors=True)
        return self.report

    @abstractmethod
    def run_lives(self) -> None:
        """Start the scheduler until all is done, and check what it says."""

    @abstractmethod
    def clean_up(self) -> None:
        """Remove what the trial itself has set up."""

    def check_orphans(self, when: str) -> None:
        """Look for processes that have survived their scheduler."""
        deadline = time.monotonic() + _ORPHAN_SECONDS
        while (found := self.find_processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for process in found:
            self.findings.add("orphans", f"{when}: {process.pid} {process.command}")
            process.kill()  # so that it is counted once

    def find_processes(self) -> list[Process]:
        """Return the processes of this trial, without forks of the user's script."""
        forks = find_forks_of_script(self.directory)
        found = {*find_marked(self.mark), *find_recorded(self.directory)}
        alive = {process.pid: process for process in found if process.pid not in forks}
        return list(alive.values())

    def count_events(self) -> int:
        """Return a number that grows while items start and end."""
        with suppress(FileNotFoundError):
            return get_events_path(self.directory).stat().st_size
        return 0
