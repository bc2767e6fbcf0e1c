"""What holds whatever happens, for jobs that wait for others, belong to groups and need resources.

Random orders of jobs, resources and groups: no job starts before its predecessors have ended, no
resource is given out twice, and every job ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hesrpt.decisions.core import Core
from hesrpt.decisions.events import (
    Admit,
    CallHook,
    Command,
    Event,
    Finish,
    GroupChanged,
    ItemFailed,
    ItemLost,
    ItemsFinished,
    ItemsRetried,
    JobArrived,
    JobCancelled,
    JobSteered,
    Reopen,
    Start,
    Stop,
    Tick,
)
from hesrpt.jobs.job_spec import Group, Hook, JobSpec, Resizing

TOTALS = {"gpu": 3.0, "memory": 8.0, "licence": 1.0}
NEEDS: list[dict[str, float]] = [
    {},
    {},
    {"gpu": 1.0},
    {"gpu": 2.0},
    {"gpu": 3.0, "memory": 1.0},
    {"memory": 5.0},
    {"licence": 0.4, "gpu": 1.0},
]
RESIZINGS: list[Resizing | None] = [None, None, None, "never", "restart", "affinity"]

specs_to_add: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    items=st.integers(0, 6),
    resources=st.sampled_from(NEEDS),
    group=st.sampled_from(["", "", "g", "h"]),
    weight=st.sampled_from([1.0, 3.0]),
    resize=st.sampled_from(RESIZINGS),
    after=st.lists(st.integers(0, 12), max_size=3),
    after_failure=st.sampled_from(["cancel", "release"]),
    min_servers=st.sampled_from([0, 0, 0, 2]),
    max_servers=st.sampled_from([None, None, 2]),
    on_error=st.sampled_from(["raise", "keep"]),
)
KINDS = ["finish"] * 6 + ["fail", "lose", "cancel", "retry", "pause", "continue", "tick"]
steps = st.lists(
    st.one_of(
        specs_to_add.map(lambda spec: ("add", spec)),
        st.tuples(st.sampled_from(KINDS), st.integers(0, 20)),
        st.tuples(
            st.just("group"),
            st.tuples(st.sampled_from("gh"), st.sampled_from([0.5, 2.0]), st.booleans()),
        ),
    ),
    min_size=8,
    max_size=60,
)


class Checker:
    """Carries out the core's commands, and checks each of them."""

    def __init__(self, policy: str, batch_seconds: float) -> None:
        self.core = Core(4, policy, batch_seconds, TOTALS)
        self.specs: dict[str, JobSpec] = {}
        self.batches: dict[tuple[str, int], Start] = {}  # of items that run, by their items
        self.errors: dict[str, str | None] = {}  # of jobs that have ended
        self.hooks: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self.time = 0.0

    def handle(self, *events: object) -> None:
        self.time += 0.3
        for command in self.core.handle(*events):  # type: ignore[arg-type]
            self.carry_out(command)
        self.check_resources()

    def carry_out(self, command: Command) -> None:
        match command:
            case Start():
                spec = self.specs[command.job]
                assert all(self.has_ended_as_needed(name, spec) for name in spec.after)
                assert len(command.gpus) == spec.resources.get("gpu", 0)
                assert not self.core.jobs[command.job].is_paused
                for item in command.items:
                    assert (command.job, item) not in self.batches
                    self.batches[command.job, item] = command
            case Stop():
                for item in command.items:
                    del self.batches[command.job, item]
            case Admit():
                spec = self.specs[command.job]
                assert all(self.has_ended_as_needed(name, spec) for name in spec.after)
            case Finish():
                assert command.job not in self.errors
                self.errors[command.job] = command.end.error
                self.ends[command.job] += 1
            case CallHook():
                assert self.errors[command.job] == command.end.error
                self.hooks[command.job] += 1
            case Reopen():
                self.errors.pop(command.job, None)

    def has_ended_as_needed(self, name: str, spec: JobSpec) -> bool:
        """Return whether a predecessor has ended, or had ended before it was retried."""
        if name not in self.errors:
            return self.ends[name] > 0
        return self.errors[name] is None or spec.after_failure == "release" or self.ends[name] > 1

    def check_resources(self) -> None:
        """No resource is given out twice, and what ended has given back what it had."""
        running = {id(start): start for start in self.batches.values()}.values()
        gpus = [gpu for start in running for gpu in start.gpus]
        assert len(gpus) == len(set(gpus))
        assert set(gpus) <= {0, 1, 2}
        used: Counter[str] = Counter()
        for start in running:
            used.update(self.specs[start.job].resources)
        for kind, (total, free) in self.core.stock.describe().items():
            assert used[kind] <= total + 1e-9
            assert abs(total - used[kind] - free) < 1e-9
        for job in self.core.predecessors.waiting.values():
            assert job.unfinished
            assert job.arrival.spec.name not in self.core.jobs

    def end_item(self, kind: str, which: int) -> None:
        started = sorted(self.batches)
        if not started:
            return
        job, item = started[which % len(started)]
        del self.batches[job, item]
        if kind == "fail":
            self.handle(ItemFailed(self.time, job, item, "x"))
        elif kind == "lose":
            self.handle(ItemLost(self.time, job, item))
        else:
            self.handle(ItemsFinished(self.time, job, (item,), (0.2,)))

    def add(self, options: dict[str, object]) -> None:
        names = list(self.specs)
        after = {names[n % len(names)]: None for n in options["after"]} if names else {}  # type: ignore[attr-defined]
        name = f"j{len(names)}"
        is_bag = options["resize"] is None
        self.specs[name] = spec = JobSpec(
            **{  # type: ignore[arg-type]
                **options,
                "name": name,
                "after": tuple(after),
                "items": options["items"] if is_bag else 1,
                "retries": 0,
                "restart_cost": 0.1,
                "on_end": (Hook("true"),),
            }
        )
        self.handle(JobArrived(self.time, spec))

    def change(self, kind: str, which: int) -> None:
        names = list(self.specs)
        if not names:
            return
        name = names[which % len(names)]
        events: dict[str, Callable[[float, str], Event]] = {
            "cancel": JobCancelled,
            "retry": ItemsRetried,
            "pause": partial(JobSteered, is_paused=True),
            "continue": partial(JobSteered, is_paused=False),
        }
        self.handle(events[kind](self.time, name))


