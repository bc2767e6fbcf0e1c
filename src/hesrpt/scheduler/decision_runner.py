"""Carries out what the core has decided: items start and stop, jobs end and are reopened."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hesrpt.decisions.core import Core
from hesrpt.decisions.events import (
    Admit,
    CallHook,
    Command,
    Continue,
    Drop,
    Finish,
    Reopen,
    Resize,
    Start,
    Stop,
    Suspend,
)
from hesrpt.engines.engine import Engine, Task, reserve
from hesrpt.engines.gpu_variables import choose_gpu_variables
from hesrpt.jobs.item_resources import GPU
from hesrpt.scheduler.failed_attempts import FailedAttempts
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.scheduler.publication import JobEnd, Publication
from hesrpt.scheduler.recorder import Recorder
from hesrpt.scheduler.run_memory import RunMemory
from hesrpt.storage.logs import LogPaths, get_log_paths, mark_attempt


class DecisionRunner:
    """Carries out the commands of the core, and records what they change."""

    def __init__(
        self,
        core: Core,
        engine: Engine,
        jobs: Mapping[str, LiveJob],
        recorder: Recorder,
        attempts: FailedAttempts,
        memory: RunMemory,
        publication: Publication,
        open_source: Callable[[LiveJob], None],
        prepare_hook: Callable[[LiveJob, CallHook, float], None],
    ) -> None:
        self._open_source, self._prepare_hook = open_source, prepare_hook
        self._core, self._engine, self._jobs, self._recorder = core, engine, jobs, recorder
        self._attempts, self._memory, self._publication = attempts, memory, publication
        self._finishing: dict[LiveJob, Finish] = {}  # whose stopped items are not gone yet
        self._hooks: dict[LiveJob, list[CallHook]] = {}  # of jobs that are about to end

    def carry_out(self, command: Command, now: float) -> None:
        """Carry out a command."""
        job = self._jobs[command.job]
        match command:
            case Start():
                logs = self._get_log_paths(job, command.items)
                tasks = job.source.create_tasks(command.items, command.servers, logs)
                if self._core.stock.totals:
                    tasks = self._reserve(job, tasks, command.gpus)
                job.durations = self._core.jobs[job.name].durations
                self._engine.start(job.name, tasks, command.servers)
            case Stop():
                self._engine.stop_items(job.name, command.items)
            case Resize():
                self._engine.resize(job.name, command.item, command.servers)
            case Suspend():
                self._engine.suspend(job.name, command.item)
            case Continue():
                self._engine.resume(job.name, command.item, command.servers)
            case Admit():
                self._open_source(job)
            case Drop():
                self._attempts.give_up(job, command)
            case Reopen():
                self._reopen(job, now)
            case CallHook():
                self._hooks.setdefault(job, []).append(command)
                if job not in self._finishing:
                    self._call_hooks(job, now)
            case Finish():
                self._finishing[job] = command
                self.finish_jobs(now)

    def is_finishing(self, job: LiveJob) -> bool:
        """Return whether the end of a job was decided, but waits for items that were stopped."""
        return job in self._finishing

    def finish_jobs(self, now: float) -> None:
        """End the jobs whose end was decided, and of which nothing runs any more.

        Until then, stopped items may turn out to be done.
        """
        gone = [job for job in self._finishing if not self._engine.is_stopping(job.name)]
        for job in gone:
            self._finish(job, self._finishing.pop(job).error, now)
            self._call_hooks(job, now)

    def _call_hooks(self, job: LiveJob, now: float) -> None:
        """Do what is to be done because a job has ended, unless it had ended like this before."""
        for command in self._hooks.pop(job, ()):
            if job.choose_end(now, command.error) == now:
                self._prepare_hook(job, command, now)

    def _reserve(
        self, job: LiveJob, tasks: Mapping[int, Task], gpus: Sequence[int]
    ) -> Mapping[int, Task]:
        """Let tasks use the GPUs that they were given, and no others."""
        has_gpus = GPU in self._core.stock.totals
        variables = choose_gpu_variables(gpus, os.environ) if has_gpus else {}
        return reserve(tasks, variables, holds_resources=bool(job.spec.resources))

    def _finish(self, job: LiveJob, error: str | None, now: float) -> None:
        """End a job. It is released, unless it may go on."""
        end = JobEnd(job, job.choose_end(now, error), error)
        self._publication.add_end(end)
        if not job.is_to_be_retried:
            job.set_paused(False)  # if it goes on later, nobody wants it to wait
        self._memory.remember([job])
        if not self._core.can_retry(job.name):
            self._memory.end_run(job)
            job.source.close()
        self._recorder.update_job(replace(job, ended=end.time, error=end.error).to_record())

    def _reopen(self, job: LiveJob, now: float) -> None:
        """Continue a job that has failed items, or has ended."""
        self._attempts.record(now)  # before the next round begins
        job.source.retry_items()
        job.completions.remove_failed(job.failures)
        job.failures.clear()
        job.reopen()
        self._finishing.pop(job, None)
        self._hooks.pop(job, None)
        self._publication.remove_end(job)
        job.spec = replace(job.spec, retried=job.spec.retried + 1)
        self._recorder.update_job(job.to_record())

    def _get_log_paths(self, job: LiveJob, items: Sequence[int]) -> LogPaths | None:
        """Return the paths of the logs of items, in which earlier attempts are marked as such."""
        if self._recorder.journal is None:
            return None
        logs = get_log_paths(self._recorder.journal.directory, job.number, job.spec.resumed)
        for item in items if job.attempts or not job.spec.is_bag else ():
            if (attempts := job.attempts.get(item)) is not None or not job.spec.is_bag:
                mark_attempt(logs.get(item), item, None if attempts is None else attempts + 1)
        return logs
