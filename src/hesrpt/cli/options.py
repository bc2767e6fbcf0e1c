"""The options that the commands share, and the jobs and speedups that they describe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from hesrpt.speedups import Speedup
    from hesrpt.workload import Workload


def _number(text: str) -> float:
    """Return a number from the command line; the parser's own message does not name the value."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"must be a number, got {text!r}") from None


JobsFile = Annotated[
    str | None,
    typer.Argument(
        metavar="JOBS.CSV",
        help="Columns size, and if wanted name, weight, arrival, p, max_servers; - for standard "
        "input.",
        show_default=False,
    ),
]
Servers = Annotated[
    float, typer.Option(parser=_number, metavar="N", help="How many servers there are.")
]
PowerOption = Annotated[
    float | None, typer.Option(parser=_number, metavar="P", help="Speedup s(k) = k^P, 0 < P < 1.")
]
AmdahlOption = Annotated[
    float | None,
    typer.Option(parser=_number, metavar="F", help="Amdahl's law with parallel fraction F."),
]
MeasuredOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE.CSV", help="Measured speedups: columns servers, speedup."),
]
MaxServers = Annotated[
    float | None,
    typer.Option(parser=_number, metavar="K", help="The most servers that one job can use."),
]
TimeSharedFlag = Annotated[
    bool, typer.Option("--time-shared", help="Make the speedup linear below one server.")
]
Whole = Annotated[bool, typer.Option("--whole", help="Hand out whole servers only.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
PlotFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Draw the result (.png, .svg, .pdf).")
]
CsvFile = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write a CSV file.")]
ParetoJobs = Annotated[
    int | None, typer.Option(metavar="M", help="Instead of a file: M jobs of Pareto sizes.")
]
Shape = Annotated[float, typer.Option(parser=_number, metavar="A", help="Of the Pareto sizes.")]
PoissonJobs = Annotated[
    int | None, typer.Option(metavar="M", help="Instead of a file: M jobs, arriving at random.")
]
Rate = Annotated[
    float | None, typer.Option(parser=_number, metavar="R", help="Jobs per second, for --poisson.")
]
Sizes = Annotated[
    Literal["exponential", "deterministic", "pareto", "hyperexponential"],
    typer.Option(help="Their sizes, with mean 1, for --poisson."),
]
Seed = Annotated[int, typer.Option(metavar="S", help="Of random jobs and errors.")]
ResizeCost = Annotated[
    float,
    typer.Option(
        parser=_number, metavar="T", help="Seconds a job stands still when its servers change."
    ),
]
SizeError = Annotated[
    float,
    typer.Option(
        parser=_number, metavar="E", help="The policy sees sizes times exp(E Z), Z normal."
    ),
]
Objective = Annotated[
    Literal["flow", "slowdown", "weighted", "makespan"], typer.Option(help="What to minimise.")
]


def workloads_of(
    jobs: str | None,
    speedup: Speedup | None,
    pareto: int | None,
    shape: float,
    poisson: int | None,
    rate: float | None,
    sizes: str,
    seed: int,
    replications: int,
) -> list[Workload]:
    """Return the jobs that the options describe: from a file, or drawn at random."""
    from hesrpt.errors import InputError
    from hesrpt.readers import read_jobs
    from hesrpt.workload import Workload

    given = [
        name
        for name, value in (("JOBS.CSV", jobs), ("--pareto", pareto), ("--poisson", poisson))
        if value is not None
    ]
    if len(given) != 1:
        what = " and ".join(given) + " exclude each other" if given else "no jobs are given"
        raise InputError(f"{what}: one of JOBS.CSV, --pareto and --poisson is wanted")
    if replications < 1:
        raise InputError(f"--replications must be at least 1, got {replications}")
    if (poisson is None) != (rate is None):
        raise InputError("--poisson and --rate go together: how many jobs, and how many a second")
    if jobs is not None:
        if replications > 1:
            raise InputError("--replications is for random jobs: --pareto or --poisson")
        return [read_jobs(jobs, speedup)]
    if speedup is None:
        raise InputError("no speedup is given: one of --p, --amdahl and --measured is wanted")
    seeds = range(seed, seed + replications)
    if pareto is not None:
        return [Workload.pareto(pareto, shape=shape, seed=s, speedup=speedup) for s in seeds]
    assert poisson is not None
    assert rate is not None
    return [Workload.poisson(rate, poisson, sizes=sizes, seed=s, speedup=speedup) for s in seeds]


def speedup_of(
    p: float | None,
    amdahl: float | None,
    measured: Path | None,
    max_servers: float | None,
    time_shared: bool,
) -> Speedup | None:
    """Return the speedup that the options describe, if they do."""
    from hesrpt.errors import InputError
    from hesrpt.readers import read_speedup
    from hesrpt.speedups import Amdahl, PowerLaw

    given = [
        name
        for name, value in (("--p", p), ("--amdahl", amdahl), ("--measured", measured))
        if value is not None
    ]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} exclude each other: one speedup is wanted")
    speedup: Speedup | None = None
    if p is not None:
        speedup = PowerLaw(p)
    elif amdahl is not None:
        speedup = Amdahl(amdahl)
    elif measured is not None:
        speedup = read_speedup(measured)
    if speedup is None:
        if max_servers is not None or time_shared:
            raise InputError(
                "--max-servers and --time-shared modify --p, --amdahl or --measured: give one"
            )
        return None
    if time_shared:
        speedup = speedup.time_shared()
    return speedup.limited(max_servers) if max_servers is not None else speedup
