"""A run while it happens: what becomes of items, messages and requests, and what the core decides.

Outcomes, messages and requests become events for the core, and its commands are carried out. The
driver says when: nothing here waits for another thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import repeat

from hesrpt.decisions.core import Core
from hesrpt.decisions.events import (
    Admit,
    CallHook,
    CapacityChanged,
    Command,
    Continue,
    Drop,
    Event,
    Finish,
    GroupChanged,
    ItemFailed,
    ItemFinished,
    ItemLost,
    ItemsExhausted,
    ItemsFinished,
    ItemsRead,
    ItemsRetried,
    JobArrived,
    JobCancelled,
    JobContinued,
    JobEnded,
    JobPaused,
    Reopen,
    Resize,
    Start,
    Stop,
    Suspend,
    WeightChanged,
)
from hesrpt.decisions.learning import KindMemory
from hesrpt.engines.engine import (
    Engine,
    FinishedItems,
    Outcome,
    Task,
    choose_gpu_variables,
    reserve,
)
from hesrpt.engines.item_reports import NO_DETAILS, ErrorDetails
from hesrpt.errors import InputError, StateError
from hesrpt.jobs.failures import ItemFailure, describe_losses
from hesrpt.jobs.item_resources import GPU
from hesrpt.jobs.job_end import REQUESTED, STOPPED, JobEnd
from hesrpt.jobs.job_spec import (
    PLAIN_GROUP,
    Group,
    explain_useless_retry,
    read_groups,
    sort_by_order,
    write_groups,
)
from hesrpt.jobs.text import add_source_lines, escape_undecodable
from hesrpt.scheduler.decision_log import LogSource, log_decisions, note_decisions
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.scheduler.messages import (
    GroupSteered,
    JobRetried,
    JobsSubmitted,
    JobSteered,
    JobStopped,
    Message,
    SourceAdvanced,
    SourceExhausted,
    SourceProgress,
)
from hesrpt.scheduler.publication import PendingEnd, Publication
from hesrpt.scheduler.recorder import Recorder
from hesrpt.scheduler.run_history import MAX_TIMED_ITEMS, ItemTiming
from hesrpt.scheduler.run_hooks import RunHooks
from hesrpt.scheduler.run_memory import RunMemory
from hesrpt.scheduler.steering import (
    RelatedJobs,
    RequestReceived,
    apply_group_request,
    apply_request,
    check_pausable,
)
from hesrpt.scheduler.waiting_warnings import WaitingWarner
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import Answer, FailedAttempt, FinishedItem, Request
from hesrpt.storage.logs import LogPaths, get_log_paths, mark_attempt
from hesrpt.storage.run_progress import RunProgress

# How many jobs whose results were freed are remembered, and how many are forgotten at a time.
_REMEMBERED, _FORGOTTEN_AT_ONCE = 10_000, 1_000
# How often to tell other processes what is planned and predicted, in seconds.
_PROGRESS_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What a pool is doing at one moment. Jobs that have ended are not in it."""

    time: float  # seconds since the run began
    servers: int  # how many there are
    planned: Mapping[str, int]  # servers that the policy gives each job
    held: Mapping[str, int]  # servers that each job holds


