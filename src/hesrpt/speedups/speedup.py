"""The speedup function of one job, and those of a list of jobs, evaluated together.

Arguments and results are arrays. Entry i of a result depends only on entry i of the argument. A
:class:`Speedup` applies one function to every entry; a :class:`SpeedupVector` applies the function
of job i to entry i, in a few vector passes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from hesrpt.arrays import BoolArray, FloatArray, IntArray
from hesrpt.errors import InputError

if TYPE_CHECKING:
    from hesrpt.speedups.limits import Limited, TimeShared
    from hesrpt.speedups.shape_kernel import Corners, Shapes


class Elementwise(ABC):
    """Concave speedup functions, evaluated entry by entry. Nothing is validated here."""

    @abstractmethod
    def rate(self, servers: FloatArray) -> FloatArray:
        """Return s(k)."""

    @abstractmethod
    def slope(self, servers: FloatArray) -> FloatArray:
        """Return the gain per additional server, s'(k+)."""

    def slope_before(self, servers: FloatArray) -> FloatArray:
        """Return the loss per server removed, s'(k−): the slope, except where s has a kink."""
        return self.slope(servers)

    def gain(self, servers: FloatArray) -> FloatArray:
        """Return the gain of one more server, s(k + 1) − s(k), for whole numbers k."""
        return self.rate(servers + 1) - self.rate(servers)

    @abstractmethod
    def demand(self, price: FloatArray, max_servers: float) -> FloatArray:
        """Return the fewest servers in [0, max_servers] that maximise s(k) − price·k."""

    @abstractmethod
    def inverse(self, rate: FloatArray, max_servers: float) -> FloatArray:
        """Return the fewest servers that reach ``rate``.

        The result exceeds ``max_servers`` if that many servers cannot reach it.
        """

    def knee(self, saving: FloatArray, max_servers: float) -> FloatArray:
        """Return the greatest k up to ``max_servers`` with ``saving``·s'(k−) ≥ s(k)²."""
        low, high = np.zeros_like(saving), np.full(len(saving), max_servers)
        holds_at_max = saving * self.slope_before(high) >= self.rate(high) ** 2
        for _ in range(60):
            middle = (low + high) / 2
            holds = saving * self.slope_before(middle) >= self.rate(middle) ** 2
            low, high = np.where(holds, middle, low), np.where(holds, high, middle)
        return np.where(holds_at_max, max_servers, low)

    #: The names of the parameters of a family whose speedups can be stacked: one object has an
    #: array, or a stack of speedups, for each of them, and evaluates entry i with those of i. A
    #: subclass may change the formula, so it must name its parameters itself.
    parameters: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def with_arrays(cls, *values: FloatArray | Elementwise) -> Self:
        """Return stacked functions, given their parameters."""
        stacked = object.__new__(cls)
        vars(stacked).update(zip(cls.parameters, values, strict=True))
        return stacked

    def entries(self, which: IntArray) -> Elementwise:
        """Return the stacked functions of some entries."""
        if "parameters" not in vars(type(self)):
            return self  # the same function for all
        part = object.__new__(type(self))
        for name in self.parameters:
            value = getattr(self, name)
            is_array = type(value) is np.ndarray  # faster than to ask an abstract class
            vars(part)[name] = value[which] if is_array else value.entries(which)
        return part


