"""heSRPT for Ray Tune: the decision without Ray, what is read from Tune, and a real run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from support.paths import EXAMPLES

from hesrpt import InputError
from hesrpt.arrays import FloatArray, IntArray
from hesrpt.integrations.resizing import Setting, forecast, planned, resized
from hesrpt.optimal import closed_form
from hesrpt.policies import round_fairly

EXAMPLE = EXAMPLES / "ray_tune.py"
FREE = Setting(servers=10_000, base=1, most=10_000, p=0.5, resize_cost=0.0)
COSTLY = Setting(servers=8, base=1, most=8, p=0.8, resize_cost=2.0)

# --- the decision -----------------------------------------------------------------------------


@st.composite
def situations(draw: st.DrawFn) -> tuple[int, FloatArray, IntArray, Setting]:
    """Return a job, the work and servers of all jobs, and a setting; not always a feasible one."""
    jobs = draw(st.integers(1, 6))
    base = draw(st.integers(1, 3))
    work = draw(st.lists(st.floats(0.01, 1000), min_size=jobs, max_size=jobs))
    more = draw(st.lists(st.integers(0, 6), min_size=jobs, max_size=jobs))
    setting = Setting(
        servers=draw(st.integers(1, 40)),
        base=base,
        most=base + draw(st.integers(6, 30)),
        p=draw(st.floats(0.05, 0.95)),
        resize_cost=draw(st.sampled_from([0.0, 0.5, 2.0, 20.0])),
    )
    held = base + np.array(more)
    return draw(st.integers(0, jobs - 1)), np.array(work), held, setting


@given(situations())
def test_what_is_decided_can_be_done_and_pays(
    situation: tuple[int, FloatArray, IntArray, Setting],
) -> None:
    job, work, held, setting = situation
    new = resized(job, work, held, setting)
    if new is None:
        return
    left = work[job] / held[job] ** setting.p
    assert setting.base <= new <= setting.most
    assert left > setting.resize_cost, "it is about to end"
    if new > held[job]:
        assert new <= setting.servers - (held.sum() - held[job]), "others hold those"
        assert left - work[job] / new**setting.p > setting.resize_cost
    else:
        assert new < held[job]
        assert len(work) > 1 or held.sum() > setting.servers, "nobody else needs them"


@given(situations())
def test_a_plan_hands_out_all_servers_that_can_be_used(
    situation: tuple[int, FloatArray, IntArray, Setting],
) -> None:
    _, work, _, setting = situation
    plan = planned(work, setting)
    jobs = len(work)
    assert np.all((plan >= setting.base) & (plan <= setting.most))
    assert plan.sum() == np.clip(setting.servers, setting.base * jobs, setting.most * jobs)
    by_size = plan[np.argsort(work, kind="stable")]
    assert np.all(np.diff(by_size) <= 0), "a longer job has more"


@pytest.mark.parametrize("p", [0.3, 0.5, 0.8])
def test_shares_are_those_of_the_paper(p: float) -> None:
    largest_first = closed_form.shares(4, p)
    work = np.array([3.0, 8.0, 1.0, 5.0])
    expected = round_fairly(500 * largest_first, 500)[[2, 0, 3, 1]]
    assert_array_equal(planned(work, replace(FREE, servers=500, p=p)), expected)


def test_if_resizing_is_free_jobs_get_their_shares_and_end_when_the_paper_says() -> None:
    work, held = np.array([50.0, 20.0, 5.0]), np.ones(3, dtype=np.int64)
    plan = planned(work, FREE)
    for job in (2, 0, 1):
        assert resized(job, work, held, FREE) == plan[job]
        held[job] = plan[job]
        assert resized(job, work, held, FREE) is None
    best = closed_form.completion_times(work, FREE.servers, FREE.p)
    assert_allclose(forecast(work, held, FREE, FREE.p), best, rtol=1e-3)


def test_a_job_gets_no_more_than_is_free() -> None:
    work = np.array([400.0, 200.0, 100.0])
    assert resized(2, work, np.array([1, 1, 1]), COSTLY) == 6
    assert resized(2, work, np.array([1, 3, 1]), COSTLY) == 4
    assert resized(2, work, np.array([4, 3, 1]), COSTLY) is None


def test_no_resize_that_does_not_pay() -> None:
    held = np.array([1, 1])
    assert resized(1, np.array([100.0, 30.0]), held, COSTLY) == 7
    dear = replace(COSTLY, resize_cost=25.0)  # of the 30 s that are left, 24 s can be saved
    assert resized(1, np.array([100.0, 30.0]), held, dear) is None


def test_servers_that_do_not_help_one_job_go_to_the_next() -> None:
    # The shortest ends in a second: waiting for its servers is not worth it.
    assert resized(0, np.array([300.0, 1.0]), np.array([1, 1]), COSTLY) == 7


def test_short_jobs_get_shares_nearer_to_equal() -> None:
    many = replace(COSTLY, servers=32, most=32)
    order = np.array([20.0, 14.0, 12.0, 11.0, 10.0, 9.0, 8.0, 7.0])
    held = np.ones(8, dtype=np.int64)
    short, long = resized(7, order, held, many), resized(7, 100 * order, held, many)
    assert long == planned(order, many)[7]
    assert short is not None
    assert short < planned(order, many)[7]
    assert (
        forecast(order, held, many, many.p / 2).mean() < forecast(order, held, many, many.p).mean()
    )


def test_a_long_job_gives_way_if_that_pays() -> None:
    held = np.array([7, 1])
    new = resized(0, np.array([5000.0, 100.0]), held, COSTLY)
    assert new is not None
    assert new < 7
    for work in ([5000.0, 4.0], [20.0, 15.0]):  # the other is about to end, or this one
        assert resized(0, np.array(work), held, COSTLY) is None
    assert resized(0, np.array([5000.0, 100.0]), held, replace(COSTLY, resize_cost=30.0)) is None


def test_a_job_makes_room_for_those_that_cannot_start() -> None:
    held = np.array([8, 1])
    assert resized(0, np.array([100.0, 100.0]), held, COSTLY) in range(1, 8)
    assert resized(0, np.array([5.0, 100.0]), held, COSTLY) is None, "it ends before"
    # More jobs than servers: the one that stops would have to queue behind them all.
    queue = np.array([8] + [1] * 12)
    assert resized(0, np.full(13, 100.0), queue, COSTLY) is None


# --- what is read from Tune -------------------------------------------------------------------


class Cluster:
    """Some trials as Tune describes them, on nodes that are not there."""

    def __init__(self, nodes: list[dict[str, float]], base: list[dict[str, float]]) -> None:
        from ray.tune import PlacementGroupFactory

        self.nodes = nodes
        self.base = PlacementGroupFactory(base)
        self.trials: list[Any] = []

    def add(self, config: dict[str, Any] | None = None, **stop: float) -> Any:
        trial = SimpleNamespace(
            trial_id=f"{len(self.trials):05}",
            config=config or {},
            stopping_criterion=stop,
            placement_group_factory=self.base,
            has_reported_at_least_once=False,
            last_result={},
            is_finished=lambda: False,
        )
        self.trials.append(trial)
        return trial

    def report(self, allocation: Any, trial: Any, iteration: int, seconds: float = 1.0) -> Any:
        """Let a trial report; return the resources that it is to have."""
        result = {"training_iteration": iteration, "time_this_iter_s": seconds}
        # Tune keeps them in a set: the order must not matter.
        controller = SimpleNamespace(get_live_trials=lambda: self.trials[::-1])
        scheduler = SimpleNamespace(base_trial_resources=self.base)
        new = allocation(controller, trial, result, scheduler)
        trial.last_result, trial.has_reported_at_least_once = result, True
        return new


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Cluster]:
    ray = pytest.importorskip("ray")

    def build(*nodes: dict[str, float], base: list[dict[str, float]] | None = None) -> Cluster:
        alive = [{"Alive": True, "Resources": node} for node in nodes]
        alive.append({"Alive": False, "Resources": {"CPU": 1000.0}})
        monkeypatch.setattr(ray, "nodes", lambda: alive)
        return Cluster(list(nodes), base or [{"CPU": 1.0}])

    return build


def allocation(**arguments: Any) -> Any:
    pytest.importorskip("ray")
    from hesrpt.integrations.ray_tune import HeSRPTAllocation

    return HeSRPTAllocation(**arguments)


def test_trials_share_by_the_stop_criterion(cluster: Callable[..., Cluster]) -> None:
    on = cluster({"CPU": 8.0})
    long, short = on.add(training_iteration=400), on.add(training_iteration=100)
    give = allocation()
    assert on.report(give, long, 1) is None
    assert on.report(give, short, 1).bundles == [{"CPU": 7.0}]


def test_what_was_promised_is_not_given_twice(cluster: Callable[..., Cluster]) -> None:
    on = cluster({"CPU": 8.0})
    for iterations in (400, 100, 90):
        on.add(training_iteration=iterations)
    give = allocation(p=0.3)
    first = on.report(give, on.trials[2], 1).bundles[0]["CPU"]
    # Tune has not yet carried it out: the trial is still seen with its one CPU.
    second = on.report(give, on.trials[1], 1).bundles[0]["CPU"]
    assert first > 1
    assert second > 1
    assert first + second <= 7


def test_work_is_iterations_times_how_long_they_take(cluster: Callable[..., Cluster]) -> None:
    on = cluster({"CPU": 8.0})
    slow, fast = on.add({"epochs": 100}), on.add({"epochs": 150})
    give = allocation(remaining="epochs")
    assert on.report(give, fast, 1, seconds=1.0) is None, "it has more iterations"
    assert on.report(give, slow, 1, seconds=5.0) is None, "but these take longer"
    assert on.report(give, fast, 2, seconds=1.0).bundles == [{"CPU": 7.0}]


def test_work_by_a_function(cluster: Callable[..., Cluster]) -> None:
    on = cluster({"CPU": 8.0})
    long, short = on.add({"rows": 4000.0}), on.add({"rows": 1000.0})
    give = allocation(
        remaining=lambda trial, result: (
            trial.config["rows"] - 10 * result.get("training_iteration", 0)
        )
    )
    # How long a row takes is known from the second report on.
    assert [on.report(give, short, 1), on.report(give, long, 1)] == [None, None]
    assert on.report(give, short, 2).bundles == [{"CPU": 7.0}]


def test_trials_that_should_have_ended_keep_what_they_have(
    cluster: Callable[..., Cluster],
) -> None:
    on = cluster({"CPU": 8.0})
    over, other = on.add({"epochs": 5}), on.add({"epochs": 500})
    give = allocation(remaining="epochs")
    assert on.report(give, over, 7) is None
    assert on.report(give, other, 1).bundles == [{"CPU": 7.0}]


@pytest.mark.parametrize(
    ("arguments", "base", "nodes", "expected"),
    [
        ({"reserve": {"CPU": 2}}, [{"CPU": 1}], [{"CPU": 8}], [{"CPU": 6}]),
        (
            {"bundle": {"CPU": 2, "GPU": 0.5}},
            [{"CPU": 2, "GPU": 0.5}],
            [{"CPU": 64, "GPU": 2}],
            [{"CPU": 8, "GPU": 2}],
        ),
        ({"bundle": {"TPU": 1}}, [{"CPU": 1, "TPU": 1}], [{"CPU": 2, "TPU": 4}], None),
        # One bundle fits on one node, several need not.
        ({}, [{"CPU": 1}], [{"CPU": 4}, {"CPU": 6}], [{"CPU": 6}]),
        ({"add_bundles": True}, [{"CPU": 1}, {"CPU": 1}], [{"CPU": 2}, {"CPU": 3}], 5),
        # What trials are started with is no multiple of a server.
        ({"bundle": {"CPU": 2}}, [{"CPU": 3}], [{"CPU": 8}], [{"CPU": 7}]),
    ],
)
def test_servers_are_bundles(
    cluster: Callable[..., Cluster],
    arguments: dict[str, Any],
    base: list[dict[str, float]],
    nodes: list[dict[str, float]],
    expected: Any,
) -> None:
    on = cluster(*nodes, base=base)
    new = on.report(allocation(**arguments), on.add(training_iteration=500), 1)
    if expected is None:
        expected = [{"CPU": 1, "TPU": 4}]
    assert new.bundles == ([{"CPU": 1}] * expected if isinstance(expected, int) else expected)
    assert new.strategy == on.base.strategy


def test_the_cost_of_a_resize_is_measured(cluster: Callable[..., Cluster]) -> None:
    on = cluster({"CPU": 8.0})
    trial = on.add(training_iteration=100)
    give = allocation(resize_cost=0.0)
    trial.placement_group_factory = on.report(give, trial, 1)
    assert trial.placement_group_factory.bundles == [{"CPU": 8.0}]
    time.sleep(0.3)
    on.report(give, trial, 2, seconds=0.1)
    assert 0.1 <= sum(give._costs) < 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"p": 1.2}, r"p must lie in \(0, 1\), got 1.2"),
        ({"remaining": 5}, "remaining must be a function .* or the name .*, got 5"),
        ({"bundle": {}}, "bundle must hold at least one resource"),
        ({"bundle": {"CPU": 0}}, r"bundle\['CPU'\] must be greater than 0, got 0"),
        ({"bundle": 2}, "bundle must be amounts of resources, .* got 2"),
        ({"reserve": {"CPU": -1}}, r"reserve\['CPU'\] must be at least 0, got -1"),
        ({"resize_cost": "2 s"}, "resize_cost must be a number, got '2 s'"),
        ({"resize_cost": -1}, "resize_cost must be at least 0, got -1"),
        ({"add_bundles": "no"}, "add_bundles must be True or False, got 'no'"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        allocation(**arguments)


@pytest.mark.parametrize(
    ("arguments", "base", "message"),
    [
        ({}, [{"CPU": 1}], "the stop criterion .* has no 'training_iteration', only .*'loss'"),
        ({"remaining": "epochs"}, [{"CPU": 1}], "the config .* has no 'epochs', only .*'rows'"),
        ({"remaining": lambda *_: -3}, [{"CPU": 1}], "remaining .* must be at least 0, got -3"),
        ({"remaining": lambda *_: None}, [{"CPU": 1}], "remaining .* must be a number, got None"),
        ({}, [{"CPU": 1}] * 2, r"2 bundles .* use HeSRPTAllocation\(add_bundles=True\)"),
        ({"bundle": {"GPU": 1}}, [{"CPU": 1}], "bundle must fit into .*, got {'GPU': 1.0}"),
    ],
)
def test_what_cannot_be_done_is_said(
    cluster: Callable[..., Cluster],
    arguments: dict[str, Any],
    base: list[dict[str, float]],
    message: str,
) -> None:
    on = cluster({"CPU": 8.0}, base=base)
    trial = on.add({"rows": 1}, loss=0.1)
    with pytest.raises(InputError, match=message):
        on.report(allocation(**arguments), trial, 1)


def test_without_ray_the_error_says_what_to_install() -> None:
    script = "import sys; sys.modules['ray'] = None; import hesrpt.integrations.ray_tune"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ImportError: hesrpt.integrations.ray_tune needs Ray Tune: pip install" in done.stderr
    assert "'hesrpt[tune]'" in done.stderr


# --- a real run -------------------------------------------------------------------------------


def _marked(mark: str) -> list[psutil.Process]:
    """Return the processes that have inherited a mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HESRPT_MARK") == mark:
                found.append(process)
        except psutil.Error:
            continue  # gone, or not ours
    return found


