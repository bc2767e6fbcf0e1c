"""``hesrpt run --engine slurm`` on a real Slurm: commands, killed schedulers, checkpoints."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.paths import EXAMPLES
from support.shell import run
from support.slurm_cluster import SlurmCluster
from support.waiting import wait_until

pytestmark = pytest.mark.slurm


@contextmanager
def start_run(jobs: str, slurm: str, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a jobs file on Slurm in another process, with a state directory."""
    words = [sys.executable, "-m", "hesrpt", "run", jobs, "--state", "state"]
    command = [*words, "--engine", "slurm", "--slurm", slurm]
    output = subprocess.PIPE
    with subprocess.Popen(command, cwd=directory, stdout=output, stderr=output, text=True) as done:
        try:
            yield done
        finally:
            done.kill()


def test_run_continues_after_its_scheduler_was_killed(slurm: SlurmCluster, tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(
        '[[job]]\nname = "naps"\nitems = {range = [0, 30]}\n'
        'command = "sleep 0.5; echo {item} >> evidence"\n'
    )
    options = "partition=main,max=2,cores=2,walltime=10m"
    evidence = tmp_path / "evidence"
    with start_run("jobs.toml", options, tmp_path) as first:
        wait_until(lambda: evidence.exists() and len(evidence.read_text().split()) > 4)
        assert len(slurm.list_jobs("running")) == 2
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    wait_until(lambda: not slurm.list_jobs())  # pilots end with their scheduler
    with start_run("jobs.toml", options, tmp_path) as second:
        _, errors = second.communicate(timeout=120)
    assert second.returncode == 0, errors
    runs = evidence.read_text().split()
    assert {int(item) for item in runs} == set(range(30))
    assert len(runs) <= 30 + 4, "items that were done ran again"
    assert slurm.list_jobs("running") == {}


def test_command_shrinks_and_grows_from_its_checkpoint(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example in ``examples/``, as its comments say."""
    for name in ("checkpoint.py", "checkpoint.toml", "checkpoint_short.toml"):
        shutil.copy(EXAMPLES / name, tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    checkpoint = tmp_path / "long.json"
    with start_run("checkpoint.toml", "max=1,cores=4,walltime=1h", tmp_path) as process:
        wait_until(checkpoint.exists)
        assert run("submit", "state", "checkpoint_short.toml", cwd=tmp_path).returncode == 0
        printed, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors
    progress = json.loads(checkpoint.read_text())
    assert progress["done"] == 400
    assert (tmp_path / "short.json").exists(), printed
    starts = [(start["done"], start["processes"]) for start in progress["starts"]]
    blocks, widths = zip(*starts, strict=True)
    assert widths[0] == 4
    assert min(widths) < 4, "it never shrank"
    assert widths[-1] > min(widths), "it never grew again"
    assert list(blocks) == sorted(blocks)
    assert blocks[1] > 0, "it started from scratch"