class Speedup(Elementwise):
    """A concave speedup function with s(0) = 0.

    Call it to evaluate s. To add a family, define :meth:`rate`, :meth:`slope`, :meth:`demand` and
    :meth:`inverse`, all vectorised. A plain function needs none of this: it is wrapped in
    :class:`Custom`, which finds the other three numerically.
    """

    def __call__(self, servers: ArrayLike) -> float | FloatArray:
        """Return the speedup s(k) on ``servers`` servers, a float for a number."""
        try:
            checked = np.asarray(servers, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(f"servers must be numbers, got {servers!r}") from None
        if not np.all((checked >= 0) & np.isfinite(checked)):
            raise InputError(f"servers must be finite and at least 0, got {servers!r}")
        rate = self.rate(checked)
        return rate if checked.ndim else float(rate)

    def max_slope(self) -> float:
        """Return the slope at 0, the greatest of all: at this price or above, the demand is 0."""
        return float(self.slope(np.zeros(())))

    @property
    def exponent(self) -> float | None:
        """The p of a power law, also of one that is limited or time-shared; otherwise None."""
        return None

    @property
    def closest_exponent(self) -> float:
        """The p of a power law; for other speedups, the p that agrees on 1 and 8 servers."""
        if self.exponent is not None:
            return self.exponent
        return float(np.log(float(self(8.0)) / float(self(1.0))) / np.log(8.0))

    def check(self, servers: float) -> None:
        """Raise an error if the function is not concave on [0, servers]."""
        return  # the families are concave by construction

    def tabulate(self, servers: float) -> Speedup:
        """Return this speedup on [0, servers] in a form whose demand and inverse are exact.

        That is a table for a custom function, and the speedup itself for all others.
        """
        return self

    def on_whole_servers(self) -> Speedup:
        """Return this speedup on whole servers, linear between them."""
        from hesrpt.speedups.limits import WholeServers

        return WholeServers(self)

    def limited(self, servers: float) -> Limited:
        """Return this speedup for a job that cannot use more than ``servers`` servers.

        >>> from hesrpt import PowerLaw
        >>> PowerLaw(0.5).limited(4)(9)
        2.0
        """
        from hesrpt.speedups.limits import Limited

        return Limited(self, servers)

    def time_shared(self) -> TimeShared:
        """Return this speedup made linear below one server: half a server is half as fast.

        >>> from hesrpt import PowerLaw
        >>> PowerLaw(0.5).time_shared()([0.25, 1, 4])
        array([0.25, 1.  , 2.  ])
        """
        from hesrpt.speedups.limits import TimeShared

        return TimeShared(self)

    # A SpeedupVector evaluates speedups of one family together, with arrays for their parameters.

    def stack_key(self) -> Hashable:
        """Return a key that is equal for speedups that can be stacked."""
        if "parameters" not in vars(type(self)):
            return self
        values = [getattr(self, name) for name in self.parameters]
        return type(self), *(v.stack_key() for v in values if isinstance(v, Speedup))

    @classmethod
    def stack(cls, speedups: Sequence[Self]) -> Elementwise:
        """Return speedups with the same stack key as one object, one entry for each of them."""
        if "parameters" not in vars(cls):
            return speedups[0]  # all are equal
        columns = [[getattr(speedup, name) for speedup in speedups] for name in cls.parameters]
        return cls.with_arrays(
            *(
                type(column[0]).stack(column)
                if isinstance(column[0], Speedup)
                else np.array(column)
                for column in columns
            )
        )


class SpeedupVector(Elementwise):
    """The speedups of a list of jobs: arrays have one entry for each job.

    If all jobs share one speedup, it is evaluated directly and stored only once.
    Different speedups are grouped by family, and each family is evaluated in one vector pass.

    >>> from hesrpt import Amdahl, PowerLaw
    >>> speedups = SpeedupVector.create([PowerLaw(0.5), Amdahl(0.9), PowerLaw(0.25)])
    >>> speedups.rate(np.array([16.0, 10.0, 16.0]))
    array([4.        , 5.26315789, 2.        ])
    >>> speedups[2]
    PowerLaw(p=0.25)
    """

    #: The speedup that all jobs have in common; None if the list was created from different ones.
    #: It stays None in a part of such a list, even if all speedups in that part are equal.
    shared: Speedup | None

    def __init__(self, distinct: _Distinct, which: IntArray | None, jobs: int) -> None:
        """Job i has speedup ``which[i]`` of ``distinct``; without ``which``, all have the first.

        Use :meth:`create` or :meth:`repeat` instead.
        """
        self.shared = distinct.speedups[0] if which is None else None
        self._distinct, self._which, self._jobs = distinct, which, jobs

    @classmethod
    def create(cls, speedups: Iterable[Speedup]) -> SpeedupVector:
        """Return the speedups of a list of jobs."""
        by_job = list(speedups)
        if len(set(map(id, by_job))) == 1:
            return cls.repeat(by_job[0], len(by_job))
        numbers: dict[Speedup, int] = {}
        which = [numbers.setdefault(speedup, len(numbers)) for speedup in by_job]
        if len(numbers) == 1:
            return cls.repeat(by_job[0], len(by_job))
        return cls(_Distinct(list(numbers)), np.array(which, dtype=np.int64), len(by_job))

    @classmethod
    def repeat(cls, speedup: Speedup, jobs: int) -> SpeedupVector:
        """Return the speedups of ``jobs`` jobs that share one speedup."""
        return cls(_Distinct([speedup]), None, jobs)

    def __len__(self) -> int:
        return self._jobs

    def __repr__(self) -> str:
        if self.shared is not None:
            return f"SpeedupVector({self._jobs} × {self.shared!r})"
        families = sorted({type(speedup).__name__ for speedup in self})
        return f"SpeedupVector({self._jobs} of {', '.join(families)})"

    def __iter__(self) -> Iterator[Speedup]:
        return (self[job] for job in range(self._jobs))

    def __getitem__(self, job: int) -> Speedup:
        """Return the speedup of one job."""
        job = range(self._jobs)[job]
        return self._distinct.speedups[0 if self._which is None else int(self._which[job])]

    def take(self, jobs: IntArray) -> SpeedupVector:
        """Return the speedups of some jobs, or of all jobs in another order."""
        which = None if self._which is None else self._which[jobs]
        return SpeedupVector(self._distinct, which, len(jobs))

    def equals(self, other: SpeedupVector) -> BoolArray:
        """Return for each job whether ``other`` has an equal speedup in its place.

        If one list is longer, its extra jobs are ignored.
        """
        jobs = min(self._jobs, other._jobs)
        if self.shared is not None and other.shared is not None:
            return np.full(jobs, self.shared == other.shared)
        if self._distinct is other._distinct and self._which is not None:
            return np.equal(self._which[:jobs], other._which[:jobs])  # type: ignore[index]
        return np.array([mine == theirs for mine, theirs in zip(self, other, strict=False)])

    # --- the same operations as those of one speedup -----------------------------------------

    @property
    def exponent(self) -> float | None:
        """The p of the power law that all jobs have in common (see :attr:`Speedup.exponent`)."""
        used = [0] if self._which is None else np.unique(self._which)
        exponents = {self._distinct.speedups[number].exponent for number in used}
        return exponents.pop() if len(exponents) == 1 else None

    def closest_exponents(self) -> FloatArray:
        """Return the exponent of the power law closest to each job's speedup."""
        distinct = np.array([speedup.closest_exponent for speedup in self._distinct.speedups])
        return np.full(self._jobs, distinct[0]) if self._which is None else distinct[self._which]

    def check(self, servers: float) -> None:
        """Raise an error if any function is not concave on [0, servers]."""
        for speedup in self._distinct.speedups:
            speedup.check(servers)

    def tabulate(self, servers: float) -> SpeedupVector:
        """Return these speedups on [0, servers], with tables in place of custom functions."""
        tabulated = [speedup.tabulate(servers) for speedup in self._distinct.speedups]
        if all(new is old for new, old in zip(tabulated, self._distinct.speedups, strict=True)):
            return self
        return SpeedupVector(_Distinct(tabulated), self._which, self._jobs)

    def on_whole_servers(self) -> SpeedupVector:
        """Return these speedups on whole servers, linear between them."""
        return SpeedupVector(self._distinct.on_whole_servers, self._which, self._jobs)

    def shapes(self, servers: float, tabulated: bool = False) -> Shapes:
        """Return these speedups on [0, servers] as arrays for compiled code.

        If ``tabulated``, formulas on few whole servers become tables, which are faster.
        """
        from hesrpt.speedups.shape_kernel import Shapes  # which imports numba: that takes long

        records, corners = self._distinct.shapes(servers, tabulated)
        of_job = np.zeros(self._jobs, dtype=np.int64) if self._which is None else self._which
        return Shapes(records, corners, of_job)

    # --- evaluation --------------------------------------------------------------------------

    @cached_property
    def _groups(self) -> list[_Group]:
        """The jobs of each family of speedups, in ascending order, and their stacked speedups."""
        assert self._which is not None, "jobs that share one speedup need no groups"
        return self._distinct.group(self._which)

    def _evaluate(
        self, values: FloatArray, method: Callable[[Elementwise, FloatArray], FloatArray]
    ) -> FloatArray:
        if self.shared is not None:
            return method(self.shared, values)
        if len(self._groups) == 1:
            return method(self._groups[0][1], values)
        result = np.empty_like(values)
        for jobs, functions in self._groups:
            result[jobs] = method(functions, values[jobs])
        return result

    def rate(self, servers: FloatArray) -> FloatArray:
        return self._evaluate(servers, lambda functions, n: functions.rate(n))

    def slope(self, servers: FloatArray) -> FloatArray:
        return self._evaluate(servers, lambda functions, n: functions.slope(n))

    def slope_before(self, servers: FloatArray) -> FloatArray:
        return self._evaluate(servers, lambda functions, n: functions.slope_before(n))

    def gain(self, servers: FloatArray) -> FloatArray:
        return self._evaluate(servers, lambda functions, n: functions.gain(n))

    def demand(self, price: FloatArray, max_servers: float) -> FloatArray:
        return self._evaluate(price, lambda functions, each: functions.demand(each, max_servers))

    def inverse(self, rate: FloatArray, max_servers: float) -> FloatArray:
        return self._evaluate(rate, lambda functions, each: functions.inverse(each, max_servers))

    def knee(self, saving: FloatArray, max_servers: float) -> FloatArray:
        return self._evaluate(saving, lambda functions, each: functions.knee(each, max_servers))


_Group: TypeAlias = tuple[IntArray, Elementwise]


class _Distinct:
    """The distinct speedups of a list of jobs, stacked by family."""

    def __init__(self, speedups: Sequence[Speedup]) -> None:
        self.speedups = tuple(speedups)
        self._shapes: dict[tuple[float, bool], tuple[Any, Corners]] = {}

    def shapes(self, servers: float, tabulated: bool) -> tuple[Any, Corners]:
        """Return the speedups on [0, servers] as arrays for compiled code."""
        # Shapes know all families, which are built on this module.
        from hesrpt.speedups.shapes import join_shapes

        key = servers, tabulated
        if key not in self._shapes:
            self._shapes.clear()  # the number of servers hardly ever changes
            self._shapes[key] = join_shapes(self.speedups, servers, tabulated)
        return self._shapes[key]

    @cached_property
    def on_whole_servers(self) -> _Distinct:
        return _Distinct([speedup.on_whole_servers() for speedup in self.speedups])

    @cached_property
    def _stacks(self) -> tuple[list[Elementwise], IntArray, IntArray]:
        """The stack of each family; the family of each speedup; its entry in that stack."""
        families: dict[Hashable, list[int]] = {}
        for number, speedup in enumerate(self.speedups):
            families.setdefault(speedup.stack_key(), []).append(number)
        family = np.empty(len(self.speedups), dtype=np.int64)
        entry = np.empty(len(self.speedups), dtype=np.int64)
        for place, numbers in enumerate(families.values()):
            family[numbers], entry[numbers] = place, np.arange(len(numbers))
        stacks = [
            type(self.speedups[numbers[0]]).stack([self.speedups[n] for n in numbers])
            for numbers in families.values()
        ]
        return stacks, family, entry

    def group(self, which: IntArray) -> list[_Group]:
        """Return the speedups numbered ``which``, grouped by family."""
        stacks, family, entry = self._stacks
        families = family[which]
        groups = []
        for place, stacked in enumerate(stacks):
            jobs = np.flatnonzero(families == place)
            if len(jobs):
                groups.append((jobs, stacked.entries(entry[which[jobs]])))
        return groups
