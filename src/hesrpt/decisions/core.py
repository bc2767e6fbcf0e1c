"""The scheduler's decisions. No clock, no process, no file: events in, commands out.

Each job has three numbers of servers: those the policy has *planned* for it, those *requested* for
it (the planned ones, but no more than it can use), and those it is *observed* to hold (items in
flight, or the width of its command). A bag that holds too many servers starts no further items, and
servers that become free go to jobs that hold too few. So shrinks always come before grows, and no
running item of a bag is interrupted.

A job that waits for others to end is no part of this: see
:mod:`~hesrpt.decisions.predecessors`. For the policy, it arrives when it need not wait.

A *paused* job is given no servers. A bag keeps those of its items in flight until they end. A
command is stopped if it resizes by restarting; otherwise it is *suspended*: it stays in flight
without servers, and goes on when the job has been resumed and there are servers for it.

Events are handled here. Which items start and stop then is in
:mod:`~hesrpt.decisions.dispatch`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

from hesrpt.decisions.active_job import ActiveJob, BatchInFlight
from hesrpt.decisions.allocation import Allocator
from hesrpt.decisions.dispatch import MAX_BATCH, Dispatcher
from hesrpt.decisions.events import (
    CapacityChanged,
    Command,
    Drop,
    Event,
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
    JobEvent,
    JobPaused,
    Reopen,
    Start,
    Stop,
    Tick,
    WeightChanged,
    finish,
)
from hesrpt.decisions.learning import sum_durations
from hesrpt.decisions.predecessors import Predecessors
from hesrpt.decisions.waiting_line import WaitingLine
from hesrpt.errors import InputError
from hesrpt.jobs.failures import describe_losses
from hesrpt.jobs.item_resources import ResourceStock
from hesrpt.jobs.job_end import DONE, JobEnd
from hesrpt.jobs.job_spec import PLAIN_GROUP, Group, JobSpec
from hesrpt.policies import PolicyLike
from hesrpt.units import format_count

# --- when an item is tried again, and when it has failed ----------------------------------------
#
# Plain functions of the core's jobs: they do no I/O.

# An item that has lost its server more often than this is assumed to be the cause.
_MAX_LOSSES = 10


def try_again(event: ItemFailed | ItemLost, job: ActiveJob) -> Drop | None:
    """Queue an item that failed or lost its server; if that was too often, give it up."""
    if isinstance(event, ItemLost):
        losses = job.losses[event.item] = job.losses.get(event.item, 0) + event.was_started
        if losses > _MAX_LOSSES:
            error = f"item {event.item}: {describe_losses(losses)}"
            return Drop(job.name, event.item, error, losses)
    else:
        failures = job.failures[event.item] = job.failures.get(event.item, 0) + 1
        if failures > job.spec.retries:
            return Drop(job.name, event.item, event.error)
    if isinstance(event, ItemLost) and not event.was_started and job.is_bag:
        job.return_item(event.item)
    else:
        job.retry_queue.append(event.item)
    return None


def describe_failed_items(job: ActiveJob) -> str:
    """Return how many items of a job have failed, and the first of them."""
    count, error = len(job.failed_items), job.failed_items[min(job.failed_items)]
    if not job.is_bag or job.spec.on_error == "raise":
        return error
    first = "" if count == 1 else "; the first"
    # A job whose items are still being read does not know how many there are.
    items = f"{count:,} of {format_count(job.items, 'item')}" if job.items is not None else None
    return f"{items or format_count(count, 'item')} failed{first}: {error}"


def prepare_for_retry(job: ActiveJob) -> None:
    """Prepare a job that has ended to be retried: items that were stopped run again."""
    job.retry_queue.extend(job.in_flight)
    job.clear_in_flight()
    job.set_planned(0)


def requeue_failed_items(job: ActiveJob) -> None:
    """Let the failed items of a job run again, each as often as at first."""
    for item in sorted(job.failed_items):
        job.retry_queue.append(item)
        job.failures.pop(item, None)
        job.losses.pop(item, None)
    job.done_count -= len(job.failed_items)
    job.failed_items.clear()


def remove_queued_items(job: ActiveJob, items: Sequence[int]) -> int:
    """Do not run stopped items again that turn out to be done; return how many there were."""
    done = set(items).intersection(job.retry_queue)
    job.retry_queue = deque(item for item in job.retry_queue if item not in done)
    return len(done)


class Core:
    """The state of the scheduler, advanced by :meth:`handle`."""

    def __init__(
        self,
        servers: int,
        policy: PolicyLike = "hesrpt",
        batch_seconds: float = 0.0,
        resources: Mapping[str, float] | None = None,
        max_batch: int = MAX_BATCH,
    ) -> None:
        if servers < 0:
            raise InputError(f"servers must be at least 0, got {servers}")
        self.servers = self.max_width = servers
        self.replan_seconds = 1.0  # replan at least this often, because more has been learned
        self.allocator = Allocator(policy)
        self.jobs: dict[str, ActiveJob] = {}
        self.retriable_jobs: dict[str, ActiveJob] = {}  # have ended, but can go on
        self.stock = ResourceStock(resources)  # what items need besides servers
        self.groups: dict[str, Group] = {}  # those with settings
        self.predecessors = Predecessors()
        self.planned_at = -inf
        self.arrivals = 0  # how many jobs have arrived
        self._needs_plan = self._has_news = False  # because of events applied since the last plan
        self._line = WaitingLine(self.jobs)
        self._dispatcher = Dispatcher(
            self.jobs, self._line, self.allocator, batch_seconds, max_batch
        )

    def handle(self, *events: Event) -> list[Command]:
        """Apply events to the state; return the commands to carry out, in this order."""
        return self.apply(*events) + self.decide(events[-1].time)

    def apply(self, *events: Event) -> list[Command]:
        """Apply events to the state; return what follows at once. :meth:`decide` must be next."""
        commands: list[Command] = []
        needs_plan = [self._apply(event, commands) for event in events]
        self._needs_plan = self._needs_plan or any(needs_plan)
        self._has_news = self._has_news or not all(isinstance(event, Tick) for event in events)
        return commands

    def decide(self, time: float) -> list[Command]:
        """Decide what starts and stops after the events that were applied."""
        needs_plan, has_news = self._needs_plan, self._has_news
        self._needs_plan = self._has_news = False
        commands: list[Command] = []
        if needs_plan or (time - self.planned_at >= self.replan_seconds and self.jobs):
            self.planned_at = time
            self._plan(time)
            commands += self._dispatcher.shrink(time)
        elif not has_news:
            return commands
        commands += self._dispatcher.grow(self.servers, time)
        return commands

    def _plan(self, time: float) -> None:
        """Plan servers for the jobs that run and those that are next."""
        servers = self.servers
        chosen = self._line.choose(
            lambda jobs: self.allocator.order(jobs, servers, time), servers, time
        )
        if chosen.is_drawn:
            self.allocator.calibrate(self.jobs.values(), servers, time)
        self.allocator.allocate(chosen.jobs, servers, time, chosen.others)

    def take_changed(self) -> set[ActiveJob]:
        """Return the jobs whose servers have changed since the last call, planned or held.

        Some of them may have ended.
        """
        tally = self._dispatcher.tally
        changed, tally.changed = tally.changed, set()
        return changed

    def count_usable_servers(self) -> int:
        """Return how many servers the jobs could use, or some number that is far too high."""
        total, enough = 0, 10 * (self.servers + 1)
        for job in self.jobs.values():
            total += job.max_servers_later
            if total > enough:
                break
        return total

    def list_first(self, count: int = 0) -> list[ActiveJob]:
        """Return the jobs that may hold servers, and those that are next, at least ``count``."""
        return self._line.list_first(count)

    @property
    def observed(self) -> int:
        """How many servers all jobs hold."""
        return self._dispatcher.tally.observed

    def can_retry(self, job: str) -> bool:
        """Return whether a job can go on after its end, or has not ended."""
        return job in self.jobs or job in self.retriable_jobs or job in self.predecessors

    def has_job(self, job: str) -> bool:
        """Return whether a job has arrived and has not ended."""
        return job in self.jobs or job in self.predecessors.waiting

    def forget(self, job: str) -> None:
        """Forget a job that has ended, and will not be retried."""
        self.retriable_jobs.pop(job, None)
        self.predecessors.forget(job)

    # --- events -------------------------------------------------------------------------------

    def _apply(self, event: Event, commands: list[Command]) -> bool:
        """Update the state; return whether a new plan is needed at once."""
        needs_plan = self._apply_alone(event, commands)
        for arrival in self.predecessors.release(commands):
            self._add_job(replace(arrival, time=event.time), commands)
            needs_plan = True
        return needs_plan

    def _apply_alone(self, event: Event, commands: list[Command]) -> bool:
        """Update the state, except for jobs that have waited for others to end."""
        match event:
            case JobArrived():
                if self.has_job(event.spec.name):
                    raise InputError(f"there is already a job named {event.spec.name!r}")
                arrival = self.predecessors.add(event, commands) if event.spec.after else event
                if arrival is not None:
                    self._add_job(arrival, commands)
                return arrival is not None
            case JobEnded():
                if not self.has_job(event.name):
                    self.predecessors.learn(event.name, event.outcome)
                return False
            case CapacityChanged():
                self.servers = event.servers
                self.max_width = event.servers if event.max_width is None else event.max_width
                for job in self.jobs.values():
                    job.max_width = self.max_width
                self._line.dissolve()
                return True
            case GroupChanged():
                self.groups[event.name] = event.group
                for job in self.jobs.values():
                    if job.spec.group == event.name:
                        job.group = event.group
                self._line.dissolve()
                return True
            case Tick():
                return False
            case ItemsRetried():
                return self._retry_failed_items(event, commands)
            case _:
                active = self.jobs.get(event.job)
                if event.job in self.predecessors.waiting:
                    self.predecessors.apply(event, commands)
                    return False
                if active is None:  # the job ended while the event was on its way
                    self._apply_to_ended_job(event)
                    return False
                needs_plan = self._apply_to_job(event, active, commands)
                if needs_plan and active.name in self.jobs:
                    self._line.add(active)
                return needs_plan

    def _add_job(self, event: JobArrived, commands: list[Command]) -> None:
        spec = event.spec
        self.arrivals += 1
        is_read_later = spec.is_streamed or spec.items is None
        job = self.jobs[spec.name] = ActiveJob(
            spec=spec,
            number=self.arrivals,
            arrived=event.time,
            items=spec.items,
            group=self.groups.get(spec.group, PLAIN_GROUP),
            items_read=0 if is_read_later else None,
            is_exhausted=not is_read_later,
            max_width=self.max_width,
            stock=self.stock,
            tally=self._dispatcher.tally,
        )
        if not job.is_bag and (size := spec.size or spec.prior.item_seconds) is not None:
            self.allocator.add_command_size(size)
        self._line.add(job)
        job.add_done(event.done)
        if job.is_done:
            self._end_job(job, commands)

    def _retry_failed_items(self, event: ItemsRetried, commands: list[Command]) -> bool:
        """Let the failed items of a job run again, or a job that was cancelled go on.

        Return whether there is anything to do.
        """
        job = self.retriable_jobs.pop(event.job, None) or self.jobs.get(event.job)
        if job is None and not self.predecessors.was_cancelled(event.job):
            return False
        if job is not None and job.name in self.jobs and not job.failed_items:
            return False
        successors = self.predecessors.take_back(event.job)
        if job is not None:
            self._reopen(job, commands)
        for arrival in self.predecessors.wait_again(successors, commands):
            self._add_job(replace(arrival, time=event.time), commands)
        return True

    def _reopen(self, job: ActiveJob, commands: list[Command]) -> None:
        requeue_failed_items(job)
        job.max_width, job.group = self.max_width, self.groups.get(job.spec.group, PLAIN_GROUP)
        self.jobs[job.name] = job
        self._line.add(job)
        commands.append(Reopen(job.name))
        if job.stopped_by is not None or job.is_done:
            self._end_job(job, commands, job.stopped_by)

    def _apply_to_ended_job(self, event: JobEvent) -> None:
        """Update a job that has ended, in case that it is retried."""
        if (job := self.retriable_jobs.get(event.job)) is None:
            return
        match event:
            case ItemsRead() | ItemsExhausted():
                self._apply_to_job(event, job, [])
            case ItemFinished():
                job.done_count += remove_queued_items(job, (event.item,))
            case ItemsFinished():
                job.done_count += remove_queued_items(job, event.items)
            case JobCancelled() if job.spec.command is None:
                job.stopped_by = event.end

    def _apply_to_job(self, event: JobEvent, job: ActiveJob, commands: list[Command]) -> bool:
        match event:
            case ItemsRead():
                had_too_few_items = job.usable_items <= job.planned
                job.items_read = event.items
                job.add_done(event.done)
                if job.items is not None and not job.is_exhausted:
                    # Some iterables have more items than they say.
                    job.items = max(job.items, job.items_read + job.earlier_count)
                return job.items is None or had_too_few_items
            case ItemsExhausted():
                job.items, job.is_exhausted = event.items, True
                if job.is_done:
                    self._end_job(job, commands)
                return True
            case JobCancelled():
                self._end_job(job, commands, event.end)
                return True
            case JobPaused() | JobContinued():
                job.spec = replace(job.spec, is_paused=isinstance(event, JobPaused))
                return True
            case WeightChanged():
                job.spec = replace(job.spec, weight=event.weight)
                return True
            case ItemFinished():
                return self._finish_items(
                    job, (event.item,), (event.seconds,), event.time, commands
                )
            case ItemsFinished():
                return self._finish_items(job, event.items, event.seconds, event.time, commands)
            case ItemFailed() | ItemLost():
                if self._end_items(job, (event.item,), event.time) is None:
                    return False
                return self._retry_or_give_up(event, job, commands)

    def _end_items(self, job: ActiveJob, items: Sequence[int], time: float) -> BatchInFlight | None:
        """Record that items of one batch have ended; None if they were not in flight."""
        batch = next(iter(job.remove_in_flight(items)), None)
        if batch is None:
            return None
        batch.started = time  # then the next one started
        if batch.items_left == 0 and batch.servers > 0:
            self._dispatcher.pass_on_server(time)
        return batch

    def _finish_items(
        self,
        job: ActiveJob,
        items: Sequence[int],
        seconds: Sequence[float],
        time: float,
        commands: list[Command],
    ) -> bool:
        """Learn from items of one batch that are done; return whether a new plan is needed."""
        width_at_end, is_first = job.observed, not job.durations.counts
        batch = self._end_items(job, items, time)
        if batch is None:  # they were done before they could be stopped, and the job goes on
            return self._complete_items(job, remove_queued_items(job, items), commands)
        if job.is_bag:
            width = max(round((batch.width + width_at_end) / 2), 1)
            sums = sum_durations(seconds)
            job.durations.add_sums(width, sums)
            self.allocator.all_durations.add_sums(width, sums)
        else:
            self._learn_from_command(job, batch, seconds[0])
        return self._complete_items(job, len(items), commands) or is_first

    def _learn_from_command(self, job: ActiveJob, batch: BatchInFlight, seconds: float) -> None:
        width = batch.last_servers
        work = job.work_done + seconds * float(job.speedup(width))
        if not job.is_size_known:
            self.allocator.add_command_size(work)
        had_one_width = job.work_done == 0 and batch.width == width
        if job.spec.speedup is None and had_one_width:
            job.durations.add(width, width * seconds)
        else:
            job.durations.add(1, work)

    def _complete_items(self, job: ActiveJob, count: int, commands: list[Command]) -> bool:
        """Count items as done or failed; return whether a new plan is needed."""
        job.done_count += count
        if job.is_done:
            self._end_job(job, commands)
            return True
        # A job that holds what is planned can use it: only others have to count their items.
        return job.observed < job.planned and job.max_servers < job.planned

    def _retry_or_give_up(
        self, event: ItemFailed | ItemLost, job: ActiveJob, commands: list[Command]
    ) -> bool:
        """Run an item again, unless it has failed too often; return whether to replan."""
        drop = try_again(event, job)
        if drop is None:
            return False
        commands.append(drop)
        if not job.spec.is_executor:
            job.failed_items[event.item] = drop.error
        if job.spec.is_executor or job.spec.on_error == "keep":
            return self._complete_items(job, 1, commands)
        job.done_count += 1
        self._end_job(job, commands)
        return True

    def _end_job(
        self, job: ActiveJob, commands: list[Command], early: JobEnd | None = None
    ) -> None:
        """End a job: as its items have ended, unless it ends before they have."""
        commands += [Stop(job.name, items[0], items[1:]) for items in job.list_batches()]
        end = early or DONE
        if early is None and job.failed_items:
            end = JobEnd("items_failed", describe_failed_items(job))
        commands += finish(job.spec, end)
        self.predecessors.end(job.name, end.state)
        del self.jobs[job.name]
        self._line.remove(job)
        # The items of a command are known for ever; a function and its items are let go.
        if job.failed_items if early is None else job.spec.command is not None:
            prepare_for_retry(job)
            self.retriable_jobs[job.name] = job
        else:
            job.clear_in_flight()


# --- a warm-up of the decisions, on jobs that do not exist --------------------------------------
#
# With many jobs, policies import and run compiled code. The first time, that takes a second, or
# many if the code must be compiled. No job should wait for that.

# How many jobs arrive. Policies compute shares of few jobs in other ways than those of many.
_WARM_UP_JOBS = 100


def warm_up(policy: PolicyLike, servers: int) -> None:
    """Let a policy decide about few and about many jobs, so that all it needs is loaded."""
    for together in (_WARM_UP_JOBS, 1):  # policies learn when jobs keep arriving
        _run_jobs(Core(max(servers, 2), policy), together)


def _run_jobs(core: Core, together: int) -> None:
    """Let jobs arrive, ``together`` at a time; each item ends before the next ones arrive."""
    commands: list[Command] = []
    for first in range(0, _WARM_UP_JOBS, together):
        time = float(first)
        ended = [
            ItemFinished(time, start.job, start.item, 0.5)
            for start in commands
            if isinstance(start, Start)
        ]
        specs = [JobSpec(name=str(first + n), items=100 + first + n) for n in range(together)]
        commands = core.handle(*ended, *(JobArrived(time, spec) for spec in specs))
