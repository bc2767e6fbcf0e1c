"""The command line: parse, call the library, print. Thin on purpose."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hesrpt._version import __version__

if TYPE_CHECKING:
    from hesrpt.speedup import Speedup

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


@app.command()
def plan(
    jobs: Annotated[
        str,
        typer.Argument(
            metavar="JOBS.CSV",
            help="Columns size, and if wanted name, weight, p, max_servers; - for standard input.",
        ),
    ],
    servers: Annotated[
        float, typer.Option(parser=_number, metavar="N", help="How many servers there are.")
    ],
    p: Annotated[
        float | None,
        typer.Option(parser=_number, metavar="P", help="Speedup s(k) = k^P, 0 < P < 1."),
    ] = None,
    amdahl: Annotated[
        float | None,
        typer.Option(parser=_number, metavar="F", help="Amdahl's law with parallel fraction F."),
    ] = None,
    measured: Annotated[
        Path | None,
        typer.Option(metavar="FILE.CSV", help="Measured speedups: columns servers, speedup."),
    ] = None,
    max_servers: Annotated[
        float | None,
        typer.Option(parser=_number, metavar="K", help="The most servers that one job can use."),
    ] = None,
    time_shared: Annotated[
        bool, typer.Option("--time-shared", help="Make the speedup linear below one server.")
    ] = False,
    objective: Annotated[
        Literal["flow", "slowdown", "weighted", "makespan"],
        typer.Option(help="What to minimise."),
    ] = "flow",
    whole: Annotated[bool, typer.Option("--whole", help="Hand out whole servers only.")] = False,
    check: Annotated[
        bool, typer.Option("--verify", help="Check the proof again, without the solver.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the plan (.png, .svg, .pdf).")
    ] = None,
) -> None:
    """Plan a batch of jobs: who gets how many servers when, with a proof that no plan is better."""
    from hesrpt import reports
    from hesrpt.optimal.certificate import verify
    from hesrpt.optimal.planner import plan as make_plan
    from hesrpt.traces import read_jobs

    if plot is not None:
        from hesrpt import plots

        plots.check_path(plot)  # before the work, not after it
    workload = read_jobs(jobs, _speedup(p, amdahl, measured, max_servers, time_shared))
    planned = make_plan(workload, servers, objective=objective, whole=whole)
    verified = verify(planned) if check else None
    if plot is not None:
        plots.save(planned.plot(), plot, description=" ".join(["hesrpt", *sys.argv[1:]]))
    if as_json:
        print(json.dumps(reports.plan_as_json(planned, verified), indent=2))
    else:
        reports.print_plan(planned, verified)
        if plot is not None:
            print(f"drawn in {plot}")


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
