"""The API of jobs: add, list, look at, change and cancel them."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.served_queue import ServedQueue, serve_queue
from support.waiting import wait_until

from hesrpt import Pool, Retention
from hesrpt.cli.job_changes import parse_words
from hesrpt.jobs.job_spec import PRIOR_P
from hesrpt.jobs.job_view import JobView
from hesrpt.reports.inspection import read_status
from hesrpt.scheduler import pruning
from hesrpt.scheduler.requests import submit_jobs
from hesrpt.service import job_queue
from hesrpt.service.client import ServiceError
from hesrpt.service.job_requests import read_jobs


def get(served: ServedQueue, path: str, **query: Any) -> Any:
    answer = served.connect().get(f"/api/v1/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture
def _impatient_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_FIRST_SECONDS", "_PAUSE_SECONDS", "_SETTLED_SECONDS"):
        monkeypatch.setattr(pruning, name, 0.0)


def wait_for(served: ServedQueue, name: str) -> JobView:
    return served.client.wait(name, timeout=60)[0]


def test_a_job_is_added_runs_and_is_shown(served: ServedQueue) -> None:
    job = {
        "name": "letters/ä 100%",
        "command": ["echo", "-n", "got {item}"],
        "items": ["a", "b", "c"],
        "weight": 2,
        "group": "night",
    }
    answer = served.connect().post("/api/v1/jobs", json=job)
    assert answer.status_code == 201
    (added,) = answer.json()["jobs"]
    assert (added["name"], added["items"], added["weight"]) == ("letters/ä 100%", 3, 2.0)
    assert added["state"] in ("waiting", "running", "done")
    ended = wait_for(served, "letters/ä 100%")
    assert (ended.state, ended.done, ended.progress, ended.group) == ("done", 3, 1.0, "night")
    assert ended.flow_time is not None
    assert ended.flow_time > 0
    shown = served.client.details("letters/ä 100%")
    assert shown["command_full"] == "echo -n 'got {item}'"
    assert (shown["failures"], shown["kind"], shown["number"]) == ([], "letters/ä 100%", 1)
    items = get(served, "jobs/letters%2F%C3%A4%20100%25/items", offset=1, limit=1)
    (item,) = items["items"]
    assert items["total"] == 3
    assert (item["item"], item["value"], item["state"], item["attempts"]) == (1, "'b'", "done", 1)
    assert item["seconds"] > 0
    assert served.client.logs("letters/ä 100%", 2) == "got c"
    log = "--- letters/ä 100%, item {0} ('{1}')\ngot {1}"
    expected = "".join(log.format(number, letter) for number, letter in enumerate("abc"))
    assert served.client.logs("letters/ä 100%") == expected
    assert served.client.logs("letters/ä 100%", tail=3) == "".join(expected[-3:]).join(
        ["--- letters/ä 100%, item 2 ('c')\n", ""]
    )


def test_the_directory_of_a_job_is_shown_once(served: ServedQueue, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    served.add("true", name="absolute", cwd=str(tmp_path / "below"))
    assert served.client.details("absolute")["cwd"] == str(tmp_path / "below")
    served.add("true", name="nowhere said")
    assert served.client.details("nowhere said")["cwd"] == str(Path.cwd())


def test_a_command_is_shown_as_hesrpt_add_takes_it(served: ServedQueue, tmp_path: Path) -> None:
    place = tmp_path / "{odd}"
    place.mkdir()
    line = "awk '{print  $1}' {item} | xargs -I{} echo '{}'"
    for words, expected in (
        ([line, ":::", "/etc/hostname"], line),
        (["printf", "%s  %s", "{a}", "${HOME}"], "printf '%s  %s' '{a}' '${HOME}'"),
    ):
        command, items = parse_words(words)
        cwd = str(place).replace("{", "{{").replace("}", "}}")
        details = served.client.details(served.add(command, items=items, cwd=cwd))
        assert details["command_full"] == details["command"] == expected
        assert details["cwd"] == str(place)
    lines = "echo start\n" + "echo  again\n" * 20
    details = served.client.details(served.add(lines, name="lines", timeout=90, retries=3))
    assert details["command_full"] == details["command"] == lines.strip()
    assert (details["timeout"], details["retries"]) == (90.0, 3)


def test_sorted_by_state_failed_jobs_come_before_others_that_have_ended(
    served: ServedQueue,
) -> None:
    for name, command in (("rank good", "true"), ("rank bad", "exit 1"), ("rank fine", "true")):
        served.add(command, name=name, group="ranks", retries=0)
    served.client.wait("rank good", "rank bad", "rank fine", timeout=60)
    jobs: list[dict[str, Any]] = [{"name": "rank last", "command": "sleep 60"}]
    jobs.append({"name": "rank gone", "command": "true", "after": ["rank last"]})
    served.client.submit([job | {"group": "ranks"} for job in jobs])
    served.client.cancel("rank gone")

    def list_names(order: str) -> list[str]:
        found = get(served, "jobs", group="ranks", sort="state", order=order)["jobs"]
        return [job["name"] for job in found]

    others = sorted(
        ("rank good", "rank fine", "rank gone"),
        key=lambda name: -(served.client.info(name).ended or 0),
    )
    assert list_names("asc") == ["rank last", "rank bad", *others]
    assert list_names("desc") == [*others, "rank bad", "rank last"]
    served.client.cancel("rank last")


def test_jobs_are_listed_in_pages(served: ServedQueue) -> None:
    names = [served.add("true", name=f"page {number}", group="pages") for number in range(5)]
    for name in names:
        wait_for(served, name)
    page = get(served, "jobs", group="pages", limit=2, offset=1, order="asc")
    assert ([job["name"] for job in page["jobs"]], page["total"]) == (names[1:3], 5)
    page = get(served, "jobs", search="PAGE", sort="name", order="desc", limit=1)
    assert [job["name"] for job in page["jobs"]] == ["page 4"]
    assert get(served, "jobs", group="pages", state="failed")["total"] == 0
    counts = get(served, "jobs", state="done")["counts"]
    assert counts["done"] >= 5
    assert list(counts) == [
        "running",
        "waiting",
        "paused",
        "submitted",
        "done",
        "failed",
        "cancelled",
    ]


def test_jobs_with_taken_names_get_a_number(served: ServedQueue) -> None:
    assert [served.add("true", name="twin") for _ in range(2)] == ["twin", "twin (2)"]
    assert served.add("/bin/echo hello") == "echo"


def test_a_key_adds_a_job_once(served: ServedQueue) -> None:
    client, job = served.connect(), {"command": "true", "name": "once"}
    headers = {"Idempotency-Key": "some key"}
    first, second = (
        client.post("/api/v1/jobs", json=job, headers=headers).json()["jobs"] for _ in range(2)
    )
    assert first[0]["number"] == second[0]["number"]
    assert get(served, "jobs", search="once")["total"] == 1
    other = client.post("/api/v1/jobs", json=job | {"weight": 2}, headers=headers)
    assert (other.status_code, other.json()["detail"]) == (
        422,
        "Idempotency-Key 'some key' was used for another request",
    )
    long_key = client.post("/api/v1/jobs", json=job, headers={"Idempotency-Key": "k" * 201})
    assert long_key.status_code == 422


@pytest.mark.usefixtures("_impatient_retention")
def test_a_key_holds_when_its_job_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_queue, "ANSWER_SECONDS", 300.0)
    keep_none = Retention(max_jobs=0)
    with serve_queue(tmp_path / "s", retention=keep_none) as served:
        served.client.add("exit 1", name="failed", retries=0, key="a")
        served.client.add("sleep 60", name="cancelled", key="b")
        served.client.cancel("cancelled")
        wait_until(lambda: served.client.jobs() == [])
    with serve_queue(tmp_path / "s", retention=keep_none) as served:
        began = time.monotonic()
        with pytest.raises(ServiceError, match="Idempotency-Key 'b' was used before") as error:
            served.client.add("sleep 60", name="cancelled", key="b")
        assert error.value.status == 410
        assert time.monotonic() - began < 200  # it is not waited for
        assert served.client.jobs() == []  # nothing has come back or was added


def square(number: int) -> int:
    return number**2


def test_python_jobs_of_others_fail_and_stop_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = tmp_path / "s"
    with closing(Pool(1, state=state)) as pool:
        pool.map(square, [1], name="done").wait()
        pool.map(square, [1], name="python", after=[pool.map(time.sleep, [60], name="sleep")])
    (state / "calls").mkdir()  # where early versions kept what clients sent
    (state / "calls" / "0.calls").write_bytes(b"left behind")
    later = {"command": "true", "name": "later", "after": ["python"]}
    submit_jobs(state, read_jobs(later, ["python"]))
    with serve_queue(state) as served:
        info = wait_for(served, "python")
        assert (info.state, info.error) == (
            "failed",
            "it calls a Python function, and a service runs commands only",
        )
        assert "'python'" in caplog.text
        assert wait_for(served, "later").state == "cancelled"
        assert served.client.info("done").state == "done"
        served.add("true", name="new")
        assert wait_for(served, "new").state == "done"
    with serve_queue(state) as served:
        assert served.client.info("python").state == "failed"
    with Pool(1, state=state, resume=True) as pool:  # its script can still go on with it
        assert pool.map(square, [1], name="python").results() == [1]


def test_jobs_wait_for_each_other(served: ServedQueue) -> None:
    jobs = [
        {"name": "first", "command": "sleep 0.3"},
        {"name": "second", "command": "true", "after": ["first"]},
    ]
    added = served.connect().post("/api/v1/jobs", json={"jobs": jobs}).json()["jobs"]
    assert added[1]["after"] == ["first"]
    second = served.client.info("second")
    if second.state == "waiting":
        assert second.waits_for == ("first",)
    assert wait_for(served, "second").state == "done"
    first = served.client.info("first")
    assert first.ended is not None
    assert (served.client.info("second").ended or 0.0) >= first.ended
    # It may also wait for a job that is there already.
    served.add("true", name="third", after=["second"])
    assert wait_for(served, "third").state == "done"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "command is missing"),
        ({"command": ""}, "command must be a string for the shell"),
        ({"command": "true", "weight": -1}, "weight must be a number greater than 0, got -1"),
        ({"command": "true", "colour": "red"}, "unknown key 'colour'"),
        ({"command": "true", "after": ["nobody"]}, "there is no job 'nobody' to wait for"),
        ({"command": "echo {item}"}, "the command refers to items, but the job has none"),
        ({"command": "true", "cwd": "/no/such/place"}, "there is no directory /no/such/place"),
        ({"jobs": []}, "jobs must be a list of 1 to 10,000 jobs"),
        ({"jobs": [1]}, "a job must be an object, got 1"),
        (
            {"jobs": [{"command": "true"}, {"command": "true", "retries": 1.5}]},
            "jobs[1]: retries must be a whole number",
        ),
        ({"jobs": [{"command": "true"}], "name": "x"}, "'name' must be in the jobs"),
        ([], "the body must be a JSON object"),
    ],
)
def test_invalid_jobs_are_refused(served: ServedQueue, body: Any, message: str) -> None:
    before = get(served, "jobs")["total"]
    answer = served.connect().post("/api/v1/jobs", json=body)
    assert answer.status_code == 422
    assert message in answer.json()["detail"]
    assert get(served, "jobs")["total"] == before


def test_bad_requests_are_explained(served: ServedQueue) -> None:
    client = served.connect()
    assert (
        "the body is not valid JSON" in client.post("/api/v1/jobs", content=b"{").json()["detail"]
    )
    missing = client.get("/api/v1/jobs/nobody")
    assert missing.status_code == 404
    refusal = r"there is no job 'nobody'; (the latest )?jobs are: "
    assert re.match(refusal, missing.json()["detail"])
    assert client.get("/api/v1/jobs?limit=0").status_code == 422
    assert client.get("/api/v1/jobs?state=sleepy").status_code == 422
    for method, path, status, sentence in (
        ("GET", "/api/v1/nothing", 404, "there is nothing at '/api/v1/nothing'"),
        ("PUT", "/api/v1/jobs", 405, "'/api/v1/jobs' has no PUT"),
    ):
        refused = client.request(method, path)
        problem = refused.json()
        assert (refused.status_code, problem["reason"]) == (status, "no_such_path")
        assert problem["detail"] == f"{sentence}; /api/v1/openapi.json describes the API"


def test_jobs_are_steered(served: ServedQueue) -> None:
    name = served.add("sleep 60", name="long")
    wait_until(lambda: served.client.info(name).state == "running")
    assert served.client.pause(name) == "paused: its processes are suspended"
    assert served.client.info(name).state == "paused"
    assert served.client.resume(name) == "resumed"
    assert served.client.weight(name, 3) == "now has weight 3"
    assert served.client.info(name).weight == 3
    client = served.connect()
    for body in (
        {"paused": "yes"},
        {"retry": False},
        {"weight": 0},
        {"weight": True},
        {},
        {"a": 1},
    ):
        assert client.patch("/api/v1/jobs/long", json=body).status_code == 422, body
    refused = client.patch("/api/v1/jobs/long", json={"retry": True})
    assert (refused.status_code, refused.json()) == (
        409,
        {
            "detail": "job 'long' has no failed items",
            "reason": "refused",
            "text": "has no failed items",
        },
    )
    paused = client.patch("/api/v1/jobs", json={"paused": True}).json()
    assert paused == {"jobs": ["long"]}
    assert client.patch("/api/v1/jobs", json={"paused": False}).json() == {"jobs": ["long"]}
    cancelled = client.delete("/api/v1/jobs/long").json()
    assert (cancelled["text"], cancelled["job"]["state"]) == ("cancelled", "cancelled")
    again = client.delete("/api/v1/jobs/long")
    assert (again.status_code, again.json()["detail"]) == (
        409,
        "job 'long' is cancelled already",
    )


def test_groups_are_steered(served: ServedQueue) -> None:
    names = [served.add("sleep 60", name=f"member {n}", group="team") for n in range(2)]
    changed = served.connect().patch("/api/v1/groups/team", json={"paused": True, "weight": 2})
    text = "paused, with jobs that come later, and now has weight 2"  # as by directory
    assert changed.json()["text"] == text
    kept = read_status(served.queue.directory).groups["team"]  # a crash now would lose nothing
    assert (kept.is_paused, kept.weight) == (True, 2.0)
    assert {served.client.info(name).state for name in names} == {"paused"}

    def find_group() -> Any:
        (group,) = [each for each in served.client.groups() if each["name"] == "team"]
        return group

    group = find_group()
    assert (group["paused"], group["weight"], group["active"]) == (True, 2.0, 2)
    # The servers that it holds may change in between.
    wait_until(lambda: served.connect().get("/api/v1/groups/team").json() == find_group())
    served.client.change_group("team", paused=False)
    assert sorted(served.client.cancel_group("team")) == names
    assert served.connect().delete("/api/v1/groups/nobody").status_code == 404
    assert served.connect().patch("/api/v1/groups/team", json={}).status_code == 422
    unknown = served.connect().patch("/api/v1/groups/nobody", json={"paused": True})
    assert (unknown.status_code, unknown.json()["detail"]) == (404, "there is no group 'nobody'")


def test_several_jobs_are_changed_at_once(served: ServedQueue) -> None:
    client, done = served.client, served.add("true")
    client.wait(done, timeout=60)
    names = [served.add("sleep 60", name=name, group="several") for name in ("one", "two")]
    paused, refused = client.change("pause", [names[1], done, names[1]])
    assert (paused["job"], paused["text"][:6], paused["refused"]) == (names[1], "paused", False)
    assert refused == {"job": done, "text": "is done already", "refused": True}
    assert client.change("weight", group="several", weight=3) == [
        {"job": "group several", "text": "now has weight 3", "refused": False}
    ]
    cancelled = client.change("cancel", group="several")
    assert [(each["job"], each["text"]) for each in cancelled] == [
        (name, "cancelled") for name in names
    ]
    assert {client.info(name).state for name in names} == {"cancelled"}
    for content, status, problem in (
        ({"kind": "stop"}, 422, "kind must be one of cancel, pause, resume, retry, weight"),
        ({"kind": "pause", "jobs": "one"}, 422, "jobs must be a list of one or more names"),
        ({"kind": "cancel", "jobs": []}, 422, "jobs must be a list of one or more names"),
        ({"kind": "pause", "group": 1}, 422, "group must be a name"),
        ({"kind": "pause", "jobs": ["one"], "group": "several"}, 422, "either jobs or a group"),
        ({"kind": "pause", "name": "one"}, 422, "unknown key 'name'"),
        ({"kind": "weight"}, 422, "weight must be given with kind"),
        ({"kind": "weight", "weight": "2"}, 422, "weight must be a number greater than 0"),
        ({"kind": "weight", "weight": 10**400}, 422, "weight must be"),
        ({"kind": "pause", "jobs": ["one", "nobody"]}, 404, "there is no job 'nobody'"),
        ({"kind": "pause", "group": "nobody"}, 404, "there is no group 'nobody'; groups are"),
    ):
        answer = served.connect().post("/api/v1/changes", json=content)
        assert (answer.status_code, problem in answer.json()["detail"]) == (status, True)


def test_failed_items_are_listed_and_retried(served: ServedQueue, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    name = served.add(
        f"echo trying {{item}}; test -e {flag}",
        name="fragile",
        items=["x", "y"],
        retries=0,
        keep_going=True,
    )
    assert wait_for(served, name).state == "failed"
    details = served.client.details(name)
    assert [failure["value"] for failure in details["failures"]] == ["'x'", "'y'"]
    assert details["failures"][0]["error"].startswith("exit code 1")
    assert [item["state"] for item in get(served, f"jobs/{name}/items")["items"]] == ["failed"] * 2
    flag.touch()
    assert served.client.retry(name) == "runs its failed items again"
    ended = wait_for(served, name)
    assert (ended.state, ended.done, ended.failed) == ("done", 2, 0)


def test_a_speedup_is_shown_if_it_was_given_or_learned(served: ServedQueue) -> None:
    for name in (
        served.add("true", name="unknown speedup"),
        served.add("true", name="given", p=0.9),
    ):
        wait_for(served, name)
    assert served.client.details("given")["p"] == 0.9
    assert served.client.details("unknown speedup")["p"] is None
    durations = served.queue.driver.jobs["unknown speedup"].durations
    durations.add(1, *[1.0] * 20)
    durations.add(16, *[4.0] * 20)
    assert served.client.details("unknown speedup")["p"] == durations.p != PRIOR_P


def test_hooks_that_fail_are_shown_with_their_job(served: ServedQueue) -> None:
    name = served.add("true", name="hooked", on_end=["echo no >&2; exit 7", "true"])
    served.add("true", name="unhooked")
    wait_for(served, name)
    wait_until(lambda: [hook["attempts"] for hook in served.client.details(name)["hooks"]] == [1])
    (hook,) = served.client.details(name)["hooks"]
    assert (hook["target"], hook["pending"]) == ("echo no >&2; exit 7", True)
    assert "7" in hook["error"]
    assert served.client.details("unhooked")["hooks"] == []


def test_items_that_a_job_leaves_behind_do_not_wait(served: ServedQueue) -> None:
    command = "test {item} = 0 || sleep 60"
    name = served.add(command, items=[0, 1, 2, 3], name="broken off", max_servers=1)

    def list_states() -> list[str]:
        return [item["state"] for item in get(served, f"jobs/{name}/items")["items"]]

    wait_until(lambda: list_states() == ["done", "running", "waiting", "waiting"])
    served.client.cancel(name)
    assert list_states() == ["done", "not done", "not done", "not done"]


def test_what_a_job_prints_is_followed(served: ServedQueue) -> None:
    name = served.add("for i in 1 2 3; do echo line $i; sleep 0.2; done", name="talker")
    followed = list(served.client.follow_logs(name))
    assert "".join(part.text for part in followed) == "line 1\nline 2\nline 3\n"
    assert {part.title for part in followed} == {"item 0"}
    assert served.client.logs(served.add("true", name="silent")) == ""


def test_the_end_of_a_long_output_says_which_items_it_is_from(served: ServedQueue) -> None:
    name = served.add("echo line {item}", name="lines", items=[0, 1, 2], max_servers=1)
    wait_for(served, name)
    assert served.client.logs(name, tail=7) == f"--- {name}, item 2\nline 2\n"
    parts = served.client.read_logs(name, tail=9)
    assert [(part.item, part.text) for part in parts] == [(1, "1\n"), (2, "line 2\n")]
    assert served.client.read_logs(name, 1) == [(1, "item 1", "line 1\n")]


def test_servers_metrics_and_schedule_are_shown(served: ServedQueue) -> None:
    wait_for(served, served.add("sleep 0.1", name="timed"))
    servers = served.client.servers()
    assert (servers["servers"], servers["engine"], servers["policy"]) == (2, "local", "adaptive")
    assert servers["calibration"]["jobs_seen"] >= 1
    lines = served.connect().get("/metrics").text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert values["hesrpt_servers"] == "2"
    assert float(values['hesrpt_jobs{state="done"}']) >= 1
    assert float(values["hesrpt_flow_time_seconds_count"]) >= 1
    schedule = served.client.schedule(points=50, jobs=3)
    assert len(schedule["times"]) == len(schedule["others"]) == len(schedule["capacity"]) == 50
    assert all(len(series["servers"]) == 50 for series in schedule["series"])
    assert len(schedule["series"]) <= 3
    assert schedule["mean_flow_time"] > 0


def test_all_jobs_are_there_after_a_restart(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    with serve_queue(tmp_path / "s") as served:
        good = served.add("true", name="good", group="g")
        served.add("true", name="alone", group="all done")
        bad = served.add(f"test -e {flag}", name="bad", retries=0)
        gone = served.add("sleep 60", name="gone")
        wait_until(lambda: served.client.info(gone).state == "running")
        served.client.cancel(gone)
        for name in (good, bad, "alone"):
            wait_for(served, name)
        served.add("sleep 60", name="slow")
        paused = served.add("true", name="paused", after=["slow"], group="g")
        served.client.pause(paused)
        served.client.change_group("g", weight=4)
    with serve_queue(tmp_path / "s") as served:
        states = {job.name: job.state for job in served.client.jobs()}
        assert list(states) == ["good", "alone", "bad", "gone", "slow", "paused"]
        assert (states["good"], states["bad"], states["gone"]) == ("done", "failed", "cancelled")
        assert (states["paused"], states["slow"] in ("running", "waiting")) == ("paused", True)
        assert served.client.details("bad")["failures"][0]["error"].startswith("exit code 1")
        groups = {group["name"]: group for group in served.client.groups()}
        assert (groups["g"]["weight"], groups["g"]["jobs"], groups["g"]["active"]) == (4.0, 2, 1)
        assert (groups["all done"]["jobs"], groups["all done"]["active"]) == (1, 0)
        time.sleep(0.3)
        assert served.client.info("bad").state == "failed"  # it is not retried by itself
        assert get(served, "jobs/gone/items")["items"][0]["state"] == "not done"
        flag.touch()
        served.client.retry("bad")
        assert wait_for(served, "bad").state == "done"
        refused = served.connect().delete("/api/v1/jobs/good")
        assert (refused.status_code, refused.json()["detail"]) == (
            409,
            "job 'good' is done already",
        )
        assert served.client.logs("good") == ""
        assert get(served, "jobs/good/items")["items"][0]["state"] == "done"


def test_a_stopping_service_takes_no_jobs(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with serve_queue(tmp_path / "s") as served, ThreadPoolExecutor() as threads:
        hold = f"while [ ! -e {gate} ]; do sleep 0.02; done"
        first = served.add(hold, name="first", servers=1)
        served.add("true {item}", items=list(range(50)), name="rest")
        wait_until(lambda: served.client.info(first).state == "running")
        draining = threads.submit(served.queue.drain, 60)
        wait_until(lambda: served.queue.is_stopping)
        gate.touch()
        assert draining.result()
        assert served.client.info(first).state == "done"
        answer = served.connect().post("/api/v1/jobs", json={"command": "true"})
        assert answer.status_code == 503
        left = served.client.info("rest")
        assert left.items == 50
    with serve_queue(tmp_path / "s") as served:
        assert (wait_for(served, "rest").done, served.client.info(first).state) == (50, "done")
