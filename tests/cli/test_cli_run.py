"""hesrpt run and its companions: as processes, killed at random moments, and resumed."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from support.shell import run

from hesrpt import InputError
from hesrpt.runtime import runs as runner
from hesrpt.runtime.engines.processes import MARKS_VARIABLE
from hesrpt.runtime.jobs_file import JobRequest, parse_jobs, read_jobs_file
from hesrpt.runtime.journal import Journal

JOBS = """
servers = 2

[[job]]
name = "count"
items = {range = [0, 30]}
command = "echo {item} >> done-{job}; sleep 0.05"

[[job]]
name = "letters"
items = ["a", "it's", "b c", "$HOME"]
command = ["sh", "-c", "printf '%s\\\\n' \\"$1\\" >> letters; echo said $1", "sh", "{item}"]
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "jobs.toml").write_text(JOBS)
    return tmp_path


def begin(place: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "hesrpt", "run", *arguments],
        cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "RUN_OF_TEST": str(place)},
        # Where the tests themselves run in the background, Ctrl-C would be ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def leftovers(place: Path) -> list[str]:
    """Return the processes that a run has left behind."""
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            if environment.get("RUN_OF_TEST") == str(place) and process.status() != "zombie":
                found.append(
                    f"{process.pid} {' '.join(process.cmdline())} {environment.get(MARKS_VARIABLE)}"
                )
        except (psutil.Error, OSError):
            continue
    return found


def wait_for_none(place: Path, seconds: float = 15.0) -> None:
    until = time.monotonic() + seconds
    while (left := leftovers(place)) and time.monotonic() < until:
        time.sleep(0.1)
    assert left == []


