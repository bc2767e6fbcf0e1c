"""Commands about a service, by its state directory and by its URL: both have the same effect."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from support.served_queue import OWNER, URL, AppTransport, ServedQueue, serve_queue
from support.shell import assert_refused, call

from hesrpt import Client, Pool
from hesrpt.runtime.engines.fake import FakeEngine
from hesrpt.units import format_duration

#: Runs a command about the queue.
Command: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(params=["state", "url"])
def command(
    request: pytest.FixtureRequest,
    served: ServedQueue,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Command:
    """Run commands about the served queue, once by its directory and once by its URL."""

    def connect(url: str, token: str | None) -> Client:
        return Client(url, token, transport=AppTransport(served.app))

    monkeypatch.setattr("hesrpt.cli.service_run.Client", connect)
    for name in ("HESRPT_URL", "HESRPT_STATE", "HESRPT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    if request.param == "url":
        monkeypatch.setenv("HESRPT_URL", f"{URL}/?token={OWNER}")
    else:
        monkeypatch.setenv("HESRPT_STATE", str(served.queue.directory))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return call(*arguments, cwd=tmp_path)

    return run


def test_a_job_that_was_renamed_is_the_one_that_is_waited_for(
    command: Command, request: pytest.FixtureRequest
) -> None:
    name = f"rep {request.node.callspec.id}"
    done = command("add", "--wait", "--name", name, "true")
    assert (done.stdout, done.returncode) == (f"added: {name}\n{name}: done\n", 0)
    failed = command("add", "--wait", "--retries", "0", "--name", name, "false")
    assert failed.stdout.startswith(f"added: {name} (2)\n{name} (2): failed: ")
    assert failed.returncode == 1
    added = command("add", "--json", "--name", name, "true")
    assert json.loads(added.stdout)["jobs"] == [f"{name} (3)"]


def test_a_renamed_job_is_waited_for_by_the_name_that_was_asked_for(
    command: Command, served: ServedQueue, request: pytest.FixtureRequest
) -> None:
    name, later = f"prep {request.node.callspec.id}", f"next {request.node.callspec.id}"
    assert command("add", "--wait", "--name", name, "true").returncode == 0
    assert command("add", "--name", name, "sleep 60").stdout == f"added: {name} (2)\n"
    command("add", "--name", later, "--after", name, "true")
    try:
        assert served.client.info(later).waits_for == (f"{name} (2)",)
    finally:
        command("cancel", f"{name} (2)")


def test_the_newest_job_of_a_name_is_waited_for_after_a_restart(tmp_path: Path) -> None:
    with serve_queue(tmp_path / "s") as served:
        served.add("sleep 60", name="prep")
        served.add("true", name="old", after=["prep"])
        served.client.wait(served.add("true", name="prep"), timeout=60)
    with serve_queue(tmp_path / "s") as served:
        assert served.client.info("old").waits_for == ("prep",)  # as when it was added
        served.client.wait(served.add("true", name="new", after=["prep"]), timeout=20)
        assert served.client.info("new").state == "done"


def test_a_mistyped_group_is_refused(command: Command, served: ServedQueue) -> None:
    for kind, *arguments in (["pause"], ["resume"], ["weight", "2"], ["cancel"]):
        assert_refused(command(kind, "--group", "nope", *arguments), "there is no group 'nope'")
    assert "nope" not in served.queue.pool.groups


@pytest.mark.parametrize("port", [99999, -1])
def test_impossible_ports_are_refused(tmp_path: Path, port: int) -> None:
    refused = call("serve", "--state", "s", f"--port={port}", cwd=tmp_path)
    assert_refused(refused, f"--port must be from 0 to 65535, got {port}")
    assert not (tmp_path / "s").exists()


def test_the_mean_flow_time_is_that_of_the_jobs_that_are_done(
    command: Command, served: ServedQueue
) -> None:
    served.client.wait(served.add("false", retries=0, name="wrong"), timeout=60)
    served.client.wait(served.add("true", name="right"), timeout=60)
    done = [job for job in served.client.jobs() if job.state == "done"]
    mean = sum(job.flow_time or 0.0 for job in done) / len(done)
    printed = command("report").stdout
    measured = re.search(r"mean flow time +(\S+ \S+) +measured", printed)
    assert measured is not None
    assert measured[1] == format_duration(mean)
    assert f"of the {len(done)} jobs that are done\n" in printed.replace(" \n", "\n")


def test_a_report_compares_the_latest_jobs_if_one_was_cancelled(tmp_path: Path) -> None:
    engine = FakeEngine(2, lambda job, item, width: 10.0)
    with Pool(state=tmp_path / "s", engine=engine) as pool:
        pool.pause_group("unwanted")
        for name in ("one", "two", "unwanted"):
            pool.map(abs, range(8), name=name, group=name)
        pool.jobs[-1].cancel()
    printed = call("report", "s", cwd=tmp_path).stdout
    assert re.search(r"measured +the latest 2 comparable jobs", printed)
    assert re.search(r"simulated +FIFO", printed)
    assert "no comparison" not in printed
    content = json.loads(call("report", "s", "--json", cwd=tmp_path).stdout)
    assert content["comparison"]["reason"] == "job 'unwanted' was cancelled"
    assert {each["policy"] for each in content["recent"]["simulated"]} >= {"fifo", "equi"}
