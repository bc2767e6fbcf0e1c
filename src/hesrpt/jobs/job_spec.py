"""A job as it was asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from hesrpt.jobs.command_template import CommandTemplate
from hesrpt.jobs.failures import OnError, describe_item
from hesrpt.jobs.hooks import Hook
from hesrpt.jobs.text import describe_value, escape_undecodable
from hesrpt.speedups import PowerLaw, Speedup

#: How a running command adapts when its number of servers changes.
Resizing: TypeAlias = Literal["restart", "affinity", "never"]
#: What becomes of a job if one that it waits for fails or is cancelled.
AfterFailure: TypeAlias = Literal["cancel", "release"]
#: The prior mean of p, its standard deviation, and its weight as a number of items.
PRIOR_P, PRIOR_P_ERROR, PRIOR_WEIGHT = 0.9, 0.1, 2.0


@dataclass(frozen=True, kw_only=True)
class Prior:
    """What is known of a job before its first item has ended."""

    item_seconds: float | None = None  # of an item alone; of a command, its size
    p: float = PRIOR_P
    p_weight: float = PRIOR_WEIGHT  # as a number of items whose widths differ by a factor of e
    p_error: float = PRIOR_P_ERROR


#: What is known about a job of which nothing is known.
NOTHING_KNOWN = Prior()


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
        """Counts how often items that had failed got another chance: they have not failed since."""
        return self.resumed + self.retried

    def describe_item(self, item: int) -> str:
        """Return the number of an item; for a command also the item, if that says more."""
        items = self.command.items if self.command else None
        return describe_item(item, describe_value(items[item]) if items else "")

    def to_json(self) -> str:
        """Return the spec as JSON, without a speedup that is not a power law."""
        p = self.speedup.p if isinstance(self.speedup, PowerLaw) else None
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["speedup"] = p
        values["prior"] = vars(self.prior)
        values["command"] = None if self.command is None else vars(self.command)
        values["resources"] = dict(self.resources)
        values["on_end"] = [hook.target for hook in self.on_end]
        return json.dumps(values)

    @classmethod
    def from_json(cls, text: str) -> JobSpec:
        """Return the spec that :meth:`to_json` wrote."""
        values = json.loads(text)
        if values["speedup"] is not None:
            values["speedup"] = PowerLaw(values["speedup"])
        values["prior"] = Prior(**values["prior"])
        if (command := values["command"]) is not None:
            for key in ("command", "items", "shell"):
                if isinstance(command[key], list):
                    command[key] = tuple(command[key])
            values["command"] = CommandTemplate(**command)
        values["after"] = tuple(values["after"])
        values["on_end"] = tuple(map(Hook, values["on_end"]))
        return cls(**values)
