"""A short kill campaign, and what the campaign itself must notice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_until

from chaos.belonging import check_belonging
from chaos.campaign import Campaign
from chaos.clients import OwnedJob, SteeringClient
from chaos.evidence import Findings, check_copies, check_items_ran, check_report
from chaos.items import Item, append_line, create_payload, run_item
from chaos.plans import PlannedJob
from chaos.processes import find_recorded
from chaos.service_trial import ServiceTrial


@pytest.mark.slow
def test_short_campaign_finds_nothing(tmp_path: Path) -> None:
    """``make chaos`` is the long one."""
    campaign = Campaign(
        directory=tmp_path,
        seed=3,
        kills=4,
        kills_per_trial=4,
        max_items=10,
        parallel=2,
        subjects=("run",),
    )
    report = campaign.run()
    assert report.kills.total() >= 2
    assert report.errors == []
    assert report.faults == {kind: [] for kind in report.faults}


def test_every_result_belongs_to_its_item(tmp_path: Path) -> None:
    report = check_belonging(tmp_path, results=3_000, max_items=1_000)
    assert report.results >= 3_000
    assert report.wrong == []
    assert report.others["workers suspended"] > 0


def kill_service(directory: Path, kills: int, **options: Any) -> None:
    campaign = Campaign(directory=directory, subjects=("service",), kills=kills, **options)
    report = campaign.run()
    assert report.kills.total() >= kills
    assert report.errors == []
    assert report.faults == {kind: [] for kind in report.faults}


@pytest.mark.slow
def test_short_campaign_against_a_service_finds_nothing(tmp_path: Path) -> None:
    # Other tests keep the machine busy, so answers may take long.
    kill_service(tmp_path, 3, seed=2, kills_per_trial=3, max_items=60, max_answer=60.0)


@pytest.mark.slow
def test_campaign_against_a_service_finds_nothing(tmp_path: Path) -> None:
    kill_service(tmp_path, 40, seed=7, parallel=2)


def own_job(directory: Path, **values: Any) -> tuple[SteeringClient, OwnedJob]:
    """Return a client that has added a job of two items."""
    client = SteeringClient(
        0, 1, directory, Findings(), lambda: None, lambda what, seconds: None, 1
    )
    items = [Item(str(directory), key, seconds=0.0) for key in ("a", "b")]
    job = OwnedJob("job", PlannedJob("job", items), [], **values)
    client.jobs.append(job)
    return client, job


@pytest.mark.parametrize(
    ("known", "said", "line"),
    [
        ({"end": "done"}, {"state": "running"}, "job was done, now it is running"),
        ({"end": "cancelled"}, {"state": "done"}, "job was cancelled, now it is done"),
        ({"is_paused": True}, {"state": "running"}, "job was paused, now it is running"),
        ({"weight": 2.0}, {"state": "running"}, "job has weight 1.0"),
    ],
)
def test_status_that_a_client_cannot_believe_is_noticed(
    tmp_path: Path, known: dict[str, Any], said: dict[str, Any], line: str
) -> None:
    client, job = own_job(tmp_path, **known)
    client.check_view(job, {"weight": 1.0} | said, "by URL")
    (found,) = client.findings.lines["wrong statuses"]
    assert line in found


def test_status_that_the_evidence_contradicts_is_noticed(tmp_path: Path) -> None:
    limits = {"max_kills": 1, "max_items": 60, "patience": 1.0}
    trial = ServiceTrial(tmp_path, 1, **limits)  # type: ignore[arg-type]
    seen = {"b": time.monotonic()}
    _, job = own_job(tmp_path, done=seen)
    run_item(job.plan.items[1])
    trial.check_evidence(job, {"state": "done", "done": 2, "error": None})
    trial.check_evidence(job, {"state": "cancelled", "done": 1, "error": None})
    assert trial.findings.lines["lost"] == ["job is done: 1 of 2 items ran, 2 done"]
    wrong = ["job has 2 items done, 1 ran to their end"]
    assert trial.findings.lines["wrong statuses"] == wrong
    assert trial.findings.lines["second copies"] == ["b ran again after it was seen as done"] * 2


def create_evidence(directory: Path) -> Path:
    (directory / "locks").mkdir()
    return directory


def test_item_leaves_evidence_and_names_itself(tmp_path: Path) -> None:
    item = Item(str(create_evidence(tmp_path)), "a-1", seconds=0.0, size=100)
    assert run_item(item) == ("a-1", create_payload(item))
    assert len(create_payload(item)) == 100
    findings = Findings()
    check_items_ran(tmp_path, ["a-1", "a-2"], findings)
    assert findings.lines["lost"] == ["a-2 never ran to its end"]


def test_second_copy_is_noticed_even_if_only_a_child_of_the_first_is_left(tmp_path: Path) -> None:
    item = Item(str(create_evidence(tmp_path)), "a-1", "child", seconds=0.0)
    run_item(item)
    findings = Findings()
    check_copies(tmp_path, findings)
    assert findings.total == 0
    (child,) = [each for each in find_recorded(tmp_path) if each.pid != os.getpid()]
    try:
        run_item(item)
        check_copies(tmp_path, findings)
        assert findings.count("second copies") == 1
    finally:
        child.kill()
    os.waitpid(child.pid, 0)


def test_daemon_without_environment_is_found(tmp_path: Path) -> None:
    script = (
        "from chaos.items import Item, run_item\n"
        f"run_item(Item({str(create_evidence(tmp_path))!r}, 'a-1', 'bare daemon'))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
    (daemon,) = find_recorded(tmp_path)
    daemon.kill()
    wait_until(lambda: find_recorded(tmp_path) == [])


def test_wrong_missing_and_repeated_results_are_noticed(tmp_path: Path) -> None:
    report = tmp_path / "report.log"
    for results in (["a", "b", "c"], ["a", "c", "b"], ["a"]):
        entry = {"life": 1, "job": 0, "results": results, "time": time.monotonic()}
        append_line(report, json.dumps(entry))
    run_item(Item(str(create_evidence(tmp_path)), "b", seconds=0.0))
    findings = Findings()
    check_report(tmp_path, report, {1: [["a", "b", "c"]]}, findings)
    assert findings.lines["another's result"] == ["job 0 in life 1: c at 1, not b"]
    assert findings.lines["lost"] == [
        "job 0 in life 1: 1 of 3 results",
        "b ran again after its job was reported done",
    ]
