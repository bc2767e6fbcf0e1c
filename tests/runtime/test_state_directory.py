"""State directories: resuming runs from them, and refusing those that cannot be used."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hesrpt import Pool, StateError


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
    with Pool(servers=2, state=tmp_path / "s") as pool:
        pool.map(square, range(5), name="five").results()
    for items in (5, 3):
        with Pool(servers=2, state=tmp_path / "s", resume=True) as pool:
            job = pool.map(square, range(items), name="five")
            assert job.results(timeout=30) == [0, 1, 4, 9, 16]
            assert job.flow_time < 60
