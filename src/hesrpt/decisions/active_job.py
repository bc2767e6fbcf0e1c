"""A job as the core sees it: what it has started, what is done of it, and what it may have."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from heapq import heappop, heappush
from sys import maxsize

from hesrpt.decisions.learning import ItemDurations, SharedEvidence
from hesrpt.jobs.item_resources import GPU, PARTS
from hesrpt.jobs.job_end import JobEnd
from hesrpt.jobs.job_spec import PLAIN_GROUP, Group, JobSpec
from hesrpt.speedups import PowerLaw, Speedup

# Fitted powers have two digits, so there are at most 99 different ones.
_get_power_law = cache(PowerLaw)


# --- resources besides servers -------------------------------------------------------------------
#
# Amounts are counted in millionths, as whole numbers, so that nothing is lost when they are added
# and subtracted many times.


def to_parts(amounts: Mapping[str, float]) -> dict[str, int]:
    """Return amounts in millionths."""
    return {kind: max(round(amount * PARTS), 1) for kind, amount in amounts.items() if amount > 0}


class ResourceStock:
    """The resources of a machine: how much is free, and which GPUs are.

    >>> stock = ResourceStock({"gpu": 2})
    >>> need = to_parts({"gpu": 1})
    >>> stock.take(need), stock.take(need), stock.can_take(need)
    ((0,), (1,), False)
    """

    def __init__(self, totals: Mapping[str, float] | None = None) -> None:
        self.totals = to_parts(totals) if totals else {}
        self._free = dict(self.totals)
        self._gpus = list(range(self.totals.get(GPU, 0) // PARTS))  # free ones; a heap

    def can_take(self, need: Mapping[str, int]) -> bool:
        """Return whether so much is free."""
        return all(amount <= self._free.get(kind, 0) for kind, amount in need.items())

    def take(self, need: Mapping[str, int]) -> tuple[int, ...]:
        """Take what an item needs, which must be free; return the indices of its GPUs."""
        assert self.can_take(need), "somebody else holds it"
        for kind, amount in need.items():
            self._free[kind] -= amount
        return tuple(heappop(self._gpus) for _ in range(need.get(GPU, 0) // PARTS))

    def give_back(self, need: Mapping[str, int], gpus: Iterable[int]) -> None:
        """Give back what an item has taken."""
        for kind, amount in need.items():
            self._free[kind] += amount
        for gpu in gpus:
            heappush(self._gpus, gpu)

    def describe(self) -> dict[str, tuple[float, float]]:
        """Return the total of each kind, and how much of it is free."""
        return {
            kind: (total / PARTS, self._free[kind] / PARTS) for kind, total in self.totals.items()
        }


# --- jobs ---------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What the jobs of a run hold together, and which of them have changed."""

    time: float = 0.0  # of the latest event
    observed: int = 0  # servers that all jobs hold
    #: Those that hold or are planned other servers than when this was last cleared; some may have
    #: ended since.
    changed: set[ActiveJob] = field(default_factory=set)


@dataclass(eq=False)
class BatchInFlight:
    """An item that was given to the engine and has not ended, or several, one after another."""

    started: float  # when the item started that runs now
    servers: int  # 0 while it waits in the engine for a server, or is suspended
    items_left: int = 1  # how many of its items have not ended
    suspended_at: float | None = None  # None: it is not suspended
    suspended_servers: int = 0  # how many servers it had before
    gpus: tuple[int, ...] = ()  # the indices of those that it holds
    job_held: float = 0.0  # how many seconds of servers its job had held when it started
    width: float = 1.0  # how many its job held on average while its last item ran

    @property
    def last_servers(self) -> int:
        """How many servers it has; if it is suspended, how many it had before."""
        return self.servers if self.suspended_at is None else self.suspended_servers

    def measure_seconds(self, time: float) -> float:
        """Return how long it has run, not counting the time during which it was suspended."""
        return (time if self.suspended_at is None else self.suspended_at) - self.started