class LiveRun:
    """The jobs of a run, and what happens to them.

    Whoever calls a method holds the driver's condition, except for :meth:`flush`.
    """

    def __init__(
        self,
        core: Core,
        engine: Engine,
        journal: Journal | None,
        send: Callable[[Message], None],
        memory: KindMemory,
    ) -> None:
        self.core, self.engine, self.journal = core, engine, journal
        self.recorder = Recorder(journal, core.servers)
        self.jobs: dict[str, LiveJob] = {}
        self._forget_above = _REMEMBERED + _FORGOTTEN_AT_ONCE  # how many jobs there may be
        self.retries = 0  # grows when a job goes on after its end
        self.starts_items = True  # False: running items end, and no others start
        self._send = send  # how the sources of jobs send messages to the driver's thread
        # The run's clock counts the seconds during which a scheduler runs.
        self._started = engine.now() - (0.0 if journal is None else journal.last_time)
        self._publication = Publication()
        # Requests to cancel jobs: None once they are answered, which the journal learns later.
        self._cancels: dict[int, LiveJob | None] = {}
        self.warner = WaitingWarner()
        self._memory = RunMemory(memory, core.allocator.calibrator, self.recorder)
        self._next_progress = 0.0
        self._hooks = RunHooks(self.recorder, self.jobs)
        self._hooks_to_call: dict[LiveJob, list[CallHook]] = {}  # of jobs that are about to end
        self._finishing: dict[LiveJob, Finish] = {}  # whose stopped items are not gone yet
        # The attempts that failed in this step, until the core has decided which items to give up.
        self._failed_attempts: dict[tuple[LiveJob, int], ItemFailure] = {}
        self.recorder.record_servers(self.now, core.servers)
        self.groups: dict[str, Group] = {}
        if journal is not None:
            self.groups = journal.get_value("groups", {}, parse=read_groups)
        core.apply(*(GroupChanged(self.now, *named) for named in self.groups.items()))

    @property
    def now(self) -> float:
        """Seconds since the run began, not counting the time between two schedulers."""
        return self.engine.now() - self._started

    def take_snapshot(self) -> Snapshot:
        """Return how many servers each job has now."""
        jobs, waiting = self.core.jobs, dict.fromkeys(self.core.predecessors.waiting, 0)
        return Snapshot(
            time=self.now,
            servers=self.core.servers,
            planned=waiting | {name: job.planned for name, job in jobs.items()},
            held=waiting | {name: job.observed for name, job in jobs.items()},
        )

    def add_jobs(self, jobs: Iterable[LiveJob]) -> None:
        """Record jobs that arrive. None may start before it is in the journal."""
        self._memory.remember_changed()
        if len(self.jobs) > self._forget_above:
            self._forget_old_jobs()
        for job in jobs:
            if job.arrived is None:
                job.arrived = self.now
            job.spec = replace(job.spec, prior=self._memory.get_prior(job.spec))
            job.group = self.groups.get(job.spec.group, PLAIN_GROUP)
            self.recorder.add_job(job.to_record(), answer=job.answer, is_redone=job.is_redone)
            self.recorder.move_items(job.number, job.matches.moved)

    def react(
        self,
        outcomes: Sequence[Outcome | FinishedItems],
        messages: Sequence[Message],
        requests: Sequence[RequestReceived] = (),
    ) -> None:
        """React to what has happened, and record it; then answer requests of other processes."""
        before = note_decisions(self.core)
        self._hooks.record()
        now = self.now
        events: list[Event] = [self._handle_outcome(outcome, now) for outcome in outcomes]
        for message in messages:
            events += self._handle_message(message)
        events += self._check_capacity()
        commands = self._carry_out(self.core.apply(*events))
        self._finish_jobs(self.now)
        for received in requests:  # by now, the core knows which jobs have arrived and ended
            asked, request = received
            changes = (
                self._apply_group_request(request)
                if asked is None
                else self._apply_request(asked, request)
            )
            events += changes
            commands += self._carry_out(self.core.apply(*changes))
        self._answer_cancels()
        if self.starts_items:
            commands += self._carry_out(self.core.decide(self.now))
        if before is not None:
            log_decisions(before, events, commands, LogSource(self.core, self.jobs, self.now))
        self._record_failed_attempts(self.now)
        self.warner.warn(self.core, self.engine.now())
        if self.engine.can_grow:
            self.engine.request_servers(self.core.count_usable_servers())
        held = {}
        for job in self.core.take_changed():
            live = self.jobs[job.name]
            held[live.number] = job.observed
            if self.core.jobs.get(job.name) is job:  # an end is published later
                live.servers, live.planned = job.observed, job.planned
        self.recorder.record_held(self.now, held)
        self._memory.update(self.now)
        self._publication.add_outcomes(outcomes)

    def record_progress(self, recall_ends: Callable[[], Mapping[str, float]]) -> None:
        """Record what is planned and predicted once a second, if there is a journal.

        The driver does not hold its condition, which a forecast needs.
        """
        active = self.core.jobs
        if self.journal is None or not active or self.now < self._next_progress:
            return
        self._next_progress = self.now + _PROGRESS_SECONDS
        ends = recall_ends().items()
        self.recorder.record_progress(
            RunProgress(
                time=self.now,
                servers=self.core.servers,
                planned={self.jobs[job.name].number: job.planned for job in self.core.list_first()},
                ends={self.jobs[name].number: end for name, end in ends if name in active},
                resources=self.core.stock.describe(),
            )
        )

    @property
    def can_wait(self) -> bool:
        """Whether only short items have ended, which may be written with those that follow."""
        return self.recorder.can_wait and self._publication.has_only_outcomes

    def flush(self) -> bool:
        """Write to the journal what was recorded up to now, which may take long.

        Returns whether anything was written.
        """
        self._memory.record_calibration()
        return self.recorder.flush(self.now)

    def publish(self) -> set[LiveJob]:
        """Let other threads see outcomes and ends of jobs, now that the journal has them.

        Returns the jobs that have changed.
        """
        self._hooks.call()
        self._cancels = {number: job for number, job in self._cancels.items() if job is not None}
        return self._publication.publish(self.jobs)

    def close_hooks(self) -> None:
        """Call hooks for the last time, and record what became of them."""
        self._hooks.close()
        with suppress(StateError):  # the next scheduler calls them again
            self.flush()

    def _forget_old_jobs(self) -> None:
        """Forget the oldest of many jobs that can neither be read nor go on."""
        released = [job for job in self.jobs.values() if job.is_released]
        old = released[: max(len(released) - _REMEMBERED, 0)]
        for job in old:
            del self.jobs[job.name]
            self.core.forget(job.name)
            self._memory.end_run(job)
        self.recorder.forget_jobs({job.number for job in old})
        self._forget_above = len(self.jobs) + _FORGOTTEN_AT_ONCE

    def release_jobs(self, numbers: Iterable[int], forget: Callable[[int, str], bool]) -> list[int]:
        """Forget jobs that are removed from the journal; return the numbers of those forgotten.

        Jobs stay that go on, or for which others wait. ``forget`` asks for the rest of the pool.
        """
        assert self.journal is not None
        live = {job.number: job for job in self.jobs.values()}
        wanted = {name for job in live.values() if not job.has_ended for name in job.spec.after}
        names = {end.number: end.name for end in self.journal.read_ends()}
        released = []
        for number in numbers:
            job, name = live.get(number), names.get(number)
            if name is None or name in wanted:
                continue
            if job is not None and (not job.has_ended or job.is_to_be_retried):
                continue
            if not forget(number, name):
                continue
            if job is not None:
                job.source.close()
                self._memory.end_run(job)
                del self.jobs[name]
            self.core.forget(name)
            released.append(number)
        self.recorder.forget_jobs(set(released))
        return released

    def record_last(self, outcomes: Sequence[Outcome | FinishedItems]) -> None:
        """Record what was done when the engine was closed; nothing starts any more."""
        self._carry_out(
            self.core.apply(*(self._handle_outcome(each, self.now) for each in outcomes))
        )
        self._finish_jobs(self.now)
        self._publication.add_outcomes(outcomes)

    def cancel_all(self) -> None:
        """End the jobs that have not ended."""
        for job in self.jobs.values():
            job.source.close()
            if not job.has_ended:
                job.ended, job.end, job.servers = self.now, STOPPED, 0

    # --- outcomes of items ----------------------------------------------------------------------

    def _handle_outcome(self, outcome: Outcome | FinishedItems, now: float) -> Event:
        """Record an outcome; return it as an event."""
        if isinstance(outcome, FinishedItems):
            return self._finish_items(outcome, now)
        job, item = self.jobs[outcome.job], outcome.item
        self.recorder.record_start(now - outcome.seconds)
        if outcome.is_lost:
            if outcome.was_started:
                job.count_attempt(item)
            return ItemLost(now, job.name, item, outcome.was_started)
        if outcome.error is not None:
            job.failed_seconds += outcome.seconds
            job.failed_attempts += 1
            job.count_attempt(item)
            failure = self._add_failed_attempt(job, item, outcome.error, outcome.details)
            return ItemFailed(now, job.name, item, failure.describe())
        finished = FinishedItems(job.name, (item,), (outcome.seconds,), (outcome.result,))
        if outcome.reference is not None:
            job.references[item] = outcome.reference
        self._finish_items(finished, now)
        return ItemFinished(now, job.name, item, outcome.seconds)

    def _finish_items(self, finished: FinishedItems, now: float) -> Event:
        """Record items that are done; return that as an event."""
        job, (_, items, seconds, results) = self.jobs[finished.job], finished
        self.recorder.record_start(now - seconds[0])
        if self.recorder.journal is not None:
            job.unwritten += len(items)
            self._add_items(job, finished, now)
        else:
            if len(job.timings) <= MAX_TIMED_ITEMS and not job.spec.is_executor:
                job.timings += map(ItemTiming, items, seconds, repeat(now))
            if not job.source.delivers_results and items[0] not in job.references:
                job.results.update(zip(items, results, strict=True))
        job.done += len(items)
        job.done_now += len(items)
        job.source.finish_items(items, results)
        self._memory.add_changed(job)
        return ItemsFinished(now, job.name, items, seconds)

    def _add_items(self, job: LiveJob, finished: FinishedItems, now: float) -> None:
        """Record items in the journal."""
        _, items, seconds, results = finished
        contents = repeat(b"") if job.source.delivers_results else results
        keys = job.source.get_keys(items)
        columns = (repeat(job.number), keys, items, seconds, repeat(now), contents)
        self.recorder.add_finished_items([*map(FinishedItem._make, zip(*columns, strict=False))])

    def _add_failed_attempt(
        self, job: LiveJob, item: int, error: str, details: ErrorDetails = NO_DETAILS
    ) -> ItemFailure:
        """Add an attempt, which was counted before."""
        failure = self._failed_attempts[job, item] = ItemFailure(
            item=item,
            value=escape_undecodable(details.value or job.source.describe_value(item)),
            attempts=job.attempts[item],
            error=escape_undecodable(error),
            traceback=escape_undecodable(add_source_lines(details.traceback)),
            pickled_exception=details.pickled_exception,
        )
        return failure

    def _give_up(self, job: LiveJob, command: Drop) -> None:
        """Note that an item has failed: this was its last attempt."""
        item = command.item
        if not job.spec.is_executor:
            failure = self._failed_attempts.get((job, item))
            if failure is None:
                failure = self._add_failed_attempt(job, item, describe_losses(command.losses))
            job.failures[item] = failure
        job.source.drop_item(item, command.error)

    def _record_failed_attempts(self, time: float) -> None:
        """Record the attempts, and which of them were the last."""
        for (job, item), failure in self._failed_attempts.items():
            is_last = job.failures.get(item) is failure
            attempt = FailedAttempt(job.number, time, job.spec.round, is_last, failure)
            self.recorder.add_failed_attempt(attempt)
        self._failed_attempts.clear()

    # --- decisions of the core ------------------------------------------------------------------

    def _carry_out(self, commands: list[Command]) -> list[Command]:
        """Carry out commands, and return them."""
        for command in commands:
            self._carry_out_one(self.jobs[command.job], command, self.now)
            self.retries += isinstance(command, Reopen)
        return commands

    def _carry_out_one(self, job: LiveJob, command: Command, now: float) -> None:
        """Carry out a command about a job."""
        match command:
            case Start():
                logs = self._get_log_paths(job, command.items)
                tasks = job.source.create_tasks(command.items, command.servers, logs)
                if self.core.stock.totals:
                    tasks = self._reserve(job, tasks, command.gpus)
                job.durations = self.core.jobs[job.name].durations
                self.engine.start(job.name, tasks, command.servers)
            case Stop():
                self.engine.stop_items(job.name, command.items)
            case Resize():
                self.engine.resize(job.name, command.item, command.servers)
            case Suspend():
                self.engine.suspend(job.name, command.item)
            case Continue():
                self.engine.resume(job.name, command.item, command.servers)
            case Admit():
                self._open_source(job)
            case Drop():
                self._give_up(job, command)
            case Reopen():
                self._reopen(job, now)
            case CallHook():
                self._hooks_to_call.setdefault(job, []).append(command)
                if job not in self._finishing:
                    self._call_hooks(job, now)
            case Finish():
                self._finishing[job] = command
                self._finish_jobs(now)

    def _finish_jobs(self, now: float) -> None:
        """End the jobs whose end was decided, and of which nothing runs any more.

        Until then, stopped items may turn out to be done.
        """
        gone = [job for job in self._finishing if not self.engine.is_stopping(job.name)]
        for job in gone:
            self._finish(job, self._finishing.pop(job).end, now)
            self._call_hooks(job, now)

    def _call_hooks(self, job: LiveJob, now: float) -> None:
        """Do what is to be done because a job has ended, unless it had ended like this before."""
        for command in self._hooks_to_call.pop(job, ()):
            if job.choose_end(now, command.end) == now:
                self._hooks.prepare(job, command, now)

    def _reserve(
        self, job: LiveJob, tasks: Mapping[int, Task], gpus: Sequence[int]
    ) -> Mapping[int, Task]:
        """Let tasks use the GPUs that they were given, and no others."""
        has_gpus = GPU in self.core.stock.totals
        variables = choose_gpu_variables(gpus, os.environ) if has_gpus else {}
        return reserve(tasks, variables, holds_resources=bool(job.spec.resources))

    def _finish(self, job: LiveJob, end: JobEnd, now: float) -> None:
        """End a job. It is released, unless it may go on."""
        ended = job.choose_end(now, end)
        self._publication.add_end(PendingEnd(job, ended, end))
        if not job.is_to_be_retried:
            job.set_paused(False)  # if it goes on later, nobody wants it to wait
        self._memory.remember([job])
        if not self.core.can_retry(job.name):
            self._memory.end_run(job)
            job.source.close()
        self.recorder.update_job(replace(job, ended=ended, end=end).to_record())

    def _reopen(self, job: LiveJob, now: float) -> None:
        """Continue a job that has failed items, or has ended."""
        self._record_failed_attempts(now)  # before the next round begins
        job.source.retry_items()
        job.completions.remove_failed(job.failures)
        job.failures.clear()
        job.reopen()
        self._finishing.pop(job, None)
        self._hooks_to_call.pop(job, None)
        self._publication.remove_end(job)
        job.spec = replace(job.spec, retried=job.spec.retried + 1)
        self.recorder.update_job(job.to_record())

    def _get_log_paths(self, job: LiveJob, items: Sequence[int]) -> LogPaths | None:
        """Return the paths of the logs of items, in which earlier attempts are marked as such."""
        if self.recorder.journal is None:
            return None
        logs = get_log_paths(self.recorder.journal.directory, job.number, job.spec.resumed)
        for item in items if job.attempts or not job.spec.is_bag else ():
            if (attempts := job.attempts.get(item)) is not None or not job.spec.is_bag:
                mark_attempt(logs.get(item), item, None if attempts is None else attempts + 1)
        return logs

    # --- messages of other threads --------------------------------------------------------------

    def _handle_message(self, message: Message) -> list[Event]:
        """Return a message as events."""
        match message:
            case JobsSubmitted():
                for job in message.jobs:
                    self._publication.add_matches(job, job.matches)
                return [event for job in message.jobs for event in self._open(job)]
            case SourceAdvanced():
                job, (items, matches) = message.progress.job, message.progress.take()
                job.done += sum(map(len, matches.done))
                if matches.done:
                    self._publication.add_matches(job, matches)
                self.recorder.move_items(job.number, matches.moved)
                return [ItemsRead(self.now, job.name, items, tuple(matches.done))]
            case SourceExhausted():
                # Count in this thread: it starts the items, so the count is final.
                job, items = message.job, message.count_items()
                job.items = items
                return [ItemsExhausted(self.now, job.name, items)]
            case JobStopped():
                return [JobCancelled(self.now, message.job.name, message.end)]
            case JobSteered():
                return self._steer(message.job)
            case GroupSteered():
                return self._steer_group(message.group)
            case JobRetried():
                if not message.job.is_to_be_retried:  # it was asked for twice
                    return []
                message.job.is_to_be_retried = False
                return self._retry(message.job)

    def _open(self, job: LiveJob) -> list[Event]:
        """Start reading the items of a job that has arrived, unless it may have to wait for others.

        Return the arrival as an event, after the ends of others in earlier runs.
        """
        if not job.spec.after:
            self._open_source(job)
        ends = job.earlier_ends.items()
        return [
            *(JobEnded(self.now, name, end.state) for name, end in ends),
            JobArrived(self.now, job.spec, tuple(job.matches.done)),
        ]

    def _open_source(self, job: LiveJob) -> None:
        job.source.open(SourceProgress(job, self._send))

    def _steer(self, job: LiveJob) -> list[Event]:
        """Record that a job was paused or resumed, or has another weight; return that as events."""
        if job.has_ended:
            return []
        self.recorder.update_job(job.to_record())
        weight = WeightChanged(self.now, job.name, job.spec.weight)
        return [self._pause_or_continue(job), weight]

    def change_group(self, name: str, group: Group) -> None:
        """Change what holds for the jobs of a group; :meth:`react` has to be told."""
        if group.differs_from(self.groups.get(name, PLAIN_GROUP)):
            group = replace(group, changed=self.now)
        self.groups[name] = group
        for job in self.jobs.values():
            if job.spec.group == name:
                job.group = group

    def _steer_group(self, name: str) -> list[Event]:
        """Record what holds for the jobs of a group; return it as events."""
        self.recorder.record_groups(write_groups(self.groups))
        return [GroupChanged(self.now, name, self.groups[name])]

    def _pause_or_continue(self, job: LiveJob) -> Event:
        return (JobPaused if job.spec.is_paused else JobContinued)(self.now, job.name)

    def _retry(self, job: LiveJob) -> list[Event]:
        """Return the events that let failed items run again, or a job that was cancelled go on."""
        self.retries += 1
        is_ending = job.source.is_closed or job in self._finishing
        if self.core.can_retry(job.name) or is_ending:
            return [ItemsRetried(self.now, job.name), self._pause_or_continue(job)]
        revived = [job, *self._list_earlier_successors(job)]  # they ended in an earlier run
        for each in revived:
            each.reopen()
            each.failures.clear()
            each.spec = replace(each.spec, was_reopened=True)
        self.add_jobs(revived)
        return [event for each in revived for event in self._open(each)]

    def _list_earlier_successors(self, job: LiveJob) -> list[LiveJob]:
        """Return the jobs that were cancelled in an earlier run because of a job, or of these."""
        cancelled = [
            each
            for each in self.jobs.values()
            if each.end is not None
            and each.end.was_caused_by_predecessor
            and not self.core.can_retry(each.name)
        ]
        names, found = {job.name}, list[LiveJob]()
        order = sort_by_order({each.name: each.spec.after for each in cancelled})
        for each in (self.jobs[name] for name in order):
            if not names.isdisjoint(each.spec.after) and not each.source.is_closed:
                names.add(each.name)
                found.append(each)
        return found

    # --- requests of other processes ------------------------------------------------------------

    def _apply_request(self, job: LiveJob, request: Request) -> list[Event]:
        """Do what another process has asked for, and record the answer; return it as events.

        A request about a job that is about to arrive or to be retried waits in the journal.
        """
        if request.number in self._cancels:
            return []
        state = job.state
        if not job.has_ended and not self.core.has_job(job.name):
            end = self._publication.find_end(job)
            if end is None or job.is_to_be_retried:
                return []
            state = end.end.state
        try:
            related = self._find_related_jobs(job) if request.kind == "retry" else RelatedJobs()
            text = apply_request(job, request, state, self.engine, related)
        except InputError as refusal:
            self.recorder.answer(Answer(request.number, True, str(refusal)))
            return []
        if request.kind == "cancel":
            self._cancels[request.number] = job
            return [JobCancelled(self.now, job.name, REQUESTED)]
        self.recorder.answer(Answer(request.number, False, text))
        if request.kind == "retry" and job.can_retry(state):
            return self._retry(job)
        if request.kind == "retry":
            self.recorder.update_job(replace(job, ended=None, end=None).to_record().reopen())
        return self._steer(job)

    def _answer_cancels(self) -> None:
        """Answer requests to cancel jobs that have ended, in one transaction with their ends.

        Until then they stay in the journal, so that a crash cannot lose a confirmed one.
        """
        for number, job in self._cancels.items():
            if job is not None and job not in self._finishing:
                self.recorder.answer(Answer(number, False, "cancelled"))
                self._cancels[number] = None

    def _find_related_jobs(self, job: LiveJob) -> RelatedJobs:
        """Return the jobs that matter if a job is to run again."""
        others = [self.jobs[name] for name in job.spec.after if name in self.jobs]
        obstacle = None
        for other in others if job.spec.after_failure == "cancel" else ():
            end = self._publication.find_end(other)
            state = other.state if end is None else end.end.state
            if state in ("failed", "cancelled"):
                obstacle = explain_useless_retry(other.name, state)
        unfinished = [other.name for other in others if self.core.has_job(other.name)]
        successors = self.core.predecessors.list_cancelled_by(job.name)
        if not self.core.can_retry(job.name):
            successors = [other.name for other in self._list_earlier_successors(job)]
        return RelatedJobs(unfinished, obstacle, successors)

    def _apply_group_request(self, request: Request) -> list[Event]:
        """Do what another process has asked for about a group, and record the answer."""
        assert request.group is not None
        name = request.group
        before = self.groups.get(name, PLAIN_GROUP)
        after, text = apply_group_request(before, request)
        try:
            self.check_group_change(name, after)
        except InputError as refusal:
            self.recorder.answer(Answer(request.number, True, str(refusal)))
            return []
        self.recorder.answer(Answer(request.number, False, text))
        self.change_group(name, after)
        return self._steer_group(name)

    def check_group_change(self, name: str, group: Group) -> None:
        """Raise an error if a group is to be paused, but a job of it cannot be."""
        for job in self.jobs.values() if group.is_paused else ():
            if job.spec.group == name and not job.is_paused and not job.has_ended:
                check_pausable(job, self.engine)

    def _check_capacity(self) -> list[Event]:
        servers, max_width = self.engine.capacity(), self.engine.widest_command()
        if (servers, max_width) == (self.core.servers, self.core.max_width):
            return []
        self.recorder.record_servers(self.now, servers)
        return [CapacityChanged(self.now, servers, max_width)]
