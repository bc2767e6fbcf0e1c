"""Runs of jobs files that are stopped, edited and resumed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hesrpt import InputError, Pool
from hesrpt.jobs.jobs_file import parse_jobs_file
from hesrpt.pool.batch_run import RunOptions, run_jobs
from hesrpt.reports.inspection import read_status
from hesrpt.scheduler.job_registry import OnChange
from hesrpt.scheduler.requests import submit_jobs
from hesrpt.storage.journal_entries import JobRecord


class StopError(Exception):
    """The run was stopped on purpose."""


class Run:
    """A run of jobs, of which some items append a line to a file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state, self.output = folder, folder / "s", folder / "output"
        self.lines: list[str] = []
        self.servers = 2

    def go(
        self,
        *jobs: dict[str, Any],
        on_change: OnChange = "error",
        display: Callable[[Pool], None] = lambda pool: None,
    ) -> dict[str, str]:
        """Run or resume jobs until they end; return the states of the jobs that had to run."""
        self.output.write_text("")
        self.lines.clear()
        options = RunOptions(servers=self.servers, state=self.state, on_change=on_change)
        pool = run_jobs(self.parse(*jobs), options, display, self.lines.append)
        return {job.name: job.state for job in pool.jobs}

    def parse(self, *jobs: dict[str, Any]) -> Any:
        if not jobs:
            return ()
        tables = "".join(
            "[[job]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in job.items())
            for job in jobs
        )
        return parse_jobs_file(tables, "jobs.toml", self.folder).jobs

    def submit(self, *jobs: dict[str, Any]) -> None:
        submit_jobs(self.state, self.parse(*jobs))

    @property
    def done(self) -> list[str]:
        """What the last run has done."""
        return sorted(self.output.read_text().split())

    @property
    def records(self) -> dict[str, JobRecord]:
        return {record.name: record for record in read_status(self.state).jobs}


@pytest.fixture
def batch(tmp_path: Path) -> Run:
    return Run(tmp_path)


def create_job(name: str, items: str | None, **options: Any) -> dict[str, Any]:
    if items is not None:
        options["items"] = [*items]
    return {"name": name, "command": f"echo {name}{{item}} >> output", **options}


def test_changed_items_are_matched(batch: Run) -> None:
    assert batch.go(create_job("a", "bc")) == {"a": "done"}
    assert batch.go(create_job("a", "abc"), create_job("b", "x")) == {"a": "done", "b": "done"}
    assert batch.done == ["aa", "bx"]
    assert batch.go(create_job("a", "cba"), create_job("b", "x")) == {"a": "done"}
    assert batch.go(create_job("a", "cb"), create_job("b", "x")) == {"a": "done"}
    assert batch.done == []
    assert (batch.records["a"].done, batch.records["a"].items) == (2, 2)
    assert batch.go(create_job("a", "cb"), create_job("b", "x")) == {}
    assert batch.go() == {}
    assert batch.lines == []


def test_changed_command_is_refused_redone_or_kept(batch: Run) -> None:
    before, after = (create_job("a", "xy", command=f"echo {n}{{item}} >> output") for n in (1, 2))
    other = create_job("b", "z")
    batch.go(before, other, create_job("c", "x", command="false"))
    records = batch.records
    assert records["c"].state == "failed"
    with pytest.raises(InputError) as caught:
        batch.go(after, other)
    assert "the commands of these jobs have changed since results were recorded: 'a'; " in (
        str(caught.value)
    )
    assert "--on-change redo" in str(caught.value)
    assert (batch.done, batch.records) == ([], records)
    after["items"].append("z")
    assert batch.go(after, other, on_change="keep") == {"a": "done"}
    assert batch.done == ["2z"]
    assert batch.go(after, other) == {}
    before["items"] = after["items"]
    assert batch.go(before, other, on_change="redo") == {"a": "done"}
    assert batch.done == ["1x", "1y", "1z"]
    assert batch.go(before, other) == {}
    assert batch.go(after, other, on_change="keep") == {"a": "done"}  # with nothing to do
    assert (batch.done, batch.go(after, other)) == ([], {})


def test_changed_command_without_items_is_done_again(batch: Run) -> None:
    batch.go({"name": "a", "command": "echo 1 >> output"})
    changed = {"name": "a", "command": "echo 2 >> output"}
    with pytest.raises(InputError, match="have changed"):
        batch.go(changed)
    assert batch.go(changed, on_change="redo") == {"a": "done"}
    assert batch.done == ["2"]


