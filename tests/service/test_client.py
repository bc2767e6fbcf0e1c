"""hesrpt.Client: Python functions, files of jobs, and what it says if something is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.served_queue import READER, URL, AppTransport, ServedQueue, serve_queue
from support.waiting import wait_until

from hesrpt import Client, InputError, JobError
from hesrpt.service.call_format import MEDIA_TYPE, PackedCalls
from hesrpt.service.http_connection import ServiceError, UnreachableError


def test_functions_run_on_the_service(served: ServedQueue) -> None:
    factor = 3
    items: list[Any] = [1, "a", [2]]
    job = served.client.map(lambda x: x * factor, items, name="triple")
    assert job.results(60) == [3, "aaa", [2, 2, 2]]
    assert (job.state, job.info.command) == ("done", None)
    many = served.client.map(abs, range(-2500, 0))
    assert many.results(60) == list(range(2500, 0, -1))
    again = served.client.map(abs, [-1])
    assert (many.name, again.name) == ("abs", "abs (2)")
    assert repr(again) == f"<RemoteJob 'abs (2)' of {URL}>"


def test_functions_that_fail_say_so(served: ServedQueue) -> None:
    def divide(x: int) -> float:
        print("dividing by", x)
        return 1 / x

    job = served.client.map(divide, [1, 0], retries=0, keep_going=True)
    with pytest.raises(JobError, match="division by zero"):
        job.results(60)
    (failure,) = served.client.details(job.name)["failures"]
    assert (failure["item"], failure["value"]) == (1, "0")
    assert "1 / x" in failure["traceback"]
    assert "dividing by 0" in job.logs()


def test_a_key_sends_a_function_once(served: ServedQueue) -> None:
    first = served.client.map(abs, [1], name="keyed", key="the key")
    second = served.client.map(abs, [1], name="keyed", key="the key")
    assert first.name == second.name == "keyed"


def test_functions_need_the_owner_and_can_be_refused(served: ServedQueue, tmp_path: Path) -> None:
    reader = Client(URL, READER, transport=AppTransport(served.app))
    with pytest.raises(ServiceError, match="this token may only read"):
        reader.map(abs, [1])
    with serve_queue(tmp_path / "s", commands_only=True) as other:
        with pytest.raises(ServiceError, match="runs commands only"):
            other.client.map(abs, [1])
        assert not (tmp_path / "s" / "calls").exists()


def test_damaged_functions_are_refused(served: ServedQueue) -> None:
    good = PackedCalls({"name": "x"}, b"function", [b"item"], ["1"]).pack()
    assert PackedCalls.unpack(good).items == [b"item"]
    headers = {"Content-Type": MEDIA_TYPE}
    for body in (b"", b"{}", good[:-1], good + b"!", b"\x80\x04." + good):
        answer = served.connect().post("/api/v1/calls", content=body, headers=headers)
        assert answer.status_code == 422, body
    bad = PackedCalls({"name": "x", "colour": 1}, b"f", [b"i"], ["1"]).pack()
    answer = served.connect().post("/api/v1/calls", content=bad, headers=headers)
    assert "unknown option 'colour'" in answer.json()["detail"]
    assert served.connect().post("/api/v1/calls", content=good).status_code == 415


def test_functions_go_on_after_a_restart(tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def pass_gate(x: int) -> int:
        import os
        import time

        while x > 1 and not os.path.exists(gate):
            time.sleep(0.02)
        return x + 100

    with serve_queue(tmp_path / "s") as served:
        served.client.map(abs, [-7], name="done before").results(60)
        job = served.client.map(pass_gate, range(5), name="gated", key="k")
        late = served.add("true", name="late", after=["gated"])
        wait_until(lambda: job.info.done >= 2)
    gate.touch()
    with serve_queue(tmp_path / "s") as served:
        assert served.client.map(pass_gate, range(5), name="gated", key="k").name == "gated"
        assert served.client.job("gated").results(60) == [100, 101, 102, 103, 104]
        assert served.client.wait(late, timeout=60)[0].state == "done"
        assert served.client.job("done before").results(60) == [7]
        assert len(served.client.jobs()) == 3
    with serve_queue(tmp_path / "s") as served:
        assert served.client.job("gated").results(60) == [100, 101, 102, 103, 104]
        assert list((tmp_path / "s" / "calls").iterdir()) == []


def test_files_of_jobs_are_submitted(served: ServedQueue, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        (tmp_path / "in" / f"{name}.txt").write_text(name)
    (tmp_path / "jobs.toml").write_text(
        '[[job]]\nname = "copy"\ncwd = "in"\nitems = "*.txt"\ncommand = "cp {item} {stem}.out"\n'
        '[[job]]\nname = "count"\nitems = {range = [-1, 1]}\ncommand = "echo {item}"\n'
        'after = ["copy"]\n'
    )
    copy, count = served.client.submit(tmp_path / "jobs.toml")
    assert (copy.wait(60).state, count.wait(60).state) == ("done", "done")
    assert (tmp_path / "in" / "b.out").read_text() == "b"
    assert count.logs(0) == "-1\n"


def test_mistakes_are_explained(monkeypatch: pytest.MonkeyPatch, served: ServedQueue) -> None:
    monkeypatch.delenv("HESRPT_URL", raising=False)
    monkeypatch.delenv("HESRPT_TOKEN", raising=False)
    monkeypatch.delenv("HESRPT_STATE", raising=False)
    with pytest.raises(InputError, match="url is missing"):
        Client()
    with pytest.raises(InputError, match="token is missing"):
        Client("http://127.0.0.1:8642")
    with pytest.raises(InputError, match=r"must be like http://127\.0\.0\.1:8642"):
        Client("ftp://127.0.0.1", "t")
    with pytest.raises(UnreachableError, match=r"cannot reach http://127\.0\.0\.1:9"):
        Client("http://127.0.0.1:9/?token=t").jobs()
    with pytest.raises(ServiceError, match="there is no job 'nobody'"):
        served.client.info("nobody")
    with pytest.raises(TimeoutError):
        served.client.wait(served.add("sleep 60", name="endless"), timeout=0.1)
    served.client.cancel("endless")
    monkeypatch.setenv("HESRPT_URL", "http://127.0.0.1:1/?token=secret-of-the-url")
    assert repr(Client()) == "<Client of http://127.0.0.1:1>"
