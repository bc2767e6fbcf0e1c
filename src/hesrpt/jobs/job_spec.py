"""A job as it was asked for, with its hooks, its group, and its order among other jobs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal, TypeAlias

from hesrpt.jobs.command_template import CommandTemplate
from hesrpt.jobs.failures import OnError, describe_item
from hesrpt.jobs.text import describe_value, escape_undecodable
from hesrpt.speedups import Speedup, speedup_from_json, speedup_to_json
from hesrpt.units import format_count

#: How a running command adapts when its number of servers changes.
Resizing: TypeAlias = Literal["restart", "affinity", "never"]
#: What becomes of a job if one that it waits for fails or is cancelled.
AfterFailure: TypeAlias = Literal["cancel", "release"]
#: What p is taken to be, its standard error, and as how many items known seconds count.
PRIOR_P, PRIOR_P_ERROR, PRIOR_WEIGHT = 0.6, 0.3, 2.0


@dataclass(frozen=True, kw_only=True)
class Prior:
    """What is known of a job before its first item has ended."""

    item_seconds: float | None = None  # of an item alone; of a command, its size
    p: float = PRIOR_P
    p_error: float = PRIOR_P_ERROR


#: The prior of a job without a history.
NOTHING_KNOWN = Prior()


# --- what to do when a job has ended ------------------------------------------------------------

_SCHEMES = ("http://", "https://")
#: How often a hook is tried.
MAX_ATTEMPTS = 4


@dataclass(frozen=True)
class Hook:
    """A line for the shell, or the address of a web server, to which JSON is posted."""

    target: str

    @property
    def is_webhook(self) -> bool:
        """Whether the target is the address of a web server."""
        return self.target.lower().startswith(_SCHEMES)


#: What went wrong with a hook: how its command ended, what a web server answered, or else.
HookProblem: TypeAlias = Literal["exit_code", "signal", "timeout", "http_status", "other"]

_SUMMARIES: dict[HookProblem, str] = {
    "exit_code": "exit code {:g}",
    "signal": "killed by signal {:g}",
    "timeout": "it was stopped after {:g} s",
    "http_status": "HTTP Error {:g}",
    "other": "failed",
}


@dataclass(frozen=True)
class HookError:
    """Why an attempt of a hook has failed.

    >>> HookError("exit_code", 7, "no space left").text
    'exit code 7: no space left'
    """

    problem: HookProblem
    code: float = 0  # of the command's end or of the answer, or the seconds that the command had
    detail: str = ""  # what the command has printed, or else what went wrong

    @property
    def summary(self) -> str:
        """What went wrong, without anything that may quote the command or the address."""
        return _SUMMARIES[self.problem].format(self.code)

    @property
    def text(self) -> str:
        """What went wrong."""
        if self.problem == "other":
            return self.detail
        return f"{self.summary}: {self.detail}" if self.detail else self.summary

    def to_json(self) -> str:
        """Return the error as JSON."""
        return json.dumps([self.problem, self.code, self.detail])

    @classmethod
    def from_json(cls, text: str) -> HookError:
        """Return the error that :meth:`to_json` wrote."""
        problem, code, detail = json.loads(text)
        if problem not in _SUMMARIES:
            raise ValueError(f"unknown problem {problem!r}")
        return cls(problem, code, detail)


@dataclass(frozen=True, kw_only=True)
class HookCall:
    """A hook of a job that has ended, and what became of it."""

    number: int  # never used again
    job: int  # the number of its job
    target: str  # the command, or the address
    facts: Mapping[str, Any]  # about the job and its end
    directory: str | None = None  # in which a command runs; None: that of the scheduler
    state_directory: str | None = None  # of the run, if it has one
    attempts: int = 0
    error: HookError | None = None  # of the last attempt

    @property
    def is_pending(self) -> bool:
        """Whether it is to be tried, or tried again."""
        return self.attempts == 0 or (self.error is not None and self.attempts < MAX_ATTEMPTS)

    @property
    def variables(self) -> dict[str, str]:
        """What lets a command ask for something in the run, in its environment."""
        return {} if self.state_directory is None else {"HESRPT_STATE": self.state_directory}


@dataclass(frozen=True, kw_only=True)
class FailedHook:
    """What is shown of a hook that has failed."""

    job: str
    target: str | None  # the command or the address; None for readers: it may contain secrets
    attempts: int
    error: str

    def describe(self) -> str:
        """Return which hook has failed, and why."""
        tries, error = format_count(self.attempts, "attempt"), self.error.partition("\n")[0]
        target = f" {self.target!r}" if self.target else ""
        return f"{self.job}: on_end{target} failed, {tries}: {error}"


def list_failed_hooks(calls: Iterable[HookCall], *, is_owner: bool) -> list[FailedHook]:
    """Return the hooks that have failed; only the owner sees commands, addresses and output."""
    return [
        FailedHook(
            job=call.facts["job"],
            target=call.target if is_owner else None,
            attempts=call.attempts,
            error=call.error.text if is_owner else call.error.summary,
        )
        for call in calls
        if call.error is not None
    ]


# --- the specification --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A job as submitted: a bag of items, or one command that runs on several servers."""

    name: str
    given_name: str | None = None  # the name that was asked for, if another job had it
    kind: str = ""  # jobs of one kind learn from each other; by default, the name asked for
    items: int | None = None  # None: unknown until they run out
    size: float | None = None  # seconds of work on one server; None: learned
    speedup: Speedup | None = None  # None: learned
    prior: Prior = NOTHING_KNOWN  # what earlier jobs of its kind have taught
    weight: float = 1.0
    given_weight: float | None = None  # the weight that was asked for, if it was changed since
    is_paused: bool = False  # whether it starts nothing until it is resumed
    was_paused: bool = False  # whether it has ever been paused
    min_servers: int = 0  # a command gets at least this many or none; a bag, while it has items
    max_servers: int | None = None  # None: no limit
    after: tuple[str, ...] = ()  # the names of jobs that must have ended well before it starts
    after_failure: AfterFailure = "cancel"  # if one of them fails or is cancelled
    group: str = ""  # "": none
    resources: Mapping[str, float] = field(default_factory=dict)  # besides servers, for each item
    on_end: tuple[Hook, ...] = ()  # what to do when it has ended
    retries: int = 1
    on_error: OnError = "raise"  # when an item has failed too often
    resize: Resizing | None = None  # None: a bag of items
    restart_cost: float = 10.0  # seconds lost when a command is restarted
    command: CommandTemplate | None = None  # None: the items call a Python function
    is_streamed: bool = False  # whether ItemsRead events announce the items
    submission: int | None = None  # the request that added it; 0: that of a service's client
    resumed: int = 0  # how often the job was resumed
    retried: int = 0  # how often its failed items were to run again
    was_reopened: bool = False  # whether it had ended before it was resumed
    is_executor: bool = False  # whether items are calls: a failed call does not fail the job

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", escape_undecodable(self.name))
        kind = self.kind or self.given_name or self.name
        object.__setattr__(self, "kind", escape_undecodable(kind))
        if self.resize is not None and self.items is None:
            object.__setattr__(self, "items", 1)

    @property
    def is_bag(self) -> bool:
        """Whether the job is a bag of items, rather than one command on several servers."""
        return self.resize is None

    @property
    def is_submitted(self) -> bool:
        """Whether another process has submitted it, so that no jobs file changes it."""
        return self.submission is not None

    @property
    def round(self) -> int:
        """How often failed items were given another chance; earlier failures no longer count."""
        return self.resumed + self.retried

    def describe_item(self, item: int) -> str:
        """Return the number of an item; for a command also the item, if that says more."""
        items = self.command.items if self.command else None
        return describe_item(item, describe_value(items[item]) if items else "")

    def to_json(self) -> str:
        """Return the spec as JSON, without a speedup that is a plain function."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["speedup"] = None if self.speedup is None else speedup_to_json(self.speedup)
        values["prior"] = vars(self.prior)
        values["command"] = None if self.command is None else vars(self.command)
        values["resources"] = dict(self.resources)
        values["on_end"] = [hook.target for hook in self.on_end]
        return json.dumps(values)

    @classmethod
    def from_json(cls, text: str) -> JobSpec:
        """Return the spec that :meth:`to_json` wrote."""
        values = json.loads(text)
        values["speedup"] = speedup_from_json(values["speedup"])
        values["prior"].pop("p_weight", None)  # of earlier versions
        values["prior"] = Prior(**values["prior"])
        if (command := values["command"]) is not None:
            for key in ("command", "items", "shell"):
                if isinstance(command[key], list):
                    command[key] = tuple(command[key])
            values["command"] = CommandTemplate(**command)
        values["after"] = tuple(values["after"])
        values["on_end"] = tuple(map(Hook, values["on_end"]))
        return cls(**values)


# --- groups of jobs -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """The settings that all jobs of a group share, including those that arrive later."""

    weight: float = 1.0  # multiplies the weight of each job
    is_paused: bool = False
    given_weight: float | None = None  # the last one that a jobs file has given it
    changed: float | None = None  # when it was last paused, resumed or given another weight

    def differs_from(self, other: Group) -> bool:
        """Return whether jobs are served differently in another group."""
        return (self.weight, self.is_paused) != (other.weight, other.is_paused)


#: A group without settings of its own.
PLAIN_GROUP = Group()


def write_groups(groups: Mapping[str, Group]) -> str:
    """Return groups as text, without those that have no settings."""
    known = {name: group for name, group in groups.items() if group != PLAIN_GROUP}
    return json.dumps({name: astuple(group) for name, group in known.items()})


def read_groups(text: str) -> dict[str, Group]:
    """Return the groups that :func:`write_groups` wrote."""
    return {name: Group(*group) for name, group in json.loads(text).items()}


def give_weight(group: Group, weight: float) -> Group:
    """Return a group that a jobs file gives a weight, unless that was changed since it last did."""
    if group.given_weight == weight:
        return group
    return replace(group, weight=weight, given_weight=weight)


# --- the order of jobs that wait for each other -------------------------------------------------


def find_cycle(after: Mapping[str, Sequence[str]]) -> list[str]:
    """Return jobs that wait for each other in a circle, the first one again at the end.

    The result is empty if there are none. Names that are not in ``after`` wait for nothing.

    >>> find_cycle({"a": ["b"], "b": ["c"], "c": ["b"]})
    ['b', 'c', 'b']
    """
    try:
        TopologicalSorter(after).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]  # each waits for the one before
        return cycle[::-1]
    return []


def sort_by_order(after: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names of jobs, each after those that it waits for; otherwise as they are given.

    Names that are not keys of ``after`` are left out. There must be no cycle.

    >>> sort_by_order({"report": ["train"], "other": [], "train": ["fetch"]})
    ['train', 'report', 'other']
    """
    order: dict[str, None] = {}
    for start in after:
        to_visit = [(start, False)]
        while to_visit:
            name, is_left = to_visit.pop()
            if is_left:
                order[name] = None
            elif name in after and name not in order:
                to_visit.append((name, True))
                to_visit += [(each, False) for each in reversed(after[name])]
    return list(order)


def describe_cycle(cycle: Sequence[str]) -> str:
    """Say which jobs wait for each other.

    >>> describe_cycle(["a", "b", "a"])
    "jobs wait for each other: 'a' waits for 'b', which waits for 'a'"
    """
    first, *others = map(repr, cycle)
    return f"jobs wait for each other: {first} waits for {', which waits for '.join(others)}"


def explain_useless_retry(name: str, state: str) -> str:
    """Say why a job cannot be retried alone: a job that it waits for has not ended well.

    >>> explain_useless_retry("fetch", "failed")
    "waits for 'fetch', which has failed; retry that one"
    """
    what = "has failed" if state == "failed" else "was cancelled"
    return f"waits for {name!r}, which {what}; retry that one"
