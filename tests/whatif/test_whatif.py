"""Studies of logs: by hand, against the simulator, and as operators meet them."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.paths import EXAMPLES
from support.shell import run

from hesrpt import InputError, PowerLaw, Workload, simulate
from hesrpt.plotting.whatif_figures import draw_overview
from hesrpt.traces import Log, read_log
from hesrpt.traces.trace import RECORDED
from hesrpt.whatif import assumption, sensitivity, whatif
from hesrpt.whatif.report import as_html
from hesrpt.whatif.study import CLASSES, as_workload

EXAMPLE = EXAMPLES / "cluster.swf"
CURVES = "application,workers,speedup\na,1,1\na,4,3\na,8,2.5\nb,1,1\nb,2,1.2\n"


def made(
    submit: list[float], servers: list[float], runtime: list[float], machine: int | None = 8
) -> Log:
    unknown = np.full(len(submit), np.nan)
    return Log(
        "made", np.array(submit, float), np.array(runtime, float), np.array(servers, float),
        unknown, unknown.copy(), tuple(map(str, range(len(submit)))), machine, None,
        len(submit), {},
    )  # fmt: skip


@pytest.fixture(scope="module")
def example() -> Log:
    return read_log(EXAMPLE)


# --- from a rigid record to a malleable job -------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(1, 8), st.floats(0.5, 1e5)), min_size=1, max_size=20),
    st.sampled_from([0.05, 0.5, 0.7, 0.99, "uniform(0.2, 0.8)"]),
)
def test_on_its_own_servers_a_job_takes_its_recorded_time(
    jobs: list[tuple[int, float]], p: float | str
) -> None:
    servers, runtime = [float(q) for q, _ in jobs], [r for _, r in jobs]
    log = made([0.0] * len(jobs), servers, runtime)
    workload = as_workload(log, assumption(p), seed=1)
    alone = workload.sizes / workload.speedups.rate(log.servers)
    np.testing.assert_allclose(alone, runtime, rtol=1e-12)


def test_a_study_by_hand() -> None:
    # Two jobs, each for 10 s on all 4 servers: sizes 10·√4 = 20.
    log = made([0, 0], [4, 4], [10, 10], machine=4)
    study = whatif(log, assumed=0.5)
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
    assert study.sentence.startswith(
        "with malleable jobs and s(k) = k^0.5, heSRPT would cut mean flow time from 15 s (EASY) to "
    )


def test_what_the_log_records_is_shown_where_it_says(example: Log) -> None:
    study = whatif(example)
    waited = np.mean(example.start - example.submit + example.runtime)
    assert study.runs[RECORDED].mean_flow_time == pytest.approx(waited)
    assert study.servers == 64
    assert list(study.runs) == [
        RECORDED, "fcfs", "easy", "equi", "srpt", "hesrpt", "hesrpt-slowdown", "optimal",
    ]  # fmt: skip
    # The example was made with EASY: replayed, it gives the same.
    assert study.runs["easy"].mean_flow_time == pytest.approx(waited, rel=0.02)
    rows = {row["policy"]: row for row in study.rows()}
    assert rows["hesrpt"]["mean_flow_time"] < rows["easy"]["mean_flow_time"]
    assert rows["hesrpt-slowdown"]["mean_slowdown"] < rows["hesrpt"]["mean_slowdown"]
    for name, part in (("median", 0.5), ("p95", 0.95), ("p99", 0.99)):
        flow = np.quantile(example.start - example.submit + example.runtime, part)
        assert rows[RECORDED][f"{name}_flow_time"] == pytest.approx(flow)
    span = (example.start + example.runtime).max()
    used = float(example.servers @ example.runtime) / (64 * span)
    assert rows[RECORDED]["utilisation"] == pytest.approx(used)
    assert sum(row["jobs"] for row in study.by_class()) == len(study.log)
    assert [row["class"] for row in study.by_class()] == [name for name, _, _ in CLASSES]
    # Among small jobs, heSRPT is ahead of EQUI; large ones pay for it.
    small, *_, large = study.by_class()
    assert small["hesrpt"] < small["equi"]
    assert large["hesrpt"] > large["equi"]


def test_a_part_of_the_log_and_other_loads(example: Log) -> None:
    whole = whatif(example, policies=["easy"])
    part = whatif(example, policies=["easy"], window="2d..5d")
    inside = (example.submit >= 2 * 86400) & (example.submit < 5 * 86400)
    assert len(part.log) == np.count_nonzero(inside)
    assert part.log.submit[0] == 0
    dated = whatif(example, policies=["easy"], window="2025-01-03..2025-01-06")
    assert example.began is not None
    assert 0 < len(dated.log) < len(example)
    assert whatif(example, policies=["easy"], window="..2d").log.submit[-1] < 2 * 86400
    busy = whatif(example, policies=["easy"], load=0.8)
    assert busy.load == pytest.approx(0.8)
    assert busy.runs["easy"].mean_flow_time > whole.runs["easy"].mean_flow_time
    assert RECORDED not in busy.runs  # with another load, waits would be others
    assert RECORDED in whole.runs
    long = whatif(example, policies=["easy"], min_runtime=3600)
    assert long.log.runtime.min() >= 3600
    assert "ran for less than 3600 s" in long.log.told
    assert "asked for more than 32 servers" in whatif(example, 32, policies=["easy"]).log.told


def test_a_load_beyond_the_machine_is_recognised() -> None:
    rng = np.random.default_rng(3)
    jobs = 2000
    log = made(
        list(np.sort(rng.uniform(0, 1e5, jobs))), list(rng.integers(1, 9, jobs)),
        list(rng.exponential(120, jobs)),
    )  # fmt: skip
    study = whatif(log, policies=["easy", "hesrpt"])
    assert study.load > 1
    assert study.runs["easy"].overloaded
    assert "times what 8 servers can do" in study.notes[0]
    assert whatif(made([0, 0], [4, 4], [10, 10]), policies=["easy", "hesrpt"]).notes == ()
    assert "jobs come faster than they are served" in as_html(study)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"window": "2d:5d"}, "FROM..TO is wanted"),
        ({"window": "2x.."}, "neither like 10d"),
        ({"window": "900d.."}, "no job is left"),
        ({"window": "5d..2d"}, "ends before it begins"),
        ({"load": 0.0}, "load must lie between"),
        ({"min_runtime": float("nan")}, "min_runtime must be"),
        ({"servers": 0}, "servers must be a whole number of at least 1, got 0"),
        ({"size_error": 1e300}, "size_error must lie between 0 and 100"),
        ({"assumed": "uniform(.,.)"}, "p must be a number in"),
        ({"assumed": "uniform(0.4,0.9"}, "p must be a number in"),
        ({"assumed": "0.7x"}, "p must be a number in"),
        ({"assumed": 1.5}, r"p must lie in \(0, 1\)"),
        ({"assumed": "uniform(0.9, 0.2)"}, "0 < lowest < highest < 1"),
        ({"policies": ["slurm"]}, "no policy named 'slurm'"),
        ({"servers": 32, "strict": True}, "asked for 64 servers, and there are 32"),
    ],
)
def test_mistakes(example: Log, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        whatif(example, **arguments)  # type: ignore[arg-type]


def test_more_mistakes(example: Log) -> None:
    with pytest.raises(InputError, match="does not say how many servers there are"):
        whatif(replace(example, machine=None))
    with pytest.raises(InputError, match="how do jobs speed up"):
        assumption()
    with pytest.raises(InputError, match="does not say at what date it began"):
        whatif(made([0, 1], [1, 1], [1, 1]), window="2024-01-01..")
    with pytest.raises(InputError, match="max_servers must be at least 1"):
        assumption(0.5, max_servers=0.5)


# --- speedups ---------------------------------------------------------------------------------


def test_speedups_can_differ_between_jobs(example: Log, tmp_path: Path) -> None:
    drawn = assumption("normal(0.7, 0.1)")
    assert drawn.p == pytest.approx(0.7, abs=1e-3)
    study = whatif(example, assumed=drawn, seed=4)
    again = whatif(example, assumed=drawn, seed=4)
    assert study.rows() == again.rows()
    assert study.rows() != whatif(example, assumed=drawn, seed=5).rows()
    (tmp_path / "curves.csv").write_text(CURVES)
    measured = assumption(curves=tmp_path / "curves.csv", max_servers=6)
    assert measured.text == "speedups drawn from 2 measured curves, on at most 6 servers"
    found = whatif(example, assumed=measured)
    assert set(found.runs) >= {"easy", "hesrpt", "optimal"}
    # Nothing that is measured goes faster than 3 times: a job takes at least so long.
    least = example.runtime / 3
    assert np.all(found.runs["equi"].flow_times >= least * (1 - 1e-9))


def test_what_takes_too_long_is_left_out_but_can_be_asked_for() -> None:
    rng = np.random.default_rng(1)
    jobs = 1001
    log = made(list(np.arange(jobs) * 100.0), [1.0] * jobs, list(rng.exponential(50, jobs)))
    assert "optimal" not in whatif(log, assumed="uniform(0.4, 0.9)").runs
    assert "optimal" in whatif(log).runs
    short = whatif(log, assumed="uniform(0.4, 0.9)", policies=["optimal"], window="0h..1h")
    assert list(short.runs) == ["optimal"]
    assert "mean flow time is least under optimal" in short.sentence


def test_slowdown_is_rounded_for_many_jobs_and_exact_for_few(example: Log) -> None:
    few = whatif(example, policies=["hesrpt-slowdown"]).runs["hesrpt-slowdown"]
    exact = simulate(few.workload, 64, "hesrpt-slowdown", whole=True)
    assert few.mean_flow_time == exact.mean_flow_time
    rng = np.random.default_rng(2)
    jobs = 1001
    log = made(list(np.arange(jobs) * 20.0), [2.0] * jobs, list(rng.exponential(50, jobs)))
    many = whatif(log, policies=["hesrpt-slowdown"]).runs["hesrpt-slowdown"]
    held = many.servers_at(5000.0)
    assert np.array_equal(held, np.rint(held))
    exact = simulate(many.workload, 8, "hesrpt-slowdown", whole=True)
    assert many.mean_slowdown == pytest.approx(exact.mean_slowdown, rel=0.05)


def test_what_was_asked_for_is_said(example: Log) -> None:
    study = whatif(
        example, policies=["easy", "hesrpt"], resize_cost=120, size_error=1, seed=3, load=0.8
    )
    assert study.notes == (
        "a malleable job stands still for 120 s when it is resized",
        "malleable policies see sizes times exp(1 Z), Z normal (seed 3)",
        "submissions were stretched or squeezed to a load of 0.8",
    )
    page = as_html(study)
    assert "A malleable job stands still for 120 s when it is resized." in page
    plain = whatif(example, policies=["easy", "hesrpt"], load=0.8)
    assert study.runs["easy"].mean_flow_time == plain.runs["easy"].mean_flow_time
    assert study.runs["hesrpt"].mean_flow_time > plain.runs["hesrpt"].mean_flow_time
    part = whatif(example, policies=["easy"], window="2d..5d")
    assert "all else starts on an empty machine" in part.notes[0]
    start = example.start.copy()
    start[7] = np.nan
    unsure = whatif(replace(example, start=start), policies=["easy"])
    assert RECORDED not in unsure.runs
    assert unsure.notes == ("as recorded is not shown: of 1 jobs the log does not say the start",)


# --- sensitivity ------------------------------------------------------------------------------


def test_where_it_stops_paying(example: Log) -> None:
    found = sensitivity(example, powers=(0.3, 0.9), resize_costs=(0.0, 1e5), size_errors=(0.0, 1.0))
    assert [(point.what, point.value) for point in found.points] == [
        ("p", 0.3), ("p", 0.9), ("resize_cost", 0.0), ("resize_cost", 1e5),
        ("size_error", 0.0), ("size_error", 1.0),
    ]  # fmt: skip
    base = whatif(example)
    for point in (found.points[2], found.points[4]):
        for policy, flow_time in point.flow_times.items():
            assert flow_time == base.runs[policy].mean_flow_time
    assert found.points[3].gain("easy") < 1 < found.points[2].gain("easy")
    told = found.limits()
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


def test_the_report_needs_nothing_else(example: Log) -> None:
    page = as_html(whatif(replace(example, place="<b>&x.swf")))
    parsed = _Page()
    parsed.feed(page)
    assert [one for one in parsed.asked if not one.startswith("#")] == []
    assert not re.search(r"url\((?!#)|@import|<script", page)
    assert page.count("<svg") == 4
    assert "&lt;b&gt;&amp;x.swf" in page
    assert "<b>&x" not in page
    assert parsed.open == []
    assert page.count("<li>") == 7  # five assumptions, two reasons why jobs were left out
    for needed in ("heSRPT would cut mean flow time", "What was assumed", "had run time 0"):
        assert needed in page
    # Pictures do not share names, or one would show parts of another.
    names = re.findall(r' id="([^"]+)"', page)
    defined = [name for name in names if re.match(r"[mp][0-9a-f]{10}", name)]
    assert len(defined) == len(set(defined))


def test_the_picture_has_all_policies(example: Log) -> None:
    left, right = draw_overview(whatif(example)).axes
    assert len(left.get_lines()) == 8
    assert len(right.get_lines()) == 4


def test_the_command(tmp_path: Path) -> None:
    packed = tmp_path / "log.swf.gz"
    packed.write_bytes(gzip.compress(EXAMPLE.read_bytes()))
    done = run(
        "whatif", "log.swf.gz", "--p", "0.7", "--report", "out.html", "--csv", "out.csv",
        "--plot", "out.png", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "391 of 400 jobs used; 5 had no run time; 4 had run time 0; 64 servers" in done.stdout
    assert "heSRPT would cut mean flow time from 4.12 h (EASY) to 38.9 min" in done.stdout
    assert (tmp_path / "out.html").read_text().startswith("<!DOCTYPE html>")
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 9
    assert (tmp_path / "out.png").stat().st_size > 10_000


def test_the_command_for_programs_and_from_standard_input(tmp_path: Path) -> None:
    table = "timestamp,num_gpus,duration\n0,1,100\n50,2,200\n60,4,0\n"
    done = run(
        "whatif", "-", "--servers", "4", "--p", "0.5,0.9", "--json",
        "--map", "submit=timestamp,servers=num_gpus,runtime=duration", cwd=tmp_path, stdin=table,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    low, high = json.loads(done.stdout)
    assert (low["jobs"], low["dropped"]) == (2, {"had run time 0": 1})
    assert low["assumed"] == "s(k) = k^0.5"
    flow = {row["policy"]: row["mean_flow_time"] for row in high["policies"]}
    assert flow["easy"] == pytest.approx(150)
    strict = run(
        "whatif", "-", "--servers", "4", "--p", "0.5", "--strict", cwd=tmp_path, stdin=table
    )
    assert strict.returncode == 2
    assert strict.stderr.startswith("hesrpt: standard input:4: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--p", "0.7,0.9", "--plot", "x.png"], "are for one of them"),
        (["--p", "0.7", "--map", "submit"], "OURS=THEIRS is wanted"),
        (["--p", "0.7", "--plot", "x.gif"], "must end in"),
        ([], "how do jobs speed up"),
        (["--p", "0.7", "--format", "pbs"], "pbs"),
        (["--p", "0.7", "--csv", "no/x.csv", "--report", "x.html"], "there is no folder"),
        (["--p", "0.7", "--csv", "x", "--report", "x"], "is read or written twice"),
        (["--p", "0.7", "--csv", str(EXAMPLE)], "is read or written twice"),
        (["--p", "0.7", "--map", "submit=a,submit=b"], "each once"),
    ],
)
def test_mistakes_cost_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = run("whatif", str(EXAMPLE), *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_plain_file_is_written_to_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to("real.csv")
    done = run(
        "whatif", str(EXAMPLE), "--p", "0.7", "--policies", "fcfs,srpt", "--csv", "link.csv",
        "--plot", "x.png", "--report", "/dev/stdout", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text().startswith("policy,")
    assert done.stdout.startswith("<!DOCTYPE html>")


def test_the_chart_of_sensitivity(tmp_path: Path) -> None:
    done = run(
        "whatif", str(EXAMPLE), "--p", "0.7", "--window", "0d..2d", "--sensitivity", "chart.svg",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "against EASY, p 0.1 to 0.95: heSRPT pays" in done.stdout
    assert (tmp_path / "chart.svg").stat().st_size > 10_000
