"""Comparisons of policies: metrics, confidence intervals, tables and files."""

from __future__ import annotations

import csv
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from hesrpt import (
    InputError,
    OverloadWarning,
    PolicyError,
    PowerLaw,
    Workload,
    compare,
    plan,
    simulate,
)
from hesrpt.arrays import FloatArray
from hesrpt.policies import Knee, PolicyLike, State
from hesrpt.simulator.intervals import estimate_difference

BATCH = Workload.pareto(50, seed=1, speedup=PowerLaw(0.5))


def halves(state: State) -> FloatArray:
    return np.full(len(state), state.servers / len(state) / 2)


def test_every_policy_is_simulated_on_the_same_jobs() -> None:
    compared = compare(BATCH, 100, ["hesrpt", "equi", "srpt", Knee(0.1), Knee(0.2), halves])
    assert list(compared) == ["hesrpt", "equi", "srpt", "knee", "knee (2)", "halves"]
    for policy in ("hesrpt", "equi", "srpt"):
        alone = simulate(BATCH, 100, policy)
        np.testing.assert_array_equal(compared[policy].completion_times, alone.completion_times)
    assert compared.best == "hesrpt"
    assert compared["halves"].utilisation == pytest.approx(0.5)
    assert "hesrpt" in repr(compared)


def test_metrics_follow_their_definitions() -> None:
    run = simulate(BATCH, 100, "equi")
    metrics = run.metrics()
    assert metrics["mean_flow_time"] == run.flow_times.mean()
    assert metrics["p95_flow_time"] == np.quantile(run.flow_times, 0.95)
    assert metrics["max_slowdown"] == (run.flow_times / BATCH.sizes).max()
    assert metrics["makespan"] == run.completion_times.max()
    assert metrics["utilisation"] == pytest.approx(1)
    slowdowns = run.slowdowns
    assert metrics["fairness"] == pytest.approx(slowdowns.sum() ** 2 / 50 / (slowdowns**2).sum())
    assert metrics["mean_jobs"] == pytest.approx(run.total_flow_time / run.makespan)


def test_plans_have_the_same_metrics_as_their_simulation() -> None:
    planned, run = plan(BATCH, 100).metrics(), simulate(BATCH, 100, "hesrpt").metrics()
    assert planned == pytest.approx(run, rel=1e-9)


def test_confidence_intervals_over_replications() -> None:
    streams = [Workload.poisson(5, 500, seed=s, speedup=PowerLaw(0.5)) for s in range(6)]
    compared = compare(streams, 10, ["equi"], confidence=0.9)
    means = [simulate(stream, 10, "equi").mean_flow_time for stream in streams]
    expected = stats.t.interval(0.9, 5, np.mean(means), stats.sem(means))
    mean, half_width = compared.interval("equi", "mean_flow_time")
    assert (mean - half_width, mean + half_width) == pytest.approx(expected)
    assert compared.replications == 6
    assert np.isnan(compare(streams[0], 10, ["equi"]).interval("equi", "makespan").half_width)


STREAMS = [Workload.poisson(45, 300, seed=s, speedup=PowerLaw(0.9)) for s in range(5)]


def test_difference_is_paired() -> None:
    compared = compare(STREAMS, 64, ["adaptive", "equi"])
    means = [
        np.array([run.mean_flow_time for run in runs]) for runs in compared.simulations.values()
    ]
    difference = compared.difference("adaptive", "equi")
    expected = stats.t.interval(
        0.95, 4, np.mean(means[0] - means[1]), stats.sem(means[0] - means[1])
    )
    low, high = difference.mean - difference.half_width, difference.mean + difference.half_width
    assert (low, high) == pytest.approx(expected)
    assert difference.percentage == pytest.approx(100 * (means[0].mean() / means[1].mean() - 1))
    assert difference.is_clear
    # The interval of either policy alone is wider.
    assert difference.half_width < compared.interval("adaptive", "mean_flow_time").half_width
    assert repr(difference) == f"<Difference: {difference}>"
    back = compared.difference("equi", "adaptive")
    assert back.mean == -difference.mean
    assert [(each.policy, each.other) for each in compared.differences()] == [("adaptive", "equi")]


