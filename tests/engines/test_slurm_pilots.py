"""The Slurm engine without a Slurm: its options, and pilots that are processes of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.fake_slurm import install_fake_slurm
from support.processes import is_running
from support.shell import assert_refused, call
from support.waiting import wait_until

from hesrpt import InputError, Pool
from hesrpt.engines import SlurmEngine
from hesrpt.engines.slurm.pilots import describe_pilots
from hesrpt.engines.slurm.slurm_engine import parse_queue


def test_pilots_run_items_and_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = install_fake_slurm(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    engine = SlurmEngine(
        max_pilots=1, cores=2, idle="0s", poll="0.2s", directory=tmp_path / "shared"
    )
    with Pool(engine=engine) as pool:
        pilots = pool.map(lambda item: os.environ["SLURM_JOB_ID"], range(20)).results()
        assert pilots == ["1"] * 20
        wait_until(lambda: not is_running(int((pids / "1.pid").read_text())))
    assert [path.name for path in pids.glob("*.pid")] == ["1.pid"]
    assert list((tmp_path / "shared").iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "max_pilots is missing: say how many pilots there may be at a time, with max=N"),
        ({"max_pilots": 0}, "max_pilots must be a whole number of at least 1, got 0"),
        ({"max_pilots": 1, "cores": "two"}, "cores must be a number, got 'two'"),
        ({"max_pilots": 1, "walltime": 90}, "walltime must have a unit, as in 2h or 90m"),
        ({"max_pilots": 1, "walltime": "soon"}, "walltime must be a duration such as 2h"),
        ({"max_pilots": 1, "walltime": "30s"}, "walltime must be at least a minute, got '30s'"),
        ({"max_pilots": 1, "partition": "a b"}, "partition must be one word, got 'a b'"),
        ({"max_pilots": 1, "idle": "x"}, "idle must be a duration such as 2h"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SlurmEngine(**options)


def test_options_become_directives() -> None:
    described = describe_pilots(
        walltime=5400, qos="low", sbatch="--gres=gpu:1", setup=(), memory=None
    )
    assert described["job_extra_directives"] == ["--no-requeue", "--gres=gpu:1", "--qos=low"]
    assert described["walltime"] == "0-01:30:00"


def test_ctrl_c_still_stops_runs() -> None:
    """dask-jobqueue replaces the reaction to it on import."""
    script = (
        "import signal\n"
        "from hesrpt.engines.slurm.slurm_engine import import_slurm_cluster\n"
        "print(import_slurm_cluster().__name__)\n"
        "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split() == ["SLURMCluster", "True"], done.stderr


def test_jobs_that_are_ending_are_not_listed() -> None:
    lines = "8|PENDING|2:00:00\n9|COMPLETING|0:10\n10|RUNNING|UNLIMITED\n"
    assert list(parse_queue(lines)) == ["8", "10"]


JOBS = '[[job]]\nname = "one"\ncommand = "true"\n'


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--slurm", "max=1"], "--slurm needs --engine slurm, got 'local'"),
        (["--engine", "slurm", "--slurm", "partion=x"], "--slurm must be NAME=VALUE,… with names"),
        (
            ["--engine", "slurm", "--slurm", "max=1,max=2"],
            "--slurm must be NAME=VALUE,… with names",
        ),
        (["--engine", "slurm", "--slurm", "max=1,walltime=9"], "walltime must have a unit"),
        (["--engine", "slurm", "--slurm", "max=1"], "but sbatch is not on the PATH"),
    ],
)
def test_command_line_names_what_is_wrong(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs.toml").write_text(JOBS)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert_refused(call("run", "jobs.toml", *arguments, cwd=tmp_path), message)
