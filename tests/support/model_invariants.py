"""What must hold after every step of a run, compared with its model."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from hypothesis.stateful import (
    invariant,
)

from hesrpt import JobError
from hesrpt.storage.journal import Journal
from support.modelled_run import ModelledRun
from support.runtime_model import ModelJob
from support.stepping import drain


class ComparedRun(ModelledRun):
    """A run that is compared with its model after every step."""

    @invariant()
    def protocol_is_kept(self) -> None:
        if hasattr(self, "engine"):
            assert self.engine.problems == []

    @invariant()
    def jobs_end_exactly_when_their_items_have(self) -> None:
        if self.is_alive:
            for job in self.jobs.values():
                expected = job.end
                if expected == "done" and job.source and job.offered < job.items:
                    continue  # the rest of the items was done earlier, but was not read yet
                found = job.handle.state if job.handle.has_ended else None
                assert found == expected, (job, job.handle.error)
                if expected is None and job.offered == job.items:
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
            assert item not in job.given_up, "an item that has failed runs again"
            assert job.end is None
            if not job.request.is_command:
                assert running.task.argument == job.request.items[item]  # type: ignore[union-attr]

    @invariant()
    def no_more_servers_are_held_than_there_are(self) -> None:
        if self.is_alive:
            held = sum(self.pool.snapshot().held.values())
            assert held <= max(self.servers, self.held)
            self.held = held

    @invariant()
    def jobs_that_hold_servers_are_running(self) -> None:
        if self.is_alive:
            held = self.pool.snapshot().held
            for name, job in self.jobs.items():
                if not job.handle.has_ended:
                    running = "paused" if name in self.paused else "running"
                    waiting = "paused" if name in self.paused else "waiting"
                    assert job.handle.state == (running if held.get(name) else waiting)

    @invariant()
    def jobs_start_after_their_predecessors(self) -> None:
        if self.is_alive:
            jobs = {job.name: job for job in self.pool.jobs}
            for name, _ in self.engine.running:
                for other in jobs[name]._live.spec.after:
                    # A job that has been retried has ended before.
                    assert other not in jobs or jobs[other].has_ended or self._was_retried(other)

    def _was_retried(self, name: str) -> bool:
        return self.pool._driver.jobs[name].spec.retried > 0

    @invariant()
    def no_gpu_is_given_to_two_jobs(self) -> None:
        if self.is_alive:
            owners: dict[str, str] = {}
            for (name, _), running in self.engine.running.items():
                gpu = running.task.variables["CUDA_VISIBLE_DEVICES"]
                if self.pool._driver.jobs[name].spec.resources:
                    assert gpu in ("0", "1")
                    assert owners.setdefault(gpu, name) == name
                else:
                    assert gpu == ""

    @invariant()
    def nothing_waits_while_servers_are_free(self) -> None:
        if not self.is_alive or any(
            job.request.resize or job.request.needs_gpu for job in self.jobs.values()
        ):
            return
        held = self.pool.snapshot().held
        if sum(held.values()) >= self.servers:
            return
        for job in self.jobs.values():
            if job.end is None and job.name not in self.paused and not self._has_to_wait(job):
                running = sum(name == job.name for name, _ in self.engine.running)
                startable = len(job.unfinished) - running
                assert startable <= 0, f"{startable} items of {job.name!r} wait for no reason"

    def _has_to_wait(self, job: ModelJob) -> bool:
        jobs = {each.name: each for each in self.pool.jobs}
        after = job.handle._live.spec.after
        return any(name in jobs and not jobs[name].has_ended for name in after)

    @invariant()
    def journal_agrees_with_memory(self) -> None:
        if not self.is_alive:
            return
        with self.faults.suspend(), closing(Journal.read(self.state)) as journal:
            records = {record.name: record for record in journal.read_records()}
            for job in self.jobs.values():
                record = records[job.name]
                assert record.has_ended == job.handle.has_ended, (record, job)
                assert not record.has_ended or record.state == job.handle.state, (record, job)
                assert record.error == job.handle.error
                if not record.has_ended:
                    assert record.spec.is_paused == (job.name in self.paused)
                    assert record.spec.weight == self.weights.get(job.name, 1.0)
                assert record.ended is None or record.ended >= record.arrived
                failures = journal.read_failures(record)
                assert {failure.item for failure in failures} == job.given_up
                assert failures == job.handle.failures
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
                    self.check_what_was_done(job)

    @invariant()
    def streams_yield_what_is_done(self) -> None:
        if not self.is_alive:
            return
        for job in self.jobs.values():
            if job.request.is_command:
                continue
            completed = dict(drain(job.handle.as_completed(0, errors="return")))
            done = {item for item, result in completed.items() if isinstance(result, tuple)}
            known = [each for found in self.durable[job.name].values() for each in found]
            for item in done:
                assert completed[item][1] == job.request.items[item]
                assert completed[item] in known
            assert len(done) == job.handle.done
            ordered: list[Any] = drain(job.handle.iter_results(0, errors="return"))
            assert [completed[item] for item in done if item < len(ordered)] == [
                result for result in ordered if isinstance(result, tuple)
            ]

    def check_what_was_done(self, job: ModelJob) -> None:
        """Check that the results of a job that failed or was cancelled can be read."""
        if job.request.is_command:
            return
        returned = job.handle.results(0, errors="return")
        for item, result in enumerate(returned):
            if isinstance(result, tuple):
                assert result[1] == job.request.items[item]
            else:
                assert isinstance(result, JobError)
                assert item not in job.done
        known = {item for item in job.done if item < len(returned)}
        assert job.failed == "cancelled" or len(known) == len(job.done)