def test_positions_count_if_the_command_uses_them(batch: Run) -> None:
    command = "echo {item}-{index} >> output"
    batch.go(create_job("a", "xy", command=command))
    batch.go(create_job("a", "zxy", command=command))
    assert batch.done == ["x-1", "y-2", "z-0"]


def test_new_options_apply_and_failed_jobs_are_tried_again(batch: Run) -> None:
    failing = create_job("a", "x", command="echo {item} >> output; test -e ok", retries=0, weight=2)
    assert batch.go(failing) == {"a": "failed"}
    assert batch.done == ["x"]
    failing |= {"retries": 2, "weight": 5}
    assert batch.go(failing) == {"a": "failed"}
    assert batch.done == ["x", "x", "x"]
    assert (batch.records["a"].failures, batch.records["a"].spec.weight) == (4, 5)
    (batch.folder / "ok").touch()
    assert batch.go() == {"a": "done"}


def test_job_that_is_gone_from_the_file_is_not_run_any_more(batch: Run) -> None:
    batch.servers = 1  # one item after another
    stuck = create_job("a", "xy", command="echo {item} >> output; test {item} = x", retries=0)
    other = create_job("b", "z")
    assert batch.go(stuck, other) == {"a": "failed", "b": "done"}
    assert batch.go(other) == {}
    assert batch.lines == ["a: is no longer in the jobs file, and is not run any more"]
    assert (batch.records["a"].state, batch.records["a"].done) == ("cancelled", 1)
    assert batch.go() == {}
    assert batch.go(other) == {}
    assert batch.lines == []  # it is known already
    # It continues if it is in the file again.
    assert batch.go(stuck, other) == {"a": "failed"}
    assert batch.done == ["y"]


def test_submitted_jobs_stay_as_they_were(batch: Run) -> None:
    batch.go(create_job("a", "x"))
    batch.submit(create_job("a", "yz", command="echo again{item} >> output; test -e ok", retries=0))
    assert batch.go(create_job("a", "x")) == {"a (2)": "failed"}
    assert batch.go(create_job("a", "xw"), create_job("b", "v")) == {
        "a": "done",
        "a (2)": "failed",
        "b": "done",
    }
    assert {*batch.done} >= {"aw", "bv"}
    assert "ax" not in batch.done
    (batch.folder / "ok").touch()
    assert batch.go(create_job("c", "u")) == {"a (2)": "done", "c": "done"}
    assert batch.done == ["againy", "againz", "cu"]
    assert {name: record.done for name, record in batch.records.items()} == {
        "a": 2,
        "a (2)": 2,
        "b": 1,
        "c": 1,
    }
    batch.submit(create_job("a", "x"))
    assert batch.go(create_job("a (2)", "x", command="true")) == {
        "a (3)": "done",
        "a (2) (2)": "done",
    }


@pytest.mark.parametrize("recorded", [0, 1, 3, 6, 8])
def test_jobs_of_the_same_name_are_done_once_however_often_the_run_is_stopped(
    batch: Run, recorded: int
) -> None:
    """Each item is recorded once; only items that run when the run is stopped may run twice."""
    ran: Counter[str] = Counter()
    jobs = [create_job("a", "123")]
    to_submit = [create_job("a", "123456", command="echo second{item} >> output")]

    def stop(pool: Pool) -> None:
        if sum(record.done for record in batch.records.values()) >= recorded:
            raise StopError

    def submit_and_stop(pool: Pool) -> None:
        if to_submit:
            batch.submit(to_submit.pop())
        stop(pool)

    for display in (submit_and_stop, stop):
        with pytest.raises(StopError):
            batch.go(*jobs, display=display)
        ran.update(batch.done)
    batch.go(*jobs)
    ran.update(batch.done)
    assert {name: (record.state, record.done) for name, record in batch.records.items()} == {
        "a": ("done", 3),
        "a (2)": ("done", 6),
    }
    expected = {f"a{n}" for n in "123"} | {f"second{n}" for n in "123456"}
    assert {*ran} == expected
    assert max(ran.values()) <= 1 + 2
    batch.go(*jobs)
    assert batch.done == []


def test_second_scheduler_is_refused_even_if_both_start_the_run(batch: Run) -> None:
    def start_another(pool: Pool) -> None:
        # As if it had looked before the first one created the directory.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("hesrpt.pool.batch_run.holds_run", lambda directory: False)
            patch.setattr("hesrpt.storage.state_directory._LOCK_TIMEOUT", 0.1)
            with pytest.raises(InputError, match="another scheduler is running on it"):
                batch.go(create_job("a", "x"))

    assert batch.go(create_job("a", "x"), display=start_another) == {"a": "done"}
