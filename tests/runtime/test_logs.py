"""Logs: limited in size, streamed, and readable whatever programs print."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from support.shell import run
from support.waiting import wait_until

from hesrpt.runtime.logs import LogName, find_logs, limit_log, limit_output, open_log


def write_log(path: Path, data: bytes) -> None:
    descriptor = open_log(path)
    os.write(descriptor, data)
    os.close(descriptor)


def read_dropped(data: bytes) -> int:
    notes = re.findall(rb"\nhesrpt: at least ([0-9,]+) bytes of output were dropped here", data)
    assert len(notes) == 1
    return int(notes[0].replace(b",", b""))


def test_small_log_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "1-0.log"
    write_log(log, b"x" * 1000)
    limit_log(log, 1000)
    assert log.read_bytes() == b"x" * 1000
    limit_log(tmp_path / "missing", 1000)


def test_large_log_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    log = tmp_path / "1-0.log"
    lines = [b"line %d\n" % number for number in range(3000)]
    for part in (lines[:1500], lines[1500:2000], lines[2000:]):
        write_log(log, b"".join(part))
        limit_log(log, 1000)
        assert log.stat().st_size <= 1000
    data = log.read_bytes()
    assert data.startswith(b"".join(lines[:50]))
    assert data.endswith(b"".join(lines[-20:]))
    # Every byte is there or counted.
    note = next(line for line in data.splitlines(keepends=True) if b"hesrpt:" in line)
    assert len(data) - len(note) - 1 + read_dropped(data) == sum(map(len, lines))


def test_log_is_limited_while_a_program_writes_to_it(tmp_path: Path) -> None:
    log = tmp_path / "1-0.log"
    with open(open_log(log), "ab") as output:
        process = subprocess.Popen(["yes", "output"], stdout=output)
    try:
        for _ in range(10):
            wait_until(lambda: log.stat().st_size > 10_000)
            limit_log(log, 10_000)
    finally:
        process.kill()
        process.wait()
    limit_log(log, 10_000)
    data = log.read_bytes()
    assert len(data) <= 10_000
    assert data.startswith(b"output\n" * 100)
    assert data[-700:] in b"output\n" * 200  # a killed program may stop anywhere
    assert read_dropped(data) > 0
    assert b"\0" not in data


def test_unnamed_output_is_limited(tmp_path: Path) -> None:
    descriptor = open_log(tmp_path / "file")
    os.unlink(tmp_path / "file")
    os.write(descriptor, b"x" * 5000)
    limit_output(descriptor, 1000)
    assert os.fstat(descriptor).st_size < 1000
    os.close(descriptor)


def test_other_files_are_no_logs(tmp_path: Path) -> None:
    assert find_logs(tmp_path, 1) == {}
    (tmp_path / "logs").mkdir()
    for name in ("1-2.log", "1-10-3.log", "1-x.log", "1-2.log~", "11-3.log", "notes"):
        (tmp_path / "logs" / name).touch()
    assert find_logs(tmp_path, 1).keys() == {LogName(2, 0), LogName(10, 3)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.toml").write_text('[[job]]\nname = "a"\ncommand = "echo x"\n')
    assert run("run", "jobs.toml", "--state", "s", cwd=tmp_path).returncode == 0
    return tmp_path


def test_large_logs_are_printed_with_little_memory(folder: Path) -> None:
    (log,) = (folder / "s" / "logs").iterdir()
    size = 500_000_000
    os.truncate(log, size)
    limit = 250_000_000
    done = subprocess.run(
        f"{sys.executable} -m hesrpt logs s a | wc -c",
        shell=True,
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
    )
    assert int(done.stdout) == size + len("--- a, item 0\n") + 1
    assert done.stderr == ""


def test_closed_pipe_ends_the_output_quietly(folder: Path) -> None:
    (log,) = (folder / "s" / "logs").iterdir()
    log.write_bytes(b"line\n" * 1_000_000)
    done = subprocess.run(
        f"{sys.executable} -m hesrpt logs s a | head -n 2",
        shell=True,
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("--- a, item 0\nline\n", "")


def test_bytes_that_are_not_text_are_printed(folder: Path) -> None:
    (log,) = (folder / "s" / "logs").iterdir()
    log.write_bytes(b"\xff\xfe\x00\x1b[31m")
    command = [sys.executable, "-m", "hesrpt", "logs", "s", "a", "0"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=True)
    assert done.stdout == b"\xff\xfe\x00\x1b[31m\n"
