"""Jobs that keep arriving: policy adaptive compared with simple policies and with fixed focus.

Each cell of the grid is a kind of stream. All policies serve the same streams, and results are mean
flow times over all of them. "best fixed" is the best value of the policy's parameter in hindsight.
"""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.ratios import Ratio, at_most
from hesrpt import PowerLaw, Workload, simulate
from hesrpt.arrays import FloatArray
from hesrpt.errors import OverloadWarning
from hesrpt.policies import Adaptive, PolicyLike
from hesrpt.policies.calibration_kernel import LEVELS, focus_of_level
from hesrpt.speedups import Speedup
from hesrpt.traces import read_trace
from hesrpt.whatif import StudyOptions
from hesrpt.whatif.assumptions import assume_speedup
from hesrpt.whatif.study_jobs import StudyJobs, select_jobs
from hesrpt.workload import SIZES

POWERS = (0.3, 0.5, 0.7, 0.9, 0.97)
LOADS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
KINDS = ("exponential", "pareto", "hyperexponential", "deterministic", "bimodal")
SERVERS = (4, 16, 64, 512)
#: The gains over EQUI and heSRPT that are expected with p = 0.9 at load 0.7 on 64 servers.
OWN_TARGETS = {"exponential": 0.15, "pareto": 0.22}
SIMPLE = ("equi", "hesrpt", "srpt")
#: How far adaptive may be above the best simple policy, and above the best fixed focus.
MAX_ABOVE_SIMPLE, MAX_ABOVE_BEST_FIXED = 0.03, 0.05
# The servers of machines whose traces do not say how many there are.
_MACHINES = {"itp-cluster01": 128, "itp-cluster10": 64, "philly": 256}


