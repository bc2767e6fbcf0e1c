"""A run in one shell, steered from another: paused, cancelled, favoured, followed and retried."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.shell import call

JOBS = """
servers = 3

[[job]]
name = "films"
items = [1, 2, 3]
max_servers = 1
command = "touch film-{item}-begun; until test -e released; do sleep 0.05; done; touch film-{item}"

[[job]]
name = "photos"
items = ["cat", "dog"]
keep_going = true
retries = 0
command = "cat {item}.jpg > {item}-thumbnail; echo shrunk {item}"
shell = ["sh", "-e"]

[[job]]
name = "endless"
command = "touch endless-begun; sleep 600"
"""

SCRIPT = """
set -eu
hesrpt() { "$PYTHON" -m hesrpt "$@"; }
wait_for() { until test -e "$1"; do kill -0 $scheduler; sleep 0.02; done; }

hesrpt run jobs.toml --state s > run.txt 2>&1 &
scheduler=$!
wait_for film-1-begun
wait_for endless-begun

hesrpt pause s films
hesrpt weight s films 10
hesrpt cancel s endless
touch released                          # the film that is running ends; no other begins
wait_for film-1

hesrpt logs s photos -f                 # until the job has ended: there is no dog.jpg
test ! -e film-2-begun
echo dog > dog.jpg
hesrpt retry s photos
hesrpt logs s photos -f
hesrpt resume s films
wait $scheduler
"""

# What the second shell shows.
PRINTED = """\
films: paused; items that are running end first
films: now has weight 10
endless: cancelled
--- photos, item 0 ('cat')
shrunk cat
--- photos, item 1 ('dog')
cat: dog.jpg: No such file or directory
photos: runs its failed items again
--- photos, item 0 ('cat')
shrunk cat
--- photos, item 1 ('dog')
cat: dog.jpg: No such file or directory
── item 1, attempt 2, TIME ──
shrunk dog
films: resumed
"""


def hide_times(text: str) -> str:
    return re.sub(r"\d\d:\d\d:\d\d", "TIME", text)


@pytest.mark.slow
def test_run_is_steered_from_another_shell(tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(JOBS)
    (tmp_path / "cat.jpg").write_text("cat")
    done = subprocess.run(
        ["sh", "-c", SCRIPT],
        env={**os.environ, "PYTHON": sys.executable},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"{done.stderr}{(tmp_path / 'run.txt').read_text()}"
    assert hide_times(done.stdout) == PRINTED
    ends = re.findall(
        r"^(\w+): (\w+)(?: on request)? after",
        (tmp_path / "run.txt").read_text(),
        re.MULTILINE,
    )
    assert {("endless", "cancelled"), ("photos", "done"), ("films", "done")} <= set(ends)
    jobs = json.loads(call("status", "s", "--json", cwd=tmp_path).stdout)["jobs"]
    assert [(job["name"], job["state"], job["done"]) for job in jobs] == [
        ("films", "done", 3),
        ("photos", "done", 2),
        ("endless", "cancelled", 0),
    ]
    assert (tmp_path / "dog-thumbnail").read_text() == "dog\n"