def test_interval_of_a_percentage_covers_the_truth() -> None:
    """Of 95% intervals, 95% contain the ratio of the true means: here 400 times, with 4 s.e."""
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(400):
        others = rng.gamma(9.0, size=8)  # hard streams are hard for both policies
        values = 0.9 * others * rng.normal(1, 0.1, size=8)
        found = estimate_difference("a", "b", "mean_flow_time", values, others, 0.95)
        covered += abs(found.percentage - -10) < found.percentage_half_width
    assert abs(covered / 400 - 0.95) < 4 * (0.95 * 0.05 / 400) ** 0.5


@pytest.mark.parametrize(
    ("values", "others", "metric", "text"),
    [
        ([0.95, 1.9], [1.0, 2.0], "mean_flow_time", "a is 5.0% ± 0.0% better than b"),
        ([1.1, 2.1, 3.2], [1, 2, 3], "mean_flow_time", "a is 6.7% ± 4.1% worse than b"),
        (
            [1.1, 1.8, 3.2],
            [1, 2, 3],
            "mean_flow_time",
            "no clear difference between a and b (1.7% ± 25.4% worse)",
        ),
        ([0.5], [1.0], "mean_flow_time", "a is 50.0% better than b (one replication: no interval)"),
        ([1.0], [1.0], "mean_flow_time", "no difference between a and b"),
        (
            [1.0, 2.0],
            [1.0, 2.0],
            "makespan",
            "no difference between the makespan of a and that of b",
        ),
        (
            [3.3, 3.0, 3.1],
            [1, 1, 1],
            "p99_slowdown",
            "the p99 slowdown of a is 213.3% ± 37.9% higher than that of b",
        ),
        (
            [0.9, 0.95],
            [1.0, 1.0],
            "mean_flow_time",
            "no clear difference between a and b (7.5% ± 31.8% better)",
        ),
        ([0.9966, 0.9974, 0.997], [1, 1, 1], "mean_flow_time", "a is 0.3% ± 0.1% better than b"),
        (
            [0.9976, 0.9974, 0.9989],
            [1, 1, 1],
            "mean_flow_time",
            "a is 0.203% ± 0.202% better than b",
        ),
    ],
)
def test_differences_in_words(
    values: list[float], others: list[float], metric: str, text: str
) -> None:
    found = estimate_difference("a", "b", metric, np.array(values), np.array(others), 0.95)
    assert str(found) == text


def test_repr_has_intervals() -> None:
    lines = repr(compare(STREAMS, 64, ["adaptive", "equi"], confidence=0.9)).splitlines()
    assert lines[0] == "<Comparison of 2 policies, 5 replications, 90% intervals:"
    mean, half_width = compare(STREAMS, 64, ["equi"], confidence=0.9).interval(
        "equi", "mean_flow_time"
    )
    assert f"mean flow time {mean:.6g} ± {half_width:.2g} " in lines[2]


def test_unknown_names_are_rejected() -> None:
    compared = compare(BATCH, 10, ["equi"])
    with pytest.raises(InputError, match="no policy named 'srpt'; compared were equi"):
        compared.difference("srpt", "equi")
    with pytest.raises(InputError, match="no metric named 'flow'; choose from mean_flow_time, "):
        compared.interval("equi", "flow")


