"""What holds whatever happens: the scheduler's decisions after random events."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hesrpt.decisions.core import Core
from hesrpt.decisions.events import (
    CapacityChanged,
    Command,
    Finish,
    ItemFailed,
    ItemLost,
    ItemsFinished,
    ItemsRetried,
    JobArrived,
    JobCancelled,
    JobSteered,
    Reopen,
    Resize,
    Start,
    Stop,
    Tick,
)
from hesrpt.jobs.job_spec import JobSpec, Resizing

LIMITS: list[dict[str, int]] = [
    {},
    {},
    {"max_servers": 1},
    {"max_servers": 2},
    {"min_servers": 2},
    {"min_servers": 3, "max_servers": 3},
]
RESIZINGS: list[Resizing | None] = [None, None, "never", "restart", "affinity"]
KINDS = ["arrive", "finish", "fail", "lose", "retry", "cancel", "pause", "resume"]
KINDS += ["capacity", "tick"]
events = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 5), st.integers(0, 8)), max_size=60
)


@given(
    events,
    st.sampled_from(["adaptive", "hesrpt", "equi", "srpt", "fifo", "optimal"]),
    st.sampled_from([0, 1]),
)
def test_random_events_keep_the_state_consistent(
    history: list[tuple[str, int, int]], policy: str, batch_seconds: float
) -> None:
    core = Core(4, policy, batch_seconds)
    running: set[tuple[str, int]] = set()
    ended: set[str] = set()
    specs: dict[str, JobSpec] = {}
    time = 0.0

    def check_width(command: Start | Resize) -> None:
        spec = specs[command.job]
        if not spec.is_bag:
            assert command.servers >= spec.min_servers
            assert command.servers <= (spec.max_servers or command.servers)

    def carry_out(commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Resize):
                check_width(command)
            if isinstance(command, Start):
                assert not core.jobs[command.job].is_paused
                started = {(command.job, item) for item in command.items}
                assert not started & running
                check_width(command)
                running.update(started)
            elif isinstance(command, Stop):
                running.difference_update((command.job, item) for item in command.items)
            elif isinstance(command, Finish):
                assert command.job not in ended
                ended.add(command.job)
            elif isinstance(command, Reopen):
                ended.discard(command.job)

    for kind, which, number in history:
        time += 0.3
        names = list(core.jobs)
        job = names[which % len(names)] if names else ""
        if kind == "arrive":
            name = f"j{len(specs)}"
            specs[name] = spec = JobSpec(
                name=name,
                items=5 * number,
                retries=which % 2,
                on_error="keep" if which > 2 else "raise",
                restart_cost=0.1,
                resize=RESIZINGS[number % len(RESIZINGS)],
                **LIMITS[which],  # type: ignore[arg-type]
            )
            if not spec.is_bag:
                spec = specs[name] = replace(spec, items=1)
            carry_out(core.handle(JobArrived(time, spec)))
        elif kind == "capacity":
            carry_out(core.handle(CapacityChanged(time, number)))
        elif kind == "tick":
            carry_out(core.handle(Tick(time)))
        elif kind == "retry":
            retriable = [*core.retriable_jobs, *names]
            if retriable:
                carry_out(core.handle(ItemsRetried(time, retriable[which % len(retriable)])))
        elif job and kind == "cancel":
            carry_out(core.handle(JobCancelled(time, job)))
        elif job and kind == "pause":
            carry_out(core.handle(JobSteered(time, job, is_paused=True)))
        elif job and kind == "resume":
            carry_out(core.handle(JobSteered(time, job, is_paused=False)))
        elif job and (items := sorted(core.jobs[job].in_flight)):
            item = items[number % len(items)]
            running.remove((job, item))
            if kind == "finish":
                carry_out(core.handle(ItemsFinished(time, job, (item,), (0.2,))))
            elif kind == "fail":
                carry_out(core.handle(ItemFailed(time, job, item, "x")))
            else:
                carry_out(core.handle(ItemLost(time, job, item)))
        in_flight = {
            (name, item) for name, active in core.jobs.items() for item in active.in_flight
        }
        assert in_flight == running
        for active in core.jobs.values():
            assert active.observed == sum(batch.servers for batch in active.batches)
            assert active.batches == set(active.in_flight.values())
            if active.is_bag:
                assert active.observed <= (active.spec.max_servers or active.observed)
        # No server is idle while a job could use it that should have it.
        free = core.servers - core.tally.observed
        for active in core.jobs.values():
            if active.is_bag and active.startable_items > 0:
                assert free <= 0 or active.observed >= active.requested
            elif not active.is_bag and active.planned > 0 and not active.in_flight:
                assert free < active.fewest_to_start
        # Commands that keep their servers may hold more than there are now.
        kept = sum(job.observed for job in core.jobs.values() if not job.is_bag)
        assert sum(active.planned for active in core.jobs.values()) <= max(core.servers, kept)
    # Without further failures, all jobs end, and those that have failed are done.
    retried = set(core.retriable_jobs)
    carry_out(core.handle(CapacityChanged(time, 4), *(ItemsRetried(time, job) for job in retried)))
    carry_out(
        core.handle(*(JobSteered(time, job, is_paused=False) for job in core.jobs), Tick(time))
    )
    while core.jobs:
        assert core.tally.observed <= 4 or any(active.in_flight for active in core.jobs.values())
        job, item = next(iter(sorted(running)))
        running.remove((job, item))
        time += 0.1
        carry_out(core.handle(ItemsFinished(time, job, (item,), (0.2,))))
    assert len(ended) == len(specs)
    assert not retried & set(core.retriable_jobs)
    assert not running
