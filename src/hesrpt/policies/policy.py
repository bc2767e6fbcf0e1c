"""A policy takes the state of the jobs and returns the servers of each.

A policy does no I/O and keeps no clock. It knows neither the simulator nor the live scheduler, and
the same object drives both. A policy that learns keeps what it has learned in the states that it
sees: each state carries a calibration, which follows from the state before and its calibration.

Two kinds of policies run compiled in the simulator: *ranked* ones, which depend only on the number
of jobs and on the order of their sizes, and those that state a *rule*. The policy itself stays the
reference: tests compare the two, decision by decision.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import NamedTuple, Self

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.objectives import FlowObjective
from hesrpt.optimal.closed_form import own_share, power_of_ratio
from hesrpt.policies.calibration import Calibration
from hesrpt.policies.pricing import Resizes
from hesrpt.policies.sharing import Leftover
from hesrpt.speedups import PowerLaw, Speedup, SpeedupVector

# Powers stay between exp(-this) and exp(this), so that no product of two overflows.
_MAX_LOG = 340.0


@dataclass(slots=True)
class State:
    """What a policy sees: the jobs in the system, in the order of their arrival."""

    time: float
    servers: float
    whole: bool  # whether jobs get only whole servers
    jobs: IntArray  # their numbers in the workload
    remaining: FloatArray  # sizes that remain; estimates, if sizes are not known exactly
    sizes: FloatArray  # sizes at arrival; estimates, likewise
    arrivals: FloatArray
    weights: FloatArray
    speedups: SpeedupVector  # of these jobs
    calibration: Calibration | None = None  # what the policy has learned so far
    #: The weight of further jobs, which wait: :meth:`Policy.order` puts them after these. The
    #: servers are for the jobs of the state only.
    others: float = 0.0
    #: If resizes cost time: the servers that jobs hold now, and which part of the time until the
    #: next change a resize would stop each of them for.
    resizes: Resizes | None = None
    #: The work that was done on each job; None: what the sizes say.
    attained: FloatArray | None = None
    #: The sizes of the jobs that have ended since the previous state, in its order; NaN if unknown.
    #: None: they were as that state says.
    ended_sizes: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.jobs)

    def take(self, places: IntArray) -> State:
        """Return the state with some of its jobs only."""
        return replace(
            self,
            jobs=self.jobs[places],
            remaining=self.remaining[places],
            sizes=self.sizes[places],
            arrivals=self.arrivals[places],
            weights=self.weights[places],
            speedups=self.speedups.take(places),
            resizes=None if self.resizes is None else self.resizes.take(places),
            attained=None if self.attained is None else self.attained[places],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFacts:
    """What a policy may learn about the jobs and the system before it decides."""

    sizes: FloatArray
    speedups: SpeedupVector
    servers: float
    whole: bool = False  # whether jobs get only whole servers
    requested: FloatArray | None = None  # the servers that each job asks for
    names: tuple[str, ...] = ()
    #: The p of a power law that is close to all speedups, for jobs that do not share one. Without
    #: it, a policy that needs a power law refuses such jobs.
    approximate_p: float | None = None


class RuleKind(Enum):
    """What decides how many servers a job gets."""

    EQUAL = auto()  # nothing: shares are equal
    FIRST_COME = auto()  # the first to arrive gets all it can use, the next one the rest
    SMALLEST_FIRST = auto()  # the same for the smallest
    CLOSED_FORM = auto()  # heSRPT's shares, by weight and rank
    VALUE = auto()  # the value of the job's work: the planner's, or between that and equal ones
    KNEE = auto()  # the time that one more server saves


@dataclass(frozen=True)
class Rule:
    """What a policy decides by, with its parameters."""

    kind: RuleKind
    objective: FlowObjective = "flow"
    exponent: float | None = None  # the p of the closed form; None before binding
    focus: float | None = 1.0  # of the closed form or the values; None if it is calibrated
    alpha: float = 1.0  # of KNEE …
    leftover: Leftover = "idle"  # … and what it does with servers beyond all knees


class Policy(ABC):
    """Decides how many servers each job gets.

    Any callable that takes a :class:`State` and returns an array can be used as a policy. This
    class adds a name, and a step that binds the policy to the jobs it will serve.
    """

    #: Decide again after this many seconds, even if no job has arrived or ended.
    review_every: float | None = None
    #: Whether no server is idle that makes a job faster.
    uses_all_servers: bool = False
    #: Whether sizes matter, so that the live scheduler should learn that of each job early.
    uses_sizes: bool = True
    #: Whether it resizes a job only if that pays.
    counts_resizes: bool = False

    @property
    def name(self) -> str:
        """The name of the policy in tables and messages, with its objective if it has one."""
        name, objective = type(self).__name__.lower(), getattr(self, "objective", "flow")
        return name if objective == "flow" else f"{name}-{objective}"

    @property
    def is_calibrated(self) -> bool:
        """Whether the policy learns from the jobs that it serves."""
        return False

    def without_sizes(self) -> Policy:
        """Return the policy that decides while no size is known: by default, this one."""
        return self

    @abstractmethod
    def __call__(self, state: State) -> FloatArray:
        """Return the servers of each job in the state."""

    def order(self, state: State) -> IntArray | None:
        """Return the jobs in the order in which they get servers if most of them have to wait.

        If there are many more jobs than servers, the live scheduler then asks the policy about the
        first of them only. By default the result is None, and all jobs are in each state.
        """
        return None

    def calibrate(self, before: State | None, state: State) -> Calibration | None:
        """Return what the policy has learned by ``state``, which becomes its calibration.

        ``before`` is the state of the previous decision, with its calibration; None if there was
        none. By default policies learn nothing.
        """
        return None

    def state_rule(self, speedups: SpeedupVector, whole: bool) -> Rule | None:
        """Return the rule by which compiled code decides as this policy does, if there is one.

        It is for jobs with these speedups, on whole servers or not.
        """
        return None

    def bind(self, facts: WorkloadFacts) -> Self:
        """Return the policy ready to serve these jobs; raise an InputError if it cannot.

        A policy whose parameters depend on the jobs fills in those that are not set. A policy that
        caches results returns a copy, because several runs may share the original.
        """
        return self


def find_rule(policy: Policy, speedups: SpeedupVector, whole: bool) -> Rule | None:
    """Return the rule of a policy for jobs with these speedups, or None if it has none.

    A subclass that decides differently than the class that states the rule has none.
    """
    if policy.review_every is not None:
        return None
    defines_call = next(each for each in type(policy).__mro__ if "__call__" in vars(each))
    defines_rule = next(each for each in type(policy).__mro__ if "state_rule" in vars(each))
    return policy.state_rule(speedups, whole) if issubclass(defines_rule, defines_call) else None


class RankRates(NamedTuple):
    """Rates that are products: with m jobs, the i-th largest runs at base_i / pace_m.

    The arrays start with the entries of rank ``first`` and of ``first`` jobs. Lower ranks, those of
    larger jobs, get nothing. Rates hold for at least ``fewest`` jobs, and for at most as many as
    there are entries for. If ``uniform``, every base is 1.
    """

    base: FloatArray
    pace: FloatArray
    first: int = 1
    fewest: int = 1
    uniform: bool = False

    @property
    def most(self) -> int:
        """The greatest number of jobs for which there are rates."""
        return self.first + len(self.pace) - 1


class RankedPolicy(Policy):
    """A policy that depends only on the number of jobs and on the order of their sizes.

    It is defined by its rows: the servers by rank, for each number of jobs. The simulator keeps
    them in a table and runs at full speed.
    """

    #: Whether a row that is shorter than the number of jobs is the same for any further jobs.
    serves_first_only: bool = False

    @property
    def is_ranked(self) -> bool:
        """Whether the rows define the policy. With weights, they do not."""
        return bool(getattr(self, "objective", "flow") == "flow")

    def at_level(self, level: int) -> RankedPolicy:
        """Return the policy at a level of its calibration: each level has rows of its own."""
        return self

    def ranks_by_size(self, whole: bool) -> bool:
        """Return whether rows start with the smallest job, rather than the last to arrive."""
        return True

    @abstractmethod
    def row(self, jobs: int, servers: float, speedup: Speedup, whole: bool) -> FloatArray:
        """Return the servers of the jobs by rank; jobs beyond the end of the row get none."""

    def share_exponent(self, speedup: PowerLaw) -> float | None:
        """Return the p of the closed form by which divisible servers are shared, if there is one.

        The i-th largest of m jobs then holds (i/m)^c − ((i−1)/m)^c, with c = 1/(1 − p).
        """
        return None

    def rank_rates(
        self, jobs: int, most: int, servers: float, speedup: Speedup
    ) -> RankRates | None:
        """Return the rates for ``jobs`` jobs, and for up to ``most`` if rates are products.

        All servers are in use, whatever the number of jobs.
        """
        if not isinstance(speedup, PowerLaw) or (exponent := self.share_exponent(speedup)) is None:
            return None
        return compute_rank_rates(jobs, most, servers, 1 / (1 - exponent), speedup.p)

    def __call__(self, state: State) -> FloatArray:
        speedup = state.speedups.shared
        assert speedup is not None, "rows are for jobs that share one speedup"
        return self.assign_row(state, self.row(len(state), state.servers, speedup, state.whole))

    def assign_row(self, state: State, row: FloatArray) -> FloatArray:
        """Return the servers of each job in the state, given those by rank."""
        held = np.zeros(len(state))
        held[self.ranking(state)[: len(row)]] = row
        return held

    def order(self, state: State) -> IntArray | None:
        return None if state.speedups.shared is None else self.ranking(state)

    def ranking(self, state: State) -> IntArray:
        """Return the jobs in the order of the rows; ties go to the job that arrived first."""
        if not self.ranks_by_size(state.whole):
            return np.arange(len(state))[::-1]
        return np.argsort(state.remaining, kind="stable")


def compute_rank_rates(jobs: int, most: int, servers: float, c: float, p: float) -> RankRates:
    """Return the rates of k^p if the i-th largest of m jobs holds (i/m)^c − ((i−1)/m)^c.

    That share is (i/m)^c b_i with b_i = 1 − ((i−1)/i)^c. Its powers may overflow, so (i/r)^cp and
    (m/r)^cp take the places of i^cp and m^cp, with a reference r that is close to ``jobs`` or from
    which all numbers of jobs are within reach.
    """
    reach = float(np.exp(min(_MAX_LOG / (c * p), 700.0)))
    reference = float(jobs)
    if jobs > reach and jobs <= reach**2:
        reference = reach
    most = max(jobs, int(min(most, reference * reach)))  # which may be infinite
    # The powers of ranks below the first one underflow.
    first = max(int(reference * np.exp(-2 * _MAX_LOG / (c * p))), 1)
    rank = np.arange(first, most + 1.0)
    powers = power_of_ratio(rank, np.full(1, reference), c * p)
    with np.errstate(divide="ignore", under="ignore"):
        base = powers * own_share(np.log1p(-1 / rank), 1 - 1 / c) ** p
    fewest = 1 if reference <= reach else min(int(np.ceil(reference / reach)), jobs)
    return RankRates(base, powers / servers**p, first, fewest)


def as_ranked(policy: object, speedups: SpeedupVector) -> RankedPolicy | None:
    """Return the policy if its rows define it completely for jobs with these speedups, or None."""
    if not isinstance(policy, RankedPolicy) or policy.review_every is not None:
        return None
    return policy if policy.is_ranked and speedups.shared is not None else None
