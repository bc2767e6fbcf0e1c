"""What jobs of a kind teach the next ones: item seconds and p, in a run and across runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from hesrpt import InputError, Pool, PowerLaw
from hesrpt.decisions.core import Core
from hesrpt.decisions.events import ItemsFinished, JobArrived
from hesrpt.decisions.learning import ItemDurations, KindMemory, LearnedRun
from hesrpt.engines.fake import FakeEngine
from hesrpt.jobs.command_template import CommandTemplate
from hesrpt.jobs.job_spec import PRIOR_P, PRIOR_P_ERROR, JobSpec, Prior
from hesrpt.reports.inspection import read_learned_runs
from hesrpt.scheduler.live_job import LiveJob

BAG = JobSpec(name="job", items=10)
COMMAND = JobSpec(name="job", resize="never")


def durations(*widths_and_seconds: tuple[int, float], repeat: int = 1) -> ItemDurations:
    result = ItemDurations()
    for width, seconds in widths_and_seconds * repeat:
        result.add(width, seconds)
    return result


def remember(spec: JobSpec, *runs: ItemDurations) -> KindMemory:
    memory = KindMemory()
    for run in runs:
        memory.begin_run(spec, run)
    return memory


# --- what is learned ----------------------------------------------------------------------------


def test_kind_is_the_name_that_was_asked_for() -> None:
    assert JobSpec(name="a").kind == "a"
    assert JobSpec(name="a (2)", given_name="a").kind == "a"
    assert JobSpec(name="a", kind="b").kind == "b"
    spec = JobSpec(name="a", kind="b", prior=Prior(item_seconds=3.0, p=0.5))
    assert JobSpec.from_json(spec.to_json()) == spec


def test_nothing_is_known_about_a_new_kind() -> None:
    memory = remember(BAG, durations((1, 2.0)))
    assert memory.get_prior(JobSpec(name="other")) == Prior()
    assert memory.get_prior(COMMAND) == Prior()  # a command is no item


def test_mean_and_spread_of_items_are_learned() -> None:
    (kind,) = remember(BAG, durations((1, 1.0), (1, 3.0), repeat=5)).summarise()
    assert (kind.runs, kind.items) == (1, 10)
    assert (kind.item_seconds, kind.spread) == pytest.approx((2.0, 1.0))
    assert (kind.p, kind.p_error, kind.p_origin) == (PRIOR_P, PRIOR_P_ERROR, "prior")


def test_each_run_counts_half_as_much_as_the_next_one() -> None:
    runs = [durations((1, seconds), repeat=100) for seconds in (40.0, 20.0, 10.0)]
    prior = remember(BAG, *runs).get_prior(BAG)
    assert prior.item_seconds == pytest.approx((40 * 0.25 + 20 * 0.5 + 10) / 1.75)


def test_run_of_one_item_counts_less_than_a_run_of_many() -> None:
    prior = remember(BAG, durations((1, 10.0), repeat=100), durations((1, 40.0))).get_prior(BAG)
    assert prior.item_seconds is not None
    assert prior.item_seconds < 25.0  # it would be 30 s if the one item counted as a full run


def test_p_of_items_is_learned_within_runs_so_that_longer_items_do_not_disturb_it() -> None:
    """Items took ten times as long in the second run, in which the job was wider."""
    first = durations((1, 1.0), (4, 4**0.1), repeat=200)
    second = durations((2, 10 * 2**0.1), (8, 10 * 8**0.1), repeat=200)
    (kind,) = remember(BAG, first, second).summarise()
    assert kind.p == pytest.approx(0.9, abs=0.04)
    assert kind.p_origin == "learned"
    assert kind.p_error < 0.1


def test_p_of_a_command_is_learned_from_the_widths_of_several_runs() -> None:
    """The size is 12 s; each run has one width. Seconds of servers are what is added."""
    runs = [durations((k, k * 12.0 / k**0.3)) for k in (1, 8, 2, 16, 4, 16, 1)]
    (kind,) = remember(COMMAND, *runs).summarise()
    assert kind.p_origin == "learned"
    assert abs(kind.p - 0.3) < kind.p_error < PRIOR_P_ERROR  # the prior still counts
    assert kind.item_seconds == pytest.approx(12.0, rel=0.4)
    one_width = remember(COMMAND, *runs[:1]).summarise()[0]
    assert (one_width.p_origin, one_width.p) == ("prior", PRIOR_P)


def test_speedup_that_was_given_wins() -> None:
    spec = JobSpec(name="job", speedup=PowerLaw(0.3))
    (kind,) = remember(spec, durations((1, 1.0), (2, 1.0), repeat=50)).summarise()
    assert (kind.p, kind.p_error, kind.p_origin) == (0.3, 0.0, "given")


def test_memory_is_bounded() -> None:
    memory = KindMemory()
    for run in range(12):
        memory.begin_run(BAG, durations((1, float(run + 1))))
    assert memory.forget() == [1, 2, 3, 4]
    for number in range(1100):
        memory.begin_run(JobSpec(name=f"kind {number}"), durations((1, 1.0)))
    forgotten = memory.forget()
    assert len(memory.summarise()) == 1000
    assert forgotten[:9] == [5, 6, 7, 8, 9, 10, 11, 12, 13]
    wide = LearnedRun(
        number=1,
        kind="wide",
        is_bag=True,
        durations=durations(*((width, 2.0) for width in range(1, 1001))),
    )
    assert len(wide.to_json()) < 2000
    restored = LearnedRun.from_json(1, "wide", wide.to_json()).durations
    assert restored.items == 1000
    assert restored.p == pytest.approx(wide.durations.p, abs=0.02)


def test_run_survives_as_json() -> None:
    run = remember(BAG, durations((1, 1.5), (2, 2.5))).runs[0]
    assert LearnedRun.from_json(run.number, run.kind, run.to_json()) == run


# --- what it is used for ------------------------------------------------------------------------


def test_job_of_a_known_kind_starts_with_what_was_learned() -> None:
    learned = ItemDurations(prior=Prior(item_seconds=10.0, p=0.5))
    assert (learned.p, learned.estimate_item_seconds(0.5)) == (0.5, 10.0)
    assert learned.measure_item_seconds(0.5) is None
    learned.add(1, 4.0)
    assert learned.estimate_item_seconds(0.5) == pytest.approx((2 * 10 + 4) / 3)
    assert learned.measure_item_seconds(0.5) == 4.0


def test_command_of_a_known_kind_is_planned_with_its_learned_size() -> None:
    core = Core(4)
    short = JobSpec(
        name="short", resize="affinity", prior=Prior(item_seconds=5.0, p=0.9, p_error=0.1)
    )
    long = JobSpec(name="long", resize="affinity", size=100.0, speedup=PowerLaw(0.7))
    core.handle(JobArrived(0.0, long), JobArrived(0.0, short))
    planned = {name: job.planned for name, job in core.jobs.items()}
    assert planned["short"] > planned["long"]


@pytest.mark.parametrize(("width", "expected"), [(1, {1: 5.0}), (4, {4: 20.0})])
def test_command_teaches_its_seconds_of_servers(width: int, expected: dict[int, float]) -> None:
    core = Core(width)
    core.handle(JobArrived(0.0, COMMAND))
    job = core.jobs["job"]
    core.handle(ItemsFinished(5.0, "job", (0,), (5.0,)))
    assert dict(job.durations.seconds) == expected


def create_job(name: str, items: range) -> LiveJob:
    command = CommandTemplate(
        job=name, command="true {item}", items=tuple(map(str, items)), directory="/"
    )
    spec = JobSpec(name=name, items=len(items), speedup=PowerLaw(0.9), command=command)
    return LiveJob.from_command(spec)


def run_night(state: Path, *, resume: bool, items: range, **options: object) -> list[str]:
    """Run two jobs whose names say nothing; return which jobs the first four items belong to."""
    started: list[str] = []

    def take_seconds(job: str, item: int, width: int) -> float:
        started.append(job)
        return 10.0 if job == "long" else 1.0

    engine = FakeEngine(4, take_seconds)
    with Pool(state=state, resume=resume, engine=engine, **options) as pool:  # type: ignore[arg-type]
        pool.add_jobs([create_job(name, items) for name in ("long", "short")])
    return started[:4]


def test_second_run_plans_the_short_kind_first_from_its_first_moment(tmp_path: Path) -> None:
    first = run_night(tmp_path / "s", resume=False, items=range(12))
    assert first.count("short") < 3  # nothing tells the jobs apart
    second = run_night(tmp_path / "s", resume=True, items=range(12, 24))
    assert second.count("short") >= 3
    kinds = {kind.kind: kind for kind in KindMemory(read_learned_runs(tmp_path / "s")).summarise()}
    assert (kinds["long"].runs, kinds["long"].items) == (2, 24)
    assert kinds["long"].item_seconds > 5 * kinds["short"].item_seconds


def test_what_another_run_learned_can_be_used(tmp_path: Path) -> None:
    run_night(tmp_path / "first", resume=False, items=range(12))
    second = tmp_path / "second"
    assert (
        run_night(second, resume=False, items=range(12), learned=tmp_path / "first").count("short")
        >= 3
    )
    assert [kind.runs for kind in KindMemory(read_learned_runs(second)).summarise()] == [2, 2]
    with pytest.raises(InputError, match="nowhere"):
        Pool(1, learned=tmp_path / "nowhere", engine=FakeEngine(1))
    assert not (tmp_path / "third").exists()


def test_resumed_job_that_does_nothing_teaches_nothing(tmp_path: Path) -> None:
    run_night(tmp_path / "s", resume=False, items=range(12))
    run_night(tmp_path / "s", resume=True, items=range(12))
    assert len(read_learned_runs(tmp_path / "s")) == 2


def test_jobs_of_one_kind_learn_from_each_other_in_one_pool() -> None:
    with Pool(engine=FakeEngine(2, lambda job, item, width: 7.0)) as pool:
        pool.map(abs, range(10), name="first", kind="k").wait()
        job = pool.map(abs, range(10), name="second", kind="k")
        job.wait()
        spec = pool._driver.jobs["second"].spec
        alone = 7.0 * 2 ** (PRIOR_P - 1)  # two of them ran together
        assert spec.prior.item_seconds == pytest.approx(alone, rel=0.1)


def test_kind_must_be_text() -> None:
    with Pool(1, engine=FakeEngine(1)) as pool:
        with pytest.raises(
            InputError, match="kind must be a non-empty string without zero bytes, got ''"
        ):
            pool.map(abs, [1], kind="")
        with pytest.raises(
            InputError, match="kind must be a non-empty string without zero bytes, got 3"
        ):
            pool.executor(kind=3)  # type: ignore[arg-type]
