"""Jobs of a real pool that wait for others, belong to groups, and share GPUs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from support.waiting import wait_until
from typer.testing import CliRunner

from hesrpt import InputError, Pool
from hesrpt.cli.main import app
from hesrpt.jobs.jobs_file import parse_jobs_file, read_jobs_file
from hesrpt.pool.batch_run import RunOptions, run_jobs
from hesrpt.reports.inspection import list_logs, read_job_names, read_status
from hesrpt.scheduler.requests import request_change, submit_jobs


def fail(item: object) -> None:
    raise ValueError(item)


def see_gpus(seconds: float) -> tuple[str, int]:
    time.sleep(seconds)
    return os.environ["CUDA_VISIBLE_DEVICES"], os.getpid()


def test_items_of_a_job_that_waits_are_read_when_it_starts(tmp_path: Path) -> None:
    written = tmp_path / "written"
    with Pool(2) as pool:
        first = pool.map(lambda path: Path(path).write_text("x"), [str(written)], name="first")
        second = pool.map(len, (path.name for path in tmp_path.iterdir()), after=first)
        assert second.results() == [len("written")]


def test_failed_predecessor_is_retried_with_those_that_waited_for_it(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with Pool(2) as pool:
        first = pool.map(lambda path: Path(path).read_text(), [str(gate)], name="first", retries=0)
        second = pool.map(abs, [-1], name="second", after=["first"])
        assert second.wait(60)
        assert (second.state, "'first'" in (second.error or "")) == ("cancelled", True)
        gate.write_text("open")
        first.retry()
        assert first.results() == ["open"]
        assert second.wait(60)
        assert second.results() == [1]


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    with Pool(1) as pool, pytest.raises(InputError, match="it waits for 'nobody', but there is no"):
        pool.map(abs, [1], after="nobody")


@pytest.mark.slow
def test_workers_have_gpus_of_their_own() -> None:
    with Pool(4, resources={"gpu": 2}) as pool:
        jobs = [pool.map(see_gpus, [0.2] * 2, name=str(n), resources={"gpu": 1}) for n in range(2)]
        plain = pool.map(see_gpus, [0.0] * 3, name="plain")
        both = pool.map(see_gpus, [0.0], name="both", resources={"gpu": 2}, after=jobs)
        seen = [result for job in jobs for result in job.results()]
        assert {gpus for gpus, _ in seen} == {"0", "1"}
        workers: dict[int, set[str]] = {}
        for gpus, pid in seen + plain.results() + both.results():
            workers.setdefault(pid, set()).add(gpus)
        assert all(len(gpus) == 1 for gpus in workers.values())  # none was switched
        assert {gpus for gpus, _ in plain.results()} == {""}
        assert both.results()[0][0] == "0,1"


def test_jobs_that_can_never_run_are_refused() -> None:
    with Pool(1, resources={"gpu": 1, "memory": "4GB"}) as pool:
        with pytest.raises(InputError, match="each item needs 2 gpu, but there is only 1"):
            pool.map(abs, [1], resources={"gpu": 2})
        with pytest.raises(InputError, match="5 GB memory, but there is only 4 GB"):
            pool.map(abs, [1], resources={"memory": "5GB"})
        with pytest.raises(InputError, match="needs 1 licence, but how much there is was not said"):
            pool.map(abs, [1], resources={"licence": 1})


JOBS = """
servers = 2
resources = {gpu = 1}
[[group]]
name = "nightly"
weight = 3
[[job]]
name = "first"
command = "echo $CUDA_VISIBLE_DEVICES"
resources = {gpu = 1}
group = "nightly"
[[job]]
name = "last"
command = "test -n \\"$HESRPT_GO\\""
retries = 0
after = ["first"]
"""


def test_jobs_file_runs_in_order_and_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = parse_jobs_file(JOBS, "jobs.toml", tmp_path)
    state = tmp_path / "state"
    options = RunOptions(
        servers=2,
        state=state,
        engine_options={"resources": file.resources},
        group_weights=file.group_weights,
    )
    run_jobs(file.jobs, options)
    status = read_status(state)
    assert [job.state for job in status.views] == ["done", "failed"]
    assert list_logs(state, "first")[0].path.read_text() == "0\n"
    assert status.groups["nightly"].weight == 3
    request_change(state, "weight", [], group="nightly", weight=5.0, timeout=0)
    late = parse_jobs_file(JOBS.replace('"first"', '"late"'), "late.toml", tmp_path, {"last"})
    submit_jobs(state, [late.jobs[0]])
    assert read_job_names(state) == {"first", "last", "late"}
    monkeypatch.setenv("HESRPT_GO", "1")
    run_jobs((), RunOptions(state=state))  # the machine still has a GPU, as it did before
    status = read_status(state)
    assert [(job.name, job.state) for job in status.views] == [
        ("first", "done"),
        ("last", "done"),
        ("late", "done"),
    ]
    assert status.groups["nightly"].weight == 5  # until the file gives it another one


def test_groups_are_steered_from_the_shell(tmp_path: Path) -> None:
    state = tmp_path / "state"
    run = CliRunner()
    with Pool(1, state=state) as pool:
        pool.pause_group("g")
        job = pool.map(abs, [-1], group="g", name="job")
        _wait_for_state(job.name, state, "paused")
        assert (job.state, job.servers) == ("paused", 0)
        done = run.invoke(app, ["weight", str(state), "--group", "g", "4"])
        assert done.output == "group g: now has weight 4\n"
        assert pool.groups["g"].weight == 4
        done = run.invoke(app, ["resume", str(state), "--group", "g"])
        assert done.output == "group g: resumed\n"
        assert job.results() == [1]
    with Pool(1, state=state, resume=True) as pool:
        assert (pool.groups["g"].weight, pool.groups["g"].is_paused) == (4.0, False)
        pool.pause_group("g")
        gated = pool.map(abs, [-1], group="g", name="gated")
        _wait_for_state(gated.name, state, "paused")
        assert run.invoke(app, ["cancel", str(state), "--group", "g"]).exit_code == 0
        assert gated.wait(60)
        assert gated.state == "cancelled"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'after = ["b"]\n',
            "jobs.toml:4: job 'a': there is no job 'b' to wait for",
        ),
        ('after = ["a"]\n', "jobs.toml:4: jobs wait for each other: 'a' waits for 'a'"),
        ("after = 3\n", "jobs.toml:4: after must be a list of names of jobs, got 3"),
        (
            'after_failure = "go"\n',
            "jobs.toml:4: after_failure must be 'cancel' or 'release'",
        ),
        ("group = 1\n", "jobs.toml:4: group must be a name without line breaks, got 1"),
        ("resources = {gpu = 0.5}\n", "jobs.toml:4: resources must have whole gpus, got 0.5"),
        ("on_end = 1\n", "jobs.toml:4: on_end must be a command, an address such as"),
        ('[[group]]\nname = "g"\nweight = 0\n', "jobs.toml:6: weight must be a number greater"),
        ('[[group]]\nname = "g"\n[[group]]\nname = "g"\n', "jobs.toml:7: there is already a group"),
        ('[[group]]\nnam = "g"\n', "jobs.toml:5: unknown key 'nam'; did you mean 'name'?"),
    ],
)
def test_errors_name_the_file_and_the_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text(f'[[job]]\nname = "a"\ncommand = "true"\n{text}')
    with pytest.raises(InputError) as caught:
        read_jobs_file(file)
    assert str(caught.value).removeprefix(f"{tmp_path}/").startswith(message)


def _wait_for_state(name: str, state: Path, expected: str) -> None:
    def is_in_state() -> bool:
        jobs = read_status(state).views
        return any(job.name == name and job.state == expected for job in jobs)

    wait_until(is_in_state)
