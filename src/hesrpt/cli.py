"""The command line: parse, call the library, print. Thin on purpose."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hesrpt._version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hesrpt.speedup import Speedup
    from hesrpt.workload import Workload

app = typer.Typer(
    name="hesrpt",
    help="Optimal sharing of servers between parallel jobs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line; a user's mistake costs one line on standard error and exit code 2."""
    from hesrpt.errors import CertificateError, InputError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a name that the terminal cannot show
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except InputError as error:
        sys.exit(_complain(str(error)))
    except CertificateError as error:
        sys.exit(_complain(f"the plan fails its check, which is a bug in hesrpt: {error}", code=1))
    except OSError as error:
        # Nothing more can be written, so what is left must not be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(0)  # whoever reads our output has seen enough
        sys.exit(_complain(f"cannot write the output: {error.strerror or error}"))
    except Exception as error:
        # What the parser raises knows how to say what is wrong; anything else is a bug.
        if not hasattr(error, "format_message"):
            raise
        message = error.format_message()  # empty after the help that no arguments ask for
        sys.exit(_complain(message) if message else 2)
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str, code: int = 2) -> int:
    print(f"hesrpt: {' '.join(message.split())}", file=sys.stderr)
    return code


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"hesrpt {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Optimal sharing of servers between parallel jobs."""


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


@app.command()
def plan(
    jobs: Annotated[
        str,
        typer.Argument(
            metavar="JOBS.CSV",
            help="Columns size, and if wanted name, weight, p, max_servers; - for standard input.",
        ),
    ],
    servers: Servers,
    p: PowerOption = None,
    amdahl: AmdahlOption = None,
    measured: MeasuredOption = None,
    max_servers: MaxServers = None,
    time_shared: TimeSharedFlag = False,
    objective: Objective = "flow",
    whole: Whole = False,
    check: Annotated[
        bool, typer.Option("--verify", help="Check the proof again, without the solver.")
    ] = False,
    as_json: AsJson = False,
    plot: PlotFile = None,
) -> None:
    """Plan a batch of jobs: who gets how many servers when, with a proof that no plan is better."""
    from hesrpt import reports
    from hesrpt.optimal.certificate import verify
    from hesrpt.optimal.planner import plan as make_plan
    from hesrpt.traces import read_jobs

    _check_plot(plot)
    workload = read_jobs(jobs, _speedup(p, amdahl, measured, max_servers, time_shared))
    planned = make_plan(workload, servers, objective=objective, whole=whole)
    verified = verify(planned) if check else None
    if plot is not None:
        _save(planned.plot(), plot)
    if as_json:
        print(json.dumps(reports.plan_as_json(planned, verified), indent=2))
    else:
        reports.print_plan(planned, verified)
        _say_where(plot, None)


@app.command()
def simulate(
    servers: Servers,
    jobs: JobsFile = None,
    policy: Annotated[
        str, typer.Option(metavar="NAME", help="hesrpt, optimal, equi, srpt, hell, knee, …")
    ] = "hesrpt",
    p: PowerOption = None,
    amdahl: AmdahlOption = None,
    measured: MeasuredOption = None,
    max_servers: MaxServers = None,
    time_shared: TimeSharedFlag = False,
    pareto: ParetoJobs = None,
    shape: Shape = 1.5,
    poisson: PoissonJobs = None,
    rate: Rate = None,
    sizes: Sizes = "exponential",
    seed: Seed = 0,
    whole: Whole = False,
    resize_cost: ResizeCost = 0.0,
    size_error: SizeError = 0.0,
    as_json: AsJson = False,
    csv: CsvFile = None,
    plot: PlotFile = None,
) -> None:
    """Run one policy on jobs, and show what comes of it. --csv has a line for each job."""
    from hesrpt import reports
    from hesrpt.simulator import simulate as run

    _check_plot(plot)
    speedup = _speedup(p, amdahl, measured, max_servers, time_shared)
    (workload,) = _workloads(jobs, speedup, pareto, shape, poisson, rate, sizes, seed, 1)
    with _progress(f"{policy}", as_json) as progress, _warnings():
        simulation = run(
            workload,
            servers,
            policy,
            whole=whole,
            resize_cost=resize_cost,
            size_error=size_error,
            seed=seed,
            progress=progress,
        )
    if csv is not None:
        simulation.to_csv(csv)
    if plot is not None:
        _save(simulation.plot(), plot)
    if as_json:
        print(json.dumps(reports.simulation_as_json(simulation), indent=2))
    else:
        reports.print_simulation(simulation)
        _say_where(plot, csv)


