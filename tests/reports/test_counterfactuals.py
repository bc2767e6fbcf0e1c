"""What other policies would have made of a run: right where it can be known, silent elsewhere."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.shared_speed import SharedSpeedEngine
from support.stepping import KillSwitch, SteppedEngine, finish
from support.waiting import wait_until

from hesrpt import InputError, Measured, Pool, PowerLaw
from hesrpt.engines.engine import Outcome
from hesrpt.engines.fake import FakeEngine
from hesrpt.jobs.command_template import CommandTemplate
from hesrpt.jobs.job_end import STOPPED, JobEnd
from hesrpt.jobs.job_spec import Hook, JobSpec
from hesrpt.reports import counterfactuals
from hesrpt.reports.counterfactuals import (
    RunComparison,
    SimulatedPolicy,
    compare_policies,
    read_recent_history,
)
from hesrpt.reports.inspection import RunHistory, read_report
from hesrpt.scheduler import driver
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.scheduler.requests import request_change, submit_jobs
from hesrpt.storage.journal_entries import WHOLE_POOL, Holding, JobRecord, RequestKind

SECONDS = {"large": 5.0, "medium": 4.0, "small": 3.0}
ITEMS = {"large": 24, "medium": 12, "small": 6}


def take_seconds(job: str, item: int, width: int) -> float:
    return SECONDS[job]


def create_job(name: str, items: int | None = None) -> LiveJob:
    count = ITEMS[name] if items is None else items
    numbers = tuple(map(str, range(count)))
    command = CommandTemplate(job=name, command="true {item}", items=numbers, directory="/")
    return LiveJob.from_command(JobSpec(name=name, items=count, command=command))


def run(policy: str = "adaptive", *names: str, state: Path | None = None, servers: int = 4) -> Pool:
    with Pool(policy=policy, engine=FakeEngine(servers, take_seconds), state=state) as pool:
        pool.add_jobs([create_job(name) for name in names or ITEMS])
    return pool


def get_means(comparison: RunComparison) -> dict[str, float]:
    assert comparison.reason is None
    return {each.policy: each.mean_flow_time for each in comparison.simulated}


def test_comparison_in_words() -> None:
    simulated = SimulatedPolicy(policy="fifo", mean_flow_time=2.71, margin=0.02, flow_times={})
    comparison = RunComparison(policy="equi", mean_flow_time=1.82, simulated=(simulated,))
    assert repr(comparison) == (
        "<RunComparison: mean flow time 1.82 s as measured under equi\n"
        "  fifo             2.71 ± 0.02 s simulated>"
    )
    silent = RunComparison(policy="equi", mean_flow_time=1.82, reason="job 'a\\n' has failed")
    assert repr(silent).splitlines()[1] == r"  no simulations: job 'a\n' has failed>"


def test_jobs_with_hooks_are_simulated_without_calling_them(tmp_path: Path) -> None:
    with Pool(engine=FakeEngine(4, take_seconds)) as pool:
        jobs = [create_job(name) for name in ITEMS]
        jobs[0].spec = replace(jobs[0].spec, on_end=(Hook(f"echo >> {tmp_path}/calls"),))
        pool.add_jobs(jobs)
    assert set(get_means(pool.compare_policies())) == {"adaptive", "fifo", "equi"}
    assert (tmp_path / "calls").read_text() == "\n"  # by the run itself


def test_each_policy_is_simulated_as_it_really_does() -> None:
    """The clock of these runs is simulated too, so measured and simulated must be the same."""
    measured = {name: run(name).compare_policies() for name in ("adaptive", "fifo", "equi")}
    for own, comparison in measured.items():
        simulated = get_means(comparison)
        assert next(iter(simulated)) == own
        for other, mean in simulated.items():
            error = abs(mean - measured[other].mean_flow_time)
            margin = next(each.margin for each in comparison.simulated if each.policy == other)
            assert error <= max(margin, 0.02 * mean), (own, other)
    assert get_means(measured["adaptive"])["fifo"] > 1.3 * measured["adaptive"].mean_flow_time


def test_first_start_is_not_that_of_the_first_item_to_end() -> None:
    engine = SteppedEngine(2, KillSwitch())
    with Pool(engine=engine) as pool:
        pool.map(abs, [1], name="long")
        engine.step_until(lambda: ("long", 0) in engine.running)
        engine.step(seconds=5.0)
        pool.map(abs, [1], name="short")
        engine.step_until(lambda: ("short", 0) in engine.running)
        engine.step([finish(engine.running["short", 0], 0, 1.0)], 1.0)
        engine.step([finish(engine.running["long", 0], 0, 8.0)], 2.0)
        engine.release()
    assert (pool.first_start, pool.records[1].arrived) == (0.0, 5.0)


@pytest.mark.parametrize("servers", [1, 3, 4])
def test_policies_are_equal_for_a_single_job(servers: int) -> None:
    comparison = run("adaptive", "medium", servers=servers).compare_policies()
    means = set(get_means(comparison).values())
    assert len(means) == 1
    assert means.pop() == pytest.approx(comparison.mean_flow_time, rel=0.02)
    assert all(each.margin <= 0.02 * each.mean_flow_time for each in comparison.simulated)


def test_report_of_a_state_directory_says_the_same(tmp_path: Path) -> None:
    pool = run(state=tmp_path / "s")
    comparison = compare_policies(read_report(tmp_path / "s").history)
    assert comparison == pool.compare_policies()
    assert get_means(comparison) == pytest.approx(get_means(run().compare_policies()), rel=0.02)


class StoppingEngine(FakeEngine):
    """Ends nothing after some time, as if the scheduler had been killed."""

    def wait_for_outcomes(self, timeout: float) -> list[Outcome]:
        return [] if self.time > 20.0 else super().wait_for_outcomes(timeout)


def test_pause_between_two_runs_counts_on_no_side(tmp_path: Path) -> None:
    undisturbed = run(state=tmp_path / "one").compare_policies()
    stopping = StoppingEngine(4, take_seconds)
    pool = Pool(engine=stopping, state=tmp_path / "two")
    pool.add_jobs([create_job(name) for name in ITEMS])
    wait_until(lambda: stopping.time > 20.0)
    assert not pool.wait(timeout=0.01)
    pool.close()
    engine = FakeEngine(4, take_seconds)
    engine.time = 1e6  # the pause
    with Pool(engine=engine, state=tmp_path / "two", resume=True) as pool:
        pool.add_jobs([create_job(name) for name in ITEMS])
    resumed = pool.compare_policies()
    assert resumed.mean_flow_time < 1.5 * undisturbed.mean_flow_time
    for policy, mean in get_means(resumed).items():
        # Up to four items of up to 5 s were interrupted and done again.
        assert mean == pytest.approx(get_means(undisturbed)[policy], rel=0.25)


def test_many_items_are_replayed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (counterfactuals, driver):
        monkeypatch.setattr(module, "MAX_TIMED_ITEMS", 500)
    with Pool(engine=FakeEngine(4, lambda job, item, width: 0.2)) as pool:
        pool.add_jobs([create_job("large", 1200), create_job("small", 400)])
    assert counterfactuals.describe_history(pool._driver).timings.keys() == {2}
    comparison = pool.compare_policies()
    means = get_means(comparison)
    assert means["adaptive"] == pytest.approx(comparison.mean_flow_time, rel=0.05)
    # 1,200 and then 400 items on 4 servers, at 0.2 s each.
    fifo = next(each for each in comparison.simulated if each.policy == "fifo")
    assert abs(fifo.mean_flow_time - (60 + 80) / 2) < fifo.margin < 25


def test_uncertain_speedups_widen_the_margin() -> None:
    """Commands have one width each, so nothing was learned about how they speed up."""

    def create_command(name: str) -> LiveJob:
        template = CommandTemplate(job=name, command="run {servers}", directory="/")
        spec = JobSpec(name=name, resize="never", items=1, command=template)
        return LiveJob.from_command(spec)

    engine = FakeEngine(4, lambda job, item, width: 100.0 / width**0.9)
    with Pool(policy="equi", engine=engine) as pool:
        pool.add_jobs([create_command("a"), create_command("b")])
    own, *others = pool.compare_policies().simulated
    assert own.margin < 0.01 * own.mean_flow_time
    fifo = next(each for each in others if each.policy == "fifo")
    assert fifo.margin > 0.05 * fifo.mean_flow_time
    assert abs(fifo.mean_flow_time - 1.5 * 100 / 4**0.9) < fifo.margin


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("p", [None, 0.5, 0.8])
def test_margins_contain_what_other_policies_really_take(seed: int, p: float | None) -> None:
    """Items slow each other down: as k^p, or so that more than two at once gain nothing."""
    rng = np.random.default_rng(seed)
    speedup = Measured([1, 2, 64], [1, 2, 2 + 1e-6]) if p is None else PowerLaw(p)
    seconds = {
        name: (rng.choice([0.5, 1.0, 2.0]) * rng.lognormal(0.0, 0.2, rng.integers(8, 40))).tolist()
        for name in ["large", "medium", "small", "tiny"][: rng.integers(3, 5)]
    }
    pools = {}
    for policy in ("adaptive", "fifo", "equi"):
        engine = SharedSpeedEngine(8, seconds, dict.fromkeys(seconds, speedup))
        with Pool(policy=policy, engine=engine) as pool:
            pool.add_jobs([create_job(name, len(each)) for name, each in seconds.items()])
        pools[policy] = pool
    truth = {
        policy: float(np.mean([record.flow_time for record in pool.records]))
        for policy, pool in pools.items()
    }
    for own, pool in pools.items():
        comparison = pool.compare_policies()
        assert comparison.reason is None
        for each in comparison.simulated:
            error = abs(each.mean_flow_time - truth[each.policy])
            assert error <= max(each.margin, 0.01 * each.mean_flow_time), (own, each.policy)
            assert each.margin < 0.7 * each.mean_flow_time


# --- silence --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def history() -> RunHistory:
    return counterfactuals.describe_history(run()._driver)


def change_spec(**changes: object) -> Callable[[JobRecord], JobRecord]:
    return lambda record: replace(record, spec=replace(record.spec, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda record: replace(record, end=STOPPED), "job 'small' was cancelled"),
        (
            lambda record: replace(record, end=JobEnd("items_failed", "no")),
            "job 'small' has failed",
        ),
        (lambda record: replace(record, failures=1), "job 'small' had items that failed and ran"),
        (change_spec(was_reopened=True), "job 'small' had ended before, and was continued"),
        (change_spec(retried=1), "job 'small' had ended before, and was continued"),
        (change_spec(was_paused=True), "job 'small' was paused"),
        (change_spec(given_weight=2.0), "job 'small' was given another weight while it ran"),
        (change_spec(is_executor=True), "job 'small' was given its calls while it ran"),
        (change_spec(resize="restart"), "job 'small' restarts when its number of servers changes"),
        (lambda record: replace(record, ended=60.0), r"a simulation of this run is \d+% off"),
    ],
)
def test_nothing_is_said_where_the_model_does_not_fit(
    history: RunHistory, change: Callable[[JobRecord], JobRecord], reason: str
) -> None:
    *others, small = history.records
    comparison = compare_policies(replace(history, records=[*others, change(small)]))
    assert comparison.simulated == ()
    assert re.match(reason, comparison.reason or ""), comparison.reason


def test_jobs_that_came_after_the_last_change_of_their_group_are_compared(tmp_path: Path) -> None:
    engine = FakeEngine(4, lambda job, item, width: 1.0)
    with Pool(engine=engine, state=tmp_path / "s") as pool:
        pool.set_group_weight("g", 2.0)
        pool.map(abs, range(8), name="early", group="g").wait(60)
        pool.map(abs, range(8), name="other").wait(60)
        pool.pause_group("g")
        pool.resume_group("g")
        pool.resume_group("g")  # changes nothing
        jobs = [pool.map(abs, range(8), name=name, group="g") for name in ("late", "later")]
        for job in jobs:
            job.wait(60)
    reason = "job 'early' came before group 'g' was paused, resumed or given another weight"
    assert compare_policies(read_report(tmp_path / "s").history).reason == reason
    recent = read_recent_history(tmp_path / "s")
    assert recent is not None
    assert [record.name for record in recent.records] == ["other", "late", "later"]
    assert compare_policies(recent).reason is None


def test_policy_under_which_a_job_would_never_end_is_left_out(history: RunHistory) -> None:
    """The servers go when the run's own policy has just ended all jobs; others need longer."""
    last = max(record.ended or 0.0 for record in history.records)
    gone = Holding(last + 0.1, WHOLE_POOL, 0)
    comparison = compare_policies(replace(history, holdings=[*history.holdings, gone]))
    means = get_means(comparison)
    assert {"adaptive"} <= set(means) < set(get_means(compare_policies(history)))
    assert all(math.isfinite(each.mean_flow_time + each.margin) for each in comparison.simulated)