@given(
    steps,
    st.sampled_from(["adaptive", "hesrpt", "equi", "srpt", "fifo"]),
    st.sampled_from([0.0, 1.0]),
)
def test_order_groups_and_resources_combine(
    history: list[tuple[str, object]], policy: str, batch_seconds: float
) -> None:
    checker = Checker(policy, batch_seconds)
    for kind, value in history:
        if kind == "add":
            checker.add(value)  # type: ignore[arg-type]
        elif kind == "group":
            assert isinstance(value, tuple)
            group, *values = value
            checker.handle(GroupChanged(checker.time, group, Group(*values)))
        elif kind in ("finish", "fail", "lose"):
            checker.end_item(kind, value)  # type: ignore[arg-type]
        elif kind == "tick":
            checker.handle(Tick(checker.time))
        else:
            checker.change(kind, value)  # type: ignore[arg-type]
    # Once nothing is paused, all jobs end, and nothing is left behind.
    core = checker.core
    for group in "gh":
        checker.handle(GroupChanged(checker.time, group, Group()))
    for name in checker.specs:
        checker.handle(JobSteered(checker.time, name, is_paused=False))
    for _ in range(2000):
        if not core.jobs and not core.predecessors.waiting:
            break
        if not checker.batches:
            checker.time += 2.0
            checker.handle(Tick(checker.time))
        assert checker.batches, "jobs wait for nothing"
        for name in core.jobs:  # retried or admitted meanwhile
            assert not core.jobs[name].is_paused
        checker.end_item("finish", 0)
    assert checker.errors.keys() == checker.specs.keys()
    assert checker.hooks == checker.ends
    assert all(free == total for total, free in core.stock.describe().values())
