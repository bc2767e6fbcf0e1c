"""State directories: resuming runs from them, and refusing those that cannot be used."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.inline_engine import InlineEngine
from support.shell import call
from support.waiting import wait_until

from hesrpt import Pool, StateError
from hesrpt.reports.inspection import read_status


def square(x: int) -> int:
    return x * x


def test_resumed_run_keeps_results(tmp_path: Path) -> None:
    state, calls = tmp_path / "state", tmp_path / "calls"
    calls.mkdir()

    def work(x: int) -> int:
        (calls / f"{x}-{time.time_ns()}").touch()
        return x * x

    with Pool(servers=2, state=state) as pool:
        assert pool.map(work, range(5), name="squares").results() == [0, 1, 4, 9, 16]
    assert os.stat(state).st_mode & 0o777 == 0o700
    with pytest.raises(StateError, match="holds an earlier run; continue it with resume=True"):
        Pool(servers=2, state=state)
    with Pool(servers=2, state=state, resume=True) as pool:
        assert pool.map(work, range(8), name="squares").results() == [x * x for x in range(8)]
    assert len(list(calls.iterdir())) == 8


def test_second_scheduler_on_a_state_directory_is_refused(tmp_path: Path) -> None:
    with (
        Pool(servers=1, state=tmp_path / "s"),
        pytest.raises(StateError, match="another scheduler is running on it"),
    ):
        Pool(servers=1, state=tmp_path / "s", resume=True)


def test_removing_files_does_not_let_a_second_scheduler_start(tmp_path: Path) -> None:
    state = tmp_path / "s"
    with Pool(state=state, engine=InlineEngine()) as pool:
        pool.map(square, range(3), name="squares").results()
        for path in state.iterdir():
            if path.is_file() and not path.name.startswith("state.db"):
                path.unlink()
        assert read_status(state).is_running
        with pytest.raises(StateError, match="another scheduler is running on it"):
            Pool(servers=1, state=state, resume=True)


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def replace(path: Path) -> None:
    path.rename(path.with_name("old"))
    if path.with_name("old").is_dir():
        shutil.copytree(path.with_name("old"), path)
    else:
        shutil.copy(path.with_name("old"), path)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("", remove),
        ("state.db", replace),
        ("state.db-wal", remove),
        *(
            pytest.param(name, change, marks=pytest.mark.slow)
            for name, change in [
                ("", replace),
                ("state.db", remove),
                ("state.db-wal", replace),
                ("state.db-shm", remove),
                ("state.db-shm", replace),
            ]
        ),
    ],
)
def test_scheduler_notices_that_its_files_are_gone(
    tmp_path: Path, change: Callable[[Path], None], name: str
) -> None:
    state = tmp_path / "s"
    pool = Pool(state=state, engine=InlineEngine())
    pool.map(square, range(3), name="some").results()
    change(state / name)
    problem = "removed" if change is remove else "replaced"
    with pytest.raises(StateError, match=f"was {problem} while the scheduler was running"):
        pool.map(square, range(3), name="more").results(timeout=60)
    pool.close()


def test_lock_is_on_a_file_where_directories_cannot_be_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def refuse_directories(descriptor: int, operation: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EBADF, "Bad file descriptor")  # as NFS does
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", refuse_directories)
    state = tmp_path / "s"
    pool = Pool(state=state, engine=InlineEngine())
    pool.map(square, range(3), name="some").results()
    with pytest.raises(StateError, match="another scheduler is running on it"):
        Pool(servers=1, state=state, resume=True)
    (state / "lock").unlink()
    with pytest.raises(StateError, match="lock: was removed"):
        pool.map(square, range(3), name="more").results(timeout=60)
    pool.close()


JOBS = """
[[job]]
name = "print"
items = [1, 2]
command = "echo {item}; until [ -e go ]; do sleep 0.1; done"
"""
SCRIPT = """
import os, sys
os.umask(int(sys.argv.pop(1), 8))
from hesrpt.cli.main import main
main()
"""


@pytest.mark.parametrize(
    "umask", ["000", *(pytest.param(umask, marks=pytest.mark.slow) for umask in ("022", "777"))]
)
def test_all_files_are_private_whatever_the_umask(tmp_path: Path, umask: str) -> None:
    (tmp_path / "jobs.toml").write_text(JOBS)
    state = tmp_path / "s"

    def read_modes() -> dict[str, str]:
        return {
            str(path.relative_to(tmp_path)): oct(path.stat().st_mode & 0o777)
            for path in [state, *state.rglob("*")]
        }

    command = [sys.executable, "-c", SCRIPT, umask, "run", "jobs.toml", "--servers", "2"]
    with subprocess.Popen([*command, "--state", "s"], cwd=tmp_path, stdout=-1) as process:
        try:
            wait_until(lambda: len(list(state.glob("logs/*"))) == 2)
            modes = read_modes()
        finally:
            (tmp_path / "go").touch()
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert {"s/state.db", "s/state.db-wal", "s/state.db-shm"} <= set(modes)
    modes |= read_modes()
    directories = {"s", "s/logs"}
    assert modes == {name: "0o700" if name in directories else "0o600" for name in modes}


def print_item(x: int) -> int:
    print("item", x)
    return x


def test_logs_and_results_of_python_items_are_private(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        with Pool(servers=1, state=tmp_path / "s") as pool:
            pool.map(print_item, range(2), name="print")
            pool.map(bytes, [3_000_000], name="large")
    finally:
        os.umask(previous)
    files = [path for path in (tmp_path / "s").glob("*/*") if path.is_file()]
    assert [oct(path.stat().st_mode & 0o777) for path in files] == ["0o600"] * 3
    directories = [path for path in (tmp_path / "s").iterdir() if path.is_dir()]
    assert [oct(path.stat().st_mode & 0o777) for path in directories] == ["0o700"] * 2


def test_missing_logs_directory_stops_neither_a_run_nor_a_resume(tmp_path: Path) -> None:
    logs = tmp_path / "s" / "logs"
    with Pool(servers=1, state=tmp_path / "s") as pool:
        pool.map(print_item, range(2), name="print").results()
        shutil.rmtree(logs)
        assert pool.map(print_item, range(2), name="again").results() == [0, 1]
        assert len(list(logs.iterdir())) == 2
    shutil.rmtree(logs)
    with Pool(servers=1, state=tmp_path / "s", resume=True) as pool:
        assert pool.map(print_item, range(3), name="print").results() == [0, 1, 2]
    assert len(list(logs.iterdir())) == 1
    shutil.rmtree(logs)
    done = call("logs", "s", "print", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "hesrpt: job 'print' has printed nothing\n")


def test_unusable_state_directories_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "open"
    place.mkdir(mode=0o755)
    with pytest.raises(StateError, match="other users may read or write it; run chmod 700"):
        Pool(servers=1, state=place)
    with pytest.raises(StateError, match="does not exist"):
        Pool(servers=1, state=tmp_path / "none", resume=True)
    (tmp_path / "file").touch()
    for resume in (False, True):
        with pytest.raises(StateError, match="file: is not a directory"):
            Pool(servers=1, state=tmp_path / "file", resume=resume)
    with pytest.raises(StateError, match="cannot be created"):
        Pool(servers=1, state=tmp_path / "file" / "x")
    if os.getuid() == 0:
        theirs = tmp_path / "theirs"
        theirs.mkdir(mode=0o700)
        os.chown(theirs, 12345, 12345)
        with pytest.raises(StateError, match="belongs to another user"):
            Pool(servers=1, state=theirs)


def test_damaged_database_is_reported(tmp_path: Path) -> None:
    place = tmp_path / "s"
    place.mkdir(mode=0o700)
    (place / "state.db").write_bytes(b"this is not a database" * 100)
    with pytest.raises(StateError, match=r"state\.db"):
        Pool(servers=1, state=place, resume=True)


def test_full_disk_is_reported_and_loses_no_results(tmp_path: Path) -> None:
    script = tmp_path / "full.py"
    script.write_text(
        "import resource, signal, sys\n"
        "from hesrpt import Pool, InputError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "with Pool(servers=1, state=sys.argv[1]) as pool:\n"
        "    pool.map(lambda x: bytes(1000), range(3), name='some').results()\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))\n"
        "    try:\n"
        "        pool.map(lambda x: bytes(100_000), range(50), name='much').results()\n"
        "    except InputError as error:\n"
        "        print('reported:', error)\n"
        "        sys.exit(0)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "s")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )
    assert "reported:" in done.stdout, done.stderr
    assert "state.db" in done.stdout
    with Pool(servers=1, state=tmp_path / "s", resume=True) as pool:
        assert pool.map(lambda x: bytes(1000), range(3), name="some").results() == [bytes(1000)] * 3
        much = pool.map(lambda x: bytes(100_000), range(50), name="much").results()
    assert [len(result) for result in much] == [100_000] * 50
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_resuming_a_finished_job_returns_its_results(tmp_path: Path) -> None:
    with Pool(state=tmp_path / "s", engine=InlineEngine()) as pool:
        pool.map(square, range(5), name="five").results()
    for items in (5, 3):
        with Pool(state=tmp_path / "s", resume=True, engine=InlineEngine()) as pool:
            job = pool.map(square, range(items), name="five")
            assert job.results(timeout=60) == [0, 1, 4, 9, 16][:items]
            assert job.flow_time < 60
