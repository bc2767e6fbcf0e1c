"""What is shown of runs: in words, as a table, as HTML and as lines."""

from __future__ import annotations

import io
import re
import time
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from support.paths import ROOT

from hesrpt.display.overview import RunOverview, describe_job, render_job, render_run
from hesrpt.display.progress import LineScreen, TerminalScreen
from hesrpt.display.terminal_table import build_view
from hesrpt.jobs.job_view import JobView

RUNNING = JobView(
    name="big",
    state="running",
    done=12,
    items=100,
    servers=3,
    planned=4,
    elapsed=5.0,
    eta=42.34,
    progress=0.12,
)
WAITING = JobView(name="small", state="waiting", items=1, planned=0, elapsed=0.2, progress=0.0)
UNKNOWN = replace(RUNNING, name="stream", items=None, done=1200, servers=1, eta=None, progress=None)
DONE = replace(RUNNING, name="fine", state="done", done=100, servers=0, progress=1.0)
EMPTY = replace(DONE, name="empty", done=0, items=0)
FAILED = replace(
    DONE,
    name="bad",
    state="failed",
    done=50,
    error="item 3: boom\nat <x>",
    failed=1,
    progress=0.5,
)
RUN = RunOverview(servers=4, policy="equi", jobs=[RUNNING, WAITING, UNKNOWN, DONE, EMPTY, FAILED])


@pytest.mark.parametrize(
    ("job", "text"),
    [
        (RUNNING, "running, 12 of 100 items, 3 servers, 42.3 s left"),
        (replace(RUNNING, eta=0.0123), "running, 12 of 100 items, 3 servers, 0.0 s left"),
        (WAITING, "waiting, 0 of 1 item"),
        (UNKNOWN, "running, 1,200 items done, 1 server"),
        (replace(RUNNING, state="paused"), "paused, 12 of 100 items, 3 servers"),
        (DONE, "done, 100 of 100 items in 5 s"),
        (FAILED, "failed, 50 of 100 items in 5 s: item 3: boom"),
        (replace(FAILED, error="k" * 5000), f"failed, 50 of 100 items in 5 s: {'k' * 299}…"),
    ],
)
def test_job_in_words(job: JobView, text: str) -> None:
    assert describe_job(job) == text


def test_run_in_words() -> None:
    assert RUN.describe() == "4 servers, policy equi, 2 running, 1 waiting, 2 done, 1 failed"
    assert replace(RUN, servers=1, jobs=[]).describe() == "1 server, policy equi, no jobs"
    assert replace(RUN, jobs=[DONE], note="closed").describe() == (
        "closed, 4 servers, policy equi, 1 done"
    )


def test_run_has_ended_once_there_were_jobs_and_all_have_ended() -> None:
    assert not replace(RUN, jobs=[]).has_ended
    assert not RUN.has_ended
    assert replace(RUN, jobs=[DONE, FAILED]).has_ended
    assert replace(RUN, note="failed (no disk)").has_ended


def test_mean_flow_time_is_predicted_if_all_ends_are_known() -> None:
    assert RUN.mean_flow_time is None
    assert replace(RUN, jobs=[RUNNING, DONE]).mean_flow_time == pytest.approx((47.34 + 5) / 2)


def test_jobs_that_have_ended_first_are_left_out_first() -> None:
    jobs = [replace(DONE, name=f"done {n}") for n in range(40)] + [RUNNING, WAITING]
    shown, others = replace(RUN, jobs=jobs).select(4)
    assert [job.name for job in shown] == ["done 38", "done 39", "big", "small"]
    assert others == "and 38 done"
    assert RUN.select(6) == (list(RUN.jobs), "")


def render_on_terminal(run: RunOverview, *, width: int = 100, height: int = 30) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(build_view(run, width=width, height=height))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_table_on_a_terminal() -> None:
    full = "━" * 24  # without colours, only the part that is done is drawn
    assert render_on_terminal(RUN) == [
        "job     state                                items  failures  servers  elapsed    left",
        "big     running  ━━╸                        12/100             3 of 4      5 s  42.3 s",
        "small   waiting                                0/1                  0    0.2 s",
        f"stream  running  {full}  1,200/?             1 of 4      5 s",
        f"fine    done     {full}  100/100                         5 s",
        f"empty   done     {full}      0/0                         5 s",
        "bad     failed   ━━━━━━━━━━━━               50/100         1               5 s",
        "4 servers, policy equi, 2 running, 1 waiting, 2 done, 1 failed",
    ]


def test_mean_flow_time_is_no_prediction_once_all_jobs_have_ended() -> None:
    run, ended = replace(RUN, jobs=[RUNNING, DONE]), replace(RUN, jobs=[DONE])
    assert "1 done; predicted mean flow time:" in " ".join(render_on_terminal(run))
    assert "1 done; mean flow time: 5 s" in " ".join(render_on_terminal(ended))


def test_table_without_room_and_without_servers() -> None:
    run = replace(RUN, servers=0, jobs=[DONE, DONE, RUNNING])
    assert render_on_terminal(run, height=4)[1:] == [
        "big  running  ━━╸                       12/100   3 of 4      5 s  42.3 s",
        "and 2 done",
        "waiting: no server is free on the cluster",
    ]


