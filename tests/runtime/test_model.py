"""The whole runtime, driven through random faults and compared with a reference model.

Everything is real (pool, driver, core, recorder, journal on a state directory) except the engine,
which ends items as the test says. The model knows only what a user may rely on.
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import wait
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.runtime_model import (
    CHANGES,
    FUNCTIONS,
    ModelExecutor,
    ModelJob,
    Request,
    double,
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

from hesrpt import JobError, Pool
from hesrpt.errors import InputError, StateError
from hesrpt.runtime.batch_run import Inbox, submit_jobs
from hesrpt.runtime.engines.engine import Outcome
from hesrpt.runtime.job_handle import Job
from hesrpt.runtime.job_registry import OnChange
from hesrpt.runtime.jobs import Resizing
from hesrpt.runtime.live_job import LiveJob
from hesrpt.runtime.storage.journal import Journal
from hesrpt.runtime.storage.journal_entries import JobRecord
from hesrpt.runtime.storage.state_directory import get_database_path

# The scheduler gives up on an item that lost its server more often than this.
MAX_LOSSES = 10


class RuntimeMachine(RuleBasedStateMachine):
    """Random steps of a run, its faults, and its resumes."""

    pool: Pool
    engine: SteppedEngine

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
        self.is_alive = False
        self.serial = 0
        self.time = time.time()
        self.held = 0
        self.reported: dict[str, tuple[str, int]] = {}
        self.uncertain: dict[tuple[str, int], int] = {}  # serial numbers of outcomes

    @initialize(
        servers=st.integers(1, 4),
        policy=st.sampled_from(["hesrpt", "equi", "srpt"]),
        batch_seconds=st.sampled_from([0.0, 5.0]),
    )
    def create(self, servers: int, policy: str, batch_seconds: float) -> None:
        self.servers, self.policy, self.batch_seconds = servers, policy, batch_seconds
        self.open_pool(resume=False)

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
        self.stack.callback((reader := Journal.read(self.state)).close)
        self.inbox = Inbox(reader.submissions)

    # --- the script adds jobs -------------------------------------------------------------------

    @precondition(lambda self: self.is_alive and len(self.jobs) < 5)
    @rule(
        name=st.sampled_from(["a", "b"]),
        items=st.lists(st.integers(0, 2), max_size=5),
        retries=st.integers(0, 2),
        function=st.sampled_from(sorted(FUNCTIONS)),
        is_sized=st.booleans(),
    )
    def add_map_job(
        self, name: str, items: list[int], retries: int, function: str, is_sized: bool
    ) -> None:
        self.serial += 1
        request = Request(name, tuple(items), retries, function, is_sized, serial=self.serial)
        self.requests.append(request)
        self.map(request)
        self.settle()

    def map(self, request: Request) -> ModelJob | None:
        source_class = SizedGuidedItems if request.is_sized else GuidedItems
        source = source_class(request.items)
        name = self.names.get(request.serial, "")
        is_refused = self.has_changed(request, name) and self.on_change == "error"
        try:
            handle = self.pool.map(
                FUNCTIONS[request.function], source, name=request.name, retries=request.retries
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
        return job

    def has_changed(self, request: Request, name: str) -> bool:
        """Return whether a job has results of another function."""
        return bool(self.durable.get(name)) and self.functions[name] != request.function

    @precondition(lambda self: self.is_alive and len(self.jobs) < 5)
    @rule(
        counts=st.lists(st.integers(1, 4), min_size=1, max_size=3),
        retries=st.integers(0, 2),
        resize=st.sampled_from([None, None, "restart", "affinity", "never"]),
    )
    def add_commands(self, counts: list[int], retries: int, resize: Resizing | None) -> None:
        requests = [
            Request(f"c{n}", tuple(range(count)), retries, is_command=True)
            for n, count in enumerate(counts)
        ]
        if resize is not None:
            requests.append(Request("wide", (0,), retries, resize=resize, is_command=True))
        requests = [
            replace(request, serial=self.serial + n) for n, request in enumerate(requests, start=1)
        ]
        self.serial += len(requests)
        self.requests += requests
        self.add_command_jobs(requests)
        self.settle()

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

    @precondition(lambda self: self.is_alive and len(self.executors) < 2)
    @rule()
    def add_executor(self) -> None:
        with suppress(InputError, StateError, RuntimeError):
            self.executors.append(ModelExecutor(self.pool.executor("calls")))
        self.settle()

    @precondition(lambda self: self.is_alive and self.executors)
    @rule(data=st.data(), count=st.integers(1, 3))
    def submit_calls(self, data: st.DataObject, count: int) -> None:
        model = data.draw(st.sampled_from(self.executors))
        for _ in range(count):
            if not model.is_shut_down:
                self.serial += 1
                future = model.executor.submit(double, self.serial)
                model.calls.append((self.serial, future))
        self.settle()

    @precondition(lambda self: self.is_alive and self.executors)
    @rule(data=st.data(), cancels=st.booleans())
    def shut_down_executor(self, data: st.DataObject, cancels: bool) -> None:
        model = data.draw(st.sampled_from(self.executors))
        model.executor.shutdown(wait=False, cancel_futures=cancels)
        model.is_shut_down = True
        self.settle()

    @precondition(lambda self: self.is_alive)
    @rule(data=st.data(), count=st.integers(1, 4))
    def offer_items(self, data: st.DataObject, count: int) -> None:
        jobs = [job for job in self.jobs.values() if job.source and job.state == "running"]
        if jobs:
            self.offer(data.draw(st.sampled_from(jobs)), count)
            self.settle()

    def offer(self, job: ModelJob, count: int) -> None:
        """Offer items, but no more than the scheduler reads ahead with a single server."""
        assert job.source is not None
        unfinished = len(set(range(job.offered)) - job.done)
        while count > 0 and (unfinished < 2 or job.offered in job.done):
            unfinished += job.offered not in job.done
            count -= 1
            job.source.offer(1)

    # --- items end ------------------------------------------------------------------------------

    @precondition(lambda self: self.is_alive and self.engine.running)
    @rule(
        data=st.data(),
        seconds=st.sampled_from([0.01, 1.0, 30.0]),
        kill_at=st.sampled_from([*[None] * 12, 0, 1, 2, 3]),
    )
    def end_items(self, data: st.DataObject, seconds: float, kill_at: int | None) -> None:
        running = sorted(self.engine.running)
        keys = data.draw(st.lists(st.sampled_from(running), min_size=1, max_size=3, unique=True))
        how = st.sampled_from(["done", "done", "failed", "lost", "not started"])
        if kill_at is not None:
            self.switch.points_left = kill_at
        self.end({key: data.draw(how) for key in keys}, seconds)

    @precondition(lambda self: self.is_alive and self.engine.running)
    @rule(kill_at=st.sampled_from([None, None, 0, 1, 2, 3]), fails=st.booleans())
    def finish_all_items(self, kill_at: int | None, fails: bool) -> None:
        """Jobs often end in this step, in which the scheduler may die, or fail to write."""
        if kill_at is not None:
            self.switch.points_left = kill_at
        self.faults.fails |= fails and kill_at is None
        self.end(dict.fromkeys(self.engine.running, "done"), 1.0)

    @precondition(lambda self: self.is_alive and self.engine.running)
    @rule(data=st.data(), how=st.sampled_from(["failed", "lost"]))
    def end_badly_again_and_again(self, data: st.DataObject, how: str) -> None:
        key = data.draw(st.sampled_from(sorted(self.engine.running)))
        for _ in range(MAX_LOSSES + 1):
            if self.is_alive and key in self.engine.running:
                self.end({key: how}, 1.0)
                self.jobs_end_exactly_when_their_items_have()

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
        if job is None or job.state != "running":
            return  # a call of an executor, or the job ended in the same step
        if how == "done":
            job.done.add(item)
            self.add_durable(job, item, serial)
        elif how == "failed":
            job.failures[item] += 1
            if job.failures[item] > job.request.retries:
                job.failed = "failed"
        elif how == "lost":
            job.losses[item] += 1
            if job.losses[item] > MAX_LOSSES:
                job.failed = "failed"

    def add_durable(self, job: ModelJob, item: int, serial: int) -> None:
        value = job.request.items[item]
        result = None if job.request.is_command else (job.request.function, value, serial)
        self.durable[job.name].setdefault(value, []).append(result)

    # --- things happen --------------------------------------------------------------------------

    @precondition(lambda self: self.is_alive)
    @rule(servers=st.integers(0, 4))
    def change_servers(self, servers: int) -> None:
        self.engine.servers = self.servers = servers
        self.engine.step()
        self.settle()

    @precondition(lambda self: self.is_alive)
    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 100.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.engine.step(seconds=seconds)
        self.settle()

    @precondition(lambda self: self.is_alive and self.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(list(self.jobs.values())))
        was_running = job.state == "running"
        job.handle.cancel()
        if was_running:
            job.failed = "cancelled"
        self.settle()

    @precondition(lambda self: self.is_alive)
    @rule()
    def let_writes_fail(self) -> None:
        self.faults.fails = True

    @precondition(lambda self: self.is_alive and self.engine.running)
    @rule(data=st.data())
    def lock_database_for_a_moment(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.engine.running)))
        running = self.engine.running[key]
        self.serial += 1
        outcome = finish(running, self.serial)
        with closing(sqlite3.connect(get_database_path(self.state))) as other:
            other.execute("BEGIN IMMEDIATE")
            self.engine.begin_step([outcome], 1.0)
            time.sleep(0.02)
            assert key[0] not in self.jobs or item_is_not_done(self.jobs[key[0]])
            other.rollback()
        self.engine.wait_until_idle()
        if self.engine.is_closed:
            self.note_uncertain({key: "done"}, {key: self.serial})
            self.die()
            return
        self.end_in_model(key, "done", self.serial)
        self.settle()

    # --- the scheduler dies and is resumed --------------------------------------------------------

    @precondition(lambda self: self.is_alive)
    @rule(points=st.integers(0, 12))
    def kill_soon(self, points: int) -> None:
        """Kill the scheduler at one of the next points at which it meets the outside."""
        self.switch.points_left = points

    @precondition(lambda self: self.is_alive)
    @rule()
    def kill_now(self) -> None:
        self.switch.is_dead = True
        self.engine.step()
        self.die()

    def die(self) -> None:
        """Release what the operating system would release when the scheduler's process ends."""
        self.is_alive = False
        self.switch.is_dead = True
        # What the user was told before the scheduler died. Closing the pool cancels the rest.
        self.reported = {
            name: (job.handle.state, job.handle.done) for name, job in self.jobs.items()
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
            waiting = {get_tag(submission.spec) for submission in journal.submissions.read()}
        for name, (state, done) in self.reported.items():
            assert done == 0 or counts[name] >= done, f"{name}: {done} items were reported done"
            assert state == "running" or self.records[name].state == state
        self.reported = {}
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

    @precondition(lambda self: not self.is_alive)
    @rule(
        data=st.data(),
        leaves_out=st.booleans(),
        kill_at=st.sampled_from([*[None] * 5, 0, 1, 2, 3, 5, 8]),
        on_change=st.sampled_from(["error", "redo", "keep"]),
    )
    def resume(
        self, data: st.DataObject, leaves_out: bool, kill_at: int | None, on_change: OnChange
    ) -> None:
        self.resolve_uncertain()
        if leaves_out and self.requests and not self.requests[-1].tag:
            self.requests.pop()
        self.requests = [
            self.edit(request, data.draw(st.sampled_from(CHANGES))) for request in self.requests
        ]
        self.on_change = on_change
        self.start_again(kill_at)

    def edit(self, request: Request, change: str) -> Request:
        """Return a request as the user has changed the script since."""
        items = request.items
        if request.is_command or change == "none":
            return request
        if change == "reversed":
            return replace(request, items=items[::-1])
        if change == "shorter":
            return replace(request, items=items[1:])
        if change == "longer":
            return replace(request, items=(*items[:1], 9, *items[1:]))
        names = [each.name for each in self.requests]
        earlier = [record.given_name for record in self.records.values()]
        if names.count(request.name) > 1 or earlier.count(request.name) > 1:
            return request  # of jobs with the same name, one may continue another
        return replace(request, function="triple" if request.function == "double" else "double")

    def start_again(self, kill_at: int | None) -> None:
        """Resume the run, and let the script add its jobs again."""
        self.open_pool(resume=True, kill_at=kill_at)
        for request in self.requests:
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

    # --- other processes submit jobs --------------------------------------------------------------

    @rule(name=st.sampled_from(["c0", "late"]), items=st.integers(1, 3))
    def submit(self, name: str, items: int) -> None:
        if not get_database_path(self.state).exists() or len(self.submitted) > 4:
            return
        self.serial += 1
        tag = f"submission-{self.serial}"
        request = Request(name, tuple(range(items)), is_command=True, tag=tag, serial=self.serial)
        with self.faults.suspend():
            submit_jobs(self.state, [request.create_spec()])
        self.submitted[tag] = request

    @precondition(lambda self: self.is_alive)
    @rule()
    def take_submissions(self) -> None:
        jobs = self.inbox.take()
        assert self.inbox.take() == []  # nothing is taken twice
        requests = [self.submitted[get_tag(job.spec)] for job in jobs]
        self.add_live_jobs(jobs, requests)
        if self.is_alive:
            self.requests += [
                replace(request, name=self.names[request.serial]) for request in requests
            ]
        self.settle()

    # --- comparing ------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let the driver take steps until nothing is on its way."""
        while not self.engine.is_closed:
            if self.engine.is_woken:
                self.engine.step()
                continue
            for job in self.jobs.values():
                if job.source is not None and job.handle.state == "running":
                    job.source.wait_for_reader()
            if not self.engine.is_woken:
                break
        if self.engine.is_closed and self.is_alive:
            self.die()
        if self.is_alive:
            for name in self.redone:
                self.durable[name] = {}
            self.redone = set()
            self.functions |= {
                name: job.request.function
                for name, job in self.jobs.items()
                if not self.durable[name]
            }
        for job in self.jobs.values():
            if job.source is not None and job.handle.state != "running":
                job.source.abandon()

    @invariant()
    def protocol_is_kept(self) -> None:
        if hasattr(self, "engine"):
            assert self.engine.problems == []

    @invariant()
    def jobs_end_exactly_when_their_items_have(self) -> None:
        if self.is_alive:
            for job in self.jobs.values():
                expected = job.state
                if expected == "done" and job.source and job.offered < job.items:
                    continue  # the rest of the items was done earlier, but was not read yet
                assert job.handle.state == expected, (job, job.handle.error)
                if expected == "running" and job.offered == job.items:
                    assert job.handle.done == len(job.done)

    @invariant()
    def running_items_are_those_of_the_model(self) -> None:
        if not self.is_alive:
            return
        for (name, item), running in self.engine.running.items():
            job = self.jobs.get(name)
            if job is None:
                assert name.startswith("calls")
                continue
            assert item not in job.done, "an item that is done runs again"
            assert job.state == "running"
            if not job.request.is_command:
                assert running.task.argument == job.request.items[item]  # type: ignore[union-attr]

    @invariant()
    def no_more_servers_are_held_than_there_are(self) -> None:
        if self.is_alive:
            held = sum(self.pool.snapshot().held.values())
            assert held <= max(self.servers, self.held)
            self.held = held

    @invariant()
    def nothing_waits_while_servers_are_free(self) -> None:
        if not self.is_alive or any(job.request.resize for job in self.jobs.values()):
            return
        held = self.pool.snapshot().held
        if sum(held.values()) >= self.servers:
            return
        for job in self.jobs.values():
            if job.state == "running":
                running = sum(name == job.name for name, _ in self.engine.running)
                startable = len(set(range(job.offered)) - job.done) - running
                assert startable <= 0, f"{startable} items of {job.name!r} wait for no reason"

    @invariant()
    def journal_agrees_with_memory(self) -> None:
        if not self.is_alive:
            return
        with self.faults.suspend(), closing(Journal.read(self.state)) as journal:
            records = {record.name: record for record in journal.read_records()}
            for job in self.jobs.values():
                record = records[job.name]
                assert record.state == job.handle.state, (record, job)
                assert record.error == job.handle.error
                assert record.ended is None or record.ended >= record.arrived
                assert record.done >= job.handle.done, job
                assert record.done <= sum(map(len, self.durable[job.name].values())), job

    @invariant()
    def results_are_those_of_the_items(self) -> None:
        if self.is_alive:
            for job in self.jobs.values():
                if job.handle.state == "done" and not job.request.is_command:
                    results = job.handle.results(0)
                    assert [result[1] for result in results] == list(job.request.items)
                    known = [each for found in self.durable[job.name].values() for each in found]
                    assert all(result in known for result in results)
                    assert len({serial for _, _, serial in results}) == len(results)
                elif job.handle.error:
                    with pytest.raises(JobError):
                        job.handle.results(0)

    def teardown(self) -> None:
        try:
            has_failed = sys.exc_info()[0] is not None
            if hasattr(self, "pool") and not has_failed:
                self.end_everything()
        finally:
            if hasattr(self, "pool") and self.is_alive:
                self.switch.points_left = None
                self.engine.release()
                self.pool.close()
            for job in self.jobs.values():
                if job.source is not None:
                    job.source.abandon()
            for thread in threading.enumerate():
                if thread.name == "hesrpt-items":
                    thread.join(60)
            self.stack.close()
            shutil.rmtree(self.directory, ignore_errors=True)

    def end_everything(self) -> None:
        """After the faults stop, everything ends."""
        self.faults.fails, self.switch.points_left = False, None
        if not self.is_alive:
            self.resolve_uncertain()
            self.on_change = "redo"
            self.start_again(kill_at=None)
        if self.servers == 0:
            self.change_servers(2)
        for executor in self.executors:
            executor.executor.shutdown(wait=False)
        self.take_submissions()
        for _ in range(200):
            for job in self.jobs.values():
                if job.source is not None and job.handle.state == "running":
                    self.offer(job, 10)
            self.settle()
            if not self.engine.running:
                break
            self.end({min(self.engine.running): "done"}, 1.0)
        for job in self.jobs.values():
            assert job.handle.state != "running", f"{job.name!r} never ends"
        for executor in self.executors:
            assert executor.executor.job.state != "running"
            _, waiting = wait([future for _, future in executor.calls], timeout=60)
            assert not waiting, "a call never ends"
            for serial, future in executor.calls:
                if not future.cancelled() and future.exception() is None:
                    assert future.result() == double(serial)
        self.jobs_end_exactly_when_their_items_have()
        self.results_are_those_of_the_items()
        self.journal_agrees_with_memory()


def item_is_not_done(job: ModelJob) -> bool:
    """Return whether the handle of a job shows no more items done than the model."""
    return job.handle.done <= len(job.done)


def test_runtime_agrees_with_the_model() -> None:
    run_state_machine_as_test(RuntimeMachine, settings=settings(stateful_step_count=25))
