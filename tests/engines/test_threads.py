"""Libraries such as NumPy start as many threads as their process has servers, and no more."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import wait_until

from hesrpt import Pool
from hesrpt.engines.local.supervisor_client import OURS_VARIABLE, THREAD_VARIABLES, choose_threads
from hesrpt.jobs.jobs_file import parse_jobs_file
from hesrpt.scheduler.live_job import LiveJob


@pytest.fixture(autouse=True)
def _clear_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*THREAD_VARIABLES, OURS_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def multiply(path: str) -> int:
    """Use NumPy while three other workers do; return the number of threads of this worker."""
    import numpy as np

    folder = Path(path)
    (folder / f"worker-{os.getpid()}").touch()
    wait_until(lambda: len(list(folder.glob("worker-*"))) == 4)
    matrix = np.ones((300, 300))
    assert (matrix @ matrix)[0, 0] == 300
    return len(os.listdir("/proc/self/task"))


@pytest.mark.slow
def test_numpy_in_four_workers_starts_one_thread_each(tmp_path: Path) -> None:
    with Pool(4) as pool:
        assert pool.map(multiply, [str(tmp_path)] * 4).results() == [1, 1, 1, 1]


def test_numpy_starts_threads_for_all_cores_without_this(tmp_path: Path) -> None:
    """The test above could not fail on a machine with one core."""
    if (os.cpu_count() or 1) == 1:
        pytest.skip("this machine has one core")
    script = "import numpy, os; print(len(os.listdir('/proc/self/task')))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert int(found.stdout) > 1


def show_environments(folder: Path, servers: int, **jobs: str) -> dict[str, dict[str, str]]:
    """Run commands one after another; return their environments."""
    text = "".join(
        f"[[job]]\nname = '{name}'\ncommand = 'env > {name}'\n{lines}\n"
        for name, lines in jobs.items()
    )
    with Pool(servers) as pool:
        for spec in parse_jobs_file(text, "jobs.toml", folder).jobs:
            pool.add_jobs([LiveJob.from_command(spec)])
            pool.wait()
    return {name: dict(re.findall("(.*?)=(.*)", (folder / name).read_text())) for name in jobs}


def test_command_gets_as_many_threads_as_servers(tmp_path: Path) -> None:
    found = show_environments(
        tmp_path,
        4,
        plain="",
        items="items = [1]",
        limited="min_servers = 2\nmax_servers = 3",
        # The most that it may have, since a running program cannot start more threads.
        resized="resize = 'affinity'\nmax_servers = 3",
    )
    numbers = {job: {found[job][name] for name in THREAD_VARIABLES} for job in found}
    assert numbers == {"plain": {"1"}, "items": {"1"}, "limited": {"3"}, "resized": {"3"}}


def test_variables_that_the_user_sets_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    found = show_environments(tmp_path, 2, a="")["a"]
    assert (found["MKL_NUM_THREADS"], found["OMP_NUM_THREADS"]) == ("7", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "5,2")
    found = show_environments(tmp_path, 2, a="")["a"]
    assert (found["OMP_NUM_THREADS"], found["OPENBLAS_NUM_THREADS"]) == ("5,2", "5")
    with Pool(1) as pool:
        assert pool.map(os.getenv, ["OMP_NUM_THREADS"]).results() == ["5,2"]


def test_pool_inside_a_command_sets_the_variables_anew() -> None:
    outer = choose_threads(4, {"PATH": "/bin"})
    assert set(outer.values()) == {"4"}
    assert set(choose_threads(1, outer).values()) == {"1"}
