"""The command line: parse, call the library, print. Thin on purpose."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hesrpt._version import __version__
from hesrpt.cli import run as cli_run
from hesrpt.cli import whatif as cli_whatif
from hesrpt.cli.options import (
    AmdahlOption,
    AsJson,
    CsvFile,
    JobsFile,
    MaxServers,
    MeasuredOption,
    Objective,
    ParetoJobs,
    PlotFile,
    PoissonJobs,
    PowerOption,
    Rate,
    ResizeCost,
    Seed,
    Servers,
    Shape,
    SizeError,
    Sizes,
    TimeSharedFlag,
    Whole,
    speedup_of,
    workloads_of,
)
from hesrpt.cli.terminal import check_plot, progress_bar, say_where, warnings_told
from hesrpt.policies import POLICIES

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    from hesrpt.cli import reports
    from hesrpt.optimal.certificate import verify
    from hesrpt.optimal.planner import plan as make_plan
    from hesrpt.readers import read_jobs

    check_plot(plot)
    workload = read_jobs(jobs, speedup_of(p, amdahl, measured, max_servers, time_shared))
    planned = make_plan(workload, servers, objective=objective, whole=whole)
    verified = verify(planned) if check else None
    if plot is not None:
        _save(planned.plot(), plot)
    if as_json:
        print(json.dumps(reports.plan_as_json(planned, verified), indent=2))
    else:
        reports.print_plan(planned, verified)
        say_where(plot, None)


@app.command()
def simulate(
    servers: Servers,
    jobs: JobsFile = None,
    policy: Annotated[
        str, typer.Option(metavar="NAME", help=f"One of {', '.join(POLICIES)}.")
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
    from hesrpt.cli import reports
    from hesrpt.simulator import simulate as run

    check_plot(plot)
    speedup = speedup_of(p, amdahl, measured, max_servers, time_shared)
    (workload,) = workloads_of(jobs, speedup, pareto, shape, poisson, rate, sizes, seed, 1)
    with progress_bar(f"{policy}", as_json) as progress, warnings_told():
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
        say_where(plot, csv)


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
    from hesrpt.cli import reports
    from hesrpt.simulator import compare as run

    check_plot(plot)
    speedup = speedup_of(p, amdahl, measured, max_servers, time_shared)
    workloads = workloads_of(jobs, speedup, pareto, shape, poisson, rate, sizes, seed, replications)
    names = [name.strip() for name in policies.split(",") if name.strip()]
    with progress_bar("policies", as_json) as progress, warnings_told():
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
        from hesrpt import plotting

        _save(plotting.draw_comparison(comparison), plot)
    if as_json:
        print(json.dumps(reports.comparison_as_json(comparison), indent=2))
    else:
        reports.print_comparison(comparison)
        say_where(plot, csv)


@app.command()
def paper(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where figures, their data and the claims go.")
    ],
    seed: Seed = 0,
    jobs: Annotated[int, typer.Option(metavar="M", help="Jobs in a set.")] = 500,
    servers: Annotated[float, typer.Option(metavar="N", help="Servers.")] = 1_000_000,
    sets: Annotated[int, typer.Option(metavar="R", help="Sets of jobs.")] = 10,
    curves: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.CSV",
            help="Measured speedups to fit: columns workers, speedup (or throughput), and if "
            "wanted application; - for standard input.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Reproduce the heSRPT paper: every figure, and every claim with a verdict."""
    from hesrpt.cli.paper import print_claims, print_fits
    from hesrpt.paper import reproduce

    with progress_bar("the paper", as_json) as progress:
        made = reproduce(
            out, seed=seed, jobs=jobs, servers=servers,  # type: ignore[arg-type]
            sets=sets, curves=curves or (),
            progress=lambda done, total, what: progress(done, total),
        )  # fmt: skip
    if as_json:
        print(json.dumps(made.as_json(), indent=2))
    else:
        if curves is not None:
            print_fits(made.exhibit("fig2_measured").table)
        print_claims(made.claims)
        print(f"\nfigures, data and claims are in {out}; begin with {out / 'index.md'}")


cli_run.register(app)
cli_whatif.register(app)


def _save(figure: Figure, plot: Path) -> None:
    from hesrpt import plotting

    plotting.save_figure(figure, plot, description=" ".join(["hesrpt", *sys.argv[1:]]))
