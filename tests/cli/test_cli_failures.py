"""hesrpt run, status and report with items that fail."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from support.shell import call

from hesrpt.cli.outcomes import print_failures
from hesrpt.jobs.failures import ItemFailure
from hesrpt.jobs.job_view import JobView

JOBS = """
servers = 2

[[job]]
name = "thumbs"
items = ["a.png", "bad1", "c.png", "bad2"]
command = "case {item} in bad*) echo no picture in {item}; exit 3;; esac; touch seen-{item}"
retries = 0
"""


def test_run_keeps_going_and_lists_failed_items(tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(JOBS)
    done = call("run", "jobs.toml", "--state", "s", "--keep-going", cwd=tmp_path)
    assert done.returncode == 1
    error = "2 of 4 items failed; the first: item 1 ('bad1'): exit code 3"
    assert f": {error}\n    no picture in bad1\n" in done.stdout
    assert {path.name for path in tmp_path.glob("seen-*")} == {"seen-a.png", "seen-c.png"}
    (job,) = json.loads(call("status", "s", "--json", cwd=tmp_path).stdout)["jobs"]
    assert (job["state"], job["done"], job["failed_attempts"]) == ("failed", 2, 2)
    assert [(each["item"], each["value"], each["attempts"]) for each in job["failed_items"]] == [
        (1, "'bad1'", 1),
        (3, "'bad2'", 1),
    ]
    printed = call("report", "s", cwd=tmp_path).stdout
    printed = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
    assert printed.endswith(
        f"thumbs failed: {error}\n    no picture in bad1\n"
        """
failed items of thumbs:
  item  value   attempts  last error
     1  'bad1'         1  exit code 3: no picture in bad1
     3  'bad2'         1  exit code 3: no picture in bad2
"""
    )


def test_only_a_few_failed_items_are_listed_and_the_first_traceback_is_shown() -> None:
    failures = [
        ItemFailure(
            item=item,
            value="'\x1b[31m'",
            error="ValueError: bad",
            traceback='Traceback (most recent call last):\n  File "x.py"\nValueError: bad\n',
        )
        for item in range(12)
    ]
    job = JobView(
        name="job",
        state="failed",
        reason="items_failed",
        error=f"12 of 20 items failed; the first: {failures[0].describe()}",
        failed_items=tuple(failures),
    )
    console = Console(width=100)
    with console.capture() as capture:
        print_failures(console, [job])
    lines = [line.rstrip() for line in capture.get().splitlines()]
    assert lines[2:5] == [
        "    Traceback (most recent call last):",
        '      File "x.py"',
        "",
    ]
    assert lines[7] == r"     0  '\x1b[31m'         1  ValueError: bad"
    assert lines[-1] == "  and 2 more, which --json lists"
