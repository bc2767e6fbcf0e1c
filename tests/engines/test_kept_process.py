"""Helpers of the scheduler: what they return, and that they end when it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from support.service_process import list_processes_in
from support.waiting import wait_until

from hesrpt.engines.local.processes import list_children
from hesrpt.engines.local.supervisor_client import KeptProcess

# Starts three processes that sleep: itself, one with a session of its own, and a daemon.
_DETACHED = """
setsid sh -c 'sleep 600; : {place}' &
setsid sh -c "setsid sh -c 'sleep 600; : {place}' &" &
sleep 600; : {place}
"""
_OWNER = """
import sys
from hesrpt.engines.local.supervisor_client import KeptProcess
KeptProcess(["sh", "-c", sys.stdin.read()], output=1, errors=2).wait(600)
"""


@pytest.fixture
def output() -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as file:
        yield file


def start(line: str, output: IO[bytes], **options: str) -> KeptProcess:
    arguments = ["sh", "-c", line]
    descriptor = output.fileno()
    return KeptProcess(arguments, output=descriptor, errors=descriptor, variables=options)


def test_ends_are_reported(output: IO[bytes]) -> None:
    assert start("echo $GREETING; echo bad >&2; exit 3", output, GREETING="hi").wait(60) == 3
    assert start("kill -TERM $$", output).wait(60) == -signal.SIGTERM
    with pytest.raises(TimeoutError):
        start("sleep 600", output).wait(0.2)
    with pytest.raises(OSError, match="no-such-program: No such file or directory"):
        KeptProcess(["no-such-program"], output=output.fileno(), errors=1).wait(60)
    output.seek(0)
    assert output.read() == b"hi\nbad\n"


def test_any_thread_kills_it(output: IO[bytes], tmp_path: Path) -> None:
    process = start(_DETACHED.format(place=tmp_path), output)
    threading.Timer(0.3, process.kill).start()
    assert process.wait(60) == -signal.SIGKILL
    assert list_processes_in(tmp_path) == []
    process.kill()  # does nothing


def find_guardian(owner: int) -> int:
    (guardian,) = list_children(owner)
    return guardian


def find_supervisor(owner: int) -> int:
    (supervisor,) = list_children(find_guardian(owner))
    return supervisor


def start_owner(place: Path) -> subprocess.Popen[bytes]:
    """Start a process whose helper has detached children."""
    owner = subprocess.Popen([sys.executable, "-c", _OWNER], stdin=subprocess.PIPE)
    assert owner.stdin is not None
    with owner.stdin as lines:
        lines.write(_DETACHED.format(place=place).encode())
    return owner


def test_all_is_gone_when_one_process_above_is_killed(tmp_path: Path) -> None:
    finders: list[Callable[[int], int]] = [int, find_guardian, find_supervisor]
    places = [tmp_path / f"{number}." for number in range(len(finders))]
    owners = [start_owner(place) for place in places]
    for find_victim, place, owner in zip(finders, places, owners, strict=True):
        wait_until(lambda place=place: len(list_processes_in(place)) == 3, 60)  # type: ignore[misc]
        os.kill(find_victim(owner.pid), signal.SIGKILL)
    wait_until(lambda: not list_processes_in(tmp_path), 60)
    for owner in owners:
        owner.wait(60)