@dataclass(frozen=True)
class Cell:
    """One kind of stream."""

    p: float | tuple[float, ...]
    load: float
    sizes: str
    servers: int
    whole: bool
    burst: int = 1  # jobs that arrive together
    size_error: float = 0.0
    trace: Path | None = None

    @property
    def title(self) -> str:
        p = f"{self.p:g}" if isinstance(self.p, float) else "mixed"
        parts = [f"p {p}, load {self.load:g}, {self.sizes}, {self.servers} servers"]
        parts.append("whole" if self.whole else "divisible")
        parts += [f"bursts of {self.burst}"] if self.burst > 1 else []
        parts += [f"size error {self.size_error:g}"] if self.size_error else []
        return ", ".join(parts)

    @property
    def is_central(self) -> bool:
        """Whether a gain over EQUI and heSRPT is expected here."""
        is_poisson = self.burst == 1 and self.trace is None and self.size_error == 0
        return (
            is_poisson and isinstance(self.p, float) and self.p >= 0.7 and 0.5 <= self.load <= 0.9
        )

    @property
    def has_own_target(self) -> bool:
        """Whether a certain gain is expected here, so that streams must be long."""
        has_target = (self.p, self.load, self.servers) == (0.9, 0.7, 64)
        return self.is_central and has_target and self.sizes in OWN_TARGETS

    def create_stream(self, jobs: int, seed: int) -> Workload:
        """Return a stream; cells that differ only in p or in servers share random numbers."""
        if self.trace is not None:
            assert isinstance(self.p, float)
            options = StudyOptions(servers=self.servers, load=self.load)
            log = select_jobs(read_trace(self.trace), options)
            unlimited = assume_speedup(self.p, max_servers="none")
            all_jobs = np.ones(len(log), np.bool_)
            return StudyJobs(log, self.servers, unlimited, seed, all_jobs).build_malleable()
        rng = np.random.default_rng(seed)
        sizes = _bimodal(rng, jobs) if self.sizes == "bimodal" else SIZES[self.sizes](rng, jobs)
        gaps = rng.exponential(self.burst / (self.load * self.servers), -(-jobs // self.burst))
        arrivals = np.repeat(np.cumsum(gaps), self.burst)[:jobs]
        if isinstance(self.p, float):
            return Workload(sizes, self._speedup(self.p), arrivals=arrivals)
        drawn = rng.choice(self.p, jobs)
        return Workload(sizes, [self._speedup(p) for p in drawn.tolist()], arrivals=arrivals)

    def _speedup(self, p: float) -> Speedup:
        return PowerLaw(p).time_shared() if self.whole else PowerLaw(p)


@dataclass(frozen=True)
class Result:
    """Mean flow times in one cell."""

    cell: Cell
    adaptive: float
    simple: dict[str, float]
    best_fixed: float
    best_focus: float

    @property
    def above_simple(self) -> float:
        """How far adaptive is above the best simple policy."""
        return self.adaptive / min(self.simple.values()) - 1

    @property
    def above_best_fixed(self) -> float:
        return self.adaptive / self.best_fixed - 1

    @property
    def above_equi_and_hesrpt(self) -> float:
        return self.adaptive / min(self.simple["equi"], self.simple["hesrpt"]) - 1


def _bimodal(rng: np.random.Generator, jobs: int) -> FloatArray:
    """Return sizes of 10.5 for one job in twenty and 0.5 for the rest: 1 on average."""
    return np.where(rng.random(jobs) < 0.05, 10.5, 0.5)


def list_quick_cells() -> Iterator[Cell]:
    """Return a few cells of each kind."""
    for p, load, kind in product((0.5, 0.7, 0.9, 0.97), (0.3, 0.7, 0.9), ("exponential", "pareto")):
        yield Cell(p, load, kind, 64, whole=False)
    for load, kind in product((0.5, 0.7, 0.9), ("exponential", "pareto", "hyperexponential")):
        yield Cell(0.9, load, kind, 16, whole=True)
    yield Cell(0.9, 0.7, "exponential", 64, whole=True)
    yield Cell(0.9, 0.7, "pareto", 64, whole=True)
    yield Cell(0.9, 0.5, "pareto", 64, whole=False, burst=50)
    yield Cell(0.9, 0.7, "pareto", 64, whole=False, size_error=1.0)
    yield Cell(0.9, 0.7, "exponential", 4, whole=True)
    yield Cell(0.9, 0.7, "deterministic", 16, whole=False)
    yield Cell(0.9, 0.7, "bimodal", 512, whole=False)
    yield Cell((0.3, 0.5, 0.7, 0.9), 0.7, "pareto", 16, whole=False)


def list_all_cells() -> Iterator[Cell]:
    """Return the whole grid."""
    for servers, whole, p, load, kind in product(SERVERS, (False, True), POWERS, LOADS, KINDS):
        yield Cell(p, load, kind, servers, whole)
    for whole, p, load, kind in product(
        (False, True), POWERS, (0.3, 0.5, 0.7, 0.9), ("exponential", "pareto")
    ):
        yield Cell(p, load, kind, 64, whole, burst=50)
        yield Cell(p, load, kind, 64, whole, size_error=0.5)
        yield Cell(p, load, kind, 64, whole, size_error=1.0)
    for whole, load, kind in product(
        (False, True), (0.3, 0.5, 0.7, 0.9), ("exponential", "pareto")
    ):
        yield Cell((0.3, 0.5, 0.7, 0.9), load, kind, 16, whole)


def list_trace_cells(directory: Path) -> Iterator[Cell]:
    """Return cells for each trace in a directory."""
    for path in sorted(directory.iterdir()):
        machine = read_trace(path).machine_servers
        servers = machine or next(n for name, n in _MACHINES.items() if path.name.startswith(name))
        for p, load in product((0.5, 0.7, 0.9, 0.97), (0.3, 0.5, 0.7, 0.9)):
            yield Cell(p, load, path.stem, int(servers), whole=True, trace=path)


def measure_cell(cell: Cell, jobs: int, streams: int) -> Result:
    """Simulate all policies in one cell."""
    is_mixed = not isinstance(cell.p, float)
    if is_mixed:
        jobs, streams = min(jobs, 1000), 1  # these policies are not compiled
    elif cell.trace is not None:
        streams = 1
    elif cell.has_own_target:
        jobs *= 10
    workloads = [cell.create_stream(jobs, seed) for seed in range(streams)]

    def mean(policy: PolicyLike) -> float:
        return float(
            np.mean(
                [
                    simulate(
                        workload,
                        cell.servers,
                        policy,
                        whole=cell.whole,
                        size_error=cell.size_error,
                        seed=seed,
                    ).mean_flow_time
                    for seed, workload in enumerate(workloads)
                ]
            )
        )

    # HeSRPT needs one power law, and is left out where speedups differ.
    simple = {name: mean(name) for name in SIMPLE if not (is_mixed and name == "hesrpt")}
    simple.setdefault("hesrpt", simple["equi"])
    fixed: dict[int, float] = {}

    def measure(level: int) -> float:
        if level not in fixed:
            fixed[level] = mean(Adaptive(focus_of_level(level)))
        return fixed[level]

    # Mean flow time has one minimum along the levels, so we walk downhill in smaller and smaller
    # steps.
    best = LEVELS // 3
    for step in (4,) if is_mixed else (4, 2, 1):
        while better := [
            level
            for level in (best - step, best + step)
            if 0 <= level <= LEVELS and measure(level) < measure(best)
        ]:
            best = min(better, key=measure)
    return Result(cell, mean("adaptive"), simple, fixed[best], focus_of_level(best))


def measure_arrivals(
    console: Console,
    *,
    full: bool = False,
    number: int | None = None,
    traces: Path | None = None,
    servers: int | None = None,
    jobs: int = 10_000,
    streams: int = 2,
) -> list[Ratio]:
    """Compare adaptive with EQUI, heSRPT, SRPT and the best fixed focus in every cell.

    If a ``number`` of cells is given, so many are chosen at random. Only the cells that are
    measured by default have ratios to keep.
    """
    cells = list(list_all_cells() if full else list_quick_cells())
    if servers is not None:
        cells = [cell for cell in cells if cell.servers == servers]
    if number is not None:
        random.Random(1).shuffle(cells)
        cells = cells[:number]
    if traces is not None:
        cells += list_trace_cells(traces)
    results = []
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OverloadWarning)
        for cell in cells:
            result = measure_cell(cell, jobs, streams)
            results.append(result)
            best = min(result.simple, key=result.simple.__getitem__)
            console.print(
                f"{cell.title}: {best} {result.simple[best]:.4g}, adaptive {result.adaptive:.4g} "
                f"({result.above_simple:+.1%}), best fixed focus {result.best_focus:.3f} "
                f"({result.above_best_fixed:+.1%})"
            )
    seconds = time.perf_counter() - began
    console.print(f"{len(cells)} cells, {streams} streams of {jobs:,} jobs each: {seconds:.0f} s")
    _print_targets(console, results)
    is_default = not full and number is None and traces is None and servers is None
    return _list_ratios(results) if is_default and (jobs, streams) == (10_000, 2) else []


def _list_ratios(results: Sequence[Result]) -> list[Ratio]:
    fixed = [1 + result.above_best_fixed for result in results]
    central = [1 + result.above_equi_and_hesrpt for result in results if result.cell.is_central]
    ratios = [
        at_most(
            "adaptive's flow time / that of the best simple policy, at most",
            1 + max(result.above_simple for result in results),
            1 + MAX_ABOVE_SIMPLE,
        ),
        at_most(
            "adaptive's flow time / that with the best fixed focus, at most",
            max(fixed),
            1 + MAX_ABOVE_BEST_FIXED,
        ),
        at_most("the same on average", float(np.mean(fixed)), 1.01),
    ]
    if central:
        name = "adaptive's flow time / the better of EQUI's and heSRPT's, on average"
        ratios.append(at_most(name, float(np.mean(central)), 0.96))
    for result in results:
        if result.cell.has_own_target:
            gain = OWN_TARGETS[result.cell.sizes]
            name = f"the same for {result.cell.title}"
            ratios.append(at_most(name, 1 + result.above_equi_and_hesrpt, 1 - gain))
    return ratios


def _print_targets(console: Console, results: list[Result]) -> None:
    for ratio in _list_ratios(results):
        verdict = "met" if ratio.reaches_target else "missed"
        console.print(f"{ratio.name}: {ratio.value:.4g} ({ratio.shown_target}: {verdict})")
    for result in results:
        if result.above_simple > MAX_ABOVE_SIMPLE or result.above_best_fixed > MAX_ABOVE_BEST_FIXED:
            console.print(
                f"missed: {result.cell.title}: {result.above_simple:+.1%} above the best simple "
                f"policy, {result.above_best_fixed:+.1%} above the best fixed focus"
            )