@dataclass(eq=False, kw_only=True)
class ActiveJob:
    """A job that has not ended, as the core sees it."""

    spec: JobSpec
    number: int  # in order of arrival
    arrived: float
    items: int | None  # None: unknown until they run out
    group: Group = PLAIN_GROUP
    items_read: int | None = None  # announced so far by ItemsRead; None: all are known
    is_exhausted: bool = True  # whether there are no further items to read
    items_taken: int = 0  # how many have been started, not counting retries
    next_item: int = 0
    done_before: deque[range] = field(default_factory=deque)  # done in an earlier run; skipped
    earlier_count: int = 0  # how many were done in an earlier run
    done_count: int = 0  # includes the failed items
    failed_items: dict[int, str] = field(default_factory=dict)  # given up, with their errors
    stopped_by: JobEnd | None = None  # why it cannot go on, if that was found after it had failed
    retry_queue: deque[int] = field(default_factory=deque)  # items that run again alone
    returned: deque[int] = field(default_factory=deque)  # that were given back before they ran
    failures: dict[int, int] = field(default_factory=dict)
    losses: dict[int, int] = field(default_factory=dict)
    in_flight: dict[int, BatchInFlight] = field(default_factory=dict)  # by item
    batches: set[BatchInFlight] = field(default_factory=set)  # in flight
    durations: ItemDurations = field(init=False)
    name: str = field(init=False)
    is_bag: bool = field(init=False)  # a bag of items, rather than one command on several servers
    planned: int = 0  # servers that the policy gives it
    denied: int = 0  # servers that the policy would give it, but that are too few for it
    waited_work: float = 0.0  # what it would have done on them, in seconds on one server
    observed: int = 0  # servers that it holds
    observed_since: float = 0.0
    held_before: float = 0.0  # how many seconds of servers it had held by then
    tally: Tally = field(default_factory=Tally)  # of all jobs
    evidence: SharedEvidence = field(default_factory=SharedEvidence)  # from all jobs
    max_width: int = 0  # the most servers that one command can have
    stock: ResourceStock = field(default_factory=ResourceStock)  # what all jobs share
    need: dict[str, int] = field(init=False)  # of each kind, for an item or its command
    granted: int = maxsize  # how many items the resources allow
    # For a command that is resized by restarting it:
    work_done: float = 0.0  # before the last restart, in seconds on one server

    def __post_init__(self) -> None:
        self.durations = ItemDurations(prior=self.spec.prior, shared=self.evidence)
        self.name, self.is_bag = self.spec.name, self.spec.resize is None
        self.need = to_parts(self.spec.resources) if self.spec.resources else {}
        if self.need:
            self.forget_grant()

    def forget_grant(self) -> None:
        """Forget which resources others have: assume that all are free."""
        totals = self.stock.totals
        self.granted = min(totals.get(kind, 0) // amount for kind, amount in self.need.items())

    @property
    def has_resources(self) -> bool:
        """Whether an item, or its command, can start with the resources that are free now."""
        return not self.need or self.stock.can_take(self.need)

    @property
    def is_paused(self) -> bool:
        """Whether the job starts nothing until it is resumed."""
        return self.spec.is_paused or self.group.is_paused

    @property
    def weight(self) -> float:
        """What a second of its flow time costs."""
        return self.spec.weight * self.group.weight

    @property
    def is_done(self) -> bool:
        """Whether all items are done, or have failed."""
        return self.is_exhausted and self.items is not None and self.remaining_items <= 0

    @property
    def remaining_items(self) -> int:
        """How many items are not done.

        If the total is unknown, assume that as many items are still to come as are done already. An
        executor has only the calls submitted so far.
        """
        if self.items is None:
            unstarted = self.unstarted_items if self.spec.is_executor else max(self.done_count, 1)
            return unstarted + len(self.in_flight)
        return self.items - self.done_count

    @property
    def is_size_known(self) -> bool:
        """Whether the size of the job, or of its items, is given or learned, not assumed."""
        durations = self.durations
        return (
            self.spec.size is not None
            or bool(durations.counts)
            or durations.prior.item_seconds is not None
        )

    @property
    def waiting_items(self) -> int:
        """How many known items are waiting to be started."""
        if self.items is None:
            return self.unstarted_items
        return self.items - self.done_count - len(self.in_flight)

    @property
    def unstarted_items(self) -> int:
        """How many items that have been read are waiting to be started."""
        if self.items_read is None:
            return self.waiting_items
        available = len(self.retry_queue) + self.items_read - self.items_taken
        return available if self.items is None else min(available, self.waiting_items)

    @property
    def startable_items(self) -> int:
        """How many items can be started now."""
        return 0 if self.is_paused else self.unstarted_items

    @property
    def max_servers(self) -> int:
        """The most servers that the job can use now."""
        if self.is_bag:
            return min(len(self.in_flight) + self.startable_items, self.server_limit)
        if self.is_paused or not self.can_ever_run or self._lacks_resources:
            return 0
        return min(self.max_width, self.server_limit)

    @property
    def can_ever_run(self) -> bool:
        """Whether a command can have as many servers as it needs."""
        return self.min_servers <= self.max_width

    @property
    def _lacks_resources(self) -> bool:
        """Whether a command that has not started gets no resources."""
        return not self.granted and not self.in_flight

    @property
    def max_servers_later(self) -> int:
        """The most servers that the job can use once all its known items have been read."""
        if self.is_paused:
            return self.max_servers
        if self.is_bag:
            return min(len(self.in_flight) + self.waiting_items, self.server_limit)
        if self._lacks_resources:
            return 0
        return max(min(self.max_width, self.server_limit), self.min_servers)

    @property
    def min_servers(self) -> int:
        """The fewest servers with which the job can start or go on.

        A bag can use any number, but should get at least this many while it has items.
        """
        if self.is_bag:
            return min(self.spec.min_servers, self.max_servers)
        return max(self.spec.min_servers, 1)

    @property
    def fewest_to_start(self) -> int:
        """How many servers have to be free before a command starts or goes on."""
        return self.min_servers if self.spec.resize == "affinity" else self.planned

    @property
    def server_limit(self) -> int:
        """The most servers that it may have, by its limit and its resources."""
        limit = self.spec.max_servers or maxsize
        return min(limit, self.granted) if self.is_bag else limit

    @property
    def requested(self) -> int:
        """How many servers to request for the job: as planned, but no more than it can use."""
        # Of many jobs, most are given none: do not count their items.
        return min(self.planned, self.max_servers) if self.planned else 0

    @property
    def speedup(self) -> Speedup:
        """The speedup that was given, or the one learned so far."""
        return self.spec.speedup or _get_power_law(self.durations.p)

    @property
    def cautious_speedup(self) -> Speedup:
        """The speedup to plan with."""
        return self.spec.speedup or _get_power_law(self.durations.believe().cautious_p)

    def add_in_flight(self, items: Sequence[int], batch: BatchInFlight) -> None:
        """Record that items were given to the engine together."""
        batch.items_left = len(items)
        if self.need:
            batch.gpus = self.stock.take(self.need)
            self.waited_work, self.denied = 0.0, 0
        self.in_flight.update(dict.fromkeys(items, batch))
        self.batches.add(batch)
        self._add_observed(batch.servers)
        self.start_item(batch, batch.started)

    def start_item(self, batch: BatchInFlight, time: float) -> None:
        """Record that an item of a batch starts."""
        batch.started, batch.job_held = time, self._count_server_seconds(time)

    def measure_width(self, batch: BatchInFlight, time: float) -> float:
        """Return how many servers it has held on average since an item of a batch started."""
        seconds = batch.measure_seconds(time)
        if seconds <= 0:
            return max(self.observed, 1)
        return max((self._count_server_seconds(time) - batch.job_held) / seconds, 1.0)

    def _count_server_seconds(self, time: float) -> float:
        return self.held_before + self.observed * (time - self.observed_since)

    def measure_work_done(self, time: float) -> float:
        """Return the work that a command has done, in seconds on one server."""
        return self.work_done + sum(
            in_flight.measure_seconds(time) * float(self.speedup(in_flight.last_servers))
            for in_flight in self.in_flight.values()
        )

    def set_servers(self, in_flight: BatchInFlight, servers: int) -> None:
        """Record that what is in flight now has this many servers."""
        self._add_observed(servers - in_flight.servers)
        in_flight.servers = servers

    def suspend(self, in_flight: BatchInFlight, time: float) -> None:
        """Record that an item in flight is suspended, and holds no servers."""
        in_flight.suspended_at, in_flight.suspended_servers = time, in_flight.servers
        self.set_servers(in_flight, 0)

    def go_on(self, in_flight: BatchInFlight, servers: int, time: float) -> None:
        """Record that a suspended item goes on."""
        in_flight.started += time - (in_flight.suspended_at or 0.0)
        in_flight.suspended_at = None
        self.set_servers(in_flight, servers)

    def remove_in_flight(self, items: Sequence[int]) -> BatchInFlight | None:
        """Record that items of one batch are no longer in flight; return it, or None."""
        batch = None
        for item in items:
            found = self.in_flight.pop(item, None)
            if found is not None:
                batch = batch or found
                found.items_left -= 1
                if found.items_left == 0:
                    self._end_batch(found)
        return batch

    def clear_in_flight(self) -> list[tuple[int, ...]]:
        """Record that nothing is in flight any more; return what was, by batch."""
        batches: dict[BatchInFlight, list[int]] = {}
        for item, batch in self.in_flight.items():
            batches.setdefault(batch, []).append(item)
        self.in_flight.clear()
        for batch in list(self.batches):
            self._end_batch(batch)
        return list(map(tuple, batches.values()))

    def _end_batch(self, batch: BatchInFlight) -> None:
        self.batches.discard(batch)
        self._add_observed(-batch.servers)
        if self.need:
            self.stock.give_back(self.need, batch.gpus)

    def _add_observed(self, servers: int) -> None:
        if servers:
            time = self.tally.time
            self.held_before, self.observed_since = self._count_server_seconds(time), time
            self.observed += servers
            self.tally.observed += servers
            self.tally.changed.add(self)

    def set_planned(self, servers: int) -> None:
        """Plan this many servers for the job."""
        if servers != self.planned:
            self.planned = servers
            self.tally.changed.add(self)

    def add_done(self, done: Iterable[range]) -> None:
        """Record items that were done in an earlier run, and come after those known so far."""
        for items in done:
            self.earlier_count += len(items)
            self.done_count += len(items)
            if self.done_before and self.done_before[-1].stop == items.start:
                items = range(self.done_before.pop().start, items.stop)
            self.done_before.append(items)

    def take_items(self, count: int) -> tuple[int, ...]:
        """Return the next items to start.

        An item that failed or lost its server comes alone: it may have caused that.
        """
        if self.retry_queue:
            return (self.retry_queue.popleft(),)
        self.items_taken += count
        items: list[int] = []
        while self.returned and len(items) < count:
            items.append(self.returned.popleft())
        while len(items) < count:
            while self.done_before and self.done_before[0].start == self.next_item:
                self.next_item = self.done_before.popleft().stop
            start, stop = self.next_item, self.next_item + count - len(items)
            self.next_item = min(stop, self.done_before[0].start) if self.done_before else stop
            items += range(start, self.next_item)
        return tuple(items)

    def requeue_failed_items(self) -> None:
        """Let the failed items run again, each as often as at first."""
        for item in sorted(self.failed_items):
            self.retry_queue.append(item)
            self.failures.pop(item, None)
            self.losses.pop(item, None)
        self.done_count -= len(self.failed_items)
        self.failed_items.clear()

    def remove_queued_items(self, items: Sequence[int]) -> int:
        """Do not run stopped items again that turn out to be done; return how many there were."""
        done = set(items).intersection(self.retry_queue)
        self.retry_queue = deque(item for item in self.retry_queue if item not in done)
        return len(done)