def test_nothing_is_said_about_too_many_jobs_or_an_unknown_policy(history: RunHistory) -> None:
    assert compare_policies(history).reason is None
    many = replace(history, records=list(history.records) * 30)
    assert compare_policies(many).reason == "there are more than 60 jobs"
    assert compare_policies(history, 2).reason == (
        "there are more than 2 jobs; hesrpt report compares up to 60"
    )
    unknown = compare_policies(replace(history, policy="mine"))
    assert unknown.reason == "there is no policy named 'mine' here"


def test_job_that_is_given_more_items_is_not_compared(tmp_path: Path) -> None:
    run(state=tmp_path / "s")
    with Pool(engine=FakeEngine(4, take_seconds), state=tmp_path / "s", resume=True) as pool:
        pool.add_jobs([create_job("large"), create_job("medium"), create_job("small", 9)])
    assert pool.compare_policies().reason == "job 'small' had ended before, and was continued"


def test_job_that_was_cancelled_and_retried_between_two_runs_is_not_compared(
    tmp_path: Path,
) -> None:
    state = tmp_path / "s"
    Pool(engine=FakeEngine(1), state=state).close()
    submit_jobs(state, [create_job("small").spec])
    kinds: tuple[RequestKind, ...] = ("cancel", "retry")
    for kind in kinds:
        request_change(state, kind, ["small"])
        with Pool(engine=FakeEngine(1), state=state, resume=True) as pool:
            pool.add_jobs([LiveJob.from_record(record) for record in pool.earlier_jobs])
    assert pool.jobs[0].state == "done"
    assert pool.compare_policies().reason == "job 'small' had ended before, and was continued"


def test_run_that_was_resumed_with_another_policy_is_not_compared(tmp_path: Path) -> None:
    run(state=tmp_path / "s")
    with Pool(policy="equi", engine=FakeEngine(4), state=tmp_path / "s", resume=True):
        pass
    report = read_report(tmp_path / "s")
    assert report.history.policy == "equi"
    assert compare_policies(report.history).reason == "the run was resumed with another policy"


def test_run_that_goes_on_is_not_compared(tmp_path: Path) -> None:
    engine = StoppingEngine(4, take_seconds)
    pool = Pool(engine=engine, state=tmp_path / "s")
    small, _ = pool.add_jobs([create_job("small", 1), create_job("large")])
    small.wait(timeout=60)
    with pytest.raises(InputError, match="job 'large' has not ended yet"):
        pool.compare_policies()
    history = read_report(tmp_path / "s").history
    assert compare_policies(history).reason == "job 'large' has not ended"
    pool.close()
    with Pool(1, engine=FakeEngine(1)) as empty, pytest.raises(InputError, match="no jobs"):
        empty.compare_policies()
