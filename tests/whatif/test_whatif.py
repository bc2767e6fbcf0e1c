"""Studies of logs: by hand, against the simulator, and as operators meet them."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.paths import EXAMPLES

from hesrpt import InputError, PowerLaw, Workload, simulate
from hesrpt.plotting.whatif_figures import draw_overview
from hesrpt.traces import Trace, read_trace
from hesrpt.traces.trace import RECORDED
from hesrpt.whatif import assume_speedup, run_sensitivity, run_study
from hesrpt.whatif.report import render_report
from hesrpt.whatif.study import SIZE_CLASSES, build_workload

EXAMPLE = EXAMPLES / "cluster.swf"
CURVES = "application,workers,speedup\na,1,1\na,4,3\na,8,2.5\nb,1,1\nb,2,1.2\n"


def make_trace(
    submit_times: list[float], servers: list[float], runtimes: list[float], machine: int | None = 8
) -> Trace:
    jobs = len(submit_times)
    return Trace(
        source="made up",
        submit_times=np.array(submit_times, float),
        runtimes=np.array(runtimes, float),
        servers=np.array(servers, float),
        start_times=np.full(jobs, np.nan),
        estimates=np.full(jobs, np.nan),
        names=tuple(map(str, range(jobs))),
        machine_servers=machine,
        jobs_read=jobs,
        dropped={},
    )


@pytest.fixture(scope="module")
def example() -> Trace:
    return read_trace(EXAMPLE)


# --- from a rigid record to a malleable job -------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(1, 8), st.floats(0.5, 1e5)), min_size=1, max_size=20),
    st.sampled_from([0.05, 0.5, 0.7, 0.99, "uniform(0.2, 0.8)"]),
)
def test_on_its_own_servers_a_job_takes_its_recorded_time(
    jobs: list[tuple[int, float]], p: float | str
) -> None:
    servers, runtime = [float(q) for q, _ in jobs], [r for _, r in jobs]
    trace = make_trace([0.0] * len(jobs), servers, runtime)
    workload = build_workload(trace, assume_speedup(p), seed=1)
    alone = workload.sizes / workload.speedups.rate(trace.servers)
    np.testing.assert_allclose(alone, runtime, rtol=1e-12)


def test_a_study_by_hand() -> None:
    # Two jobs, each for 10 s on all 4 servers: sizes 10·√4 = 20.
    log = make_trace([0, 0], [4, 4], [10, 10], machine=4)
    study = run_study(log, assumption=0.5)
    flow = {policy: run.mean_flow_time for policy, run in study.runs.items()}
    assert flow["fcfs"] == flow["easy"] == pytest.approx(15)
    assert flow["equi"] == pytest.approx(20 / np.sqrt(2))
    same = Workload([20, 20], PowerLaw(0.5), arrivals=[0, 0])
    for policy in ("srpt", "hesrpt", "optimal"):
        assert flow[policy] == simulate(same, 4, policy, whole=True).mean_flow_time
    assert RECORDED not in study.runs  # the log has no waiting times
    assert study.slowdowns("easy").tolist() == pytest.approx([1, 2])
    assert study.load == np.inf  # all at once
    assert study.as_json()["load"] is None
    rows = {row["policy"]: row for row in study.rows()}
    assert rows["easy"]["makespan"] == pytest.approx(20)
    assert rows["easy"]["utilisation"] == pytest.approx(1)
    assert rows["equi"]["makespan"] == pytest.approx(20 / np.sqrt(2))
    assert study.notes == ()
    assert study.conclusion.startswith(
        "with malleable jobs and s(k) = k^0.5, heSRPT would cut mean flow time from 15 s (EASY) to "
    )


def test_what_the_log_records_is_shown_where_it_says(example: Trace) -> None:
    study = run_study(example)
    waited = np.mean(example.start_times - example.submit_times + example.runtimes)
    assert study.runs[RECORDED].mean_flow_time == pytest.approx(waited)
    assert study.servers == 64
    assert list(study.runs) == [
        RECORDED,
        "fcfs",
        "easy",
        "equi",
        "srpt",
        "hesrpt",
        "hesrpt-slowdown",
        "optimal",
    ]
    # The example was made with EASY: replayed, it gives the same.
    assert study.runs["easy"].mean_flow_time == pytest.approx(waited, rel=0.02)
    rows = {row["policy"]: row for row in study.rows()}
    assert rows["hesrpt"]["mean_flow_time"] < rows["easy"]["mean_flow_time"]
    assert rows["hesrpt-slowdown"]["mean_slowdown"] < rows["hesrpt"]["mean_slowdown"]
    for name, part in (("median", 0.5), ("p95", 0.95), ("p99", 0.99)):
        flow = np.quantile(example.start_times - example.submit_times + example.runtimes, part)
        assert rows[RECORDED][f"{name}_flow_time"] == pytest.approx(flow)
    span = (example.start_times + example.runtimes).max()
    used = float(example.servers @ example.runtimes) / (64 * span)
    assert rows[RECORDED]["utilisation"] == pytest.approx(used)
    assert sum(row["jobs"] for row in study.rows_by_size()) == len(study.trace)
    assert [row["class"] for row in study.rows_by_size()] == [name for name, _, _ in SIZE_CLASSES]
    # Among small jobs, heSRPT is ahead of EQUI; large ones pay for it.
    small, *_, large = study.rows_by_size()
    assert small["hesrpt"] < small["equi"]
    assert large["hesrpt"] > large["equi"]


def test_a_part_of_the_log_and_other_loads(example: Trace) -> None:
    whole = run_study(example, policies=["easy"])
    part = run_study(example, policies=["easy"], window="2d..5d")
    inside = (example.submit_times >= 2 * 86400) & (example.submit_times < 5 * 86400)
    assert len(part.trace) == np.count_nonzero(inside)
    assert part.trace.submit_times[0] == 0
    dated = run_study(example, policies=["easy"], window="2025-01-03..2025-01-06")
    assert example.start_date is not None
    assert 0 < len(dated.trace) < len(example)
    assert run_study(example, policies=["easy"], window="..2d").trace.submit_times[-1] < 2 * 86400
    busy = run_study(example, policies=["easy"], load=0.8)
    assert busy.load == pytest.approx(0.8)
    assert busy.runs["easy"].mean_flow_time > whole.runs["easy"].mean_flow_time
    assert RECORDED not in busy.runs  # with another load, waits would be others
    assert RECORDED in whole.runs
    long = run_study(example, policies=["easy"], min_runtime=3600)
    assert long.trace.runtimes.min() >= 3600
    assert "ran for less than 3600 s" in long.trace.summary
    assert (
        "asked for more than 32 servers" in run_study(example, 32, policies=["easy"]).trace.summary
    )


def test_a_load_beyond_the_machine_is_recognised() -> None:
    rng = np.random.default_rng(3)
    jobs = 2000
    log = make_trace(
        list(np.sort(rng.uniform(0, 1e5, jobs))),
        list(rng.integers(1, 9, jobs)),
        list(rng.exponential(120, jobs)),
    )
    study = run_study(log, policies=["easy", "hesrpt"])
    assert study.load > 1
    assert study.runs["easy"].overloaded
    assert "times what 8 servers can do" in study.notes[0]
    assert run_study(make_trace([0, 0], [4, 4], [10, 10]), policies=["easy", "hesrpt"]).notes == ()
    assert "jobs arrive faster than they are\n  served" in render_report(study)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"window": "2d:5d"}, "window must be FROM..TO"),
        ({"window": "2x.."}, "window must have times such as 10d"),
        ({"window": "900d.."}, "no job remains"),
        ({"window": "5d..2d"}, "window must start before it ends"),
        ({"load": 0.0}, "load must lie between"),
        ({"min_runtime": float("nan")}, "min_runtime must be"),
        ({"servers": 0}, "servers must be a whole number of at least 1, got 0"),
        ({"size_error": 1e300}, "size_error must lie between 0 and 100"),
        ({"assumption": "uniform(.,.)"}, "p must be a number in"),
        ({"assumption": "uniform(0.4,0.9"}, "p must be a number in"),
        ({"assumption": "0.7x"}, "p must be a number in"),
        ({"assumption": 1.5}, r"p must lie in \(0, 1\)"),
        ({"assumption": "uniform(0.9, 0.2)"}, "0 < LOW < HIGH < 1"),
        ({"policies": ["slurm"]}, "no policy named 'slurm'"),
        ({"servers": 32, "strict": True}, "asked for 64 servers, but the machine has 32"),
    ],
)
def test_mistakes(example: Trace, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run_study(example, **arguments)  # type: ignore[arg-type]


def test_more_mistakes(example: Trace) -> None:
    with pytest.raises(InputError, match="servers must be given"):
        run_study(replace(example, machine_servers=None))
    with pytest.raises(InputError, match="choose either p or curves"):
        assume_speedup()
    with pytest.raises(InputError, match="does not say when it starts"):
        run_study(make_trace([0, 1], [1, 1], [1, 1]), window="2024-01-01..")
    with pytest.raises(InputError, match="max_servers must be at least 1"):
        assume_speedup(0.5, max_servers=0.5)


# --- speedups ---------------------------------------------------------------------------------


def test_speedups_can_differ_between_jobs(example: Trace, tmp_path: Path) -> None:
    drawn = assume_speedup("normal(0.7, 0.1)")
    assert drawn.p == pytest.approx(0.7, abs=1e-3)
    study = run_study(example, assumption=drawn, seed=4)
    again = run_study(example, assumption=drawn, seed=4)
    assert study.rows() == again.rows()
    assert study.rows() != run_study(example, assumption=drawn, seed=5).rows()
    (tmp_path / "curves.csv").write_text(CURVES)
    measured = assume_speedup(curves=tmp_path / "curves.csv", max_servers=6)
    assert measured.text == "speedups drawn from 2 measured curves, on at most 6 servers"
    found = run_study(example, assumption=measured)
    assert set(found.runs) >= {"easy", "hesrpt", "optimal"}
    # Nothing that is measured goes faster than 3 times: a job takes at least so long.
    least = example.runtimes / 3
    assert np.all(found.runs["equi"].flow_times >= least * (1 - 1e-9))


def test_what_takes_too_long_is_left_out_but_can_be_asked_for() -> None:
    rng = np.random.default_rng(1)
    jobs = 1001
    log = make_trace(list(np.arange(jobs) * 100.0), [1.0] * jobs, list(rng.exponential(50, jobs)))
    assert "optimal" not in run_study(log, assumption="uniform(0.4, 0.9)").runs
    assert "optimal" in run_study(log).runs
    short = run_study(log, assumption="uniform(0.4, 0.9)", policies=["optimal"], window="0h..1h")
    assert list(short.runs) == ["optimal"]
    assert "mean flow time is shortest under optimal" in short.conclusion


def test_slowdown_is_rounded_for_many_jobs_and_exact_for_few(example: Trace) -> None:
    few = run_study(example, policies=["hesrpt-slowdown"]).runs["hesrpt-slowdown"]
    exact = simulate(few.workload, 64, "hesrpt-slowdown", whole=True)
    assert few.mean_flow_time == exact.mean_flow_time
    rng = np.random.default_rng(2)
    jobs = 1001
    log = make_trace(list(np.arange(jobs) * 20.0), [2.0] * jobs, list(rng.exponential(50, jobs)))
    many = run_study(log, policies=["hesrpt-slowdown"]).runs["hesrpt-slowdown"]
    held = many.servers_at(5000.0)
    assert np.array_equal(held, np.rint(held))
    exact = simulate(many.workload, 8, "hesrpt-slowdown", whole=True)
    assert many.mean_slowdown == pytest.approx(exact.mean_slowdown, rel=0.05)


def test_what_was_asked_for_is_said(example: Trace) -> None:
    study = run_study(
        example, policies=["easy", "hesrpt"], resize_cost=120, size_error=1, seed=3, load=0.8
    )
    assert study.notes == (
        "a resize stops a malleable job for 120 s",
        "malleable policies see sizes times exp(1 Z), Z standard normal (seed 3)",
        "submit times are scaled to a load of 0.8",
    )
    page = render_report(study)
    assert "A resize stops a malleable job for 120 s." in page
    plain = run_study(example, policies=["easy", "hesrpt"], load=0.8)
    assert study.runs["easy"].mean_flow_time == plain.runs["easy"].mean_flow_time
    assert study.runs["hesrpt"].mean_flow_time > plain.runs["hesrpt"].mean_flow_time
    part = run_study(example, policies=["easy"], window="2d..5d")
    assert "simulations start on an empty machine" in part.notes[0]
    start = example.start_times.copy()
    start[7] = np.nan
    unsure = run_study(replace(example, start_times=start), policies=["easy"])
    assert RECORDED not in unsure.runs
    assert unsure.notes == ("the recorded schedule is not shown: 1 job has no recorded start",)


# --- sensitivity ------------------------------------------------------------------------------


def test_where_it_stops_paying(example: Trace) -> None:
    found = run_sensitivity(
        example, powers=(0.3, 0.9), resize_costs=(0.0, 1e5), size_errors=(0.0, 1.0)
    )
    assert [(point.parameter, point.value) for point in found.points] == [
        ("p", 0.3),
        ("p", 0.9),
        ("resize_cost", 0.0),
        ("resize_cost", 1e5),
        ("size_error", 0.0),
        ("size_error", 1.0),
    ]
    base = run_study(example)
    for point in (found.points[2], found.points[4]):
        for policy, flow_time in point.flow_times.items():
            assert flow_time == base.runs[policy].mean_flow_time
    assert found.points[3].gain("easy") < 1 < found.points[2].gain("easy")
    told = found.describe_limits()
    assert "against EASY, p 0.3 to 0.9: heSRPT pays throughout" in told
    assert "against EASY, resize cost (s): heSRPT pays at 0" in told
    assert len(found.rows()) == 6


# --- as operators meet it -----------------------------------------------------------------------


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br", "path", "use"):
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "action", "data"):
                self.asked.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            assert self.open.pop() == tag


def test_the_report_needs_nothing_else(example: Trace) -> None:
    page = render_report(run_study(replace(example, source="<b>&x.swf")))
    parsed = _Page()
    parsed.feed(page)
    assert [one for one in parsed.asked if not one.startswith("#")] == []
    assert not re.search(r"url\((?!#)|@import|<script", page)
    assert page.count("<svg") == 4
    assert "&lt;b&gt;&amp;x.swf" in page
    assert "<b>&x" not in page
    assert parsed.open == []
    assert page.count("<li>") == 5
    for needed in ("heSRPT would cut mean flow time", "Assumptions", "had run time 0"):
        assert needed in page
    # Pictures do not share names, or one would show parts of another.
    names = re.findall(r' id="([^"]+)"', page)
    defined = [name for name in names if re.match(r"[mp][0-9a-f]{10}", name)]
    assert len(defined) == len(set(defined))


def test_the_picture_has_all_policies(example: Trace) -> None:
    left, right = draw_overview(run_study(example)).axes
    assert len(left.get_lines()) == 8
    assert len(right.get_lines()) == 4
