"""hesrpt run, submit, status, logs and report: as processes, killed and resumed."""

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
from support.shell import assert_refused, call, run
from support.waiting import wait_until

from hesrpt import Pool
from hesrpt.engines.local.processes import MARKS_VARIABLE
from hesrpt.reports.inspection import read_status

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
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.toml").write_text(JOBS)
    return tmp_path


def start_run(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "hesrpt", "run", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "RUN_OF_TEST": str(folder)},
        # If the tests run in the background, their children would ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def find_processes(folder: Path) -> list[str]:
    """Return the processes that a run in this folder has started and not ended."""
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            if environment.get("RUN_OF_TEST") == str(folder) and process.status() != "zombie":
                found.append(
                    f"{process.pid} {' '.join(process.cmdline())} {environment.get(MARKS_VARIABLE)}"
                )
        except (psutil.Error, OSError):
            continue
    return found


def assert_no_process_remains(folder: Path) -> None:
    wait_until(lambda: find_processes(folder) == [])


def hold_items(folder: Path) -> None:
    """Let the items of the longer job wait for a file, so that the run does not end by itself."""
    wait_for_file = "while [ ! -e go ]; do sleep 0.02; done"
    (folder / "jobs.toml").write_text(JOBS.replace("sleep 0.05", wait_for_file))


