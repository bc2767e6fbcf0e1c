"""heSRPT for Ray Tune: decisions about fake trials, invalid arguments, and real runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import ray
from ray.tune import PlacementGroupFactory
from support.paths import EXAMPLES
from support.waiting import wait_until

from hesrpt import InputError
from hesrpt.integrations.ray_tune import HeSRPTAllocation

# --- reading from Tune ------------------------------------------------------------------------


class FakeTune:
    """Trials as Tune presents them, without any cluster."""

    def __init__(self, base: list[dict[str, float]]) -> None:
        self.base = PlacementGroupFactory(base)
        self.trials: list[Any] = []

    def add_trial(self, config: dict[str, Any] | None = None, **stop: float) -> Any:
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

    def report(
        self, allocation: HeSRPTAllocation, trial: Any, iteration: int, seconds: float = 1.0
    ) -> Any:
        """Let a trial report an iteration; return the resources that the allocation gives it."""
        result = {"training_iteration": iteration, "time_this_iter_s": seconds}
        # Tune keeps trials in a set: their order must not matter.
        controller = SimpleNamespace(get_live_trials=lambda: self.trials[::-1])
        scheduler = SimpleNamespace(base_trial_resources=self.base)
        resources = allocation(controller, trial, result, scheduler)
        trial.last_result, trial.has_reported_at_least_once = result, True
        return resources


@pytest.fixture
def create_tune(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeTune]:
    """Return a function that creates a fake Tune on a fake cluster of some nodes."""

    def create(*nodes: dict[str, float], base: list[dict[str, float]] | None = None) -> FakeTune:
        listed = [{"Alive": True, "Resources": node} for node in nodes]
        listed.append({"Alive": False, "Resources": {"CPU": 1000.0}})
        monkeypatch.setattr(ray, "nodes", lambda: listed)
        return FakeTune(base or [{"CPU": 1.0}])

    return create


def test_trial_nearer_to_its_stop_criterion_gets_more(
    create_tune: Callable[..., FakeTune],
) -> None:
    tune = create_tune({"CPU": 8.0})
    long, short = tune.add_trial(training_iteration=400), tune.add_trial(training_iteration=100)
    allocation = HeSRPTAllocation()
    assert tune.report(allocation, long, 1) is None
    assert tune.report(allocation, short, 1).bundles == [{"CPU": 7.0}]


def test_servers_of_a_pending_resize_are_not_given_away_again(
    create_tune: Callable[..., FakeTune],
) -> None:
    tune = create_tune({"CPU": 8.0})
    for iterations in (400, 100, 90):
        tune.add_trial(training_iteration=iterations)
    allocation = HeSRPTAllocation(p=0.3)
    first = tune.report(allocation, tune.trials[2], 1).bundles[0]["CPU"]
    # Tune has not carried out the resize yet: it still shows the trial with one CPU.
    second = tune.report(allocation, tune.trials[1], 1).bundles[0]["CPU"]
    assert first > 1
    assert second > 1
    assert first + second <= 7


def test_remaining_work_is_iterations_times_their_duration(
    create_tune: Callable[..., FakeTune],
) -> None:
    tune = create_tune({"CPU": 8.0})
    slow, fast = tune.add_trial({"epochs": 100}), tune.add_trial({"epochs": 150})
    allocation = HeSRPTAllocation(remaining="epochs")
    assert tune.report(allocation, fast, 1, seconds=1.0) is None, "it has more iterations"
    assert tune.report(allocation, slow, 1, seconds=5.0) is None, "its iterations take longer"
    assert tune.report(allocation, fast, 2, seconds=1.0).bundles == [{"CPU": 7.0}]


def test_remaining_work_can_be_a_function(create_tune: Callable[..., FakeTune]) -> None:
    tune = create_tune({"CPU": 8.0})
    long, short = tune.add_trial({"rows": 4000.0}), tune.add_trial({"rows": 1000.0})

    def remaining_rows(trial: Any, result: dict[str, Any]) -> float:
        return float(trial.config["rows"] - 10 * result.get("training_iteration", 0))

    allocation = HeSRPTAllocation(remaining=remaining_rows)
    # The duration of a row is known from the second report on.
    assert [tune.report(allocation, trial, 1) for trial in (short, long)] == [None, None]
    assert tune.report(allocation, short, 2).bundles == [{"CPU": 7.0}]


def test_trial_past_its_expected_end_keeps_its_servers(
    create_tune: Callable[..., FakeTune],
) -> None:
    tune = create_tune({"CPU": 8.0})
    overdue, other = tune.add_trial({"epochs": 5}), tune.add_trial({"epochs": 500})
    allocation = HeSRPTAllocation(remaining="epochs")
    assert tune.report(allocation, overdue, 7) is None
    assert tune.report(allocation, other, 1).bundles == [{"CPU": 7.0}]


@pytest.mark.parametrize(
    ("arguments", "base", "nodes", "expected"),
    [
        pytest.param(
            {"reserve": {"CPU": 2}}, [{"CPU": 1}], [{"CPU": 8}], [{"CPU": 6}], id="reserve"
        ),
        pytest.param(
            {"bundle": {"CPU": 2, "GPU": 0.5}},
            [{"CPU": 2, "GPU": 0.5}],
            [{"CPU": 64, "GPU": 2}],
            [{"CPU": 8, "GPU": 2}],
            id="two-resources",
        ),
        pytest.param(
            {"bundle": {"TPU": 1}},
            [{"CPU": 1, "TPU": 1}],
            [{"CPU": 2, "TPU": 4}],
            [{"CPU": 1, "TPU": 4}],
            id="custom-resource",
        ),
        pytest.param(
            {}, [{"CPU": 1}], [{"CPU": 4}, {"CPU": 6}], [{"CPU": 6}], id="one-bundle-on-one-node"
        ),
        pytest.param(
            {"add_bundles": True},
            [{"CPU": 1}, {"CPU": 1}],
            [{"CPU": 2}, {"CPU": 3}],
            [{"CPU": 1}] * 5,
            id="bundles-on-several-nodes",
        ),
        pytest.param(
            {"bundle": {"CPU": 2}}, [{"CPU": 3}], [{"CPU": 8}], [{"CPU": 7}], id="fractional-base"
        ),
    ],
)
def test_servers_are_bundles_of_resources(
    create_tune: Callable[..., FakeTune],
    arguments: dict[str, Any],
    base: list[dict[str, float]],
    nodes: list[dict[str, float]],
    expected: list[dict[str, float]],
) -> None:
    tune = create_tune(*nodes, base=base)
    trial = tune.add_trial(training_iteration=500)
    resources = tune.report(HeSRPTAllocation(**arguments), trial, 1)
    assert resources.bundles == expected
    assert resources.strategy == tune.base.strategy


def test_cost_of_a_resize_is_measured(create_tune: Callable[..., FakeTune]) -> None:
    tune = create_tune({"CPU": 8.0})
    trial = tune.add_trial(training_iteration=100)
    allocation = HeSRPTAllocation(resize_cost=0.0)
    trial.placement_group_factory = tune.report(allocation, trial, 1)
    assert trial.placement_group_factory.bundles == [{"CPU": 8.0}]
    time.sleep(0.3)
    tune.report(allocation, trial, 2, seconds=0.1)
    assert 0.05 <= allocation.mean_resize_cost < 2.5  # the mean of the guess, 0, and about 0.2


# --- invalid arguments ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"p": 1.2}, r"p must lie in \(0, 1\), got 1.2"),
        ({"remaining": 5}, "remaining must be a function .* or the name .*, got 5"),
        ({"bundle": {}}, "bundle must hold at least one resource"),
        ({"bundle": {"CPU": 0}}, r"bundle\['CPU'\] must be greater than 0, got 0"),
        ({"bundle": 2}, "bundle must map resources to amounts, .* got 2"),
        ({"reserve": {"CPU": -1}}, r"reserve\['CPU'\] must be at least 0, got -1"),
        ({"resize_cost": "2 s"}, "resize_cost must be a number, got '2 s'"),
        ({"resize_cost": -1}, "resize_cost must be at least 0, got -1"),
        ({"add_bundles": "no"}, "add_bundles must be True or False, got 'no'"),
    ],
)
def test_invalid_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        HeSRPTAllocation(**arguments)


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
def test_arguments_that_do_not_fit_the_trials_are_refused(
    create_tune: Callable[..., FakeTune],
    arguments: dict[str, Any],
    base: list[dict[str, float]],
    message: str,
) -> None:
    tune = create_tune({"CPU": 8.0}, base=base)
    trial = tune.add_trial({"rows": 1}, loss=0.1)
    with pytest.raises(InputError, match=message):
        tune.report(HeSRPTAllocation(**arguments), trial, 1)


def test_error_without_ray_says_what_to_install() -> None:
    script = "import sys; sys.modules['ray'] = None; import hesrpt.integrations.ray_tune"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ImportError: hesrpt.integrations.ray_tune needs Ray Tune: pip install" in done.stderr
    assert "'hesrpt[tune]'" in done.stderr


# --- real runs --------------------------------------------------------------------------------


@pytest.fixture
def run_example() -> Iterator[Callable[..., dict[str, Any]]]:
    """Return a function that runs the example and checks that it leaves no process behind."""
    mark = uuid.uuid4().hex
    environment = os.environ | {
        "TEST_MARK": mark,
        "RAY_ADDRESS": "127.0.0.1:1",  # a cluster that the example must not join
        "RAY_enable_worker_prestart": "0",  # start no processes that nobody needs
    }

    def run(*names: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / "ray_tune.py"), *names, "--json"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        wait_until(lambda: find_processes(mark) == [])
        measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return measured

    try:
        yield run
    finally:
        for process in find_processes(mark):
            process.kill()


def find_processes(mark: str) -> list[psutil.Process]:
    """Return the processes that have inherited a mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TEST_MARK") == mark:
                found.append(process)
        except (psutil.Error, OSError):
            continue  # it has ended, or belongs to another user
    return found


@pytest.mark.slow
def test_real_run_resizes_trials_and_ends_the_shortest_first(
    run_example: Callable[..., dict[str, Any]],
) -> None:
    run = run_example("hesrpt")["hesrpt"]
    assert next(iter(run["ends"])) == "3"
    assert set(run["ends"]) == {"3", "6", "12"}
    assert run["resizes"] >= 1


@pytest.mark.slow
def test_real_run_beats_equal_shares(run_example: Callable[..., dict[str, Any]]) -> None:
    runs = run_example()
    hesrpt, equal = runs["hesrpt"], runs["equal"]
    # On a quiet machine, the sum was 54% to 61% of that with equal shares.
    assert sum(hesrpt["ends"].values()) < 0.9 * sum(equal["ends"].values()), runs
    assert 1 <= hesrpt["resizes"] < equal["resizes"], runs
