"""What is done when a job has ended: commands and webhooks, called at least once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_until

from hesrpt import InputError, JobError, Pool
from hesrpt.jobs.job_spec import MAX_ATTEMPTS, Hook, HookCall, HookError
from hesrpt.jobs.schema import FIELDS
from hesrpt.reports.inspection import read_status
from hesrpt.scheduler import run_hooks
from hesrpt.scheduler.run_hooks import HookRunner
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import Changes

ON_END = next(field for field in FIELDS if field.name == "on_end")
NASTY = """it's "quoted" $(touch hacked) `touch hacked`; touch hacked\nsecond line"""


def fail(item: int) -> None:
    raise ValueError(NASTY)


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[dict[str, Any]], list[int]]]:
    """Yield the address of a web server, what was posted to it, and the codes it answers with."""
    posted: list[dict[str, Any]] = []
    codes: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            posted.append(json.loads(self.rfile.read(length)))
            self.send_response(codes.pop(0) if codes else 200)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Print nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/ended", posted, codes
    server.shutdown()
    server.server_close()


def test_command_finds_what_happened_in_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write = 'printf "%s|" "$HESRPT_JOB" "$HESRPT_JOB_STATE" "$HESRPT_ERROR" > "$HESRPT_JOB"'
    with Pool(1) as pool:
        pool.map(abs, [1, 2], name="good", on_end=write)
        bad = pool.map(fail, [1], name="bad", retries=0, on_end=write)
    assert (tmp_path / "good").read_text() == "good|done||"
    name, state, error, _ = (tmp_path / "bad").read_text().split("|")
    assert (name, state) == ("bad", "failed")
    assert NASTY in error
    assert not (tmp_path / "hacked").exists()
    with pytest.raises(JobError):
        bad.results()


def test_webhook_is_posted_and_tried_again(
    webhook: tuple[str, list[dict[str, Any]], list[int]],
) -> None:
    address, posted, codes = webhook
    codes += [500, 200]
    calls: list[HookCall] = []
    runner = HookRunner(calls.append, delays=(0.0,))
    runner.put(HookCall(number=1, job=1, target=address, facts={"job": "a", "state": "done"}))
    wait_until(lambda: len(calls) == 2)
    runner.close()
    assert [(call.attempts, call.error is None) for call in calls] == [(1, False), (2, True)]
    assert posted[0] == posted[1]
    assert (posted[0]["job"], posted[0]["state"]) == ("a", "done")


def test_address_that_cannot_be_called_does_not_stop_other_hooks(tmp_path: Path) -> None:
    calls: list[HookCall] = []
    runner = HookRunner(calls.append)
    address, command = "http://127.0.0.1:port/", f"touch {tmp_path}/called"
    for number, target in enumerate([*[address] * 4, command]):
        runner.put(HookCall(number=number, job=1, target=target, facts={"job": "a"}))
    wait_until(lambda: {call.number for call in calls} == {0, 1, 2, 3, 4})
    runner.close()
    errors = {call.target: call.error for call in calls}
    problem = HookError("other", 0, "InvalidURL: nonnumeric port: 'port'")
    assert errors == {address: problem, command: None}
    assert (tmp_path / "called").exists()


def test_failing_hook_is_given_up_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run_hooks, "_DELAYS", (0.0,))
    monkeypatch.setattr(HookRunner.__init__, "__kwdefaults__", {"delays": (0.0,)})
    state = tmp_path / "state"
    with Pool(1, state=state) as pool:
        job = pool.map(abs, [1], name="job", on_end=["echo oops; exit 3", "true"])
        assert job.results() == [1]  # the job is done, whatever its hooks do
        wait_until(lambda: _read_attempts(state) == [MAX_ATTEMPTS])
    (call,) = read_status(state).hooks
    assert (call.facts["job"], call.error) == ("job", HookError("exit_code", 3, "oops"))
    assert not call.is_pending
    assert "'echo oops; exit 3' failed: exit code 3: oops" in caplog.text


def test_hook_that_was_not_called_before_a_crash_is_called_by_the_next_scheduler(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    with Pool(1, state=state) as pool:
        pool.map(abs, [1], name="job")
    with closing(Journal.resume(state)) as journal:
        target = f"printf %s $HESRPT_JOB >> {tmp_path}/called"
        call = HookCall(number=1, job=1, target=target, facts={"job": "job", "state": "done"})
        journal.write(Changes(hooks=[call]))
    with Pool(1, state=state, resume=True) as pool:
        assert pool.map(abs, [1], name="job").results() == [1]
    assert (tmp_path / "called").read_text() == "job"
    assert read_status(state).hooks == []


def test_job_that_was_done_before_calls_no_hook_again(tmp_path: Path) -> None:
    state, target = tmp_path / "state", f"echo called >> {tmp_path}/called"
    for resume in (False, True):
        with Pool(1, state=state, resume=resume) as pool:
            pool.map(abs, [1], name="job", on_end=target)
    assert (tmp_path / "called").read_text() == "called\n"


def test_hanging_hook_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_hooks, "_TIMEOUT", 0.3)
    calls: list[HookCall] = []
    runner = HookRunner(calls.append)
    runner.put(HookCall(number=1, job=1, target="sleep 100 & sleep 100", facts={"job": "a"}))
    wait_until(lambda: len(calls) == 1)
    runner.close()
    assert calls[0].error == HookError("timeout", 0.3)
    assert calls[0].error.text == "it was stopped after 0.3 s"


def test_hook_that_takes_long_delays_nobody(tmp_path: Path) -> None:
    calls: list[HookCall] = []
    runner = HookRunner(calls.append)
    gate = tmp_path / "gate"
    waiting = f"while [ ! -e {gate} ]; do sleep 0.02; done"
    runner.put(HookCall(number=1, job=1, target=waiting, facts={"job": "a"}))
    runner.put(HookCall(number=2, job=2, target=f"touch {gate}", facts={"job": "b"}))
    wait_until(lambda: len(calls) == 2)
    runner.close()
    assert {call.number: call.error for call in calls} == {1: None, 2: None}


@pytest.mark.parametrize("target", ["", " ", 3, ["ok", None], "https://", "http://[bad", "a\0b"])
def test_wrong_hooks_are_refused(target: object) -> None:
    with pytest.raises(InputError, match="on_end must"):
        ON_END.read(target)


def test_address_or_command() -> None:
    command, address = ON_END.read(["curl https://example.org", "HTTPS://example.org/x"])
    assert (command, command.is_webhook) == (Hook("curl https://example.org"), False)
    assert address.is_webhook


def _read_attempts(state: Path) -> list[int]:
    return [call.attempts for call in read_status(state).hooks]