def test_run_prints_flow_times_and_alternatives(folder: Path) -> None:
    done = run("run", "jobs.toml", "--log", "log.txt", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "letters: done after" in done.stdout
    log = (folder / "log.txt").read_text()
    assert re.search(r"^\S+ \S+ INFO letters: arrived, 4 items$", log, re.MULTILINE)
    assert re.search(r"^\S+ \S+ INFO letters: done after .* m?s, 4 items done$", log, re.MULTILINE)
    assert re.search(r"mean flow time +\S+ s +measured +adaptive on 2 servers", done.stdout)
    for policy in ("adaptive", "FIFO", "EQUI"):
        assert re.search(rf"[\d.]+ ± [\d.]+ s +simulated +{policy}\n", done.stdout), done.stdout
    assert sorted((folder / "letters").read_text().splitlines()) == ["$HOME", "a", "b c", "it's"]
    assert len((folder / "done-count").read_text().split()) == 30
    assert_no_process_remains(folder)


def test_state_status_logs_and_report(folder: Path) -> None:
    done = call("run", "jobs.toml", "--state", "s", "--json", "--policy", "equi", cwd=folder)
    printed = json.loads(done.stdout)
    assert printed["policy"] == "equi"
    assert [(job["name"], job["state"], job["done"]) for job in printed["jobs"]] == [
        ("count", "done", 30),
        ("letters", "done", 4),
    ]
    status = json.loads(call("status", "s", "--json", cwd=folder).stdout)
    assert status["running"] is False
    assert [job["done"] for job in status["jobs"]] == [30, 4]
    assert "no scheduler is running" in call("status", "s", cwd=folder).stdout
    assert call("logs", "s", "letters", "1", cwd=folder).stdout == "said it's\n"
    assert "--- letters, item 0 ('a')\n" in call("logs", "s", "letters", cwd=folder).stdout
    missing = call("logs", "s", "nothing", cwd=folder)
    assert missing.returncode == 2
    assert "there is no job 'nothing' in s; jobs are: count, letters" in missing.stderr
    report = call("report", "s", "--csv", "r.csv", "--plot", "r.png", cwd=folder)
    assert re.search(r"measured +EQUI on 2 servers", report.stdout)
    assert re.search(r"simulated +FIFO", report.stdout)
    learned = json.loads(call("status", "s", "--learned", "--json", cwd=folder).stdout)["kinds"]
    assert [(kind["kind"], kind["runs"], kind["items"]) for kind in learned] == [
        ("count", 1, 30),
        ("letters", 1, 4),
    ]
    assert learned[0]["item_seconds"] > 0.04
    assert learned[0]["p_origin"] in ("prior", "learned")
    table = call("status", "s", "--learned", cwd=folder).stdout
    row = r"^count +items +1 +30 +[\d.]+ ± [\d.]+ m?s +0\.\d+ ± 0\.\d+"
    assert re.search(row, table, re.MULTILINE)
    assert len((folder / "r.csv").read_text().splitlines()) == 3
    assert (folder / "r.png").stat().st_size > 1000
    as_json = json.loads(call("report", "s", "--json", cwd=folder).stdout)
    mean = as_json["metrics"]["mean_flow_time"]
    assert as_json["comparison"] == printed["comparison"]
    assert as_json["comparison"]["measured"] == {"policy": "equi", "mean_flow_time": mean}
    own, *others = as_json["comparison"]["simulated"]
    assert own["policy"] == "equi"
    assert abs(own["mean_flow_time"] - mean) <= own["margin"] * (1 + 1e-9)
    assert [other["policy"] for other in others] == ["adaptive", "fifo"]
    again = call("run", "jobs.toml", "--state", "s", cwd=folder)
    assert (again.returncode, again.stdout) == (
        0,
        "nothing is left to do: all jobs in s have ended\n",
    )


def test_failed_job_shows_its_error_and_last_lines(folder: Path) -> None:
    (folder / "jobs.toml").write_text(
        '[[job]]\nname = "bad"\nitems = [1]\ncommand = "echo before the end; exit 3"\n'
        '[[job]]\nname = "good"\nitems = [1, 2]\ncommand = "true"\n'
    )
    done = call("run", "jobs.toml", "--state", "s", "--servers", "1", cwd=folder)
    assert done.returncode == 1
    assert "bad: failed" in done.stdout
    assert "item 0 ('1'): exit code 3" in done.stdout
    assert "before the end" in done.stdout
    assert "good: done" in done.stdout
    status = json.loads(call("status", "s", "--json", cwd=folder).stdout)
    report = call("report", "s", cwd=folder).stdout
    assert "bad failed: item 0 ('1'): exit code 3\n    before the end\n" in report
    assert [(job["state"], job["failed_attempts"]) for job in status["jobs"]] == [
        ("failed", 2),
        ("done", 0),
    ]
    # A resumed run tries failed jobs again.
    (folder / "jobs.toml").unlink()
    again = call("run", "--state", "s", "--servers", "1", cwd=folder)
    assert again.returncode == 1
    status = json.loads(call("status", "s", "--json", cwd=folder).stdout)
    assert status["jobs"][0]["failed_attempts"] == 4
    lines = call("status", "s", cwd=folder).stdout.splitlines()
    assert lines[1].split()[:4] == ["bad", "failed", "0/1", "1"]  # items, not attempts
    assert lines[-1] == (
        "no scheduler is running; run failed items again with: hesrpt run --state s"
    )


@pytest.mark.parametrize(
    "sent", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_stopped_run_says_how_to_continue_and_leaves_no_process(
    folder: Path, sent: signal.Signals
) -> None:
    hold_items(folder)
    process = start_run(folder, "jobs.toml", "--state", "s")
    wait_until((folder / "done-count").exists)
    process.send_signal(sent)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "cancelled" not in stdout  # its jobs will go on
    assert "hesrpt: stopped; continue with: hesrpt run --state s\n" in stderr
    assert "Traceback" not in stderr
    assert_no_process_remains(folder)
    (folder / "go").touch()
    done = call("run", "--state", "s", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert {*(folder / "done-count").read_text().split()} == {str(item) for item in range(30)}


def test_killed_run_loses_and_repeats_no_recorded_item(folder: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    arguments = ["jobs.toml", "--state", "s"]
    for _ in range(2):
        process = start_run(folder, *arguments)
        time.sleep(rng.uniform(0.3, 1.6))
        process.kill()
        process.communicate()
        assert_no_process_remains(folder)
        if (folder / "s" / "state.db").exists():
            # The jobs file is needed if the run was killed before the jobs were recorded.
            arguments = ["jobs.toml", "--state", "s"]
            finished = count_recorded_items(folder)
            assert finished <= 34
    done = call("run", *arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert count_recorded_items(folder) == 34
    # Recorded items did not run again; only items running at a kill may have run twice.
    ran = (folder / "done-count").read_text().split()
    assert {*ran} == {str(item) for item in range(30)}
    assert len(ran) <= 30 + 2 * 3


def count_recorded_items(folder: Path) -> int:
    status = call("status", "s", "--json", cwd=folder)
    return sum(job["done"] for job in json.loads(status.stdout)["jobs"]) if status.stdout else 0


def test_python_results_survive_a_kill(folder: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    (folder / "script.py").write_text(
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
    environment = {**os.environ, "RUN_OF_TEST": str(folder)}
    process = subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(rng.uniform(0.6, 1.4))
    process.kill()
    process.wait()
    assert_no_process_remains(folder)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == f"{sum(x * x for x in range(60))}\n"


@pytest.mark.slow
def test_work_of_a_job_without_a_result_is_that_of_its_attempts(folder: Path) -> None:
    """Even if it fails again in a later run, long after its arrival."""
    (folder / "jobs.toml").write_text(
        '[[job]]\nname = "bad"\nitems = ["x"]\ncommand = "exit 3"\nretries = 0\n'
        '[[job]]\nname = "long"\nitems = ["y"]\ncommand = "sleep 3"\n'
    )
    call("run", "jobs.toml", "--state", "s", "--servers", "1", cwd=folder)
    done = call("run", "jobs.toml", "--state", "s", cwd=folder)
    assert "bad: failed" in done.stdout
    assert "item 0 ('x'): exit code 3" in done.stdout
    assert "the run was resumed: the time when no scheduler ran counts nowhere" in done.stdout
    bad = json.loads(call("report", "s", "--json", cwd=folder).stdout)["jobs"][0]
    assert bad["job"] == "bad"
    assert bad["size"] < 2 < 3 < bad["flow_time"]


def test_submitted_jobs_join_the_run(folder: Path) -> None:
    (folder / "more.toml").write_text(
        '[[job]]\nname = "more"\nitems = [1, 2]\ncommand = "echo {item} >> more"\n'
        '[[job]]\nname = "count"\nitems = [7]\ncommand = "true"\n'
    )
    hold_items(folder)
    process = start_run(folder, "jobs.toml", "--state", "s")
    wait_until((folder / "done-count").exists)
    submitted = call("submit", "s", "more.toml", cwd=folder)
    assert submitted.stdout == "added: more, count (2)\n"
    (folder / "go").touch()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "more: done" in out
    assert "count (2): done" in out
    late = call("submit", "s", "more.toml", cwd=folder)
    assert late.stdout == ("added: more (2), count (3); they start with: hesrpt run --state s\n")
    status = call("status", "s", cwd=folder).stdout
    assert re.search(r"^more \(2\) +submitted +0/2", status, re.MULTILINE)
    assert "no scheduler is running; continue with: hesrpt run --state s\n" in status
    as_json = json.loads(call("status", "s", "--json", cwd=folder).stdout)
    assert as_json["submitted"] == ["more (2)", "count (3)"]
    done = call("run", "--state", "s", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "more (2): done" in done.stdout
    assert "count (3): done" in done.stdout


def test_resumed_run_continues_a_renamed_job(folder: Path) -> None:
    """A submitted job that shares its name with a finished one is resumed under its own name."""
    (folder / "jobs.toml").write_text('[[job]]\nname = "a"\nitems = [1]\ncommand = "true"\n')
    (folder / "more.toml").write_text(
        '[[job]]\nname = "a"\nitems = {range = [0, 12]}\n'
        'command = "echo {item} >> {job}-again; while [ ! -e go ]; do sleep 0.02; done"\n'
    )
    assert call("run", "jobs.toml", "--state", "s", "--servers", "1", cwd=folder).returncode == 0
    call("submit", "s", "more.toml", cwd=folder)
    process = start_run(folder, "--state", "s")
    wait_until((folder / "a-again").exists)
    process.kill()
    process.communicate()
    assert_no_process_remains(folder)
    (folder / "go").touch()
    done = call("run", "--state", "s", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "a (2): done" in done.stdout
    assert {*(folder / "a-again").read_text().split()} == {str(item) for item in range(12)}


def test_resumed_run_with_its_jobs_file_repeats_nothing(folder: Path) -> None:
    hold_items(folder)
    process = start_run(folder, "jobs.toml", "--state", "s", "--policy", "fifo")
    wait_until((folder / "done-count").exists)
    process.kill()
    process.communicate()
    assert_no_process_remains(folder)
    (folder / "go").touch()
    done = call("run", "jobs.toml", "--state", "s", "--json", cwd=folder)
    printed = json.loads(done.stdout)
    assert printed["policy"] == "fifo"
    assert {job["name"] for job in printed["jobs"]} <= {"count", "letters"}
    assert len((folder / "done-count").read_text().split()) <= 30 + 3
    nothing = call("run", "--state", "s", cwd=folder)
    assert nothing.returncode == 0
    assert nothing.stdout == "nothing is left to do: all jobs in s have ended\n"


def test_python_job_waits_for_its_script(tmp_path: Path) -> None:
    with Pool(servers=1, state=tmp_path / "s") as pool:
        pool.map(time.sleep, [60], name="long")
        wait_until(lambda: len(read_status(tmp_path / "s").jobs) == 1)
        pool.close()
    hint = "; Python jobs continue when their script is run with Pool(…, resume=True)\n"
    status = call("status", "s", cwd=tmp_path).stdout
    assert status.endswith("no scheduler is running" + hint)
    done = call("run", "--state", "s", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (
        0,
        "nothing is left to do: all commands in s have ended" + hint,
    )


def test_edited_jobs_file_is_matched_with_the_run(folder: Path) -> None:
    """The rest is in tests/pool/test_batch_run.py."""

    def write(command: str, items: str) -> None:
        (folder / "jobs.toml").write_text(
            f'[[job]]\nname = "a"\nitems = {items}\ncommand = "{command} {{item}} >> ran"\n'
        )

    def resume(*options: str) -> subprocess.CompletedProcess[str]:
        (folder / "ran").write_text("")
        return call("run", "jobs.toml", "--state", "s", *options, cwd=folder)

    write("echo", '["x", "y"]')
    assert call("run", "jobs.toml", "--state", "s", "--servers", "1", cwd=folder).returncode == 0
    write("echo new", '["z", "y"]')
    assert_refused(
        resume(), "s: the commands of these jobs have changed since results were recorded"
    )
    assert_refused(
        resume("--on-change", "ask"), "'--on-change': 'ask' is not one of 'error', 'redo', 'keep'"
    )
    assert resume("--on-change", "keep").returncode == 0
    assert (folder / "ran").read_text() == "new z\n"
    assert (
        resume("--on-change", "redo").stdout == "nothing is left to do: all jobs in s have ended\n"
    )
    (folder / "jobs.toml").write_text('[[job]]\nname = "b"\nitems = [1]\ncommand = "false"\n')
    assert "b: failed" in resume().stdout
    write("echo new", '["z", "y"]')
    printed = resume().stdout
    assert printed.startswith("b: is no longer in the jobs file, and is not run any more\n")
    status = json.loads(call("status", "s", "--json", cwd=folder).stdout)
    assert [(job["name"], job["state"]) for job in status["jobs"]] == [
        ("a", "done"),
        ("b", "cancelled"),
    ]


def test_all_jobs_are_recorded_before_any_starts(folder: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    (folder / "jobs.toml").write_text(
        "".join(
            f'[[job]]\nname = "j{n}"\nitems = [1]\ncommand = "echo {n} >> ran"\n'
            for n in range(100)
        )
    )
    process = start_run(folder, "jobs.toml", "--state", "s")
    while not (folder / "s" / "state.db").exists():
        assert process.poll() is None
        time.sleep(0.002)
    time.sleep(rng.uniform(0, 0.15))
    process.kill()
    process.communicate()
    assert_no_process_remains(folder)
    status = json.loads(call("status", "s", "--json", cwd=folder).stdout)
    assert len(status["jobs"]) in (0, 100)


@pytest.mark.slow
def test_nested_run_leaves_no_process(folder: Path) -> None:
    (folder / "inner.toml").write_text('[[job]]\nname = "i"\nitems = [1]\ncommand = "sleep 99"\n')
    (folder / "jobs.toml").write_text(
        f'[[job]]\nname = "o"\nitems = [1]\ncommand = "{sys.executable} -m hesrpt run inner.toml"\n'
    )
    process = start_run(folder, "jobs.toml")
    wait_until(lambda: any("sleep 99" in process for process in find_processes(folder)))
    process.kill()
    process.communicate()
    assert_no_process_remains(folder)


def test_item_with_a_null_character_is_refused(folder: Path) -> None:
    (folder / "jobs.toml").write_text(
        '[[job]]\nname = "nul"\nitems = ["a\\u0000b"]\ncommand = ["echo", "{item}"]\n'
    )
    done = call("run", "jobs.toml", cwd=folder)
    assert_refused(done, "jobs.toml:3: an item cannot contain a zero byte")


def test_second_run_on_a_state_directory_is_refused(folder: Path) -> None:
    hold_items(folder)
    process = start_run(folder, "jobs.toml", "--state", "s")
    wait_until((folder / "done-count").exists)
    second = call("run", "--state", "s", cwd=folder)
    (folder / "go").touch()
    assert second.returncode == 2
    assert second.stderr == "hesrpt: s: another scheduler is running on it\n"
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == 0


def test_zero_servers_are_refused(folder: Path) -> None:
    done = call("run", "jobs.toml", "--servers", "0", cwd=folder)
    assert done.returncode == 2
    assert "servers must be" in done.stderr
    assert not (folder / "done-count").exists()


def test_nothing_starts_if_the_jobs_file_has_an_error(folder: Path) -> None:
    (folder / "jobs.toml").write_text(JOBS + '[[job]]\nname = "x"\ncommand = "{nothing}"\n')
    done = call("run", "jobs.toml", "--state", "s", cwd=folder)
    assert done.returncode == 2
    assert done.stderr.startswith("hesrpt: jobs.toml:15: unknown placeholder {nothing}")
    assert not (folder / "done-count").exists()
    assert not (folder / "s").exists()
    assert "JOBS.TOML is missing" in call("run", cwd=folder).stderr
    assert "cannot be read" in call("run", "none.toml", cwd=folder).stderr
