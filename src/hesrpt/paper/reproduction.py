"""The whole reproduction: all figures and claims, computed on all cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, TypeAlias

from hesrpt.errors import InputError
from hesrpt.paper import (
    arrivals,
    bounded_streams,
    evaluation,
    extensions,
    result_pages,
    speedup_curves,
)
from hesrpt.paper.claims import evaluation_section
from hesrpt.paper.claims.theorems import THEOREM_CHECKS
from hesrpt.paper.claims.verdicts import Claim
from hesrpt.paper.claims.worked_examples import EXAMPLE_CHECKS
from hesrpt.paper.exhibits import POWERS, Exhibit, Progress, Row, Settings, save_page
from hesrpt.paper.speedup_curves import CURVES_PER_PAGE, FittedCurve
from hesrpt.parallel import run_tasks
from hesrpt.readers import Curve, read_curves


@dataclass(frozen=True)
class Reproduction:
    """All figures and claims of a reproduction."""

    settings: Settings
    exhibits: list[Exhibit]
    claims: list[Claim]

    def claim(self, name: str) -> Claim:
        """Return the claim with this name."""
        for claim in self.claims:
            if claim.name == name:
                return claim
        known = ", ".join(claim.name for claim in self.claims)
        raise InputError(f"no claim named {name!r}; choose one of: {known}")

    def exhibit(self, name: str) -> Exhibit:
        """Return the exhibit with this name."""
        for exhibit in self.exhibits:
            if exhibit.name == name:
                return exhibit
        known = ", ".join(exhibit.name for exhibit in self.exhibits)
        raise InputError(f"no exhibit named {name!r}; choose one of: {known}")

    def as_json(self) -> dict[str, Any]:
        """Return everything but the figures as JSON values."""
        return result_pages.build_json(self.settings, self.exhibits, self.claims)


def reproduce(
    out: str | Path | None = None,
    *,
    seed: int = 0,
    jobs: int = 500,
    servers: int = 1_000_000,
    sets: int = 10,
    curves: str | Path | Sequence[Curve] = (),
    stream: int = 10_000,
    pdf: bool = False,
    cores: int | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Compute every figure and judge every claim of the paper, and write them to a directory.

    Parameters
    ----------
    out
        The directory for the figures (PNG and SVG), their data (CSV), the claims
        (``claims.json`` and ``claims.md``) and a page with all of them (``index.md``). If it is not
        given, nothing is written.
    seed, jobs, servers, sets
        The comparison (Fig. 4) has ``sets`` sets of ``jobs`` jobs on ``servers`` servers. The
        first set has the seed ``seed``, the next one ``seed + 1``, and so on.
    curves
        Measured speedups to fit: a file (see :func:`hesrpt.readers.read_curves`) or a list. The
        default is a few published curves.
    stream
        The number of jobs in each stream of arrivals.
    pdf
        Whether to write each figure as PDF as well.
    cores
        The number of cores to use; all of them by default.
    progress
        Called after each step with the amount of work done, the total amount, and the kind of
        the step.
    """
    settings = Settings(
        seed=seed,
        jobs=jobs,
        servers=servers,
        sets=sets,
        curves=read_curves(curves) if isinstance(curves, str | Path) else list(curves),
        stream=stream,
    )
    fits = [
        speedup_curves.fit_curve(curve) for curve in settings.curves or speedup_curves.PUBLISHED
    ]
    tasks = _create_tasks(settings, fits)
    figures = 0 if out is None else _SINGLE_FIGURES + ceil(len(fits) / CURVES_PER_PAGE)
    total = sum(_DURATIONS[kind] for kind, *_ in tasks) + figures * _DURATIONS["figure"]
    counter = _ProgressCounter(progress, total)
    directory = None if out is None else result_pages.prepare_directory(out)
    results = run_tasks(tasks, cores=cores, on_done=lambda key: counter.advance(key[0]))
    exhibits = _create_exhibits(settings, fits, results)
    claims = _create_claims(settings, fits, results)
    if directory is not None:
        formats = ("png", "svg", "pdf") if pdf else ("png", "svg")
        saving = {
            page: partial(save_page, figure, directory / page, exhibit.description, formats)
            for exhibit in exhibits
            for page, figure in exhibit.pages.items()
        }
        run_tasks(saving, cores=cores, on_done=lambda page: counter.advance("figure"))
        result_pages.write_pages(directory, settings, exhibits, claims)
    return Reproduction(settings=settings, exhibits=exhibits, claims=claims)


