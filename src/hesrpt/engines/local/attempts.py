"""An attempt to run an item, and how the process that ran it ended."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from hesrpt.engines.engine import Task


@dataclass(eq=False)
class Attempt:
    """One start of an item, which may be stopped and started again."""

    job: str
    item: int
    task: Task
    is_stopped: bool = False  # reported only if it is done nevertheless
    is_suspended: bool = False  # it goes on, or starts, only when it is resumed

    @property
    def key(self) -> tuple[str, int]:
        """The job and the number of the item."""
        return self.job, self.item


def describe_end(status: int | None) -> str:
    """Describe the exit status of a process, as of ``os.waitpid``."""
    if status is None:
        return "killed"
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"ended by signal {-code}, {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal has no name
        return f"ended by signal {-code}"