@app.command()
def compare(
    servers: Servers,
    jobs: JobsFile = None,
    policies: Annotated[
        str, typer.Option(metavar="A,B,…", help="The policies, with commas between them.")
    ] = "hesrpt,equi,srpt",
    p: PowerOption = None,
    amdahl: AmdahlOption = None,
    measured: MeasuredOption = None,
    max_servers: MaxServers = None,
    time_shared: TimeSharedFlag = False,
    pareto: ParetoJobs = None,
    shape: Shape = 1.5,
    poisson: PoissonJobs = None,
    rate: Rate = None,
    sizes: Sizes = "exponential",
    seed: Seed = 0,
    replications: Annotated[
        int, typer.Option(metavar="R", help="How often to draw random jobs anew.")
    ] = 1,
    whole: Whole = False,
    resize_cost: ResizeCost = 0.0,
    size_error: SizeError = 0.0,
    as_json: AsJson = False,
    csv: CsvFile = None,
    plot: PlotFile = None,
) -> None:
    """Run several policies on the same jobs, side by side. --csv has a line for each figure."""
    from hesrpt import reports
    from hesrpt.simulator import compare as run

    _check_plot(plot)
    speedup = _speedup(p, amdahl, measured, max_servers, time_shared)
    workloads = _workloads(jobs, speedup, pareto, shape, poisson, rate, sizes, seed, replications)
    names = [name.strip() for name in policies.split(",") if name.strip()]
    with _progress("policies", as_json) as progress, _warnings():
        comparison = run(
            workloads,
            servers,
            names,
            whole=whole,
            resize_cost=resize_cost,
            size_error=size_error,
            seed=seed,
            progress=progress,
        )
    if csv is not None:
        comparison.to_csv(csv)
    if plot is not None:
        from hesrpt import plots

        _save(plots.comparison(comparison), plot)
    if as_json:
        print(json.dumps(reports.comparison_as_json(comparison), indent=2))
    else:
        reports.print_comparison(comparison)
        _say_where(plot, csv)


def _workloads(
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
    from hesrpt.traces import read_jobs
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


@contextmanager
def _progress(what: str, hidden: bool) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on standard error, where that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(
        console=console, transient=True, disable=hidden or not console.is_terminal
    ) as bar:
        task = bar.add_task(what)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def _warnings() -> Iterator[None]:
    """Say on standard error, in one line each, what the library warns of."""
    import warnings

    from hesrpt.errors import OverloadWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", OverloadWarning)
        yield
    for warning in caught:
        print(f"hesrpt: warning: {warning.message}", file=sys.stderr)


def _check_plot(plot: Path | None) -> None:
    if plot is not None:
        from hesrpt import plots

        plots.check_path(plot)  # before the work, not after it


def _save(figure: Figure, plot: Path) -> None:
    from hesrpt import plots

    plots.save(figure, plot, description=" ".join(["hesrpt", *sys.argv[1:]]))


def _say_where(plot: Path | None, csv: Path | None) -> None:
    if plot is not None:
        print(f"drawn in {plot}")
    if csv is not None:
        print(f"written to {csv}")


def _speedup(
    p: float | None,
    amdahl: float | None,
    measured: Path | None,
    max_servers: float | None,
    time_shared: bool,
) -> Speedup | None:
    """Return the speedup that the options describe, if they do."""
    from hesrpt.errors import InputError
    from hesrpt.speedup import Amdahl, PowerLaw
    from hesrpt.traces import read_speedup

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
