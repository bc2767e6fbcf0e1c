"""Logs: limited in size, streamed, and readable whatever programs print."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from support.shell import run
from support.waiting import wait_until

from hesrpt import Pool
from hesrpt.engines.local.local_engine import LocalEngine
from hesrpt.engines.local.output import read_end
from hesrpt.jobs.command_template import CommandTemplate
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.storage.logs import (
    LOG_LIMIT,
    LogName,
    find_logs,
    limit_log,
    limit_output,
    open_log,
)


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


PRINT_MUCH = "head -c 15000000 /dev/zero | tr '\\0' x; echo; echo the end"


def print_much(folder: Path) -> None:
    print("x" * 15_000_000)
    print("the end", flush=True)
    while not (folder / "go").exists():
        time.sleep(0.05)


def read_log_when_cut(log: Path) -> bytes:
    wait_until(lambda: log.exists() and b"bytes of output were dropped here" in log.read_bytes())
    return log.read_bytes()


def is_within_limit(log: Path) -> bool:
    return log.stat().st_size < LOG_LIMIT


def test_logs_of_running_items_are_limited(tmp_path: Path) -> None:
    command = f"{PRINT_MUCH}; until [ -e go ]; do sleep 0.05; done"
    template = CommandTemplate(job="command", command=command, directory=str(tmp_path))
    spec = JobSpec(name="command", items=1, command=template)
    with Pool(servers=2, state=tmp_path / "s") as pool:
        try:
            pool.map(print_much, [tmp_path], name="python")
            pool.add_jobs([LiveJob.from_command(spec)])
            for record in (1, 2):
                log = tmp_path / "s" / "logs" / f"{record}-0.log"
                # The item may still be printing, so the log may grow and be cut again.
                assert read_dropped(read_log_when_cut(log)) >= LOG_LIMIT // 4
                wait_until(partial(is_within_limit, log))
        finally:
            (tmp_path / "go").touch()
    assert [job.error for job in pool.jobs] == [None, None]


def test_error_of_a_cut_log_has_the_last_lines(tmp_path: Path) -> None:
    template = CommandTemplate(job="much", command=f"{PRINT_MUCH}; exit 3", directory=str(tmp_path))
    with Pool(servers=1, state=tmp_path / "s") as pool:
        spec = JobSpec(name="much", items=1, command=template, retries=1)
        (job,) = pool.add_jobs([LiveJob.from_command(spec)])
        pool.wait()
    assert job.error is not None
    assert job.error.startswith("item 0: exit code 3\n")
    assert job.error.endswith("x\nthe end")
    (log,) = (tmp_path / "s" / "logs").iterdir()
    assert log.stat().st_size < LOG_LIMIT
    # What the program writes while its log is being cut is lost uncounted.
    assert read_dropped(log.read_bytes()) >= LOG_LIMIT // 4


def test_output_without_a_log_is_limited(tmp_path: Path) -> None:
    command = f"{PRINT_MUCH}; touch printed; until [ -e go ]; do sleep 0.05; done; exit 3"
    template = CommandTemplate(job="much", command=command, directory=str(tmp_path))
    with Pool(servers=1) as pool:
        spec = JobSpec(name="much", items=1, command=template, retries=0)
        (job,) = pool.add_jobs([LiveJob.from_command(spec)])
        try:
            wait_until((tmp_path / "printed").exists)
            engine = pool._driver.engine
            assert isinstance(engine, LocalEngine)
            (pid,) = engine.command_pids
            wait_until(lambda: os.stat(f"/proc/{pid}/fd/1").st_size < LOG_LIMIT)
        finally:
            (tmp_path / "go").touch()
    assert job.error is not None
    assert job.error.endswith("x\nthe end")


def test_end_of_output_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abcdef")
    with open(tmp_path / "file", "rb") as file:
        assert read_end(file, 6) == b"abcdef"
        note = b"hesrpt: at least 4 bytes of output before this line were dropped\n"
        assert read_end(file, 2) == note + b"ef"


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


@pytest.mark.slow
def test_large_logs_are_printed_with_little_memory(folder: Path) -> None:
    (log,) = (folder / "s" / "logs").iterdir()
    size = 300_000_000
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
    assert int(done.stdout) == size + 1
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
    assert (done.stdout, done.stderr) == ("line\nline\n", "")


def test_bytes_that_are_not_text_are_printed(folder: Path) -> None:
    (log,) = (folder / "s" / "logs").iterdir()
    log.write_bytes(b"\xff\xfe\x00\x1b[31m")
    command = [sys.executable, "-m", "hesrpt", "logs", "s", "a", "0"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=True)
    assert done.stdout == b"\xff\xfe\x00\x1b[31m\n"
