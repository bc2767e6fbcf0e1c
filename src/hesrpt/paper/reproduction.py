"""The whole reproduction: all figures and claims, computed on all cores, and its files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined

from hesrpt import files
from hesrpt._version import __version__
from hesrpt.errors import InputError
from hesrpt.paper import extensions, figures
from hesrpt.paper.claims import RULES, Claim, count_verdicts
from hesrpt.paper.exhibits import (
    POWERS,
    SHAPE,
    Exhibit,
    Progress,
    Row,
    Settings,
    get_versions,
    save_page,
)
from hesrpt.paper.figures import CURVES_PER_PAGE, FittedCurve, FlowTimeTable, System
from hesrpt.paper.statements import EXAMPLE_CHECKS, THEOREM_CHECKS
from hesrpt.parallel import run_tasks
from hesrpt.readers import Curve, read_curves

Named = TypeVar("Named", Claim, Exhibit)


@dataclass(frozen=True)
class Reproduction:
    """All figures and claims of a reproduction."""

    settings: Settings
    exhibits: list[Exhibit]
    claims: list[Claim]

    def claim(self, name: str) -> Claim:
        """Return the claim with this name."""
        return _find(self.claims, name, "claim")

    def exhibit(self, name: str) -> Exhibit:
        """Return the exhibit with this name."""
        return _find(self.exhibits, name, "exhibit")

    def as_json(self) -> dict[str, Any]:
        """Return everything but the figures as JSON values."""
        shown = ("name", "title", "sentence", "parameters", "table")
        return {
            "hesrpt": __version__,
            "versions": get_versions(),
            "settings": vars(self.settings) | {"curves": len(self.settings.curves)},
            "rules": RULES,
            "claims": [claim.as_json() for claim in self.claims],
            "figures": [
                {name: getattr(exhibit, name) for name in shown} for exhibit in self.exhibits
            ],
        }


def _find(items: Sequence[Named], name: str, kind: str) -> Named:
    by_name = {item.name: item for item in items}
    if name not in by_name:
        raise InputError(f"no {kind} named {name!r}; choose one of: {', '.join(by_name)}")
    return by_name[name]


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
    fits = [figures.fit_curve(curve) for curve in settings.curves or figures.PUBLISHED]
    tasks = _create_tasks(settings, fits)
    pages = 0 if out is None else _SINGLE_FIGURES + ceil(len(fits) / CURVES_PER_PAGE)
    kinds = [kind for kind, *_ in tasks] + ["figure"] * pages
    total = sum(_DURATIONS.get(kind, _USUAL_DURATION) for kind in kinds)
    done = 0

    def advance(kind: str) -> None:
        nonlocal done
        done += _DURATIONS.get(kind, _USUAL_DURATION)
        if progress is not None:
            progress(done, total, kind)

    directory = None if out is None else prepare_directory(out)
    results = run_tasks(tasks, cores=cores, on_done=lambda key: advance(key[0]))
    reproduction = _assemble(settings, fits, results)
    if directory is not None:
        formats = ("png", "svg", "pdf") if pdf else ("png", "svg")
        saving = {
            page: partial(save_page, figure, directory / page, exhibit.description, formats)
            for exhibit in reproduction.exhibits
            for page, figure in exhibit.pages.items()
        }
        run_tasks(saving, cores=cores, on_done=lambda page: advance("figure"))
        write_pages(directory, reproduction)
    return reproduction


# The number of figures, not counting the pages of measured curves.
_SINGLE_FIGURES = 10
# Roughly how long a task of each kind takes, for the progress bar.
_DURATIONS = {"divisible": 30, "whole": 20, "bounds": 20, "few": 15, "claims": 3}
_USUAL_DURATION = 10
_TaskKey: TypeAlias = tuple[Any, ...]  # the kind of task, then what distinguishes it


def _create_tasks(settings: Settings, fits: list[FittedCurve]) -> dict[_TaskKey, Callable[[], Any]]:
    """Return the computations that take time, the longest ones first."""
    comparisons = {
        (name, p): partial(figures.simulate_sets, p, system, settings.jobs)
        for p in POWERS
        for name, system in _get_systems(settings).items()
    }
    seeds = range(settings.seed, settings.seed + extensions.STREAMS)
    streams = {
        ("arrivals", p, load): partial(extensions.simulate_load, p, load, settings.stream, seeds)
        for p in extensions.POWERS
        for load in reversed(extensions.LOADS)
    }
    bounded_jobs = settings.stream // extensions.BOUNDED_PART
    bounds = {
        ("bounds", p, load): partial(extensions.bound_load, p, load, bounded_jobs, seeds)
        for p in extensions.POWERS
        for load in reversed(extensions.BOUNDED_LOADS)
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


def _get_systems(settings: Settings) -> dict[str, System]:
    """Return the systems on which policies are compared; the last has far fewer servers."""
    few_seeds = settings.get_seeds(extensions.SETS)
    return {
        "divisible": System(settings.servers, False, settings.get_seeds()),
        "whole": System(settings.servers, True, few_seeds),
        "few": System(max(settings.jobs // 8, 1), True, few_seeds),
    }


def _assemble(
    settings: Settings, fits: list[FittedCurve], results: Mapping[_TaskKey, Any]
) -> Reproduction:
    """Create the figures, and list the claims in the order of the paper."""
    divisible, whole, few = (
        FlowTimeTable(system, *({p: results[name, p][part] for p in POWERS} for part in (0, 1)))
        for name, system in _get_systems(settings).items()
    )
    arrivals, bounds = (
        [row for key in sorted(results) if key[0] == kind for row in results[key]]
        for kind in ("arrivals", "bounds")
    )
    source = "given" if settings.curves else "published (DLPerf v1.0; HOSCF)"
    few_sets = divisible.select_first(extensions.SETS)
    exhibits = [
        figures.exhibit_power_laws(),
        figures.exhibit_paper_fits(),
        figures.exhibit_measured_curves(fits, source),
        figures.exhibit_three_jobs(),
        *figures.exhibit_comparison(divisible, settings),
        extensions.exhibit_whole_servers(few_sets, whole, few, settings),
        results["amdahl",],
        results["measured",],
        extensions.exhibit_arrivals(arrivals, settings),
        extensions.exhibit_bounds(bounds, settings),
    ]
    claims = [
        *(results["claims", check.__name__] for check in EXAMPLE_CHECKS),
        figures.check_power_laws_fit(fits),
        *(results["claims", check.__name__] for check in THEOREM_CHECKS),
        *figures.judge_comparison(divisible, has_paper_size=settings.has_paper_size),
        extensions.check_arrivals(extensions.compare_with_best(arrivals)),
    ]
    return Reproduction(settings, exhibits, claims)


def prepare_directory(out: str | Path) -> Path:
    """Create a directory if needed, and raise an error if it cannot be written to."""
    directory = Path(out)
    if directory.exists() and not directory.is_dir():
        raise InputError(f"{directory}: is not a directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / ".hesrpt"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(f"{directory}: cannot be written to: {error.strerror or error}") from None
    return directory


def write_pages(directory: Path, reproduction: Reproduction) -> None:
    """Write the data, ``claims.json``, and the pages that are made from ``templates/``."""
    settings, exhibits = reproduction.settings, reproduction.exhibits
    for exhibit in exhibits:
        exhibit.save_data(directory)
        _remove_old_pages(directory, exhibit)
    environment = Environment(
        loader=PackageLoader("hesrpt", "paper/templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"cell": format_cell, "filled_columns": _list_filled_columns}
    for page in ("claims.md", "index.md"):
        text = environment.get_template(page).render(
            settings=settings,
            exhibits=exhibits,
            claims=reproduction.claims,
            counts=count_verdicts(reproduction.claims),
            rules=RULES,
            shape=SHAPE,
            versions=get_versions(),
        )
        files.write_text(directory / page, text)
    files.write_text(directory / "claims.json", json.dumps(reproduction.as_json(), indent=2) + "\n")


def format_cell(value: object) -> str:
    """Return a value as the text of a cell in a table."""
    text = "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
    return text.replace("|", r"\|")


def _remove_old_pages(directory: Path, exhibit: Exhibit) -> None:
    """Remove the surplus pages of an earlier run that had more of them."""
    for suffix in ("png", "svg", "pdf"):
        for old in directory.glob(f"{exhibit.name}_[0-9]*.{suffix}"):
            if old.stem not in exhibit.pages:
                old.unlink()


def _list_filled_columns(rows: Sequence[Row]) -> list[str]:
    """Return the columns of a table that are not empty."""
    return [name for name in rows[0] if any(row[name] not in (None, "") for row in rows)]
