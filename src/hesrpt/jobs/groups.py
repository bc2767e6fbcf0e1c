"""Groups of jobs: a weight that multiplies the weights of their jobs, and whether they wait."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace

from hesrpt.errors import InputError
from hesrpt.validation import shorten


@dataclass(frozen=True)
class Group:
    """What holds for all jobs of a group, also for those that arrive later."""

    weight: float = 1.0  # multiplies the weight of each job
    is_paused: bool = False
    given_weight: float | None = None  # the last one that a jobs file has given it
    changed: float | None = None  # when it was last paused, resumed or given another weight

    def differs_from(self, other: Group) -> bool:
        """Return whether jobs are served differently in another group."""
        return (self.weight, self.is_paused) != (other.weight, other.is_paused)


#: A group of which nothing was said.
PLAIN_GROUP = Group()


def check_group_name(value: object, argument: str = "group") -> str:
    """Return the name of a group; an empty one stands for no group."""
    if not isinstance(value, str) or not value.isprintable():
        raise InputError(
            f"must be a name without line breaks, got {shorten(value)}", argument=argument
        )
    return value


def write_groups(groups: Mapping[str, Group]) -> str:
    """Return groups as text, without those of which nothing was said."""
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