# The number of figures, not counting the pages of measured curves.
_SINGLE_FIGURES = 10
# Roughly how long a task of each kind takes, for the progress bar.
_DURATIONS = {
    "measured": 10,
    "amdahl": 10,
    "divisible": 30,
    "whole": 20,
    "few": 15,
    "claims": 3,
    "arrivals": 10,
    "bounds": 20,
    "figure": 8,
}
_TaskKey: TypeAlias = tuple[Any, ...]  # the kind of task, then what distinguishes it


class _ProgressCounter:
    """Reports how much of the work is done."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.done, self.total = progress, 0, total

    def advance(self, kind: str) -> None:
        self.done += _DURATIONS[kind]
        if self.progress is not None:
            self.progress(self.done, self.total, kind)


def _create_tasks(settings: Settings, fits: list[FittedCurve]) -> dict[_TaskKey, Callable[[], Any]]:
    """Return the computations that take time, the longest ones first."""
    few_seeds = settings.get_seeds(extensions.SETS)
    systems = {
        "divisible": (settings.servers, False, settings.get_seeds()),
        "whole": (settings.servers, True, few_seeds),
        "few": (extensions.choose_few_servers(settings), True, few_seeds),
    }
    comparisons = {
        (name, p): partial(evaluation.simulate_sets, p, servers, whole, settings.jobs, seeds)
        for p in POWERS
        for name, (servers, whole, seeds) in systems.items()
    }
    seeds = range(settings.seed, settings.seed + arrivals.STREAMS)
    streams = {
        ("arrivals", p, load): partial(arrivals.simulate_load, p, load, settings.stream, seeds)
        for p in arrivals.POWERS
        for load in reversed(arrivals.LOADS)
    }
    bounded_jobs = bounded_streams.count_jobs(settings)
    bounded_seeds = range(settings.seed, settings.seed + bounded_streams.STREAMS)
    bounds = {
        ("bounds", p, load): partial(
            bounded_streams.bound_load, p, load, bounded_jobs, bounded_seeds
        )
        for p in bounded_streams.POWERS
        for load in reversed(bounded_streams.LOADS)
    }
    checks = {
        ("claims", check.__name__): partial(check, settings.seed)
        for check in (*THEOREM_CHECKS, *EXAMPLE_CHECKS)
    }
    others = {
        ("measured",): partial(extensions.exhibit_measured_speedups, fits, settings),
        ("amdahl",): partial(extensions.exhibit_amdahl, settings),
    }
    return {**others, **bounds, **comparisons, **checks, **streams}


def _create_exhibits(
    settings: Settings, fits: list[FittedCurve], results: Mapping[_TaskKey, Any]
) -> list[Exhibit]:
    divisible, whole, few = (
        _create_table(settings, system, results) for system in ("divisible", "whole", "few")
    )
    source = "given" if settings.curves else "published (DLPerf v1.0; HOSCF)"
    return [
        speedup_curves.exhibit_power_laws(),
        speedup_curves.exhibit_paper_fits(),
        speedup_curves.exhibit_measured_curves(fits, source),
        evaluation.exhibit_three_jobs(),
        evaluation.exhibit_comparison(divisible, settings),
        evaluation.exhibit_ratios(divisible, settings),
        extensions.exhibit_whole_servers(
            divisible.select_first(extensions.SETS), whole, few, settings
        ),
        results["amdahl",],
        results["measured",],
        arrivals.exhibit_arrivals(_collect_streams(results), settings),
        bounded_streams.exhibit_bounds(
            [
                row
                for p in bounded_streams.POWERS
                for load in bounded_streams.LOADS
                for row in results["bounds", p, load]
            ],
            settings,
        ),
    ]


def _create_table(
    settings: Settings, system: str, results: Mapping[_TaskKey, Any]
) -> evaluation.FlowTimeTable:
    return evaluation.FlowTimeTable(
        times={p: results[system, p][0] for p in POWERS},
        alphas={p: results[system, p][1] for p in POWERS},
        has_paper_size=settings.has_paper_size,
    )


def _collect_streams(results: Mapping[_TaskKey, Any]) -> list[Row]:
    return [
        row
        for p in arrivals.POWERS
        for load in arrivals.LOADS
        for row in results["arrivals", p, load]
    ]


def _create_claims(
    settings: Settings, fits: list[FittedCurve], results: Mapping[_TaskKey, Any]
) -> list[Claim]:
    """Return the claims in the order of the paper: introduction, theorems, evaluation, limits."""
    table = _create_table(settings, "divisible", results)
    return [
        *(results["claims", check.__name__] for check in EXAMPLE_CHECKS),
        evaluation_section.check_power_laws_fit(fits),
        *(results["claims", check.__name__] for check in THEOREM_CHECKS),
        *(check(table) for check in evaluation_section.EVALUATION_CHECKS),
        evaluation_section.check_arrivals(arrivals.compare_with_best(_collect_streams(results))),
    ]
