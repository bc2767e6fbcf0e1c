"""What Slurm's commands say: whether it takes a script, and what has become of jobs."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import subprocess
from pathlib import Path

from hesrpt.engines.slurm.pilots import SlurmState
from hesrpt.errors import InputError
from hesrpt.units import parse_duration

# Seconds that a command may take: a busy controller can be slow.
_COMMAND_SECONDS = 60.0
_WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
_RUNNING = {"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}


def check_commands() -> None:
    """Raise an error if Slurm's commands are not there."""
    missing = [name for name in ("sbatch", "squeue", "scancel") if shutil.which(name) is None]
    if missing:
        raise InputError(
            f"engine 'slurm' needs Slurm's commands, but {missing[0]} is not on the PATH: run "
            "hesrpt where you submit jobs to Slurm, for instance on a login node"
        )


def check_script(script: Path) -> None:
    """Raise an error if Slurm would not take a job script; nothing is submitted."""
    done = _run("sbatch", "--test-only", str(script))
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise InputError(f"Slurm refuses the pilots: {'; '.join(lines) or 'it says nothing'}")


def list_jobs(name: str) -> dict[str, tuple[SlurmState, float]] | None:
    """Return the jobs of this name that have not ended, with the seconds left of their walltimes.

    None if Slurm does not answer.
    """
    try:
        done = _run("squeue", "--noheader", f"--name={name}", "--format=%i|%T|%L")
    except (OSError, subprocess.SubprocessError):
        return None
    if done.returncode != 0:
        return None
    return dict(parse_queue(done.stdout))


def parse_queue(text: str) -> list[tuple[str, tuple[SlurmState, float]]]:
    """Return the jobs in the output of squeue that wait or run; others are ending.

    >>> parse_queue("7|RUNNING|1:30:00")
    [('7', (<SlurmState.RUNNING: 'running'>, 5400.0))]
    """
    jobs = []
    for line in text.splitlines():
        job, state, left = line.strip().split("|")
        if state in _WAITING:
            jobs.append((job, (SlurmState.WAITING, math.inf)))
        elif state in _RUNNING:
            jobs.append((job, (SlurmState.RUNNING, _parse_left(left))))
    return jobs


def cancel_jobs(name: str) -> None:
    """Cancel all jobs of this name; those that have ended stay as they are."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        _run("scancel", f"--name={name}")


def _parse_left(text: str) -> float:
    """Return the seconds left of a walltime.

    >>> _parse_left("1-00:00:10"), _parse_left("UNLIMITED")
    (86410.0, inf)
    """
    try:
        return parse_duration(text)
    except ValueError:
        return math.inf


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_COMMAND_SECONDS,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "LC_ALL": "C"},
    )
