"""The options of a study, which ``hesrpt whatif`` and :func:`hesrpt.whatif.run_study` take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from hesrpt.errors import InputError
from hesrpt.validation import check_choice, check_flag
from hesrpt.whatif.assumptions import Assumption, assume_speedup
from hesrpt.whatif.malleability import Malleability, parse_malleability

#: The policies of a study by default.
DEFAULT_POLICIES = (
    "fcfs",
    "easy",
    "moldable",
    "equi",
    "srpt",
    "adaptive",
    "hesrpt",
    "hesrpt-slowdown",
    "optimal",
)
#: What malleable policies know of sizes.
SIZES = ("exact", "estimates")


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """How the jobs of a trace are replayed.

    Parameters
    ----------
    servers
        The servers of the machine; by default, the number that the trace states.
    assumption
        How jobs speed up, from :func:`assume_speedup`.
    policies
        Names of policies. The rigid ones, "fcfs" and "easy", give jobs the servers they asked for.
        With "moldable", jobs choose their servers once, when they start.
        By default all of :data:`DEFAULT_POLICIES`.
    malleable
        Which jobs are malleable, or moldable; the others stay rigid under EASY
        (:mod:`hesrpt.simulator.backfilling`).
    window
        Study only the jobs submitted in this part of the trace, such as "10d..40d".
    min_runtime
        Drop jobs that ran for fewer seconds.
    load
        Stretch the submission times so that users ask for this fraction of all server-seconds.
    strict
        Raise an error if a job asked for more servers than there are, instead of dropping it.
    bound
        Also bound the mean flow time of all schedules (:func:`hesrpt.lower_bound`): takes long.
    resize_cost, size_error, seed
        As for :func:`hesrpt.simulate`.
    sizes
        What malleable policies know of sizes: "exact", or "estimates" for sizes that follow from
        the users' estimates of run times. What fraction of a job is done counts as known.
    other_limits
        Whether to replay EQUI and adaptive under other limits too, to see what the result owes to
        servers beyond those that jobs asked for.
    """

    servers: int | None = None
    assumption: Assumption
    policies: tuple[str, ...] = DEFAULT_POLICIES
    malleable: Malleability = field(default_factory=Malleability)
    window: str | None = None
    min_runtime: float = 0.0
    load: float | None = None
    strict: bool = False
    bound: bool = False
    resize_cost: float = 0.0
    size_error: float = 0.0
    sizes: str = "exact"
    other_limits: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("sizes", self.sizes, SIZES)
        check_flag("bound", self.bound)
        if not self.policies:
            raise InputError("must name at least one policy", argument="policies")

    def as_json(self) -> dict[str, Any]:
        """Return the options as JSON values, with assumptions in words."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return values | {
            "assumption": self.assumption.text,
            "policies": list(self.policies),
            "malleable": self.malleable.describe(),
        }


def parse_options(
    assumption: Assumption | float | str,
    *,
    policies: Sequence[str] | None = None,
    malleable: float | str | Malleability | None = None,
    **others: Any,
) -> StudyOptions:
    """Return options, where the p of k^p may stand for an assumption and a text for other values.

    >>> parse_options(0.7, malleable="0.3 of users").malleable.counted
    'users'
    """
    if not isinstance(assumption, Assumption):
        assumption = assume_speedup(assumption)
    return StudyOptions(
        assumption=assumption,
        policies=DEFAULT_POLICIES if policies is None else tuple(policies),
        malleable=parse_malleability(malleable),
        **others,
    )
