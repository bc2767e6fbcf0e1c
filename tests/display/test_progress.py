"""The live display of a pool: when it begins, changes and ends."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from support.inline_engine import InlineEngine
from support.waiting import wait_until

from hesrpt import Pool
from hesrpt.display.overview import RunOverview
from hesrpt.display.progress import Progress
from hesrpt.jobs.job_view import JobView

RUNNING = JobView(name="job", state="running", items=2, elapsed=1.0)
DONE = replace(RUNNING, state="done", done=2)
RUN = RunOverview(servers=2, policy="equi", jobs=[RUNNING])


@pytest.fixture(autouse=True)
def refresh_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hesrpt.display.progress._REFRESH_SECONDS", 0.01)


class RecordedScreen:
    """Remembers what it was told to show."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, RunOverview]] = []

    def open(self, run: RunOverview) -> None:
        self.calls.append(("open", run))

    def update(self, run: RunOverview) -> None:
        self.calls.append(("update", run))

    def close(self, run: RunOverview) -> None:
        self.calls.append(("close", run))


class Display:
    """A display of a run that a test changes."""

    def __init__(self, run: RunOverview = RUN) -> None:
        self.run, self.screen = run, RecordedScreen()
        self.may_end = threading.Event()
        self.progress = Progress(lambda: self.run, lambda: self.may_end.wait(60), self.screen)

    @property
    def has_closed(self) -> bool:
        return self.screen.calls[-1][0] == "close"


def test_display_ends_when_all_jobs_have_ended() -> None:
    display = Display()
    wait_until(lambda: ("update", RUN) in display.screen.calls)
    assert not display.has_closed
    display.run = replace(RUN, jobs=[DONE])
    wait_until(lambda: display.has_closed)
    assert display.screen.calls[0] == ("open", RUN)
    assert display.screen.calls[-1] == ("close", replace(RUN, jobs=[DONE]))
    display.progress.close()
    assert [call for call, _ in display.screen.calls].count("close") == 1


def test_block_follows_until_its_end_and_then_waits() -> None:
    display = Display(replace(RUN, jobs=[DONE]))
    with display.progress:
        wait_until(lambda: len(display.screen.calls) > 2)
        assert not display.has_closed
        display.progress.close_if_ended()
        assert not display.has_closed
        display.may_end.set()
    assert display.has_closed


def test_block_with_an_error_does_not_wait() -> None:
    display = Display()
    with pytest.raises(ValueError, match="no"), display.progress:
        raise ValueError("no")
    assert display.has_closed


def test_block_begins_again_if_all_jobs_had_ended() -> None:
    display = Display(replace(RUN, jobs=[DONE]))
    wait_until(lambda: display.has_closed)
    display.may_end.set()
    with display.progress:
        assert not display.has_closed
    assert [call for call, _ in display.screen.calls].count("open") == 2
    assert display.has_closed


def test_display_that_fails_does_not_disturb_the_run() -> None:
    display = Display()

    def fail(run: RunOverview) -> None:
        raise OSError("the terminal has gone")

    display.screen.update = fail  # type: ignore[method-assign]
    display.progress._thread.join(60)
    display.progress.close()
    assert not display.has_closed


def test_pool_shows_its_progress_in_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with Pool(engine=InlineEngine()) as pool:
        with pool.progress():
            pool.map(abs, range(30), name="first")
            with pool.executor("calls") as executor:
                executor.submit(abs, 1).result()
            unused = pool.executor("open")  # is not waited for
        assert len(capsys.readouterr().out.splitlines()) == 2
        unused.shutdown()
        pool.map(abs, range(4), name="second")
        pool.progress()
        pool.map(abs, range(4), name="third")
        pool.progress()
    lines = capsys.readouterr().out.splitlines()
    names = {line.split(": done after")[0] for line in lines}
    assert names == {"first", "calls", "open", "second", "third"}


def test_display_does_not_keep_a_pool_that_nobody_uses() -> None:
    progress = Pool(engine=InlineEngine()).progress()
    progress._thread.join(60)
    assert not progress._thread.is_alive()


def test_display_has_ended_when_the_last_results_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The output of a notebook's cell must be final when the cell ends."""
    monkeypatch.setattr("hesrpt.display.progress._REFRESH_SECONDS", 600.0)
    screen = RecordedScreen()
    monkeypatch.setattr("hesrpt.pool.pool.choose_screen", lambda: screen)
    with Pool(engine=InlineEngine()) as pool:
        pool.progress()
        first, last = pool.map(abs, [1], name="a"), pool.map(abs, [-2], name="b")
        assert (first.results(), last.results()) == ([1], [2])
        assert screen.calls[-1][0] == "close"
        assert screen.calls[-1][1].has_ended
