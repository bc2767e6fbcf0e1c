"""A run of the whole runtime beside its model: what is done to the one is done to the other.

Everything is real (pool, driver, core, recorder, journal on a state directory) except the engine,
which ends items as the test says.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis.stateful import (
    RuleBasedStateMachine,
)

from hesrpt import Pool
from hesrpt.engines.engine import Outcome
from hesrpt.errors import InputError, StateError
from hesrpt.jobs.job_end import REQUESTED
from hesrpt.pool.job_handle import Job
from hesrpt.scheduler.job_registry import OnChange
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import JobRecord
from support.runtime_model import (
    FUNCTIONS,
    ModelExecutor,
    ModelJob,
    Request,
    find_done,
    get_tag,
)
from support.stepping import (
    DatabaseFaults,
    GuidedItems,
    Killed,
    KillSwitch,
    RunningItem,
    SizedGuidedItems,
    SteppedEngine,
    faulty_database,
    finish,
)

# The scheduler gives up on an item that lost its server more often than this.
MAX_LOSSES = 10


class ModelledRun(RuleBasedStateMachine):
    """A run, its model, and how both change; which rules there are is for others to say."""

    pool: Pool
    engine: SteppedEngine
    servers: int
    policy: str
    batch_seconds: float

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")  # where waiting for the disk takes no time
        self.directory = Path(
            tempfile.mkdtemp(prefix="hesrpt-model-", dir=memory if memory.is_dir() else None)
        )
        self.state = self.directory / "state"
        self.stack = ExitStack()
        self.switch = KillSwitch()
        self.faults = DatabaseFaults(self.switch)
        self.stack.enter_context(faulty_database(self.faults))
        self.jobs: dict[str, ModelJob] = {}  # of the present life, by name
        self.executors: list[ModelExecutor] = []
        # What a user may rely on after a crash: the results of each job, by item.
        self.durable: dict[str, dict[int, list[Any]]] = {}
        self.names: dict[int, str] = {}  # of the jobs, by the serial number of the request
        self.functions: dict[str, str] = {}  # of the jobs that are in the journal
        self.redone: set[str] = set()  # jobs whose earlier results are to be forgotten
        self.on_change: OnChange = "error"
        self.submitted: dict[str, Request] = {}  # by tag
        self.records: dict[str, JobRecord] = {}  # when the scheduler died
        self.requests: list[Request] = []  # in the order in which the script adds them
        self.changes: dict[int, tuple[str, str, float]] = {}  # requested by other processes
        self.paused: set[str] = set()  # jobs that other processes have paused
        self.weights: dict[str, float] = {}  # that other processes have set
        self.is_alive = False
        self.serial = 0
        self.time = time.time()
        self.held = 0
        self.reported: dict[str, tuple[str | None, int]] = {}
        self.uncertain: dict[tuple[str, int], int] = {}  # serial numbers of outcomes

    def open_pool(self, resume: bool, kill_at: int | None = None) -> None:
        """Start a scheduler, which may be killed at once."""
        self.switch.is_dead, self.switch.points_left = False, kill_at
        self.faults.fails = False
        self.time += 5.0
        self.engine = SteppedEngine(
            self.servers, self.switch, batch_seconds=self.batch_seconds, time=self.time
        )
        self.jobs, self.executors = {}, []
        try:
            self.pool = Pool(
                policy=self.policy,
                state=self.state,
                resume=resume,
                on_change=self.on_change,
                engine=self.engine,
            )
        except Killed:
            return
        self.is_alive, self.held = True, 0

    # --- adding jobs ----------------------------------------------------------------------------

    def map(self, request: Request) -> ModelJob | None:
        source_class = SizedGuidedItems if request.is_sized else GuidedItems
        source = source_class(request.items)
        name = self.names.get(request.serial, "")
        is_refused = self.has_changed(request, name) and self.on_change == "error"
        try:
            handle = self.pool.map(
                FUNCTIONS[request.function],
                source,
                name=request.name,
                retries=request.retries,
                on_error=request.on_error,
            )
        except (InputError, StateError, RuntimeError) as error:
            if is_refused and "function has changed" in str(error):
                return None
            self.engine.wait_until_idle()
            assert self.engine.is_closed  # only a scheduler that has ended refuses a job
            self.die()
            return None
        assert not is_refused or self.engine.is_closed
        return self.add_to_model(request, handle, source)

    def add_to_model(
        self, request: Request, handle: Job[Any], source: GuidedItems | None
    ) -> ModelJob:
        assert handle.name not in self.jobs
        assert self.names.setdefault(request.serial, handle.name) == handle.name
        job = self.jobs[handle.name] = ModelJob(request, handle, source)
        durable = self.durable.setdefault(handle.name, {})
        if self.has_changed(request, handle.name) and self.on_change == "redo":
            self.redone.add(handle.name)
            durable = {}
        job.done = find_done(request.items, durable)
        record = self.records.get(handle.name)
        is_retried = ("retry", handle.name) in [change[:2] for change in self.changes.values()]
        if record is not None and record.end == REQUESTED and not is_retried:
            job.failed = "cancelled"
        return job

    def has_changed(self, request: Request, name: str) -> bool:
        """Return whether a job has results of another function."""
        return bool(self.durable.get(name)) and self.functions[name] != request.function

    def add_command_jobs(self, requests: list[Request]) -> None:
        live_jobs = [LiveJob.from_command(request.create_spec()) for request in requests]
        self.add_live_jobs(live_jobs, requests)

    def add_live_jobs(self, live_jobs: Sequence[LiveJob], requests: Sequence[Request]) -> None:
        try:
            handles = self.pool.add_jobs(live_jobs)
        except (InputError, StateError, RuntimeError):
            self.engine.wait_until_idle()
            assert self.engine.is_closed
            self.die()
            return
        found = {handle.name: handle for handle in handles}
        for request, live_job in zip(requests, live_jobs, strict=True):
            if live_job.name in found:
                self.add_to_model(request, found[live_job.name], None)
            else:  # nothing is left to do
                assert self.names[request.serial] == live_job.name
                done = find_done(request.items, self.durable[live_job.name])
                assert len(done) == len(request.items)

    def offer(self, job: ModelJob, count: int) -> None:
        """Offer items, but no more than the scheduler reads ahead with a single server."""
        assert job.source is not None
        unfinished = len(job.unfinished)
        while count > 0 and (unfinished < 2 or job.offered in job.done):
            unfinished += job.offered not in job.done
            count -= 1
            job.source.offer(1)

    # --- ending items ---------------------------------------------------------------------------

    def end(self, ends: dict[tuple[str, int], str], seconds: float) -> None:
        """End running items, and compare what follows with the model."""
        before = {key: self.engine.running[key] for key in ends}
        outcomes, results = [], {}
        for key, how in ends.items():
            self.serial += 1
            outcomes.append(self.create_outcome(before[key], how, seconds))
            results[key] = self.serial
        self.engine.step(outcomes, seconds)
        if self.engine.is_closed:  # killed, or the journal failed: nothing was promised
            self.note_uncertain(ends, results)
            self.die()
            return
        for key, how in ends.items():
            self.end_in_model(key, how, results[key])
        self.settle()

    def create_outcome(self, running: RunningItem, how: str, seconds: float) -> Outcome:
        if how == "done":
            return finish(running, self.serial, seconds)
        if how == "failed":
            return Outcome(running.job, running.item, seconds, error="broken \udcff")
        was_started = how == "lost"
        return Outcome(running.job, running.item, seconds, is_lost=True, was_started=was_started)

    def end_in_model(self, key: tuple[str, int], how: str, serial: int) -> None:
        name, item = key
        job = self.jobs.get(name)
        if job is None:
            return  # a call of an executor
        if how == "done":
            job.done.add(item)
            self.add_durable(job, item, serial)
        elif job.end is not None:
            return  # it ended in the same step
        elif how == "failed":
            job.failures[item] += 1
            if job.failures[item] > job.request.retries:
                job.give_up(item)
        elif how == "lost":
            job.losses[item] += 1
            if job.losses[item] > MAX_LOSSES:
                job.give_up(item)

    def add_durable(self, job: ModelJob, item: int, serial: int) -> None:
        value = job.request.items[item]
        result = None if job.request.is_command else (job.request.function, value, serial)
        self.durable[job.name].setdefault(value, []).append(result)

    # --- dying and starting again ---------------------------------------------------------------

    def die(self) -> None:
        """Release what the operating system would release when the scheduler's process ends."""
        self.is_alive = False
        self.switch.is_dead = True
        # What the user was told before the scheduler died. Closing the pool cancels the rest.
        self.reported = {
            name: (job.handle.state if job.handle.has_ended else None, job.handle.done)
            for name, job in self.jobs.items()
        }
        self.engine.release()
        with suppress(InputError, StateError, RuntimeError, Killed):
            self.pool.close()
        for job in self.jobs.values():
            if job.source is not None:
                job.source.abandon()

    def note_uncertain(
        self, ends: dict[tuple[str, int], str], serials: dict[tuple[str, int], int]
    ) -> None:
        """Remember the items that ended in the step in which the scheduler died."""
        self.uncertain = {key: serials[key] for key, how in ends.items() if how == "done"}

    def resolve_uncertain(self) -> None:
        """Look up what was recorded in the step in which the scheduler died: that stays."""
        with self.faults.suspend(), closing(Journal.read(self.state)) as journal:
            self.records = {record.name: record for record in journal.read_records()}
            counts = {
                name: len(list(journal.read_done_items(record.number)))
                for name, record in self.records.items()
            }
            requests = journal.requests.read()
            waiting = {get_tag(request.spec) for request in requests if request.spec is not None}
        self.check_reported(counts)
        self.adopt_results(counts)
        self.adopt_submissions(waiting)
        self.adopt_changes()
        for name, record in self.records.items():
            if record.has_ended:
                self.paused.discard(name)

    def check_reported(self, counts: Mapping[str, int]) -> None:
        """Check that what the user was told is in the journal, given its counts of results."""
        for name, (end, done) in self.reported.items():
            assert done == 0 or counts[name] >= done, f"{name}: {done} items were reported done"
            assert end is None or self.records[name].state == end
        self.reported = {}

    def adopt_results(self, counts: Mapping[str, int]) -> None:
        """Add the uncertain results that the journal has to those that stay."""
        for name in self.redone:
            if counts.get(name) == 0:
                self.durable[name] = {}
        self.redone = set()
        for name, job in self.jobs.items():
            ended = [(key[1], serial) for key, serial in self.uncertain.items() if key[0] == name]
            known = sum(map(len, self.durable[name].values()))
            found = counts.get(name, 0)
            assert found in (known, known + len(ended)), f"{name}: {found} results, not {known}"
            if found > known:
                for item, serial in ended:
                    self.add_durable(job, item, serial)
            if name in self.records and not self.durable[name]:
                self.functions[name] = job.request.function
        self.uncertain = {}

    def adopt_submissions(self, waiting: Collection[str]) -> None:
        """Tell submissions that became jobs from those that still wait, given by their tags."""
        recorded = {get_tag(record.spec): record.name for record in self.records.values()}
        self.requests = [each for each in self.requests if not each.tag or each.tag in recorded]
        known_tags = {request.tag for request in self.requests}
        for tag, request in self.submitted.items():
            assert (tag in waiting) + (tag in recorded) == 1, f"{request} was lost or added twice"
            if tag in recorded and tag not in known_tags:
                self.requests.append(replace(request, name=recorded[tag]))
        for request in (*self.requests, *self.submitted.values()):
            was_recorded = self.names.get(request.serial) in self.records
            if not was_recorded or request.tag in waiting:
                self.names.pop(request.serial, None)  # it may get another name

    def adopt_new_jobs(self) -> None:
        """Add the submissions to the model that the scheduler has taken."""
        for handle in self.pool.jobs:
            tag = get_tag(handle._live.spec)
            if handle.name not in self.jobs and tag:
                request = replace(self.submitted[tag], name=handle.name)
                self.add_to_model(request, handle, None)
                self.requests.append(request)

    def adopt_changes(self) -> None:
        """Change the model as other processes have requested, if the scheduler has obeyed."""
        if not self.changes:
            return
        with self.faults.suspend(), closing(Journal.read(self.state)) as journal:
            records = {record.name: record for record in journal.read_records()}
            waiting = {request.number for request in journal.requests.read()}
            answers = journal.requests.read_answers(self.changes.keys() - waiting)
        assert answers.keys() == self.changes.keys() - waiting
        for number in sorted(answers):
            kind, name, weight = self.changes.pop(number)
            if answers[number].is_refused:
                assert records[name].has_ended, (records[name], answers[number])
                assert answers[number].text == f"is {records[name].state} already"
            elif kind == "cancel":
                assert records[name].end == REQUESTED, records[name]
                if self.is_alive:
                    self.jobs[name].failed = "cancelled"
            elif kind == "retry":
                if self.is_alive and name in self.jobs:
                    self.jobs[name].retry()
            elif not records[name].has_ended:
                if kind == "weight":
                    self.weights[name] = weight
                else:
                    (self.paused.add if kind == "pause" else self.paused.discard)(name)

    def start_again(self, kill_at: int | None) -> None:
        """Resume the run, and let the script add its jobs again."""
        self.open_pool(resume=True, kill_at=kill_at)
        for request in tuple(self.requests):
            if not self.is_alive:
                return
            if request.tag:
                record = self.records[request.name]
                self.add_live_jobs([LiveJob.from_record(record)], [request])
            elif request.is_command:
                self.add_command_jobs([request])
            else:
                self.map(request)
        self.settle()

    def settle(self) -> None:
        """Let the driver take steps until nothing is on its way."""
        while not self.engine.is_closed:
            if self.engine.is_woken:
                self.engine.step()
                continue
            for job in self.jobs.values():
                if job.source is not None and not job.handle.has_ended:
                    job.source.wait_for_reader()
            if not self.engine.is_woken:
                break
        if self.engine.is_closed and self.is_alive:
            self.die()
        if self.is_alive:
            self.adopt_new_jobs()
            self.adopt_changes()
            self.paused -= {name for name, job in self.jobs.items() if job.handle.has_ended}
            for name in self.redone:
                self.durable[name] = {}
            self.redone = set()
            self.functions |= {
                name: job.request.function
                for name, job in self.jobs.items()
                if not self.durable[name] or self.on_change == "keep"
            }
        for job in self.jobs.values():
            if job.source is not None and job.handle.has_ended and not job.given_up:
                job.source.abandon()
