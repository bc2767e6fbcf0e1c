"""Collects what happens in a run, and writes it to the journal."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping

from hesrpt.decisions.learning import LearnedRun
from hesrpt.jobs.job_spec import HookCall
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import (
    WHOLE_POOL,
    Answer,
    Changes,
    FailedAttempt,
    FinishedItem,
    Holding,
    JobRecord,
    MovedItem,
)
from hesrpt.storage.run_progress import RunProgress


class Recorder:
    """Records a run: in memory, and in the journal if there is one."""

    def __init__(self, journal: Journal | None, servers: int) -> None:
        self.journal = journal
        self.holdings: list[Holding] = [] if journal is None else journal.read_holdings()
        self.peak_servers = servers  # the highest number of servers so far
        self.first_start: float | None = None  # when the first item started
        if journal is not None:
            self.first_start = journal.get_value("first_start", parse=float)
        self._changes = Changes()
        self._is_urgent = False  # whether the changes are to be written at once
        self._held: dict[int, int] = {}  # by the numbers of the jobs that hold servers

    def add_job(
        self, record: JobRecord, *, answer: Answer | None = None, is_redone: bool = False
    ) -> None:
        """Record a job that has arrived, and the answer to the request that it came from."""
        self._changes.jobs.append(record)
        if is_redone:
            self._changes.jobs_to_redo.append(record.number)
        if answer is not None:
            self.answer(answer)

    def answer(self, answer: Answer) -> None:
        """Record the answer to a request, in one transaction with what was done about it."""
        self._changes.answers.append(answer)

    def move_items(self, job: int, moved: Iterable[tuple[bytes, int]]) -> None:
        """Record the keys and new positions of items that were done in an earlier run."""
        self._changes.moved_items += [MovedItem(job, key, position) for key, position in moved]

    def record_servers(self, time: float, servers: int) -> None:
        """Record how many servers there are now."""
        self._add_holding(Holding(time, WHOLE_POOL, servers))
        if servers > self.peak_servers:
            self.peak_servers = servers
            self._changes.values["servers"] = servers

    def record_start(self, time: float) -> None:
        """Record when an item started: the first to end need not be the first that started."""
        if self.first_start is None or time < self.first_start:
            self.first_start = time
            self._changes.values["first_start"] = time

    def record_calibration(self, calibration: str) -> None:
        """Record what the policy has learned, in one transaction with what it was learned from."""
        self._changes.values["calibration"] = calibration

    def record_hook(self, call: HookCall) -> None:
        """Record a hook that is to be called, or what became of it."""
        self._changes.hooks.append(call)

    def record_groups(self, groups: str) -> None:
        """Record the weights of groups, and which are paused."""
        self._changes.values["groups"] = groups

    def add_finished_items(self, items: Collection[FinishedItem]) -> None:
        """Record items that are done."""
        self._changes.finished_items += items
        # Somebody may wait for a single item; others follow soon.
        self._is_urgent = self._is_urgent or len(items) == 1

    def add_failed_attempt(self, attempt: FailedAttempt) -> None:
        """Record a failed attempt of an item."""
        self._changes.failed_attempts.append(attempt)

    def update_job(self, record: JobRecord) -> None:
        """Record a job that has changed or ended."""
        self._changes.jobs.append(record)

    def add_learned_runs(self, runs: Iterable[LearnedRun], forgotten: Iterable[int]) -> None:
        """Record how long items took, and which earlier runs hardly count any more."""
        self._changes.learned_runs += runs
        self._changes.forgotten_runs += forgotten

    def record_held(self, time: float, held: Mapping[int, int]) -> None:
        """Record how many servers jobs hold now, by their numbers; those of others are the same."""
        for number, servers in held.items():
            if servers != self._held.get(number, 0):
                self._add_holding(Holding(time, number, servers))
            if servers > 0:
                self._held[number] = servers
            else:
                self._held.pop(number, None)

    def _add_holding(self, holding: Holding) -> None:
        self.holdings.append(holding)
        self._changes.holdings.append(holding)

    def forget_jobs(self, numbers: Container[int]) -> None:
        """Forget in memory which servers some jobs held."""
        self.holdings = [each for each in self.holdings if each.job not in numbers]

    def record_progress(self, progress: RunProgress) -> None:
        """Record what is planned and predicted, for other processes."""
        self._changes.values["progress"] = progress.to_json()

    @property
    def can_wait(self) -> bool:
        """Whether what was recorded may be written later, with what follows soon."""
        is_urgent = self._is_urgent or not self._changes.are_only_finished_items
        return self.journal is not None and not is_urgent

    def flush(self, time: float) -> bool:
        """Write what was recorded up to now; the end of a job is durable then.

        Returns whether anything was written.
        """
        changes, self._changes, self._is_urgent = self._changes, Changes(), False
        if self.journal is None or not changes:
            return False
        changes.values["time"] = time
        self.journal.write(changes)
        return True
