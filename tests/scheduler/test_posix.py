"""Without POSIX, planning and simulating work, and the live scheduler says what it needs."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

SLOW = partial(pytest.param, marks=pytest.mark.slow)

# As on Windows. Other POSIX modules stay: psutil needs them where this test runs.
WITHOUT_POSIX = """
import os, sys
sys.modules["fcntl"] = None
del os.getuid, os.killpg
"""


def run_without_posix(script: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX + script],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        timeout=120,
    )


def test_planning_and_simulating_work_without_posix(tmp_path: Path) -> None:
    done = run_without_posix(
        "import hesrpt\n"
        "workload = hesrpt.Workload([9, 4, 1], hesrpt.PowerLaw(0.5))\n"
        "print(round(hesrpt.plan(workload, servers=10).mean_flow_time, 4))\n"
        "print(round(hesrpt.simulate(workload, 10, 'hesrpt').mean_flow_time, 4))\n"
        "print(hesrpt.Pool.__name__, hesrpt.Job.__name__)\n",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    planned, simulated, names = done.stdout.splitlines()
    assert planned == simulated
    assert names == "Pool Job"


@pytest.mark.parametrize("state", ["state='s', resume=True", *map(SLOW, ("", "state='s'"))])
def test_pool_without_posix_says_what_it_needs(tmp_path: Path, state: str) -> None:
    done = run_without_posix(
        "import hesrpt\n"
        "try:\n"
        f"    hesrpt.Pool({state})\n"
        "except hesrpt.InputError as error:\n"
        "    print(error)\n",
        tmp_path,
    )
    assert done.stdout.startswith("the live scheduler needs Linux or macOS"), done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command", ["run jobs.toml", *map(SLOW, ("status s", "submit s jobs.toml"))]
)
def test_commands_without_posix_say_what_they_need(tmp_path: Path, command: str) -> None:
    (tmp_path / "jobs.toml").write_text('[[job]]\nname = "a"\ncommand = "true"\n')
    (tmp_path / "s").mkdir()
    done = run_without_posix(
        f"sys.argv = ['hesrpt', *{command.split()}]\nfrom hesrpt.cli.main import main\nmain()\n",
        tmp_path,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("hesrpt: the live scheduler needs Linux or macOS")
    assert "Traceback" not in done.stderr
