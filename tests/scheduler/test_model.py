"""The whole runtime, driven through random faults and compared with a reference model.

Everything is real (pool, driver, core, recorder, journal on a state directory) except the engine,
which ends items as the test says. The model knows only what a user may rely on.
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
import threading
import time
from concurrent.futures import wait
from contextlib import closing, suppress
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.model_invariants import ComparedRun
from support.modelled_run import MAX_LOSSES
from support.runtime_model import (
    CHANGES,
    FUNCTIONS,
    ModelExecutor,
    ModelJob,
    Request,
    double,
)
from support.stepping import (
    finish,
)

from hesrpt.errors import InputError, StateError
from hesrpt.jobs.failures import OnError
from hesrpt.jobs.job_spec import Resizing
from hesrpt.scheduler.job_registry import OnChange
from hesrpt.scheduler.requests import request_change, submit_jobs
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import RequestKind
from hesrpt.storage.state_directory import get_database_path


class RuntimeMachine(ComparedRun):
    """Random steps of a run, its faults, and its resumes."""

    @initialize(
        servers=st.integers(1, 4),
        policy=st.sampled_from(["hesrpt", "equi", "srpt"]),
        batch_seconds=st.sampled_from([0.0, 5.0]),
    )
    def create(self, servers: int, policy: str, batch_seconds: float) -> None:
        self.servers, self.policy, self.batch_seconds = servers, policy, batch_seconds
        self.open_pool(resume=False)

    # --- the script adds jobs -------------------------------------------------------------------

    @precondition(lambda self: self.is_alive and len(self.jobs) < 5)
    @rule(
        name=st.sampled_from(["a", "b"]),
        items=st.lists(st.integers(0, 2), max_size=5),
        retries=st.sampled_from([0, 0, 1, 2]),
        on_error=st.sampled_from(["raise", "keep"]),
        function=st.sampled_from(sorted(FUNCTIONS)),
        is_sized=st.booleans(),
    )
    def add_map_job(
        self,
        name: str,
        items: list[int],
        retries: int,
        on_error: OnError,
        function: str,
        is_sized: bool,
    ) -> None:
        self.serial += 1
        request = Request(
            name, tuple(items), retries, on_error, function, is_sized, serial=self.serial
        )
        self.requests.append(request)
        self.map(request)
        self.settle()

    @precondition(lambda self: self.is_alive and len(self.jobs) < 5)
    @rule(
        counts=st.lists(st.integers(1, 4), min_size=1, max_size=3),
        retries=st.sampled_from([0, 0, 1, 2]),
        on_error=st.sampled_from(["raise", "keep"]),
        resize=st.sampled_from([None, None, "restart", "affinity", "never"]),
        needs_gpu=st.booleans(),
        is_ordered=st.booleans(),
    )
    def add_commands(
        self,
        counts: list[int],
        retries: int,
        on_error: OnError,
        resize: Resizing | None,
        needs_gpu: bool,
        is_ordered: bool,
    ) -> None:
        requests = [
            Request(
                f"c{n}",
                tuple(range(count)),
                retries,
                on_error,
                is_command=True,
                needs_gpu=needs_gpu,
                after=(f"c{n - 1}",) if is_ordered and n > 0 else (),
            )
            for n, count in enumerate(counts)
        ]
        if resize is not None:
            wide = Request(
                "wide", (0,), retries, on_error, resize=resize, is_command=True, needs_gpu=needs_gpu
            )
            requests.append(wide)
        requests = [
            replace(request, serial=self.serial + n) for n, request in enumerate(requests, start=1)
        ]
        self.serial += len(requests)
        self.requests += requests
        self.add_command_jobs(requests)
        self.settle()

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
        jobs = [job for job in self.jobs.values() if job.source and job.end is None]
        if jobs:
            self.offer(data.draw(st.sampled_from(jobs)), count)
            self.settle()

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
    @rule(data=st.data(), how=st.sampled_from(["failed", "failed", "lost"]))
    def end_badly_again_and_again(self, data: st.DataObject, how: str) -> None:
        key = data.draw(st.sampled_from(sorted(self.engine.running)))
        for _ in range(MAX_LOSSES + 1):
            if self.is_alive and key in self.engine.running:
                self.end({key: how}, 1.0)
                self.jobs_end_exactly_when_their_items_have()
        if key[0] in self.jobs and data.draw(st.booleans()):
            self.retry(self.jobs[key[0]])

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
        had_ended = job.end is not None
        job.handle.cancel()
        if not had_ended:
            job.failed = "cancelled"
        self.settle()

    @precondition(
        lambda self: self.is_alive and any(job.can_be_retried for job in self.jobs.values())
    )
    @rule(data=st.data(), kill_at=st.sampled_from([*[None] * 6, 0, 1, 2, 3]))
    def retry_failed_items(self, data: st.DataObject, kill_at: int | None) -> None:
        jobs = [job for job in self.jobs.values() if job.can_be_retried]
        self.switch.points_left = kill_at
        self.retry(data.draw(st.sampled_from(jobs)))

    def retry(self, job: ModelJob) -> None:
        if self.is_alive and job.can_be_retried:
            job.handle.retry()
            assert not job.handle.has_ended
            job.retry()
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
            assert key[0] not in self.jobs or is_not_ahead_of_the_model(self.jobs[key[0]])
            other.rollback()
        self.engine.wait_until_idle()
        if self.engine.is_closed:
            self.note_uncertain({key: "done"}, {key: self.serial})
            self.die()
            return
        self.end_in_model(key, "done", self.serial)
        self.settle()

    # --- the scheduler dies and is resumed ------------------------------------------------------

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

    # --- other processes submit jobs ------------------------------------------------------------

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

    @rule(
        data=st.data(),
        kind=st.sampled_from(["pause", "pause", "resume", "resume", "weight", "cancel", "retry"]),
        kill_at=st.sampled_from([None, None, 0, 1, 2, 3]),
    )
    def request_change(self, data: st.DataObject, kind: RequestKind, kill_at: int | None) -> None:
        """Another process changes a job, whether or not a scheduler runs."""
        if not get_database_path(self.state).exists() or not self.jobs:
            return
        name = data.draw(st.sampled_from(sorted(self.jobs)))
        if kind == "retry" and not (self.is_alive and self.jobs[name].can_be_retried):
            return  # refused, or done anyway when the run is resumed
        weight = float(data.draw(st.integers(2, 5)))
        with self.faults.suspend(), closing(Journal.read(self.state)) as journal:
            if name not in [record.name for record in journal.read_records()]:
                return  # a job that was submitted may have this name now
            (result,) = request_change(
                self.state, kind, [name], weight=weight if kind == "weight" else None, timeout=0
            )
            if result.request is not None:
                self.changes[result.request] = kind, name, weight
        if self.is_alive:
            self.switch.points_left = kill_at
            self.take_requests()

    @precondition(lambda self: self.is_alive)
    @rule()
    def take_requests(self) -> None:
        self.engine.step(seconds=1.0)
        self.settle()
        if self.is_alive:
            # Those about jobs that the script has not added again wait until it does.
            assert self.jobs.keys().isdisjoint(name for _, name, _ in self.changes.values())

    # --- the end --------------------------------------------------------------------------------

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
        self.take_requests()
        for job in self.jobs.values():
            job.handle.resume()
        self.paused.clear()
        for _ in range(200):
            for job in self.jobs.values():
                if job.source is not None and not job.handle.has_ended:
                    self.offer(job, 10)
            self.settle()
            if not self.engine.running:
                break
            self.end({min(self.engine.running): "done"}, 1.0)
        for job in self.jobs.values():
            assert job.handle.has_ended, f"{job.name!r} never ends"
        for executor in self.executors:
            assert executor.executor.job.has_ended
            _, waiting = wait([future for _, future in executor.calls], timeout=60)
            assert not waiting, "a call never ends"
            for serial, future in executor.calls:
                if not future.cancelled() and future.exception() is None:
                    assert future.result() == double(serial)
        self.jobs_end_exactly_when_their_items_have()
        self.results_are_those_of_the_items()
        self.journal_agrees_with_memory()


def is_not_ahead_of_the_model(job: ModelJob) -> bool:
    """Return whether the handle of a job shows no more items done than the model."""
    return job.handle.done <= len(job.done)


def test_runtime_agrees_with_the_model() -> None:
    run_state_machine_as_test(RuntimeMachine, settings=settings(stateful_step_count=25))