def test_frames_and_files(tmp_path: Path) -> None:
    compared = compare([BATCH, BATCH], 100)
    frame = compared.to_frame()
    assert list(frame.index) == ["hesrpt", "equi", "srpt"]
    assert frame.loc["equi", "mean_flow_time"] == compared["equi"].mean_flow_time
    compared.to_csv(tmp_path / "compared.csv")
    lines = list(csv.DictReader((tmp_path / "compared.csv").read_text().splitlines()))
    assert len(lines) == 3 * 2 * len(compared["equi"].metrics())
    assert lines[0]["policy"] == "hesrpt"
    assert float(lines[0]["value"]) == compared["hesrpt"].mean_flow_time

    run = compared["srpt"]
    jobs = run.to_frame()
    assert len(jobs) == 50
    assert jobs["flow_time"].mean() == pytest.approx(run.mean_flow_time)
    run.to_csv(tmp_path / "jobs.csv")
    rows = list(csv.DictReader((tmp_path / "jobs.csv").read_text().splitlines()))
    assert [float(row["completion_time"]) for row in rows] == run.completion_times.tolist()
    with pytest.raises(InputError, match="cannot be written: No such file"):
        run.to_csv(tmp_path / "no" / "jobs.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["compared.csv", "jobs.csv"]


def test_one_warning_names_all_overloaded_policies() -> None:
    crowded = Workload.poisson(30, 4000, seed=9, speedup=PowerLaw(0.5))
    with pytest.warns(OverloadWarning, match="can serve them under srpt:") as caught:
        compare(crowded, 4, ["hesrpt", "srpt"])
    assert len(caught) == 1


@pytest.mark.slow
def test_python_policies_run_in_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hesrpt.simulator.comparison._MIN_JOBS_FOR_PROCESSES", 0)
    stream = Workload.poisson(0.5, 40, seed=1, speedup=lambda k: np.log1p(k))
    tried: list[PolicyLike] = [
        "equi",
        "helrpt",
        Knee(0.1),
        halves,
        lambda state: halves(state) * 0.5,
    ]
    compared = compare([stream, stream.head(20)], 4, tried)
    for policy, label in zip(tried, compared, strict=True):
        first, second = compared.simulations[label]
        alone = simulate(stream, 4, policy)
        np.testing.assert_allclose(first.completion_times, alone.completion_times, rtol=1e-9)
        assert first.workload is stream
        assert len(second.workload) == 20
    with pytest.raises(PolicyError, match=r"policy <lambda> at time .* assigns"):
        compare([stream, stream], 4, [lambda state: halves(state) * 3])


def test_a_failing_policy_stops_the_others() -> None:
    calls = 0

    def slow(state: State) -> FloatArray:
        nonlocal calls
        calls += 1
        time.sleep(0.001)
        return np.full(len(state), state.servers / len(state))

    def fails(state: State) -> FloatArray:
        raise ZeroDivisionError

    stream = Workload.poisson(5, 20_000, seed=1, speedup=PowerLaw(0.5))
    with pytest.raises(ZeroDivisionError):
        compare(stream, 4, [slow, fails])
    assert calls < 10_000  # of 40,000


def test_progress_is_reported() -> None:
    reports: list[tuple[int, int]] = []
    compare(BATCH, 10, progress=lambda done, total: reports.append((done, total)))
    assert reports == [(1, 3), (2, 3), (3, 3)]


def test_progress_of_bounds_is_reported() -> None:
    stream = Workload([3.0, 2.0, 1.0], PowerLaw(0.5), arrivals=[0.0, 0.1, 0.2])
    reports: list[tuple[int, int]] = []
    compare(
        [BATCH, stream],
        10,
        ["equi"],
        bound=True,
        progress=lambda done, total: reports.append((done, total)),
    )
    done = [done for done, _ in reports]
    assert {total for _, total in reports} == {202}
    assert done == sorted(done)
    assert done[:3] == [1, 2, 102]
    assert done[-1] == 202
    assert len(set(done)) > 10  # the search for prices is followed closely


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workload": []}, "needs a Workload, or a list of them"),
        ({"workload": [1]}, "needs a Workload, or a list of them"),
        ({"policies": "equi"}, "policies must be a list"),
        ({"policies": []}, "policies must name at least one policy"),
        ({"policies": ["equi", "eqi"]}, "no policy named 'eqi'"),
        ({"confidence": 1}, r"confidence must lie in \(0, 1\), got 1"),
    ],
)
def test_invalid_arguments_are_rejected(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        compare(**{"workload": BATCH, "servers": 10, **arguments})  # type: ignore[arg-type]


def test_bound_shows_the_distance_to_the_best_schedule() -> None:
    streams = [
        Workload.poisson(rate=5, jobs=12, speedup=PowerLaw(0.5), seed=seed) for seed in (1, 2)
    ]
    compared = compare(streams, 4, ["hesrpt", "equi"], bound=True)
    assert compared.lower_bound == np.mean([bound.mean for bound in compared.bounds])
    for row in compared.rows():
        assert row["above_bound"] == compared.above_bound(str(row["policy"]))
        assert 0 < float(row["above_bound"]) < 0.2
    assert "% above the bound" in repr(compared)
    without = compare(streams, 4, ["hesrpt", "equi"])
    assert without.lower_bound is None
    assert without.above_bound("equi") is None
    assert "bound" not in repr(without)