def test_trials_of_a_real_run_end_earlier_on_average() -> None:
    pytest.importorskip("ray.tune")
    mark = uuid.uuid4().hex
    environment = os.environ | {
        "HESRPT_MARK": mark,
        "RAY_ADDRESS": "127.0.0.1:1",  # a Ray that must not be joined
        "RAY_enable_worker_prestart": "0",  # eight processes that nobody needs
    }
    try:
        done = subprocess.run(
            [sys.executable, str(EXAMPLE), "--json"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr
        measured = json.loads(done.stdout.splitlines()[-1])
        hesrpt, equal = measured["hesrpt"]["ends"], measured["equal"]["ends"]
        assert next(iter(hesrpt)) == "3", "the shortest trial does not end first"
        assert set(equal) == set(hesrpt) == {"3", "6", "12"}
        # Measured: 0.54 to 0.61 of it, and 3 to 4 s instead of 11 to 15 s.
        assert sum(hesrpt.values()) < 0.9 * sum(equal.values()), measured
        assert hesrpt["3"] < equal["3"], measured
        assert 1 <= measured["hesrpt"]["resizes"] < measured["equal"]["resizes"], measured
        deadline = time.monotonic() + 15
        while (left := _marked(mark)) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert not left, "Ray's processes are still there"
    finally:
        for process in _marked(mark):
            process.kill()
