"""Putting it all together: what is computed, in which order, on all cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from hesrpt.errors import InputError
from hesrpt.paper import arrivals, beyond, evaluation, pages, sentences
from hesrpt.paper import speedup_curves as speedups
from hesrpt.paper.examples import EXAMPLES
from hesrpt.paper.exhibits import POWERS, Exhibit, Progress, Settings, save_figure
from hesrpt.paper.judging import Claim
from hesrpt.paper.theorems import THEOREMS
from hesrpt.parallel import Workers
from hesrpt.readers import Curve, read_curves

#: The systems that policies are compared on: as in the paper, in whole servers, and few of them.
_SYSTEMS = ("divisible", "whole", "few")


@dataclass(frozen=True)
class Reproduction:
    """All figures and all claims."""

    settings: Settings
    exhibits: list[Exhibit]
    claims: list[Claim]

    def claim(self, name: str) -> Claim:
        """Return the claim of a name."""
        for claim in self.claims:
            if claim.name == name:
                return claim
        known = ", ".join(claim.name for claim in self.claims)
        raise InputError(f"there is no claim {name!r}; claims are: {known}")

    def exhibit(self, name: str) -> Exhibit:
        """Return the exhibit of a name."""
        for exhibit in self.exhibits:
            if exhibit.name == name:
                return exhibit
        known = ", ".join(exhibit.name for exhibit in self.exhibits)
        raise InputError(f"there is no exhibit {name!r}; exhibits are: {known}")

    def as_json(self) -> dict[str, Any]:
        """Return everything but the pictures as JSON values."""
        return pages.as_json(self.settings, self.exhibits, self.claims)


def reproduce(
    out: str | Path | None = None,
    *,
    seed: int = 0,
    jobs: int = 500,
    servers: int = 1_000_000,
    sets: int = 10,
    curves: str | Path | Sequence[Curve] = (),
    stream: int = 10_000,
    cores: int | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Compute every figure and judge every claim; write them to a directory, if one is given.

    Parameters
    ----------
    out
        Gets each figure as PNG and SVG with its data as CSV, the claims as ``claims.json`` and
        ``claims.md``, and a page with all of them, ``index.md``.
    seed, jobs, servers, sets
        Of the comparison (Fig. 4): ``sets`` sets of ``jobs`` jobs, with seeds from ``seed`` on.
    curves
        Measured speedups to fit, a file (see :func:`hesrpt.readers.read_curves`) or a list. Without
        it, a few published ones are taken.
    stream
        How many jobs arrive over time, in the figure about such jobs.
    cores
        How many to use; all of them by default.
    progress
        Called with the part of the work that is done, the whole of it, and what was done last.
    """
    given = read_curves(curves) if isinstance(curves, str | Path) else list(curves)
    settings = Settings(seed, jobs, servers, sets, given, stream)
    fits = [speedups.Fitted.to(curve) for curve in settings.curves or speedups.PUBLISHED]
    tasks = _tasks(settings, fits)
    pictures = 0 if out is None else _PICTURES + len(fits) // speedups.PER_PAGE
    steps = _Steps(progress, sum(_WORK[key[0]] for key in tasks) + pictures * _WORK["figure"])
    with Workers(cores) as workers:
        directory = None if out is None else pages.prepared(out)
        done = workers.run_all(tasks, lambda key: steps.done(key[0]))
        exhibits, claims = _exhibits(settings, fits, done), _claims(settings, fits, done)
        if directory is not None:
            saving = {
                page: partial(save_figure, figure, directory / page, exhibit.description)
                for exhibit in exhibits
                for page, figure in exhibit.pages.items()
            }
            workers.run_all(saving, lambda page: steps.done("figure"))
            pages.write(directory, settings, exhibits, claims)
    return Reproduction(settings, exhibits, claims)


# How many pictures there are, where every figure has one page.
_PICTURES = 10
# About how long the tasks of a kind take.
_WORK = {
    "measured": 10, "amdahl": 10, "divisible": 30, "whole": 20, "few": 15, "claims": 3,
    "arrivals": 10, "figure": 8,
}  # fmt: skip


class _Steps:
    """Counts what is done."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.count, self.total = progress, 0, total

    def done(self, what: str) -> None:
        self.count += _WORK[what]
        if self.progress is not None:
            self.progress(self.count, self.total, what)


def _tasks(
    settings: Settings, fits: list[speedups.Fitted]
) -> dict[tuple[Any, ...], Callable[[], Any]]:
    """Return what takes time, the longest first."""
    few_seeds = settings.seeds(beyond.SETS)
    systems = {
        "divisible": (settings.servers, False, settings.seeds()),
        "whole": (settings.servers, True, few_seeds),
        "few": (beyond.few_servers(settings), True, few_seeds),
    }
    comparisons = {
        (name, p): partial(evaluation.mean_flow_times, p, servers, whole, settings.jobs, seeds)
        for p in POWERS
        for name, (servers, whole, seeds) in systems.items()
    }
    seeds = range(settings.seed, settings.seed + arrivals.STREAMS)
    streams = {
        ("arrivals", p, load): partial(arrivals.at_load, p, load, settings.stream, seeds)
        for p in arrivals.POWERS
        for load in reversed(arrivals.LOADS)
    }
    checks = {
        ("claims", check.__name__): partial(check, settings.seed)
        for check in (*THEOREMS, *EXAMPLES)
    }
    others = {
        ("measured",): partial(beyond.measured, fits, settings),
        ("amdahl",): partial(beyond.amdahl, settings),
    }
    return {**others, **comparisons, **checks, **streams}


def _exhibits(
    settings: Settings, fits: list[speedups.Fitted], done: dict[tuple[Any, ...], Any]
) -> list[Exhibit]:
    divisible, whole, few = (_table(settings, name, done) for name in _SYSTEMS)
    stream_rows = list(
        chain.from_iterable(
            done["arrivals", p, load] for p in arrivals.POWERS for load in arrivals.LOADS
        )
    )
    source = "given" if settings.curves else "published (DLPerf v1.0; HOSCF)"
    return [
        speedups.family(),
        speedups.parsec(),
        speedups.measured(fits, source),
        evaluation.three_jobs(),
        evaluation.comparison(divisible, settings),
        evaluation.ratios(divisible, settings),
        beyond.whole_servers(divisible.first(beyond.SETS), whole, few, settings),
        done["amdahl",],
        done["measured",],
        arrivals.exhibit(stream_rows, settings),
    ]


def _table(settings: Settings, system: str, done: dict[tuple[Any, ...], Any]) -> evaluation.Table:
    return evaluation.Table(
        {p: done[system, p][0] for p in POWERS},
        {p: done[system, p][1] for p in POWERS},
        settings.as_in_paper,
    )


def _claims(
    settings: Settings, fits: list[speedups.Fitted], done: dict[tuple[Any, ...], Any]
) -> list[Claim]:
    """Return the claims as the paper goes: introduction, theorems, evaluation, limitations."""
    by_name: dict[str, Claim] = {key[1]: claim for key, claim in done.items() if key[0] == "claims"}
    table = _table(settings, "divisible", done)
    rows = chain.from_iterable(done[key] for key in done if key[0] == "arrivals")
    return [
        *(by_name[check.__name__] for check in EXAMPLES),
        sentences.power_laws_fit(fits),
        *(by_name[check.__name__] for check in THEOREMS),
        *(check(table) for check in sentences.SENTENCES),
        sentences.arrivals(arrivals.ratio_to_best(list(rows))),
    ]
