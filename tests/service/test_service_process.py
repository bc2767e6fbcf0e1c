"""``hesrpt serve`` as a process: killed, stopped and started again, and used from the shell."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from support.served_queue import serve_queue
from support.service_process import ServiceProcess, list_processes_in, start_service
from support.shell import assert_refused, call, run
from support.waiting import wait_until

from hesrpt import Client
from hesrpt.engines.local.processes import list_children
from hesrpt.errors import InputError
from hesrpt.reports.inspection import read_status
from hesrpt.service.client import ServiceError

# Items append their name to a file: evidence that does not come from the scheduler.
_COMMAND = "echo {item} >> {log}; sleep 0.02"


def submit_job(service: ServiceProcess, log: Path, number: int) -> None:
    items = [f"{number}-{item}" for item in range(4)]
    command = _COMMAND.replace("{log}", str(log))
    service.client.add(command, name=f"job {number}", items=items, key=f"key {number}")


def kill_again_and_again(directory: Path, kills: int, rng: random.Random, seconds: float) -> int:
    """Kill a service under load at random moments; check what was lost; return how many jobs."""
    state, log = directory / "state", directory / "log"
    log.touch()
    added: list[int] = []
    number = 0
    for kill in range(kills + 1):
        with start_service(state) as service:
            is_last = kill == kills
            killer = threading.Timer(rng.uniform(0.0, seconds), service.kill)
            if 0 < kill < kills:
                killer.start()  # at any moment, even during the first request
            while True:
                try:
                    submit_job(service, log, number)
                    if rng.random() < 0.2:
                        submit_job(service, log, number)  # a client that repeats its request
                    added.append(number)
                    number += 1
                except ServiceError:
                    break  # it was killed; the same job is sent again after the restart
                if is_last:
                    break
                if killer.ident is None:  # the first time, when there is a job to lose
                    killer.start()
            if is_last:
                jobs = service.client.wait(timeout=300)
                results = {job.name: (job.state, job.done) for job in jobs}
        assert list_processes_in(state) == []  # no orphan
    assert results == {f"job {each}": ("done", 4) for each in range(number)}
    assert added == list(range(number))
    ran = Counter(log.read_text().split())
    expected = {f"{job}-{item}" for job in range(number) for item in range(4)}
    assert set(ran) == expected
    # Only items that were running during a kill, or had ended in the last tenth of a second, may
    # run twice: two items in each 0.02 s of that, and two more.
    assert sum(ran.values()) - len(expected) <= 12 * kills
    return number


def test_nothing_is_lost_or_added_twice_by_a_kill(tmp_path: Path) -> None:
    assert kill_again_and_again(tmp_path, 1, random.Random(1), 1.5) > 1


@pytest.mark.slow
def test_nothing_is_lost_or_added_twice_by_fifty_kills(tmp_path: Path) -> None:
    assert kill_again_and_again(tmp_path, 50, random.Random(2), 2.0) > 50


def test_a_service_drains_stops_and_is_used_from_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "s"
    with start_service(state, "--read-only-token") as service:
        assert service.output.splitlines()[0] == f"hesrpt serves the queue in {state}"
        assert f"look  {service.client.url}/?token=" in service.output
        monkeypatch.setenv("HESRPT_URL", service.url)
        done = call("add", "--name", "words", "echo {item}", ":::", "a", "b", cwd=tmp_path)
        assert (done.stdout, done.returncode) == ("added: words\n", 0)
        waited = call("wait", "words", "--timeout", "60", cwd=tmp_path)
        assert (waited.stdout, waited.returncode) == ("words: done\n", 0)
        assert call("logs", "words", "1", cwd=tmp_path).stdout == "b\n"
        bad = call("add", "--name", "bad", "--wait", "--retries", "0", "--", "false", cwd=tmp_path)
        assert bad.stdout == "added: bad\nbad: failed: item 0: exit code 1\n"
        assert bad.returncode == 1
        refused = call("pause", "words", cwd=tmp_path)
        assert (refused.stdout, refused.returncode) == ("words: is done already\n", 1)
        status = call("status", cwd=tmp_path).stdout
        assert "words  done" in status
        assert "bad failed: item 0: exit code 1" in status
        content = json.loads(call("status", "words", "--json", cwd=tmp_path).stdout)
        assert [job["name"] for job in content["jobs"]] == ["words"]
        assert "measured" in call("report", cwd=tmp_path).stdout
        missing = call("cancel", "nobody", cwd=tmp_path)
        assert_refused(missing, "there is no job 'nobody'")
        # The same through the state directory.
        monkeypatch.delenv("HESRPT_URL")
        monkeypatch.setenv("HESRPT_STATE", str(state))
        assert Client().add("true", name="by Python").wait(60).state == "done"
        with pytest.raises(InputError, match="token is missing"):
            Client("http://elsewhere")  # which must not learn the token of this service
        monkeypatch.delenv("HESRPT_STATE")
        call("add", "--state", "s", "--name", "here", "--", "true", cwd=tmp_path)
        assert call("wait", "s", "here", cwd=tmp_path).stdout == "here: done\n"
        # The page and its events.
        events = service.client.events()
        assert next(events)["counts"]["done"] == 3
        events.close()  # type: ignore[attr-defined]
        # Drain: what runs ends, and the rest is left for the next start.
        hold = f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
        service.client.add(hold, name="running")
        service.client.add(f"{hold}; true {{item}}", name="rest", items=list(range(100)))
        wait_until(lambda: service.client.info("running").state == "running")
        service.process.terminate()
        wait_until(lambda: "stopping: " in service.output)
        (tmp_path / "go").touch()
        assert service.process.wait(120) == 0
    said = r"stopping: waits up to 60 s for \d items?; a second signal stops at once\n"
    assert re.search(said + r"stopped; the next start goes on\n$", service.output)
    left = {job.name: job for job in read_status(state).jobs}
    assert left["running"].state == "done"
    assert (left["rest"].items, left["rest"].done < 100) == (100, True)
    with start_service(state, "--on-stop", "stop") as service:
        assert service.client.info("running").state == "done"
        service.client.add("sleep 600", name="long")
        wait_until(lambda: service.client.info("long").state == "running")
        began = time.monotonic()
        assert service.stop() == 0
        assert time.monotonic() - began < 60
    with serve_queue(state) as served:
        assert served.client.info("long").state in ("running", "waiting")


@pytest.mark.slow
def test_a_service_says_why_it_cannot_start(tmp_path: Path) -> None:
    refused = call("serve", "--state", "s", "--host", "0.0.0.0", cwd=tmp_path)
    assert_refused(refused, "--host 0.0.0.0 would send the token over the network in clear")
    assert_refused(
        call("serve", "--state", "s", "--on-stop", "wait", cwd=tmp_path),
        "'--on-stop': 'wait' is not one of 'drain', 'stop'",
    )
    assert_refused(
        call("serve", "--state", "s", "--keep", "soon", cwd=tmp_path), "--keep must be a duration"
    )
    assert not (tmp_path / "s").exists()
    with start_service(tmp_path / "s") as service:
        port = service.client.url.rpartition(":")[2]
        taken = run("serve", "--state", "t", "--port", port, cwd=tmp_path)
        assert_refused(taken, f"cannot listen on 127.0.0.1, port {port}: Address already in use")
        other = run("serve", "--state", "s", "--port", "0", cwd=tmp_path)
        assert_refused(other, "another scheduler is running on it")
        with pytest.raises(ServiceError, match="the token is wrong"):
            Client(service.client.url, "not the token at all").jobs()


def test_the_unit_runs_the_same_command(tmp_path: Path) -> None:
    done = call("serve", "--state", "my queue", "--servers", "3", "--print-unit", cwd=tmp_path)
    line = f"serve --state '{tmp_path}/my queue' --servers 3"
    assert line in done.stdout
    assert "mkdir -p ~/.config/systemd/user" in done.stdout
    assert "Restart=on-failure" in done.stdout
    assert "TimeoutStopSec=90" in done.stdout
    assert "--print-unit" not in done.stdout
    assert not (tmp_path / "my queue").exists()


def add_endless_items(service: ServiceProcess, directory: Path) -> None:
    """Let a service search a directory that contains itself twice."""
    for name in "ab":
        (directory / name).symlink_to(directory)
    with suppress(InputError):  # the service is killed meanwhile
        service.client.add("true {item}", items=f"{directory}/**/no-such-name")


def list_searches(service: int) -> list[int]:
    """Return the processes in which a service searches for items."""
    return [pid for pid in list_processes_in(Path("iglob")) if pid in list_children(service)]


def test_helpers_end_with_a_killed_service(tmp_path: Path) -> None:
    state, mark = tmp_path / "s", tmp_path / "hook"
    with start_service(state) as service:
        hook = f"setsid sh -c 'sleep 600; : {mark}' & sleep 600; : {mark}"
        for name in "ab":  # fewer are not compared
            service.client.add("true", name=name, on_end=hook if name == "a" else None).wait(60)
        wait_until(lambda: len(list_processes_in(mark)) == 2, 60)
        service.client.schedule()
        wait_until(lambda: bool(list_processes_in(state, "hesrpt.service.analysis")), 60)
        for analysis in list_processes_in(state, "hesrpt.service.analysis"):
            os.kill(analysis, signal.SIGSTOP)  # so that it does not end by itself
        adding = threading.Thread(target=add_endless_items, args=(service, tmp_path))
        adding.start()
        pid = service.process.pid
        wait_until(lambda: bool(list_searches(pid)), 60)
        (search,) = list_searches(pid)
        service.kill()
        wait_until(lambda: not list_processes_in(mark) and not list_processes_in(state), 60)
        wait_until(lambda: search not in list_processes_in(Path("iglob")), 60)
        adding.join()