def test_a_run_tells_what_came_of_it(place: Path) -> None:
    done = run("run", "jobs.toml", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "letters: done after" in done.stdout
    assert re.search(r"mean flow time .* hesrpt on 2 servers", done.stdout)
    assert "FIFO (simulated)" in done.stdout
    assert "EQUI (simulated)" in done.stdout
    assert sorted((place / "letters").read_text().splitlines()) == ["$HOME", "a", "b c", "it's"]
    assert len((place / "done-count").read_text().split()) == 30
    wait_for_none(place)


def test_state_status_logs_and_report(place: Path) -> None:
    done = run("run", "jobs.toml", "--state", "s", "--json", "--policy", "equi", cwd=place)
    printed = json.loads(done.stdout)
    assert printed["policy"] == "equi"
    assert [(job["name"], job["state"], job["done"]) for job in printed["jobs"]] == [
        ("count", "done", 30), ("letters", "done", 4),
    ]  # fmt: skip
    status = json.loads(run("status", "s", "--json", cwd=place).stdout)
    assert status["running"] is False
    assert [job["done"] for job in status["jobs"]] == [30, 4]
    assert "no scheduler is running" in run("status", "s", cwd=place).stdout
    assert run("logs", "s", "letters", "1", cwd=place).stdout == "said it's\n"
    assert "--- letters, item 0" in run("logs", "s", "letters", cwd=place).stdout
    missing = run("logs", "s", "nothing", cwd=place)
    assert missing.returncode == 2
    assert "there is no job 'nothing' in s; jobs are: count, letters" in missing.stderr
    report = run("report", "s", "--csv", "r.csv", "--plot", "r.png", cwd=place)
    assert "equi on 2 servers" in report.stdout
    assert "FIFO (simulated)" in report.stdout
    assert len((place / "r.csv").read_text().splitlines()) == 3
    assert (place / "r.png").stat().st_size > 1000
    metrics = json.loads(run("report", "s", "--json", cwd=place).stdout)["metrics"]
    assert metrics["mean_flow_time"] > 0
    again = run("run", "jobs.toml", "--state", "s", cwd=place)
    assert again.returncode == 2
    assert "continue it with --resume" in again.stderr


def test_a_failed_job_shows_its_error_and_last_lines(place: Path) -> None:
    (place / "jobs.toml").write_text(
        '[[job]]\nname = "bad"\nitems = [1]\ncommand = "echo before the end; exit 3"\n'
        '[[job]]\nname = "good"\nitems = [1, 2]\ncommand = "true"\n'
    )
    done = run("run", "jobs.toml", "--state", "s", "--servers", "1", cwd=place)
    assert done.returncode == 1
    assert "bad: failed" in done.stdout
    assert "item 0: exit code 3" in done.stdout
    assert "before the end" in done.stdout
    assert "good: done" in done.stdout
    status = json.loads(run("status", "s", "--json", cwd=place).stdout)
    assert [(job["state"], job["failures"]) for job in status["jobs"]] == [
        ("failed", 2),
        ("done", 0),
    ]
    # When the run is resumed, what failed is tried again.
    (place / "jobs.toml").unlink()
    again = run("run", "--state", "s", "--resume", "--servers", "1", cwd=place)
    assert again.returncode == 1
    assert json.loads(run("status", "s", "--json", cwd=place).stdout)["jobs"][0]["failures"] == 4


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_says_how_to_go_on_and_leaves_nothing(
    place: Path, sent: signal.Signals
) -> None:
    process = begin(place, "jobs.toml", "--state", "s")
    while not (place / "done-count").exists():
        time.sleep(0.05)
    process.send_signal(sent)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "hesrpt: stopped; continue with: hesrpt run --state s --resume" in told
    assert "Traceback" not in told
    wait_for_none(place)
    done = run("run", "--state", "s", "--resume", cwd=place)
    assert done.returncode == 0, done.stderr
    assert {*(place / "done-count").read_text().split()} == {str(item) for item in range(30)}


def test_killed_at_random_moments_nothing_is_lost_and_nothing_done_twice(place: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    arguments = ["jobs.toml", "--state", "s"]
    for _ in range(3):
        process = begin(place, *arguments)
        time.sleep(rng.uniform(0.3, 1.6))
        process.kill()
        process.communicate()
        wait_for_none(place)  # not even now is any process left
        if (place / "s" / "state.db").exists():
            # The file is needed if it was killed before the jobs were written down.
            arguments = ["jobs.toml", "--state", "s", "--resume"]
            finished = recorded_items(place)
            assert finished <= 34
    done = run("run", *arguments, cwd=place)
    assert done.returncode == 0, done.stderr
    assert recorded_items(place) == 34
    # What was recorded was not run again; only what was running at a kill may have run twice.
    ran = (place / "done-count").read_text().split()
    assert {*ran} == {str(item) for item in range(30)}
    assert len(ran) <= 30 + 3 * 3


def recorded_items(place: Path) -> int:
    status = run("status", "s", "--json", cwd=place)
    return sum(job["done"] for job in json.loads(status.stdout)["jobs"]) if status.stdout else 0


def test_python_results_survive_kills_too(place: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    (place / "script.py").write_text(
        "import sys, time\n"
        "from pathlib import Path\n"
        "from hesrpt import Pool\n"
        "def work(x):\n"
        "    time.sleep(0.02)\n"
        "    return {'square': x * x}\n"
        "with Pool(servers=2, state='p', resume=Path('p', 'state.db').exists()) as pool:\n"
        "    job = pool.map(work, range(60), name='work')\n"
        "    print(sum(result['square'] for result in job.results()))\n"
    )
    environment = {**os.environ, "RUN_OF_TEST": str(place)}
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "script.py"], cwd=place, env=environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(rng.uniform(0.6, 1.4))
        process.kill()
        process.wait()
        wait_for_none(place)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=place, env=environment, capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == f"{sum(x * x for x in range(60))}\n"


def test_jobs_are_submitted_to_a_run_that_goes_on(place: Path) -> None:
    (place / "more.toml").write_text(
        '[[job]]\nname = "more"\nitems = [1, 2]\ncommand = "echo {item} >> more"\n'
        '[[job]]\nname = "count"\nitems = [7]\ncommand = "true"\n'
    )
    (place / "jobs.toml").write_text(JOBS.replace("sleep 0.05", "sleep 0.2"))
    process = begin(place, "jobs.toml", "--state", "s")
    while not (place / "done-count").exists():
        time.sleep(0.05)
    told = run("submit", "s", "more.toml", cwd=place)
    assert told.stdout == "submitted to s: more, count\n"
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "more: done" in out
    assert "count (2): done" in out
    late = run("submit", "s", "more.toml", cwd=place)
    assert "no scheduler is running: they start when the run is resumed" in late.stdout
    done = run("run", "--state", "s", "--resume", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "more (2): done" in done.stdout
    assert "count (3): done" in done.stdout


def test_what_is_taken_over_as_a_run_is_about_to_end_is_run(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "more.toml").write_text('[[job]]\nname = "more"\nitems = [1]\ncommand = "sleep 2"\n')
    request = read_jobs_file(place / "more.toml").jobs
    Journal.create(place / "s", 1, "hesrpt").close()
    runner.submit(place / "s", request, "more.toml")
    look = runner._submitted

    def slowly(directory: Path) -> bool:
        time.sleep(1.0)  # in which the scheduler takes it over
        return look(directory)

    monkeypatch.setattr(runner, "_submitted", slowly)
    pool = runner.run_jobs((), 1, "hesrpt", place / "s", resume=True)
    assert [(job.name, job.state) for job in pool.jobs] == [("more", "done")]


def test_a_resumed_run_with_its_file_does_nothing_twice(place: Path) -> None:
    process = begin(place, "jobs.toml", "--state", "s", "--policy", "fifo")
    while not (place / "done-count").exists():
        time.sleep(0.05)
    process.kill()
    process.communicate()
    wait_for_none(place)
    done = run("run", "jobs.toml", "--state", "s", "--resume", "--json", cwd=place)
    printed = json.loads(done.stdout)
    assert printed["policy"] == "fifo"
    assert {job["name"] for job in printed["jobs"]} <= {"count", "letters"}
    assert len((place / "done-count").read_text().split()) <= 30 + 3
    nothing = run("run", "--state", "s", "--resume", cwd=place)
    assert nothing.returncode == 0
    assert nothing.stdout == "all jobs in s have ended\n"


def test_all_jobs_are_written_down_before_any_starts(place: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    (place / "jobs.toml").write_text(
        "".join(
            f'[[job]]\nname = "j{n}"\nitems = [1]\ncommand = "echo {n} >> ran"\n'
            for n in range(100)
        )
    )
    for attempt in range(3):
        state = f"s{attempt}"
        process = begin(place, "jobs.toml", "--state", state)
        while not (place / state / "state.db").exists():
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.15))
        process.kill()
        process.communicate()
        wait_for_none(place)
        status = json.loads(run("status", state, "--json", cwd=place).stdout)
        assert len(status["jobs"]) in (0, 100)


def test_a_nested_run_leaves_nothing_behind(place: Path) -> None:
    (place / "inner.toml").write_text('[[job]]\nname = "i"\nitems = [1]\ncommand = "sleep 99"\n')
    (place / "jobs.toml").write_text(
        f'[[job]]\nname = "o"\nitems = [1]\ncommand = "{sys.executable} -m hesrpt run inner.toml"\n'
    )
    process = begin(place, "jobs.toml")
    until = time.monotonic() + 20
    while not any("sleep 99" in one for one in leftovers(place)):
        assert time.monotonic() < until, "the inner run has not begun"
        time.sleep(0.1)
    process.kill()
    process.communicate()
    wait_for_none(place)


def test_an_item_that_cannot_be_an_argument_fails_its_job(place: Path) -> None:
    (place / "jobs.toml").write_text(
        '[[job]]\nname = "nul"\nitems = ["a\\u0000b"]\ncommand = ["echo", "{item}"]\n'
    )
    done = run("run", "jobs.toml", cwd=place)
    assert done.returncode == 1
    assert "nul: failed" in done.stdout
    assert "cannot be started" in done.stdout


def test_two_runs_on_one_state_directory(place: Path) -> None:
    until_told = "while [ ! -e go ]; do sleep 0.05; done"
    (place / "jobs.toml").write_text(JOBS.replace("sleep 0.05", until_told))
    process = begin(place, "jobs.toml", "--state", "s")
    while not (place / "done-count").exists():
        time.sleep(0.05)
    second = run("run", "--state", "s", "--resume", cwd=place)
    (place / "go").touch()
    assert second.returncode == 2
    assert second.stderr == "hesrpt: s: another scheduler is running on it\n"
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == 0


# --- the jobs file ----------------------------------------------------------------------------

GOOD = '[[job]]\nname = "a"\ncommand = "true {item}"\nitems = [1]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "jobs.toml: has no jobs"),
        ("servers = 0\n" + GOOD, "jobs.toml:1: servers must be a whole number, at least 1"),
        ("speed = 1\n" + GOOD, "jobs.toml:1: unknown key 'speed'; keys are: servers, policy, job"),
        ("[[job]\n", "jobs.toml:1: "),
        (GOOD + GOOD, "jobs.toml:6: there is already a job named 'a'"),
        (GOOD + "colour = 1\n", "jobs.toml:5: unknown key 'colour'"),
        (GOOD + "size = 'soon'\n", "jobs.toml:5: size must be a time in seconds, or like"),
        (GOOD + "p = 1.5\n", "jobs.toml:5: p must be a number between 0 and 1, got 1.5"),
        (GOOD + "retries = -1\n", "jobs.toml:5: retries must be a whole number, at least 0"),
        (GOOD + "resize = 'restart'\n", "jobs.toml:5: resize is for a job of one command"),
        (GOOD.replace("{item}", "{thing}"), "jobs.toml:3: unknown placeholder {thing}"),
        (GOOD.replace("{item}", "{servers}"), "jobs.toml:3: {servers} is for a job of one command"),
        (GOOD.replace("{item}", "{"), "jobs.toml:3: "),
        (GOOD.replace("items = [1]\n", ""), "jobs.toml:3: the command refers to items"),
        (GOOD.replace("[1]", "'*.none'"), "jobs.toml:4: no file matches '*.none'"),
        (GOOD.replace("[1]", "{lines = 'none'}"), "jobs.toml:4: "),
        (GOOD.replace("[1]", "{range = [5, 1]}"), "jobs.toml:4: a range must be like [0, 500]"),
        (GOOD.replace("[1]", "[]"), "jobs.toml:4: a list of items must hold texts or numbers"),
        (GOOD.replace("[1]", "3"), "jobs.toml:4: items must be a pattern"),
        (GOOD.replace("{item}", "{item!r}"), "jobs.toml:3: unknown placeholder {item!r}"),
        (GOOD.replace("true {item}", "echo '{item}'"), "jobs.toml:3: {item} stands in quotes"),
        (GOOD.replace("true {item}", r"echo \"a {item}\""), "jobs.toml:3: {item} stands in quotes"),
        (GOOD + "weight = nan\n", "jobs.toml:5: weight must be a number greater than 0"),
        (GOOD + "size = inf\n", "jobs.toml:5: size must be a time"),
        ('job = [{name="a", comand="x"}]\n', "jobs.toml:1: unknown key 'comand'"),
        ("job = [1, 2]\n", "jobs.toml:1: a job must be a table, got 1"),
        (GOOD.replace('"a"', "3"), "jobs.toml:2: name must be a text, got 3"),
        (GOOD.replace('"true {item}"', "3"), "jobs.toml:3: command must be a text for the shell"),
    ],
)
def test_jobs_files_are_checked_completely(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_jobs(text, "jobs.toml", tmp_path)
    assert str(caught.value).startswith(message)


def test_no_servers_are_a_mistake(place: Path) -> None:
    done = run("run", "jobs.toml", "--servers", "0", cwd=place)
    assert done.returncode == 2
    assert "servers must be" in done.stderr
    assert not (place / "done-count").exists()


def test_nothing_starts_if_the_file_has_a_mistake(place: Path) -> None:
    (place / "jobs.toml").write_text(JOBS + '[[job]]\nname = "x"\ncommand = "{nothing}"\n')
    done = run("run", "jobs.toml", "--state", "s", cwd=place)
    assert done.returncode == 2
    assert done.stderr.startswith("hesrpt: jobs.toml:15: unknown placeholder {nothing}")
    assert not (place / "done-count").exists()
    assert not (place / "s").exists()
    assert "JOBS.TOML is missing" in run("run", cwd=place).stderr
    assert "cannot be read" in run("run", "none.toml", cwd=place).stderr


def test_items_of_all_kinds_and_times(tmp_path: Path) -> None:
    (tmp_path / "b.txt").touch()
    (tmp_path / "a.txt").touch()
    (tmp_path / "lines").write_text("one\n\ntwo\n")
    text = "\n".join(
        f'[[job]]\nname = "{name}"\ncommand = "echo {{item}} {{{{x}}}}"\nitems = {items}\n'
        for name, items in (
            ("glob", '"*.txt"'), ("lines", '{lines = "lines"}'), ("range", "{range = [2, 5]}"),
        )
    )  # fmt: skip
    one = '[[job]]\nname = "one"\ncommand = "run {servers}"\nsize = "1h 30m"\nresize = "restart"\n'
    jobs = parse_jobs(text + one, "jobs.toml", tmp_path).jobs
    assert [job.items for job in jobs] == [
        ("a.txt", "b.txt"), ("one", "two"), ("2", "3", "4"), None,
    ]  # fmt: skip
    assert jobs[3].size == 5400
    assert all(JobRequest.from_text(job.as_text()) == job for job in jobs)
    task = jobs[0].source.create_task(0, 1, None)
    assert task.command == "echo a.txt {x}"  # type: ignore[union-attr]
