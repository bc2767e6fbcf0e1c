"""The pool: real functions in real processes, and what a user can rely on."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from hesrpt import InputError, JobError, Pool, Schedule
from hesrpt.runtime.engines.engine import Outcome
from hesrpt.runtime.engines.fake import Duration, FakeEngine
from hesrpt.runtime.journal import StateError


def square(x: int) -> int:
    return x * x


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(servers=2) as made:
        yield made


def test_results_come_in_the_order_of_the_items(pool: Pool) -> None:
    offset = 7
    job = pool.map(lambda x: square(x) + offset, range(30), name="closure")
    assert job.results() == [x * x + 7 for x in range(30)]
    assert (job.state, job.done, job.items, job.error) == ("done", 30, 30, None)
    assert job.flow_time > 0


def test_a_generator_is_read_as_items_are_started(pool: Pool) -> None:
    taken = []

    def some() -> Iterator[int]:
        for x in range(40):
            taken.append(x)
            yield x

    job = pool.map(square, some(), name="generator")
    assert job.results() == [x * x for x in range(40)]
    assert job.items == 40
    assert pool.map(square, iter([]), name="empty").results() == []
    assert pool.map(square, [], name="empty list").results() == []


def test_jobs_may_be_added_while_others_run_and_names_are_made_different(pool: Pool) -> None:
    first = pool.map(lambda x: time.sleep(0.02), range(20), name="twin")
    second = pool.map(square, range(3), name="twin")
    assert (first.name, second.name) == ("twin", "twin (2)")
    assert second.results() == [0, 1, 4]
    assert first.wait(30)
    assert first.flow_time > second.flow_time


def test_a_job_fails_with_its_error_and_the_others_go_on(pool: Pool) -> None:
    bad = pool.map(lambda x: 1 / (3 - x), range(10), name="bad")
    good = pool.map(square, range(10), name="good")
    with pytest.raises(JobError, match=r"job 'bad' failed: item 3: ZeroDivisionError"):
        bad.results()
    assert bad.state == "failed"
    assert good.results() == [x * x for x in range(10)]


def test_items_are_tried_again(pool: Pool, tmp_path: Path) -> None:
    def sometimes(x: int) -> int:
        with (tmp_path / str(x)).open("a") as file:
            file.write("x")
        if x == 2 and len((tmp_path / "2").read_text()) < 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    assert pool.map(sometimes, range(4), name="again", retries=2).results() == [0, 1, 2, 3]
    assert (tmp_path / "2").read_text() == "xxx"
    assert (tmp_path / "1").read_text() == "x"


def test_an_iterable_that_raises_fails_its_job(pool: Pool) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("no more")

    job = pool.map(square, broken(), name="broken", retries=0)
    with pytest.raises(JobError, match="no more"):
        job.results()


def test_a_job_can_be_cancelled(pool: Pool) -> None:
    job = pool.map(time.sleep, [60] * 5, name="endless")
    time.sleep(0.3)
    job.cancel()
    assert job.wait(10)
    assert job.state == "cancelled"
    with pytest.raises(JobError, match="cancelled"):
        job.results()


def test_waiting_may_end_early(pool: Pool) -> None:
    job = pool.map(time.sleep, [0.4], name="slow")
    assert not job.wait(0.05)
    with pytest.raises(TimeoutError):
        job.results(timeout=0.05)
    assert job.results() == [None]


def test_the_example_of_the_documentation_and_its_schedule() -> None:
    with Pool(servers=2) as pool:
        pool.map(lambda x: time.sleep(0.02), range(60), name="large", size=1.2)
        pool.map(lambda x: time.sleep(0.02), range(6), name="small")
        order = [job.name for job in pool.as_completed()]
    assert order == ["small", "large"]
    schedule = pool.schedule
    assert isinstance(schedule, Schedule)
    assert list(schedule.workload.names) == ["large", "small"]
    assert schedule.workload.sizes == pytest.approx([1.2, 0.12], rel=0.3)
    assert schedule.mean_flow_time == pytest.approx(
        np.mean([job.flow_time for job in pool.jobs]), rel=1e-9
    )
    held = [schedule.servers_at(t) for t in np.linspace(0, schedule.makespan, 50)]
    assert all(row.sum() <= 2 for row in held)
    assert max(row[1] for row in held) >= 1
    with pytest.raises(InputError, match="the pool is closed"):
        pool.map(square, [1])


def test_an_error_in_the_block_stops_everything_at_once() -> None:
    def fail() -> None:
        with Pool(servers=2) as pool:
            pool.map(time.sleep, [60] * 4)
            time.sleep(0.2)
            raise RuntimeError("mine")

    began = time.monotonic()
    with pytest.raises(RuntimeError, match="mine"):
        fail()
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"function": 3}, "a function is expected, got 3"),
        ({"items": 3}, "items must be iterable, got 3"),
        ({"size": -1}, "size"),
        ({"timeout": 0}, "timeout"),
        ({"retries": -1}, "retries must be a whole number of at least 0, got -1"),
        ({"speedup": 1.5}, "p must lie in"),
        ({"weight": 0}, "weight"),
    ],
)
def test_mistakes_get_clear_errors(pool: Pool, options: dict[str, object], message: str) -> None:
    given = {"function": square, "items": [1], **options}
    with pytest.raises(InputError) as caught:
        pool.map(**given)  # type: ignore[arg-type]
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"servers": 0}, "servers"),
        ({"servers": 1.5}, "servers must be a whole number of at least 1, got 1.5"),
        ({"policy": "best"}, "no policy named 'best'"),
        ({"resume": True}, "its state directory must be given"),
    ],
)
def test_mistaken_pools(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        Pool(**options)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_a_million_items_are_never_in_memory_at_once() -> None:
    most = 0
    engine = FakeEngine(64, lambda job, item, width: 0.001)
    taken = 0

    def many() -> Iterator[bytes]:
        nonlocal taken
        for _ in range(100_000):
            taken += 1
            yield bytes(1000)

    with Pool(servers=64, engine=engine) as pool:
        job = pool.map(square, many(), name="many")
        while not job.wait(0.01):
            most = max(most, len(job._live.source.unfinished))  # type: ignore[attr-defined]
    assert taken == 100_000
    assert most <= 2 * 64 + 2


class Held(FakeEngine):
    """An engine whose clock stands still until it may go."""

    def __init__(self, servers: int, duration: Duration) -> None:
        super().__init__(servers, duration)
        self.go = threading.Event()

    def wait_for_outcomes(self, timeout: float) -> list[Outcome]:
        if self.go.wait(0.01):
            return super().wait_for_outcomes(timeout)
        return []


def test_what_is_learned_decides() -> None:
    """Of two jobs of which nothing is known, the one with the shorter items ends first."""
    engine = Held(8, lambda job, item, width: {"long": 9.0, "short": 0.5}[job])
    with Pool(servers=8, engine=engine) as pool:
        long = pool.map(square, range(400), name="long")
        short = pool.map(square, range(400), name="short")
        engine.go.set()
    assert short._live.ended is not None
    assert long._live.ended is not None
    assert short._live.ended < 0.25 * long._live.ended


# --- state ------------------------------------------------------------------------------------


def test_results_are_kept_and_not_computed_again(tmp_path: Path) -> None:
    state, calls = tmp_path / "state", tmp_path / "calls"
    calls.mkdir()

    def work(x: int) -> int:
        (calls / f"{x}-{time.time_ns()}").touch()
        return x * x

    with Pool(servers=2, state=state) as pool:
        assert pool.map(work, range(5), name="squares").results() == [0, 1, 4, 9, 16]
    assert os.stat(state).st_mode & 0o777 == 0o700
    with pytest.raises(StateError, match="holds the state of a run; continue it with --resume"):
        Pool(servers=2, state=state)
    with Pool(servers=2, state=state, resume=True) as pool:
        assert pool.map(work, range(8), name="squares").results() == [x * x for x in range(8)]
    assert len(list(calls.iterdir())) == 8


def test_two_schedulers_on_one_state_directory(tmp_path: Path) -> None:
    with (
        Pool(servers=1, state=tmp_path / "s"),
        pytest.raises(StateError, match="another scheduler is running on it"),
    ):
        Pool(servers=1, state=tmp_path / "s", resume=True)


def test_a_state_directory_must_be_private(tmp_path: Path) -> None:
    place = tmp_path / "open"
    place.mkdir(mode=0o755)
    with pytest.raises(StateError, match="others may read or write it; chmod 700"):
        Pool(servers=1, state=place)
    with pytest.raises(StateError, match="does not exist"):
        Pool(servers=1, state=tmp_path / "none", resume=True)
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match="cannot be made"):
        Pool(servers=1, state=tmp_path / "file" / "x")
    if os.getuid() == 0:
        theirs = tmp_path / "theirs"
        theirs.mkdir(mode=0o700)
        os.chown(theirs, 12345, 12345)
        with pytest.raises(StateError, match="belongs to somebody else"):
            Pool(servers=1, state=theirs)


def test_a_damaged_database_is_told(tmp_path: Path) -> None:
    place = tmp_path / "s"
    place.mkdir(mode=0o700)
    (place / "state.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(StateError, match=r"state\.db"):
        Pool(servers=1, state=place, resume=True)


def test_a_full_disk_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    script = tmp_path / "full.py"
    script.write_text(
        "import resource, signal, sys\n"
        "from hesrpt import Pool, InputError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "with Pool(servers=1, state=sys.argv[1]) as pool:\n"
        "    pool.map(lambda x: bytes(1000), range(3), name='some').results()\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))\n"
        "    try:\n"
        "        pool.map(lambda x: bytes(100_000), range(50), name='much').results()\n"
        "    except InputError as error:\n"
        "        print('told:', error)\n"
        "        sys.exit(0)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "s")],
        capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert "told:" in done.stdout, done.stderr
    assert "state.db" in done.stdout
    with Pool(servers=1, state=tmp_path / "s", resume=True) as pool:
        assert pool.map(lambda x: bytes(1000), range(3), name="some").results() == [bytes(1000)] * 3
        much = pool.map(lambda x: bytes(100_000), range(50), name="much").results()
    assert [len(result) for result in much] == [100_000] * 50
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


# --- what users do ----------------------------------------------------------------------------


class Point:
    def __init__(self, x: int) -> None:
        self.x = x


def test_items_may_be_instances_of_local_classes_and_functions(pool: Pool) -> None:
    class Local(Point):
        pass

    assert pool.map(lambda p: p.x, [Local(1), Local(2)], name="local").results() == [1, 2]
    assert pool.map(lambda f: f(3), [lambda x: x + 1], name="functions").results() == [4]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_item_cannot_end_its_worker(pool: Pool, error: BaseException) -> None:
    def leave(_: int) -> None:
        raise error

    job = pool.map(leave, [1], name="leaving", retries=0)
    with pytest.raises(JobError, match=type(error).__name__):
        job.results(timeout=30)
    assert pool.map(square, [3], name="after").results(timeout=30) == [9]


def test_an_iterable_that_raises_late_does_not_pass_for_done(pool: Pool) -> None:
    def broken() -> Iterator[int]:
        yield from range(5)
        raise OSError("no more")

    job = pool.map(square, broken(), name="late", retries=3)
    with pytest.raises(JobError, match="its items: OSError: no more"):
        job.results(timeout=30)


def test_a_slow_iterable_holds_nobody_up_and_jobs_can_feed_each_other(pool: Pool) -> None:
    def slow() -> Iterator[int]:
        for x in range(3):
            time.sleep(1.0)
            yield x

    first = pool.map(square, slow(), name="slow")
    second = pool.map(lambda x: x + 1, first.iter_results(), name="fed")
    assert pool.map(square, [2], name="quick").results() == [4]
    assert first.state == "running"
    assert second.results(timeout=30) == [1, 2, 5]


def test_after_closing_nobody_waits_for_ever() -> None:
    pool = Pool(servers=1)
    job = pool.map(time.sleep, [60], name="long")
    pool.close()
    with pytest.raises(JobError, match="cancelled"):
        job.results(timeout=10)


def test_resuming_with_fewer_items_and_with_what_is_done(tmp_path: Path) -> None:
    with Pool(servers=2, state=tmp_path / "s") as pool:
        pool.map(square, range(5), name="five").results()
    for items in (5, 3):
        with Pool(servers=2, state=tmp_path / "s", resume=True) as pool:
            job = pool.map(square, range(items), name="five")
            assert job.results(timeout=30) == [0, 1, 4, 9, 16]
            assert job.flow_time < 60


def test_children_of_an_item_that_took_too_long_are_ended(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    with Pool(servers=1) as pool:
        job = pool.map(
            lambda _: os.system(f"touch {begun}; sleep 177"), [1], name="children", timeout=1.0,
            retries=0,
        )  # fmt: skip
        assert job.wait(20)
        assert begun.exists()
        until = time.monotonic() + 5
        while time.monotonic() < until and "sleep 177" in _commands():
            time.sleep(0.1)
        assert "sleep 177" not in _commands()


def _commands() -> set[str]:
    found = set()
    for process in psutil.process_iter():
        try:
            found.add(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found
