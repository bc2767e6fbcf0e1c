"""Commands about a service, by its state directory and by its URL: both have the same effect."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import httpx
import pytest
from support.served_queue import OWNER, READER, URL, AppTransport, ServedQueue, serve_queue
from support.shell import assert_refused, call
from support.waiting import wait_until

from hesrpt import Client, Pool
from hesrpt.engines.fake import FakeEngine
from hesrpt.service.client import ServiceError, UnreachableError
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

    monkeypatch.setattr("hesrpt.cli.run_access.Client", connect)
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
        served.client.wait(served.add("true", name="new", after=["prep"]), timeout=60)
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
    for _ in range(2):
        served.client.wait(served.add("true", name="right"), timeout=60)
    done = [job for job in served.client.jobs() if job.state == "done"]
    mean = sum(job.flow_time or 0.0 for job in done) / len(done)
    printed = command("report").stdout
    measured = re.search(r"mean flow time +(\S+ \S+) +measured", printed)
    assert measured is not None
    assert measured[1] == format_duration(mean)
    assert f"of the {len(done)} jobs that are done\n" in printed.replace(" \n", "\n")


def test_a_report_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_queue(tmp_path / "s") as served:

        def connect(url: str, token: str | None) -> Client:
            return Client(url, token, transport=AppTransport(served.app))

        monkeypatch.setattr("hesrpt.cli.run_access.Client", connect)
        for words in (["--state", "s"], ["--url", f"{URL}/?token={OWNER}"]):
            done = call("report", *words, cwd=tmp_path)
            assert (done.stdout, done.returncode) == ("no job has ended yet\n", 0)
            assert json.loads(call("report", *words, "--json", cwd=tmp_path).stdout)["jobs"] == []
        assert_refused(call("report", "s", "--csv", "r.csv", cwd=tmp_path), "no job has ended yet")
        served.client.wait(served.add("true"), served.add("false", retries=0), timeout=60)
        content = json.loads(call("report", *words, "--json", cwd=tmp_path).stdout)
        assert (content["done"], content["ended"], content["comparison"]) == (1, 2, None)
        assert content["reason"] == "fewer than 2 jobs are done"
        printed = call("report", *words, cwd=tmp_path).stdout
        assert f"no comparison with other policies: {content['reason']}\n" in printed
        assert "the work and the p of each job: hesrpt report --state DIR" in printed


def test_a_report_compares_the_latest_jobs_if_one_was_cancelled(tmp_path: Path) -> None:
    engine = FakeEngine(2, lambda job, item, width: 10.0)
    with Pool(state=tmp_path / "s", engine=engine) as pool:
        pool.pause_group("unwanted")
        for name in ("one", "two", "unwanted"):
            pool.map(abs, range(8), name=name, group=name)
        pool.jobs[-1].cancel()
    printed = call("report", "s", "--csv", "r.csv", cwd=tmp_path).stdout
    assert re.search(r"^unwanted +0 +[\d.]+ m?s$", printed, re.M)  # neither work nor p
    assert re.search(r"^unwanted,[^,]*,0.0,1.0,.*,$", (tmp_path / "r.csv").read_text(), re.M)
    assert re.search(r"measured +the latest 2 comparable jobs", printed)
    assert re.search(r"simulated +FIFO", printed)
    assert "no comparison" not in printed
    content = json.loads(call("report", "s", "--json", cwd=tmp_path).stdout)
    measured = content["comparison"]["measured"]["mean_flow_time"]
    assert content["metrics"]["mean_flow_time"] == pytest.approx(measured)
    assert len(content["jobs"]) == 3
    assert content["comparison"]["reason"] == "job 'unwanted' was cancelled"
    assert {each["policy"] for each in content["recent"]["simulated"]} >= {"fifo", "equi"}


def test_a_report_without_a_done_job_says_so(tmp_path: Path) -> None:
    with Pool(1, state=tmp_path / "s") as pool:
        pool.pause_group("unwanted")
        pool.map(abs, range(8), group="unwanted").cancel()
    printed = call("report", "s", cwd=tmp_path).stdout
    assert re.search(r"mean flow time +none: no job is done\n", printed)
    assert json.loads(call("report", "s", "--json", cwd=tmp_path).stdout)["metrics"] is None


def test_logs_are_the_same_by_directory_and_by_url(command: Command, served: ServedQueue) -> None:
    silent, loud = served.add("true", name="silent"), served.add("echo hello", name="loud")
    several = served.add("echo {item}!", name="several", items=["a", "b"])
    served.client.wait(silent, loud, several, timeout=60)
    done = command("logs", silent)
    assert (done.stdout, done.stderr, done.returncode) == (
        "",
        f"hesrpt: job {silent!r} has printed nothing\n",
        0,
    )
    for options in ([], ["-f"]):
        assert command("logs", loud, *options).stdout == "hello\n"
        assert command("logs", several, *options).stdout == (
            f"--- {several}, item 0 ('a')\na!\n--- {several}, item 1 ('b')\nb!\n"
        )
        lines = [
            json.loads(line)
            for line in command("logs", several, "--json", *options).stdout.splitlines()
        ]
        assert lines == [
            {"job": several, "item": 0, "line": "a!"},
            {"job": several, "item": 1, "line": "b!"},
        ]
    assert command("logs", silent, "--json").stdout == ""
    unknown = command("logs", loud, "5")
    assert_refused(unknown, f"there is no item 5 in job {loud!r}; items are 0 to 0")
    assert str(served.queue.directory) not in unknown.stderr
    assert_refused(command("logs", loud, "x"), "ITEM must be a number, got 'x'")


def test_a_refused_request_exits_with_1(served: ServedQueue) -> None:
    reader = Client(URL, READER, transport=AppTransport(served.app))
    with pytest.raises(ServiceError) as refused:
        reader.add("true")
    assert (refused.value.status, refused.value.exit_code) == (403, 1)
    with pytest.raises(ServiceError) as unknown:
        served.client.info("nobody")
    assert (unknown.value.status, unknown.value.exit_code) == (404, 2)


def test_a_job_that_can_never_run_is_refused(
    command: Command, served: ServedQueue, tmp_path: Path
) -> None:
    known = [job.name for job in served.client.jobs()]
    for options, problem in (
        (["--servers", "16"], "it needs at least 16 servers, but there are only 2"),
        (["--resources", "gpu=3"], "each item needs 3 gpu, but how much there is was not said"),
    ):
        refused = command("add", "--name", "impossible", *options, "true")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert problem in refused.stderr
    assert [job.name for job in served.client.jobs()] == known  # nor is it listed
    (tmp_path / "two.toml").write_text(
        '[[job]]\nname = "possible"\ncommand = "true"\n'
        '[[job]]\nname = "wide"\ncommand = "true"\nservers = 9\n'
    )
    both = command("submit", "two.toml", "--json")
    problem = "job 'wide': it needs at least 9 servers, but there are only 2; no job was added"
    assert problem in both.stderr
    answer = json.loads(both.stdout)
    assert (both.returncode, answer["jobs"], problem in answer["problem"]) == (1, [], True)
    assert [job.name for job in served.client.jobs()] == known
    before = len(served.client.jobs())
    with pytest.raises(ServiceError, match="it needs at least 3 servers") as error:
        served.client.add("true", name="too wide", servers=3)
    assert (error.value.status, len(served.client.jobs())) == (409, before)


def test_jobs_of_a_paused_group_say_so(command: Command, served: ServedQueue) -> None:
    name = served.add("true", name="held", group="held group", weight=2)
    served.client.wait(name, timeout=60)
    command("pause", "--group", "held group")
    held = served.add("true", name="held", group="held group")
    done = command("resume", held)
    assert (done.stdout, done.returncode) == (
        f"{held}: is paused with its group; use hesrpt resume --group 'held group'\n",
        1,
    )
    dependent = served.add("true", name="dependent", after=["held"])
    assert command("cancel", held).stdout == f"{held}: cancelled\n"
    assert command("wait", held).stdout == f"{held}: cancelled on request\n"
    waited = command("wait", dependent).stdout
    assert waited == f"{dependent}: cancelled: job {held!r}, for which it waited, was cancelled\n"
    command("resume", "--group", "held group")


def test_mistyped_names_get_a_short_answer(command: Command, served: ServedQueue) -> None:
    if "many 0" not in served.queue:
        served.client.submit([{"name": f"many {n}", "command": "true"} for n in range(12)])
    for words in (["cancel", "mny 7"], ["logs", "mny 7"], ["status", "mny 7"], ["wait", "mny 7"]):
        refused = command(*words)
        assert_refused(refused, "there is no job 'mny 7'")
        assert "jobs with such a name are: many 7" in refused.stderr
        assert "many 3" not in refused.stderr
    refused = command("add", "--after", "nope", "true")
    assert_refused(refused, "there is no job 'nope' to wait for")
    assert "file" not in refused.stderr


def test_only_the_latest_ended_jobs_are_shown(command: Command, served: ServedQueue) -> None:
    if "short 0" not in served.queue:
        jobs = [{"name": f"short {n}", "command": "true"} for n in range(25)]
        served.client.wait(*(job.name for job in served.client.submit(jobs)), timeout=60)
    printed = command("status").stdout
    assert "short 24" in printed
    assert "short 0 " not in printed
    assert re.search(r"and \d+ done.*; --all shows them", printed)
    everything = command("status", "--all").stdout
    assert "short 0 " in everything
    assert "--all shows them" not in everything
    assert "short 0 " in command("status", "short 0").stdout
    content = json.loads(command("status", "--json").stdout)
    assert len(content["jobs"]) == len(served.client.jobs())


def test_status_shows_hooks_that_failed(command: Command, served: ServedQueue) -> None:
    name = served.add("true", name="hooked", on_end=["exit 7"])
    hooks = served.queue.journal.hooks
    wait_until(lambda: any(each.error and each.facts["job"] == name for each in hooks.read()))
    for words in ([], [name]):
        printed = command("status", *words).stdout
        assert re.search(rf"^{re.escape(name)}: on_end ('exit 7' )?failed, ", printed, re.M)


def test_what_has_no_effect_is_said(command: Command, tmp_path: Path) -> None:
    refused = command("add", "--after-failure", "release", "true")
    assert_refused(refused, "--after-failure says what to do if a job of --after fails")
    (tmp_path / "jobs.toml").write_text('servers = 8\n[[job]]\nname = "j"\ncommand = "true"\n')
    done = command("submit", "jobs.toml")
    assert (done.returncode, done.stdout[:8]) == (0, "added: j")
    assert done.stderr.startswith("hesrpt: jobs.toml: servers: ignored, because the run")


def test_a_wrong_address_or_scheme_is_explained(served: ServedQueue) -> None:
    wrong = Client(f"{URL}/foo", OWNER, transport=AppTransport(served.app))
    with pytest.raises(ServiceError, match="there is no hesrpt service at this address"):
        wrong.jobs()
    not_tls = ssl.SSLError(1, "")
    not_tls.reason = "WRONG_VERSION_NUMBER"
    for url, error, cause, hint in (
        ("http://h:1", httpx.RemoteProtocolError("disconnected"), None, "try https://h:1"),
        ("https://h:1", httpx.ConnectError("failed"), not_tls, "try http://h:1"),
        ("https://h:1", httpx.ConnectError("failed"), ssl.SSLCertVerificationError(), "SSL_CERT"),
    ):

        def fail(
            request: httpx.Request,
            error: Exception = error,
            cause: Exception | None = cause,
        ) -> httpx.Response:
            raise error from cause

        client = Client(url, OWNER, transport=httpx.MockTransport(fail))
        with pytest.raises(UnreachableError, match=hint):
            client.jobs()


def test_a_lost_connection_is_no_reason_to_suggest_tls() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        def send() -> Iterator[bytes]:
            yield b'event: output\ndata: {"item": 0, "title": "0", "text": "a"}\n\n'
            raise httpx.RemoteProtocolError("peer closed connection")

        return httpx.Response(200, content=send())

    client = Client("http://h:1", OWNER, transport=httpx.MockTransport(answer))
    found = client.follow_logs("job")
    assert next(found).text == "a"
    with pytest.raises(UnreachableError) as lost:
        next(found)
    assert str(lost.value) == "the connection to http://h:1 was lost: peer closed connection"
    assert lost.value.exit_code == 3


def test_nothing_is_changed_if_a_name_is_unknown(command: Command, served: ServedQueue) -> None:
    name = served.add("sleep 60", name="untouched", weight=3)
    for kind, *words in (["cancel"], ["pause"], ["resume"], ["retry"], ["weight", "7"]):
        refused = command(kind, name, "typo", *words, "--json")
        assert_refused(refused, "there is no job 'typo'")
        info = served.client.info(name)
        assert (info.state in ("running", "waiting"), info.weight) == (True, 3.0)
    served.client.cancel(name)


def test_status_says_why_jobs_have_not_ended_well(command: Command, served: ServedQueue) -> None:
    bad = served.add("echo oops; exit 3", name="bad", retries=0)
    never = served.add("true", name="never", after=[bad])
    served.client.wait(never, timeout=60)
    for words in ([], [bad, never]):
        printed = command("status", *words).stdout
        assert f"\n{never} cancelled: job '{bad}', for which it waited, has failed\n" in printed
        assert f"\n{bad} failed: item 0: exit code 3\n    oops\n" in printed
        assert printed.splitlines()[-1].startswith("a scheduler is running: 2 servers, policy ")


def test_watching_needs_a_terminal(command: Command) -> None:
    assert_refused(command("status", "--watch"), "--watch needs a terminal")


def test_status_of_an_empty_queue_has_the_number_of_servers(tmp_path: Path) -> None:
    with serve_queue(tmp_path / "s", servers=3) as served:
        wait_until(lambda: served.queue.journal.read_held() != {})
        printed = call("status", "s", cwd=tmp_path).stdout
    assert "a scheduler is running: 3 servers, policy adaptive, no jobs\n" in printed
