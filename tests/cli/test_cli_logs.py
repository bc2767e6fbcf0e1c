"""hesrpt logs: following a job, and telling the attempts of its items apart."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.shell import assert_refused, call
from support.waiting import wait_until

from hesrpt import Pool
from hesrpt.cli.logs import print_json_lines
from hesrpt.cli.run_access import JobOutput
from hesrpt.jobs.jobs_file import parse_jobs_file
from hesrpt.reports.inspection import ItemOutput, LogFollower, list_logs, read_status
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.storage.logs import mark_attempt


def add_job(pool: Pool, folder: Path, command: str, **options: object) -> None:
    values = "".join(f"{key} = {value}\n" for key, value in options.items())
    text = f"[[job]]\nname = \"a\"\ncommand = '''{command}'''\n{values}"
    specs = parse_jobs_file(text, "jobs.toml", folder).jobs
    pool.add_jobs([LiveJob.from_command(spec) for spec in specs])


def test_follow_prints_items_and_attempts_until_the_job_ends(tmp_path: Path) -> None:
    command = "echo one {item}; test -e again{index} || { touch again{index}; exit 1; }; echo two"
    with Pool(1, state=tmp_path / "s") as pool:
        escaped = command.replace("{ ", "{{ ").replace(" }", " }}")
        add_job(pool, tmp_path, escaped, items=["x", "y"])
        wait_until(lambda: bool(read_status(tmp_path / "s").jobs))
        done = call("logs", "s", "a", "-f", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert pool.jobs[0].state == "done"
    printed = re.sub(r"[0-9]{2}:[0-9]{2}:[0-9]{2}", "TIME", done.stdout)
    for place, item in enumerate("xy"):
        lines = [f"--- a, item {place} ({item!r})", f"one {item}"]
        lines += [f"── item {place}, attempt 2, TIME ──", f"one {item}", "two"]
        found = [line for line in printed.splitlines() if line in lines]
        assert set(found) == set(lines)
    # Without -f, each item is printed once, in order.
    again = re.sub(
        r"[0-9]{2}:[0-9]{2}:[0-9]{2}", "TIME", call("logs", "s", "a", cwd=tmp_path).stdout
    )
    assert again == "".join(
        f"--- a, item {place} ({item!r})\none {item}\n── item {place}, attempt 2, TIME ──\n"
        f"one {item}\ntwo\n"
        for place, item in enumerate("xy")
    )
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "s" / "logs").iterdir()} == {0o600}


def test_json_lines_of_a_job_that_is_followed_are_whole_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parts = [
        (0, b"one\ntw"),
        (1, b"\xff"),
        (0, "o \u2192".encode()[:-1]),
        (1, b""),
        (0, b"\x92\n\n"),
    ]
    outputs = (ItemOutput(item, "", content) for item, content in parts)
    assert print_json_lines("a", JobOutput(has_several=True, parts=outputs))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["item"], line["line"]) for line in lines] == [
        (0, "one"),
        (0, "two \u2192"),
        (0, ""),
        (1, "\ufffd"),
    ]
    assert not print_json_lines("a", JobOutput(has_several=False, parts=iter(())))


def test_log_of_a_function_has_its_output_and_its_traceback_alone(tmp_path: Path) -> None:
    def fail(x: int) -> None:
        print("before")
        raise ValueError(x)

    with Pool(1, state=tmp_path / "s") as pool:
        job = pool.map(fail, [7], retries=0)
    printed = call("logs", "s", "fail", "0", cwd=tmp_path).stdout
    assert printed == f"before\n{job.failures[0].traceback}"
    assert printed.count("File ") == 1  # no frame of the worker


def test_follower_reads_only_what_is_new_and_notices_cuts(tmp_path: Path) -> None:
    with Pool(1, state=tmp_path / "s") as pool:
        add_job(pool, tmp_path, "echo one")
    follower = LogFollower(tmp_path / "s", "a")
    (log,) = list_logs(tmp_path / "s", "a")
    assert follower.read() == ([ItemOutput(0, log.title, b"one\n")], False)
    assert follower.read() == ([], False)
    with log.path.open("ab") as file:
        file.write(b"more")
    assert [output.content for output in follower.read()[0]] == [b"more"]
    log.path.write_bytes(b"x")
    (cut,) = follower.read()[0]
    assert b"output was dropped here" in cut.content


def test_marks_are_added_only_to_logs_with_output(tmp_path: Path) -> None:
    log = tmp_path / "log"
    mark_attempt(log, 3, 2)
    assert not log.exists()
    log.touch()
    mark_attempt(log, 3, 2)
    assert log.read_text() == ""
    log.write_text("no newline")
    mark_attempt(log, 3, None)
    assert re.fullmatch(r"no newline\n── item 3, started again, [0-9:]{8} ──\n", log.read_text())


def test_unknown_job_is_refused(tmp_path: Path) -> None:
    Pool(1, state=tmp_path / "s").close()
    assert_refused(call("logs", "s", "b", "--follow", cwd=tmp_path), "there is no job 'b' in s")