@pytest.mark.parametrize(
    ("width", "height", "columns"),
    [
        (140, 20, "job group state items servers elapsed left"),
        (80, 24, "job state items servers elapsed left"),
        (60, 14, "job state items servers left"),
        (40, 8, "job state left"),
    ],
)
def test_running_jobs_and_the_summary_are_visible_on_any_terminal(
    width: int, height: int, columns: str
) -> None:
    busy = replace(RUNNING, name="a job with a long name", group="nightly")
    waiting = [
        replace(WAITING, name=f"waiting {n}", waits_for=("a job with a long name", "other"))
        for n in range(40)
    ]
    jobs = [replace(FAILED, name=f"old {n}", group="g") for n in range(50)] + [*waiting, busy]
    lines = render_on_terminal(replace(RUN, jobs=jobs), width=width, height=height)
    assert len(lines) == height
    assert all(len(line) <= width for line in lines)
    assert lines[0].split() == columns.split()
    (row,) = [line for line in lines if line.startswith("a job with a")]
    assert "running" in row
    assert "42.3 s" in row
    text = " ".join(lines)
    assert text.endswith("4 servers, policy equi, 1 running, 40 waiting, 50 failed")
    assert re.search(r"and \d+ waiting, 50 failed", text)


def test_html_has_a_bar_for_each_job_and_at_most_thirty_rows() -> None:
    html = render_run(RUN)
    assert re.findall("width:([0-9.]+%)", html) == ["12%", "0%", "0%", "100%", "100%", "50%"]
    many = replace(RUN, jobs=[replace(RUNNING, name=str(n)) for n in range(500)])
    html = render_run(many)
    assert html.count("<tr>") == 1 + 30
    assert "and 470 running" in html
    assert len(html) < 40_000


def test_html_escapes_names_and_errors() -> None:
    name = "<script>alert(1)</script>\x1b[31m\u202e&'\""
    for html in (
        render_run(replace(RUN, policy="<b>", jobs=[replace(FAILED, name=name)])),
        render_job(replace(FAILED, name=name)),
    ):
        assert "<script>" not in html
        assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[31m\\u202e&amp;&#x27;&quot;" in html
        assert "<x>" not in html
        assert "policy <b>" not in html
    assert "item 3: boom\nat &lt;x&gt;" in render_job(FAILED)
    assert "item 3" not in render_job(replace(FAILED, state="cancelled"))


def create_console(**options: Any) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, width=100, height=10, highlight=False, **options), file


def test_lines_tell_of_each_job_once_when_it_ends() -> None:
    console, file = create_console()
    screen = LineScreen(console)
    screen.open(replace(RUN, jobs=[RUNNING, DONE]))
    screen.update(replace(RUN, jobs=[RUNNING, DONE]))
    screen.close(replace(RUN, jobs=[replace(FAILED, name="big"), DONE]))
    assert file.getvalue().splitlines() == [
        "fine: done after 5 s",
        "big: failed after 5 s: item 3: boom",
        "    at <x>",
    ]


def test_line_of_a_cancelled_job_says_once_that_it_was_cancelled() -> None:
    console, file = create_console()
    jobs = [
        replace(FAILED, name="a", state="cancelled", error="cancelled"),
        replace(FAILED, name="b", state="cancelled", error="cancelled by hesrpt cancel"),
    ]
    LineScreen(console).open(replace(RUN, jobs=jobs))
    assert file.getvalue().splitlines() == [
        "a: cancelled after 5 s",
        "b: cancelled by hesrpt cancel after 5 s",
    ]


def test_lines_tell_of_a_job_again_that_was_retried() -> None:
    console, file = create_console()
    screen = LineScreen(console)
    screen.open(replace(RUN, jobs=[FAILED]))
    again = replace(FAILED, state="done", error=None, elapsed=7.0)
    screen.close(replace(RUN, jobs=[again]))  # nobody has seen that it ran meanwhile
    assert file.getvalue().splitlines()[-1] == f"{FAILED.name}: done after 7 s"


def test_lines_tell_of_running_jobs_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    console, file = create_console()
    screen = LineScreen(console)
    now = time.monotonic()
    for seconds in (59.0, 61.0, 62.0, 122.0):
        monkeypatch.setattr("time.monotonic", lambda seconds=seconds: now + seconds)
        screen.update(replace(RUN, jobs=[RUNNING]))
    assert file.getvalue().splitlines() == [f"big: {describe_job(RUNNING)}"] * 2


def test_last_table_stays_on_the_terminal_unless_told_otherwise() -> None:
    for leaves_table in (True, False):
        console, file = create_console(force_terminal=True, legacy_windows=False)
        screen = TerminalScreen(console, leaves_table=leaves_table)
        screen.open(replace(RUN, jobs=[RUNNING]))
        screen.update(replace(RUN, jobs=[RUNNING, WAITING]))
        screen.close(replace(RUN, jobs=[DONE]))
        shown = file.getvalue()
        assert "fine" in shown
        erased_at = shown.rfind("\x1b[2K")
        assert (shown.rfind("fine") > erased_at) == leaves_table
        assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l")  # the cursor is back


PICTURE = RunOverview(
    servers=4,
    policy="adaptive",
    jobs=[
        JobView(name="thumbnails", state="done", done=200, items=200, elapsed=4.21, progress=1.0),
        JobView(
            name="search",
            state="running",
            done=37,
            items=120,
            servers=3,
            planned=3,
            elapsed=12.4,
            progress=37 / 120,
            eta=21.8,
        ),
        JobView(name="report", state="waiting", items=12, planned=0, elapsed=2.1, eta=25.2),
    ],
)


def test_pictures_in_the_documentation_are_what_one_sees() -> None:
    page = (ROOT / "docs" / "how-to" / "watch-a-run.md").read_text()
    assert render_run(PICTURE) in page
    assert "\n".join(render_on_terminal(PICTURE)) in page
