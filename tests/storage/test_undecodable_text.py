"""Names, items and errors that are not valid UTF-8 end neither the scheduler nor a resume."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.inline_engine import InlineEngine
from support.shell import call

from hesrpt import JobError, Pool
from hesrpt.reports.inspection import read_status


def fail(item: object) -> None:
    raise ValueError(f"cannot use {item}")


def read_items() -> Iterator[int]:
    yield 1
    raise ValueError("cannot read \udcff")


def test_error_of_an_item(tmp_path: Path) -> None:
    state = tmp_path / "s"
    for is_resumed in (False, True):
        with Pool(1, state=state, resume=is_resumed) as pool:
            job = pool.map(fail, ["caf\udce9"], retries=0, name="job")
            with pytest.raises(JobError, match=r"ValueError: cannot use caf\\xe9"):
                job.results()
            assert pool.map(abs, [-1], name="other").results() == [1]
    first, _ = read_status(state).jobs
    assert first.state == "failed"
    assert "caf\\xe9" in (first.error or "")


def test_error_of_an_iterable(tmp_path: Path) -> None:
    with Pool(state=tmp_path / "s", engine=InlineEngine()) as pool:
        job = pool.map(abs, read_items())
        with pytest.raises(JobError, match=r"ValueError: cannot read \\xff"):
            job.results()


def test_name_of_a_job(tmp_path: Path) -> None:
    state = tmp_path / "s"
    for is_resumed in (False, True):
        engine = InlineEngine()
        with Pool(state=state, resume=is_resumed, engine=engine) as pool:
            job = pool.map(abs, [-1, -2], name="caf\udce9")
            assert job.name == r"caf\xe9"
            assert job.results() == [1, 2]
            assert engine.calls == (0 if is_resumed else 2)
    assert [job.name for job in read_status(state).jobs] == [r"caf\xe9"]


def test_names_of_files_as_items(tmp_path: Path) -> None:
    names = [b"plain.in", b"caf\xe9.in"]
    for name in names:
        Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))).touch()
    jobs, state = tmp_path / "jobs.toml", tmp_path / "s"
    jobs.write_text(
        '[[job]]\nname = "a"\nitems = "*.in"\ncommand = "ls {item} && touch {item}.out"\n'
    )
    for command in (
        ["run", str(jobs), "--state", str(state)],
        ["status", str(state)],
        ["submit", str(state), str(jobs)],
        ["run", "--state", str(state)],
    ):
        done = call(*command, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
    # As a process, because what it prints is not text.
    logs = subprocess.run(
        [sys.executable, "-m", "hesrpt", "logs", str(state), "a"], capture_output=True, timeout=60
    )
    assert (logs.returncode, logs.stderr) == (0, b"")
    assert b"caf\xe9.in" in logs.stdout
    found = {os.fsencode(path.name) for path in tmp_path.glob("*.out")}
    assert found == {name + b".out" for name in names}
    assert [job.state for job in read_status(state).jobs] == ["done", "done"]
