"""hesrpt run --dry-run: what would run, as it would run, without running it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from support.shell import assert_refused, call

from hesrpt import Pool
from hesrpt.jobs.jobs_file import read_jobs_file
from hesrpt.pool.batch_run import RunOptions, run_jobs

JOBS = """
servers = 4

[[job]]
name = "letters"
items = ["a b", "it's", "$HOME", "n; touch gone"]
command = "printf '%s\\\\n' {item} >> {job}.txt"
size = 8
timeout = "1m"

[[job]]
name = "frames"
items = {range = [0, 100]}
command = ["echo", "--frame={index}", "it's"]
size = 200
max_servers = 3
retries = 0

[[job]]
name = "alone"
command = "cat; echo {servers}"
stdin = "from $0"
"""


def test_commands_are_shown_as_they_would_run(tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(JOBS)
    done = call("run", "jobs.toml", "--state", "s", "--dry-run", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "nothing was started" in done.stdout
    assert "\n  … and 95 more, which --json lists\n" in done.stdout
    assert "  echo --frame=4 'it'\"'\"'s'\n" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["jobs.toml"]  # nothing was created
    result = json.loads(call("run", "jobs.toml", "--dry-run", "--json", cwd=tmp_path).stdout)
    letters, frames, alone = result["jobs"]
    assert (letters["items"], letters["timeout"], len(frames["commands"])) == (4, 60.0, 100)
    assert (frames["max_servers"], frames["retries"]) == (3, 0)
    # The smaller job ends first; nothing is known about the size of the last one.
    assert 0 < letters["ends_after"] < frames["ends_after"]
    assert alone["ends_after"] is None
    printed = ""
    for entry in (*letters["commands"], frames["commands"][7], *alone["commands"]):
        shell = ["sh", "-c", entry["command"]]
        printed += subprocess.check_output(shell, cwd=entry["directory"], text=True)
    assert (tmp_path / "letters.txt").read_text() == "a b\nit's\n$HOME\nn; touch gone\n"
    assert printed == "--frame=7 it's\nfrom $01\n"  # the last one starts on one server


def test_run_that_goes_on_shows_what_is_left(tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(
        '[[job]]\nname = "a"\nitems = ["true", "false"]\ncommand = ["{item}"]\nretries = 0\n'
    )
    specs = read_jobs_file(tmp_path / "jobs.toml").jobs
    run_jobs(specs, RunOptions(servers=1, state=tmp_path / "s"))
    before = sorted(path.name for path in tmp_path.rglob("*.db"))
    preview = call("run", "jobs.toml", "--state", "s", "--dry-run", "--json", cwd=tmp_path)
    (job,) = json.loads(preview.stdout)["jobs"]
    assert (job["items"], job["done"], job["servers"]) == (2, 1, 1)
    assert job["ends_after"] > 0  # its size was learned
    assert [entry["item"] for entry in job["commands"]] == [1]
    assert sorted(path.name for path in tmp_path.rglob("*.db")) == before


def test_job_that_is_done_would_not_run(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.toml"
    jobs.write_text('[[job]]\nname = "a"\nitems = ["x", "y"]\ncommand = "echo {item}"\n')
    run_jobs(read_jobs_file(jobs).jobs, RunOptions(servers=1, state=tmp_path / "s"))
    shown = call("run", "jobs.toml", "--state", "s", "--dry-run", cwd=tmp_path).stdout
    assert shown.splitlines()[1].split() == ["a", "2/2", "0", "retries:", "1", "done"]
    assert "echo" not in shown
    assert "?" not in shown
    jobs.write_text(jobs.read_text().replace("echo", "printf"))
    refused = call("run", "jobs.toml", "--state", "s", "--dry-run", cwd=tmp_path)
    assert (refused.returncode, "--on-change redo" in refused.stderr) == (2, True)
    arguments = ("run", "jobs.toml", "--state", "s", "--dry-run", "--on-change", "redo")
    assert call(*arguments, cwd=tmp_path).stdout.count("printf") == 2


def test_commands_have_the_directory_and_the_servers_that_they_would_have(tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(
        "servers = 2\n"
        '[[job]]\nname = "first"\ncommand = "a {servers}"\nservers = 2\n'
        '[[job]]\nname = "second"\ncommand = "b {servers}"\nservers = 2\n'
        '[[job]]\nname = "third"\ncommand = "c {servers}"\n'
        '[[job]]\nname = "items"\nitems = ["x\\ny"]\ncommand = ["printf", "%s", "{item}"]\n'
        'cwd = "in here"\n'
    )
    (tmp_path / "in here").mkdir()
    printed = call("run", "jobs.toml", "--dry-run", cwd=tmp_path).stdout
    assert "'a \"2\"'" in printed
    assert "'b \"2\"'" in printed  # it waits for the first one, but never has fewer
    assert "'c \"{servers}\"'" in printed
    assert '"{servers}": not known before the job starts' in printed
    assert "  cd 'in here' && printf %s $'x\\ny'\n" in printed


@pytest.mark.parametrize(
    ("job", "arguments", "message"),
    [
        ("min_servers = 3", (), "job 'a': it needs at least 3 servers, but there are only 2"),
        ("resources = {gpu = 1}", (), "job 'a': each item needs 1 gpu, but how much there is"),
        ("resources = {gpu = 2}", ("--resources", "gpu=1"), "needs 2 gpu, but there is only 1"),
        ("", ("--servers", "0"), "--servers must be a whole number of at least 1"),
        ("", ("--policy", "fcfs"), "policy fcfs cannot share servers"),
        ("", ("--state", "s", "--on-change", "never"), "'--on-change': 'never' is not one of"),
        ("", ("--engine", "moon"), "--engine must be one of"),
        ("", ("--engine-option", "crater=7"), "crater is not an option of engine 'local'"),
        ("", ("--resources", "gpu=-1"), "gpu"),
    ],
)
def test_what_a_run_refuses_a_dry_run_refuses(
    tmp_path: Path, job: str, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "jobs.toml").write_text(
        f'servers = 2\n[[job]]\nname = "a"\ncommand = "true"\n{job}\n'
    )
    previewed = call("run", "jobs.toml", "--dry-run", *arguments, cwd=tmp_path)
    assert_refused(previewed, message)
    assert call("run", "jobs.toml", *arguments, cwd=tmp_path).stderr == previewed.stderr


def test_run_that_goes_on_has_the_resources_that_it_had(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.toml"
    jobs.write_text('[[job]]\nname = "a"\ncommand = "true"\nresources = {gpu = 1}\n')
    first = call("run", "jobs.toml", "--state", "s", "--resources", "gpu=1", cwd=tmp_path)
    assert first.returncode == 0
    jobs.write_text(jobs.read_text().replace('"a"', '"b"'))
    previewed = call("run", "jobs.toml", "--state", "s", "--dry-run", cwd=tmp_path)
    assert (previewed.returncode, previewed.stderr) == (0, "")


def test_run_without_jobs_is_refused(tmp_path: Path) -> None:
    with Pool(servers=1, state=tmp_path / "s"):
        pass
    for arguments in ((), ("--dry-run",)):
        done = call("run", "--state", "s", *arguments, cwd=tmp_path)
        assert_refused(done, "s: the run has no jobs yet; give a jobs file")
