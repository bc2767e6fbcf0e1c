"""hesrpt cancel, pause, resume, retry and weight: on runs that are running, and on others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.inline_engine import InlineEngine
from support.served_queue import OWNER, URL, AppTransport, ServedQueue, serve_queue
from support.shell import assert_refused, call
from support.waiting import wait_until

from hesrpt import Client, Pool
from hesrpt.cli.run_access import ServiceRun
from hesrpt.engines.fake import FakeEngine
from hesrpt.reports.inspection import read_status
from hesrpt.service.client import ServiceError


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    """A pool of a script with two jobs, whose items never end."""
    engine = FakeEngine(2, lambda job, item, width: 1e9)
    created = Pool(state=tmp_path / "s", engine=engine)
    for name in ("big", "small"):
        created.map(abs, range(8), name=name, size=100.0)
    wait_until(lambda: len(read_status(tmp_path / "s").jobs) == 2)
    yield created
    created.close()


def test_jobs_of_a_running_script_are_steered(tmp_path: Path, pool: Pool) -> None:
    big, small = pool.jobs
    wait_until(lambda: "running" in (big.state, small.state))
    done = call("pause", "s", "--all", cwd=tmp_path)
    assert sorted(done.stdout.splitlines()) in (
        ["big: paused", "small: paused; items that are running end first"],
        ["big: paused; items that are running end first", "small: paused"],
        [
            "big: paused; items that are running end first",
            "small: paused; items that are running end first",
        ],
    )
    assert (big.state, small.state) == ("paused", "paused")
    assert call("resume", "s", "big", cwd=tmp_path).stdout == "big: resumed\n"
    assert call("resume", "s", "big", cwd=tmp_path).stdout == "big: was not paused\n"
    assert (big.state in ("running", "waiting"), small.state) == (True, "paused")
    weighed = call("weight", "s", "big", "small", "2.5", cwd=tmp_path)
    assert weighed.stdout == "big: now has weight 2.5\nsmall: now has weight 2.5\n"
    assert (big.weight, small.weight) == (2.5, 2.5)
    assert call("cancel", "s", "small", cwd=tmp_path).stdout == "small: cancelled\n"
    assert (small.wait(60), small.state) == (True, "cancelled")
    refused = call("pause", "s", "small", "big", "--json", cwd=tmp_path)
    assert refused.returncode == 1
    first, second = json.loads(refused.stdout)["jobs"]
    assert (first["name"], first["refused"], first["text"]) == (
        "small",
        True,
        "is cancelled already",
    )
    assert (second["name"], second["refused"], second["answered"]) == ("big", False, True)


def test_requests_wait_for_the_next_scheduler(tmp_path: Path, pool: Pool) -> None:
    pool.close()
    printed = call("pause", "s", "big", cwd=tmp_path).stdout
    assert printed == (
        "big: will be paused when the run goes on\n"
        "no scheduler is running; Python jobs continue when their script is run with "
        "Pool(…, resume=True)\n"
    )
    call("cancel", "s", "small", cwd=tmp_path)
    call("weight", "s", "big", "7", cwd=tmp_path)
    status = call("status", "s", cwd=tmp_path).stdout
    assert "requested for big, but not done yet: pause\n" in status
    assert "requested for small, but not done yet: cancel\n" in status
    of_big = call("status", "s", "big", cwd=tmp_path).stdout
    assert "requested for big, but not done yet: weight 7\n" in of_big
    assert "requested for small" not in of_big
    assert of_big.splitlines()[-1] == status.splitlines()[-1]  # no scheduler is running
    requests = json.loads(call("status", "s", "--json", cwd=tmp_path).stdout)["requests"]
    assert [(each["kind"], each["job"], each["weight"]) for each in requests] == [
        ("pause", "big", None),
        ("cancel", "small", None),
        ("weight", "big", 7.0),
    ]
    engine = FakeEngine(2, lambda job, item, width: 1e9)
    with closing(Pool(state=tmp_path / "s", resume=True, engine=engine)) as again:
        small = again.map(abs, range(8), name="small")
        assert (small.wait(60), small.state) == (True, "cancelled")
        big = again.map(abs, range(8), name="big")
        wait_until(lambda: big.state == "paused" and not read_status(tmp_path / "s").changes)
        assert (big.weight, again.snapshot().held) == (7, {"big": 0})
        assert engine._starts == 0  # neither has started an item
    with closing(Pool(state=tmp_path / "s", resume=True, engine=FakeEngine(2))) as again:
        small = again.map(abs, range(8), name="small")
        assert (small.state, small.error) == ("cancelled", "cancelled on request")


def test_mistakes_list_the_jobs(tmp_path: Path, pool: Pool) -> None:
    for arguments, message in (
        (["pause", "s", "large"], "there is no job 'large' in s; jobs are: big, small"),
        (["resume", "s"], "JOB is missing; name jobs, or use --all; jobs are: big, small"),
        (["cancel", "s", "big", "--all"], "--all means all jobs: leave out their names"),
        (
            ["weight", "s", "big"],
            "WEIGHT is missing: the last word must be a number greater than 0, got 'big'",
        ),
        (["weight", "s", "big", "0"], "WEIGHT must be greater than 0, got 0"),
        (["weight", "s", "big", "-1", "--json"], "WEIGHT must be greater than 0, got -1"),
        (["pause", "none", "big"], "none: does not exist; a state directory was expected"),
    ):
        assert_refused(call(*arguments, cwd=tmp_path), message)
    assert {job.state for job in pool.jobs} <= {"running", "waiting"}
    for job in pool.jobs:
        job.cancel()
    pool.wait()
    for kind, *words in (["pause"], ["resume"], ["cancel"], ["weight", "2"]):
        done = call(kind, "s", "--all", *words, cwd=tmp_path)
        verb = "change" if words else kind
        expected = f"nothing to do: there is no job to {verb}\n"
        assert (done.stdout, done.stderr, done.returncode) == (expected, "", 0)


def test_job_that_was_submitted_but_not_added_can_be_steered(tmp_path: Path, pool: Pool) -> None:
    for job in pool.jobs:
        job.cancel()
    pool.wait()
    pool.close()
    (tmp_path / "more.toml").write_text('[[job]]\nname = "more"\nitems = [1]\ncommand = "true"\n')
    call("submit", "s", "more.toml", cwd=tmp_path)
    call("pause", "s", "more", cwd=tmp_path)
    assert [name for name, _ in read_status(tmp_path / "s").changes] == ["more"]
    with Pool(state=tmp_path / "s", resume=True, engine=FakeEngine(2)) as again:
        wait_until(lambda: [job.state for job in again.jobs] == ["paused"])
        (more,) = again.jobs
        assert (more.name, more.done) == ("more", 0)
        more.resume()
    assert more.state == "done"


def test_cancelled_job_runs_again_once_it_is_retried(tmp_path: Path, pool: Pool) -> None:
    state = tmp_path / "s"
    refused = call("retry", "s", "big", cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (1, "big: has no failed items\n")
    nothing = call("retry", "s", "--all", "--json", cwd=tmp_path)
    assert (json.loads(nothing.stdout)["jobs"], nothing.returncode) == ([], 0)
    call("cancel", "s", "small", "big", cwd=tmp_path)
    pool.wait()
    printed = call("retry", "s", "big", cwd=tmp_path).stdout
    assert printed == "big: will run again when the run is started again\n"
    pool.close()
    printed = call("retry", "s", "small", cwd=tmp_path).stdout
    assert printed.startswith("small: will run again when the run goes on\n")
    with Pool(state=state, resume=True, engine=FakeEngine(2)) as again:
        for name in ("big", "small"):
            again.map(abs, range(8), name=name)
    assert {job.state for job in read_status(state).jobs} == {"done"}


def test_failed_items_of_a_running_script_are_retried(tmp_path: Path) -> None:
    repaired = tmp_path / "repaired"

    def check(item: int) -> int:
        assert item != 1 or repaired.exists()
        return item

    with Pool(state=tmp_path / "s", engine=InlineEngine()) as pool:
        job = pool.map(check, range(3), name="bad", retries=0, on_error="keep")
        job.wait()
        assert (job.state, job.done) == ("failed", 2)
        repaired.touch()
        done = call("retry", "s", "bad", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, "bad: runs its failed items again\n")
        job.wait()
        assert job.results() == [0, 1, 2]
    assert call("retry", "s", "bad", cwd=tmp_path).stdout == "bad: has no failed items\n"


@pytest.mark.parametrize("mode", ["state", "url"])
def test_failed_jobs_of_a_group_are_retried(
    mode: str, served: ServedQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(url: str, token: str | None) -> Client:
        return Client(url, token, transport=AppTransport(served.app))

    monkeypatch.setattr("hesrpt.cli.run_access.Client", connect)
    where = ["--state", str(served.queue.directory)] if mode == "state" else ["--url", URL]
    monkeypatch.setenv("HESRPT_TOKEN", OWNER)
    flag, group = tmp_path / "flag", f"night by {mode}"
    command = f"test -e {flag}"
    night = [served.add(command, name=f"{mode} {n}", group=group, retries=0) for n in range(2)]
    day = served.add(command, name=f"{mode} day", group="day", retries=0)
    served.client.wait(*night, day, timeout=60)
    flag.touch()
    done = call("retry", *where, "--group", group, cwd=tmp_path)
    assert sorted(done.stdout.splitlines()) == [
        f"{name}: runs its failed items again" for name in night
    ]
    assert {job.state for job in served.client.wait(*night, timeout=60)} == {"done"}
    assert served.client.info(day).state == "failed"


def test_a_job_is_retried_with_those_that_it_waits_for(tmp_path: Path) -> None:
    """A job that was cancelled because another has failed is revived with it, and not alone."""
    flag, state = tmp_path / "flag", tmp_path / "s"
    with serve_queue(state) as served:
        first = served.add(f"test -e {flag}", name="first", retries=0)
        for name, other in (("next", "first"), ("last", "next")):
            served.add("sleep 60", name=name, after=[other])
        served.client.wait(first, "next", "last", timeout=60)
        alone = call("retry", "s", "next", cwd=tmp_path)
        assert (alone.returncode, alone.stdout) == (
            1,
            "next: waits for 'first', which has failed; retry that one\n",
        )
        with pytest.raises(ServiceError, match="job 'last' waits for 'next', which was cancelled"):
            served.client.retry("last")
        by_url = ServiceRun(URL, OWNER)
        by_url.client = served.client
        texts = {
            each.job: each.text for each in by_url.change("retry", ["next", first], None, None)
        }
        assert list(texts) == [first, "next"]
        assert texts["next"] in (  # if first has not failed again yet, or has
            "waits for first again",
            "waited for first again, and is cancelled",
        )
        served.client.wait(first, "next", "last", timeout=60)
        flag.touch()
        all_jobs = call("retry", "s", "last", "next", "first", cwd=tmp_path)
        assert (all_jobs.returncode, all_jobs.stdout.splitlines()) == (
            0,
            [
                "first: runs its failed items again; next, last wait for it again",
                "next: waits for first again",
                "last: waits for next again",
            ],
        )
        served.client.wait(first, timeout=60)
        assert not served.client.info("next").has_ended
        served.client.cancel("next")
        served.client.wait("last", timeout=60)
    offline = call("retry", "s", "last", cwd=tmp_path)
    assert (offline.returncode, offline.stdout) == (
        1,
        "last: waits for 'next', which was cancelled; retry that one\n",
    )
    with serve_queue(state) as served:  # which no longer has them in memory
        again = call("retry", "s", "last", "next", cwd=tmp_path)
        assert (again.returncode, again.stdout.splitlines()) == (
            0,
            ["next: runs again; last waits for it again", "last: waits for next again"],
        )
        assert served.client.info("last").waits_for == ("next",)
