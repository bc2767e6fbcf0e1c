"""A short kill campaign, and what the campaign itself must notice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from support.waiting import wait_until

from chaos.campaign import Campaign
from chaos.evidence import Findings, check_copies, check_items_ran, check_report
from chaos.items import Item, append_line, create_payload, run_item
from chaos.processes import find_recorded


def test_short_campaign_finds_nothing(tmp_path: Path) -> None:
    """``make chaos`` is the long one."""
    campaign = Campaign(
        directory=tmp_path, seed=3, kills=4, kills_per_trial=4, max_items=10, parallel=2
    )
    report = campaign.run()
    assert report.kills.total() >= 2
    assert report.errors == []
    assert report.faults == {kind: [] for kind in report.faults}


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
