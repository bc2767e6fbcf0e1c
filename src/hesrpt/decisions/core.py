"""The scheduler's decisions. No clock, no process, no file: events in, commands out.

Each job has three numbers of servers: those the policy has *planned* for it, those *requested* for
it (the planned ones, but no more than it can use), and those it is *observed* to hold (items in
flight, or the width of its command). A bag that holds too many servers starts no further items, and
servers that become free go to jobs that hold too few. So shrinks always come before grows, and no
running item of a bag is interrupted.

Jobs that wait for other jobs to end are kept in :mod:`~hesrpt.decisions.predecessors`. The policy
sees such a job as arriving when the last of these has ended.

A *paused* job is given no servers. A bag keeps those of its items in flight until they end. A
command is stopped if it resizes by restarting; otherwise it is *suspended*: it stays in flight
without servers, and goes on when the job has been resumed and there are servers for it.

When items are short, the engine is given one more item than there are servers, so that no server
waits for the scheduler. This *queued* item holds no server until another item ends. Items that are
very short, compared with the time that starting one takes, go in *batches*: a server is given
several at once, and a batch is queued for each server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import inf, isclose
from operator import itemgetter

from hesrpt.decisions.active_job import ActiveJob, BatchInFlight, ResourceStock, Tally
from hesrpt.decisions.allocation import Allocator
from hesrpt.decisions.events import (
    CapacityChanged,
    Command,
    Continue,
    Drop,
    Event,
    GroupChanged,
    ItemFailed,
    ItemLost,
    ItemsExhausted,
    ItemsFinished,
    ItemsRead,
    ItemsRetried,
    JobArrived,
    JobCancelled,
    JobEnded,
    JobEvent,
    JobSteered,
    Reopen,
    Resize,
    Start,
    Stop,
    Suspend,
    Tick,
    finish,
    steer,
)
from hesrpt.decisions.learning import sum_durations
from hesrpt.decisions.predecessors import Predecessors
from hesrpt.decisions.remaining_work import WorkEstimator
from hesrpt.decisions.waiting_line import WaitingLine
from hesrpt.errors import InputError
from hesrpt.jobs.failures import describe_losses
from hesrpt.jobs.job_end import DONE, JobEnd
from hesrpt.jobs.job_spec import PLAIN_GROUP, Group, JobSpec
from hesrpt.policies import PolicyLike
from hesrpt.speedups import PowerLaw
from hesrpt.units import format_count

# Items up to this long, in seconds, are queued in the engine before a server is free.
_SHORT_SECONDS = 0.1
# Towards the end of a job, batches become shorter, down to this fraction of the usual length.
_SHRINKING = 10
#: The most items that a server is given at once, unless its engine says otherwise.
MAX_BATCH = 10_000
# An item that has lost its server more often than this is assumed to be the cause.
_MAX_LOSSES = 10


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
        self.estimator = WorkEstimator()
        self.allocator = Allocator(policy, self.estimator)
        self.jobs: dict[str, ActiveJob] = {}
        self.retriable_jobs: dict[str, ActiveJob] = {}  # have ended, but can go on
        self.stock = ResourceStock(resources)  # what items need besides servers
        self.groups: dict[str, Group] = {}  # those with settings
        self.predecessors = Predecessors()
        self.planned_at = -inf
        self.arrivals = 0  # how many jobs have arrived
        self._needs_plan = self._has_news = False  # because of events applied since the last plan
        self.batch_seconds = batch_seconds  # how long a batch should keep a server busy
        self.max_batch = max_batch  # the most items in a batch
        self.tally = Tally()
        self.line = WaitingLine(self.jobs)
        # In the engine without a server; those of jobs that have ended are passed over.
        self._queued: list[tuple[ActiveJob, BatchInFlight]] = []

    def handle(self, *events: Event) -> list[Command]:
        """Apply events to the state; return the commands to carry out, in this order."""
        return self.apply(*events) + self.decide(events[-1].time)

    def apply(self, *events: Event) -> list[Command]:
        """Apply events to the state; return what follows at once. :meth:`decide` must be next."""
        commands: list[Command] = []
        for event in events:
            self.tally.time = event.time
            self._needs_plan |= self._apply(event, commands)
            self._has_news |= not isinstance(event, Tick)
            for arrival in self.predecessors.release(commands):
                self._add_job(replace(arrival, time=event.time), commands)
                self._needs_plan = True
        return commands

    def decide(self, time: float) -> list[Command]:
        """Decide what starts and stops after the events that were applied."""
        needs_plan, has_news = self._needs_plan, self._has_news
        self._needs_plan = self._has_news = False
        self.tally.time = time
        commands: list[Command] = []
        if needs_plan or (time - self.planned_at >= self.replan_seconds and self.jobs):
            self.planned_at = time
            # Plan servers for the jobs that run and those that are next.
            servers = self.servers
            chosen = self.line.choose(
                lambda jobs: self.allocator.order(jobs, servers, time), servers, time
            )
            if chosen.is_drawn:
                self.allocator.calibrate(self.jobs.values(), servers, time)
            self.allocator.allocate(chosen.jobs, servers, time, chosen.others)
            commands += self._shrink(time)
        elif not has_news:
            return commands
        while self._queued and self.tally.observed < self.servers:  # nobody holds these servers
            self._pass_on_server(time)
        commands += self._share_free(time)
        commands += self._queue_items(time)
        return commands

    def count_usable_servers(self) -> int:
        """Return how many servers the jobs could use, or some number that is far too high."""
        total, enough = 0, 10 * (self.servers + 1)
        for job in self.jobs.values():
            total += job.max_servers_later
            if total > enough:
                break
        return total

    def can_retry(self, job: str) -> bool:
        """Return whether a job can go on after its end, or has not ended."""
        is_over = job in self.retriable_jobs or job in self.predecessors.cancelled
        return is_over or self.has_job(job)

    def has_job(self, job: str) -> bool:
        """Return whether a job has arrived and has not ended."""
        return job in self.jobs or job in self.predecessors.waiting

    def forget(self, job: str) -> None:
        """Forget a job that has ended, and will not be retried."""
        self.retriable_jobs.pop(job, None)
        self.predecessors.forget(job)

    # --- events -------------------------------------------------------------------------------

    def _apply(self, event: Event, commands: list[Command]) -> bool:
        """Update the state, except for jobs that have waited for others to end.

        Return whether a new plan is needed at once.
        """
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
                self.line.dissolve()
                return True
            case GroupChanged():
                self.groups[event.name] = event.group
                for job in self.jobs.values():
                    if job.spec.group == event.name:
                        job.group = event.group
                self.line.dissolve()
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
                    self.line.add(active)
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
            tally=self.tally,
            evidence=self.estimator.evidence,
        )
        if not job.is_bag and spec.size is not None:
            self.estimator.record_command(spec.size)
        self.line.add(job)
        job.add_done(event.done)
        if job.is_done:
            self._end_job(job, commands)

    def _retry_failed_items(self, event: ItemsRetried, commands: list[Command]) -> bool:
        """Let the failed items of a job run again, or a job that was cancelled go on.

        Return whether there is anything to do.
        """
        job = self.retriable_jobs.pop(event.job, None) or self.jobs.get(event.job)
        if job is None and event.job not in self.predecessors.cancelled:
            return False
        if job is not None and job.name in self.jobs and not job.failed_items:
            return False
        successors = self.predecessors.take_back(event.job)
        if job is not None:
            self._reopen(job, commands)
        for arrival in successors:
            commands.append(Reopen(arrival.spec.name))
            if self.predecessors.add(arrival, commands) is not None:  # it need not wait
                self._add_job(replace(arrival, time=event.time), commands)
        return True

    def _reopen(self, job: ActiveJob, commands: list[Command]) -> None:
        job.requeue_failed_items()
        job.max_width, job.group = self.max_width, self.groups.get(job.spec.group, PLAIN_GROUP)
        self.jobs[job.name] = job
        self.line.add(job)
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
            case ItemsFinished():
                job.done_count += job.remove_queued_items(event.items)
            case JobCancelled() if job.spec.command is None:
                job.stopped_by = event.end

    def _apply_to_job(self, event: JobEvent, job: ActiveJob, commands: list[Command]) -> bool:
        match event:
            case ItemsRead():
                had_too_few_items = len(job.in_flight) + job.startable_items <= job.planned
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
            case JobSteered():
                job.spec = steer(job.spec, event)
                return True
            case ItemsFinished():
                return self._finish_items(event, job, commands)
            case ItemFailed() | ItemLost():
                if self._end_items(job, (event.item,), event.time) is None:
                    return False
                return self._retry_or_give_up(event, job, commands)

    def _end_items(self, job: ActiveJob, items: Sequence[int], time: float) -> BatchInFlight | None:
        """Record that items of one batch have ended; None if they were not in flight."""
        batch = job.remove_in_flight(items)
        if batch is None:
            return None
        batch.width = job.measure_width(batch, time)
        if batch.items_left:
            job.start_item(batch, time)  # the next one
        elif batch.servers > 0:
            self._pass_on_server(time)
        return batch

    def _finish_items(self, event: ItemsFinished, job: ActiveJob, commands: list[Command]) -> bool:
        """Learn from items of one batch that are done; return whether a new plan is needed."""
        items, seconds = event.items, event.seconds
        is_first = not job.durations.counts
        batch = self._end_items(job, items, event.time)
        if batch is None:  # they were done before they could be stopped, and the job goes on
            return self._complete_items(job, job.remove_queued_items(items), commands)
        if job.is_bag:
            sums = sum_durations(seconds)
            job.durations.add_sums(batch.width, sums)
            self.estimator.bag_durations.add_sums(batch.width, sums)
        else:
            self._learn_from_command(job, batch, seconds[0], event.time)
        return self._complete_items(job, len(items), commands) or is_first

    def _learn_from_command(
        self, job: ActiveJob, batch: BatchInFlight, seconds: float, time: float
    ) -> None:
        width = batch.last_servers
        if job.work_done:
            self.allocator.add_restart(batch.measure_seconds(time) - seconds)
        work = job.work_done + seconds * float(job.speedup(width))
        had_one_width = job.work_done == 0 and isclose(batch.width, width)
        if job.spec.speedup is None and had_one_width:
            job.durations.add(width, width * seconds)
        else:
            job.durations.add(1, work)

    def _complete_items(self, job: ActiveJob, count: int, commands: list[Command]) -> bool:
        """Count items as done or failed; return whether a new plan is needed."""
        job.done_count += count
        if job.is_done:
            self.allocator.record_end(job)
            self._end_job(job, commands)
            return True
        # A job that holds what is planned can use it: only others have to count their items.
        return job.observed < job.planned and job.max_servers < job.planned

    def _retry_or_give_up(
        self, event: ItemFailed | ItemLost, job: ActiveJob, commands: list[Command]
    ) -> bool:
        """Run an item again, unless it has failed too often; return whether to replan."""
        item, drop = event.item, None
        if isinstance(event, ItemLost):
            losses = job.losses[item] = job.losses.get(item, 0) + event.was_started
            if losses > _MAX_LOSSES:
                drop = Drop(job.name, item, f"item {item}: {describe_losses(losses)}", losses)
        else:
            failures = job.failures[item] = job.failures.get(item, 0) + 1
            if failures > job.spec.retries:
                drop = Drop(job.name, item, event.error)
        if drop is None:
            if isinstance(event, ItemLost) and not event.was_started and job.is_bag:
                job.items_taken -= 1
                job.returned.append(item)
            else:
                job.retry_queue.append(item)
            return False
        commands.append(drop)
        if not job.spec.is_executor:
            job.failed_items[item] = drop.error
        if job.spec.is_executor or job.spec.on_error == "keep":
            return self._complete_items(job, 1, commands)
        job.done_count += 1
        self._end_job(job, commands)
        return True

    def _end_job(
        self, job: ActiveJob, commands: list[Command], early: JobEnd | None = None
    ) -> None:
        """End a job: as its items have ended, unless it ends before they have."""
        stopped: list[tuple[int, ...]] = []
        if job.in_flight:
            stopped = job.clear_in_flight()
            commands += [Stop(job.name, items[0], items[1:]) for items in stopped]
        end = early or DONE
        if early is None and job.failed_items:
            end = JobEnd("items_failed", _describe_failed_items(job))
        commands += finish(job.spec, end)
        self.predecessors.end(job.name, end.state)
        del self.jobs[job.name]
        self.line.remove(job)
        # The items of a command are known for ever; a function and its items are let go.
        if job.failed_items if early is None else job.spec.command is not None:
            job.retry_queue.extend(chain.from_iterable(stopped))
            job.set_planned(0)
            self.retriable_jobs[job.name] = job

    # --- which items start, stop and change their servers: shrinks come before grows ------------

    def _shrink(self, time: float) -> Iterable[Command]:
        """Take servers from commands that hold more than planned."""
        for job in self.line.contenders:
            if job.is_bag:
                continue
            for item, in_flight in list(job.in_flight.items()):
                if in_flight.servers <= job.planned:
                    continue
                if job.is_paused and job.spec.resize != "restart":
                    job.suspend(in_flight, time)
                    yield Suspend(job.name, item)
                elif job.spec.resize == "affinity":
                    width = max(job.planned, job.min_servers)
                    if width < in_flight.servers:
                        job.set_servers(in_flight, width)
                        yield Resize(job.name, item, width)
                elif job.is_paused or job.spec.resize == "restart":
                    yield self._stop_to_restart(job, item, in_flight, time)

    def _share_free(self, time: float) -> Iterable[Command]:
        """Give free servers to jobs that hold fewer than requested."""
        free = self.servers - self.tally.observed
        if free <= 0:
            return
        needy = [job for job in self.line.contenders if job.observed < job.requested]
        # Commands first: they need several servers at once. Then bags, shortest first.
        if len(needy) > 1:
            needy.sort(
                key=lambda job: (
                    job.is_bag,
                    self.estimator.estimate_remaining(job, time) if job.is_bag else 0.0,
                )
            )
        for job in needy:
            if free <= 0:
                break
            if job.is_bag:
                more = min(job.requested - job.observed, free, job.startable_items)
                # A batch must leave at least one item for each server that starts after it.
                for later_starts in range(more - 1, -1, -1):
                    if not job.has_resources:
                        break
                    yield self._start_items(job, time, 1, job.startable_items - later_starts)
                    free -= 1
            elif job.in_flight:
                ((item, in_flight),) = job.in_flight.items()
                more = min(job.planned - in_flight.servers, free)
                if in_flight.suspended_at is not None:
                    if more < job.fewest_to_start:
                        continue
                    job.go_on(in_flight, more, time)
                    free -= more
                    yield Continue(job.name, item, more)
                elif job.spec.resize == "affinity":
                    job.set_servers(in_flight, in_flight.servers + more)
                    free -= more
                    yield Resize(job.name, item, in_flight.servers)
                elif more == job.planned - in_flight.servers:
                    free += in_flight.servers
                    yield self._stop_to_restart(job, item, in_flight, time)
                    free -= job.planned
                    yield self._start_command(job, job.planned, time)
            elif free >= job.fewest_to_start and job.has_resources:
                width = min(job.planned, free)
                free -= width
                yield self._start_command(job, width, time)

    def _pass_on_server(self, time: float) -> None:
        """Record what has taken over the server of a batch that ended: what was queued first."""
        while self._queued:
            owner, batch = self._queued.pop(0)
            if batch in owner.batches:
                owner.set_servers(batch, 1)
                owner.start_item(batch, time)
                return

    def _queue_items(self, time: float) -> Iterable[Command]:
        """If items are short and all servers are busy, queue one more item in the engine.

        If they are so short that they go in batches, queue a batch for each server: several
        servers may need one before the scheduler is awake.
        """
        durations = self.estimator.bag_durations
        if not durations.counts or durations.mean_seconds > _SHORT_SECONDS:
            return
        self._queued = [(job, batch) for job, batch in self._queued if batch in job.batches]
        limit = self.servers if durations.mean_seconds <= self.batch_seconds else 1
        while len(self._queued) < limit and self.tally.observed >= self.servers:
            job = self._choose_job_to_queue()
            if job is None:
                return
            start = self._start_items(job, time, 0, job.startable_items)
            self._queued.append((job, job.in_flight[start.item]))
            yield start

    def _choose_job_to_queue(self) -> ActiveJob | None:
        """Return the job that lacks most servers, if it counts those that it will take over."""
        # A queued item may take over the server of another job, so leave room for it.
        queued = Counter(map(itemgetter(0), self._queued))
        job, most_missing = None, -inf
        for candidate in self.line.contenders:
            held = candidate.observed + queued[candidate]
            missing = candidate.planned - held
            if (
                missing > most_missing
                and candidate.is_bag
                and not candidate.need  # whose item ends next may hold other resources
                and candidate.startable_items > 0
                and held < (candidate.spec.max_servers or inf)
            ):
                job, most_missing = candidate, missing
        return job

    def _start_items(self, job: ActiveJob, time: float, servers: int, max_items: int) -> Start:
        """Start the next items of a bag, as many as a server should be given at once."""
        count = 1
        if self.batch_seconds > 0 and job.durations.counts:
            # Items that take more than half of that travel alone, and are recorded as they end.
            fitting = min(int(self.batch_seconds / job.durations.mean_seconds), self.max_batch)
            # Shrink batches towards the end, so that all servers finish at about the same time.
            fair = job.waiting_items // (2 * max(job.planned, 1))
            count = max(min(fitting, max(fair, fitting // _SHRINKING)), 1)
        items = job.take_items(min(count, max_items))
        batch = BatchInFlight(time, servers)
        job.add_in_flight(items, batch)
        return Start(job.name, items[0], next_items=items[1:] or (), gpus=batch.gpus)

    def _stop_to_restart(
        self, job: ActiveJob, item: int, in_flight: BatchInFlight, time: float
    ) -> Stop:
        job.work_done = job.measure_work_done(time)
        job.remove_in_flight((item,))
        return Stop(job.name, item)

    def _start_command(self, job: ActiveJob, width: int, time: float) -> Start:
        job.retry_queue.clear()
        batch = BatchInFlight(time, width)
        job.add_in_flight((0,), batch)
        job.waited_work, job.denied = 0.0, 0
        return Start(job.name, 0, width, gpus=batch.gpus)


def _describe_failed_items(job: ActiveJob) -> str:
    """Return how many items of a job have failed, and the first of them."""
    count, error = len(job.failed_items), job.failed_items[min(job.failed_items)]
    if not job.is_bag or job.spec.on_error == "raise":
        return error
    first = "" if count == 1 else "; the first"
    # A job whose items are still being read does not know how many there are.
    items = f"{count:,} of {format_count(job.items, 'item')}" if job.items is not None else None
    return f"{items or format_count(count, 'item')} failed{first}: {error}"


# --- a warm-up of the decisions, on jobs that do not exist --------------------------------------
#
# With many jobs, policies import and run compiled code. The first time, that takes a second, or
# many if the code must be compiled. No job should wait for that.

# How many jobs arrive. Policies compute shares of few jobs in other ways than those of many, and of
# very many that differ in yet another one.
_MANY, _VERY_MANY = 100, 300


def warm_up(policy: PolicyLike, servers: int) -> None:
    """Let a policy decide about few and about many jobs, so that all it needs is loaded."""
    servers, equal = max(servers, 2), JobSpec(name="", items=_MANY)
    _run_jobs(Core(servers, policy), [equal] * _MANY, together=_MANY)
    _run_jobs(Core(servers, policy), [equal] * _MANY, together=1)  # policies learn if jobs arrive
    other = JobSpec(name="", items=5, speedup=PowerLaw(0.5), weight=2.0)
    _run_jobs(Core(servers, policy), [equal, other] * (_VERY_MANY // 2), together=_VERY_MANY)


def _run_jobs(core: Core, specs: list[JobSpec], together: int) -> None:
    """Let jobs arrive, ``together`` at a time; each item ends before the next ones arrive."""
    commands: list[Command] = []
    for first in range(0, len(specs), together):
        time = float(first)
        ended = [
            ItemsFinished(time, start.job, (start.item,), (0.5,))
            for start in commands
            if isinstance(start, Start)
        ]
        arriving = [
            JobArrived(time, replace(spec, name=str(first + number)))
            for number, spec in enumerate(specs[first : first + together])
        ]
        commands = core.handle(*ended, *arriving)
