"""Groups of options that several commands share: the jobs, their speedup, and the simulation.

A command takes a group as one argument. Typer only knows single options, so
:func:`expand_option_groups` turns each group into its options.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from hesrpt.cli.completion import complete_sizes
from hesrpt.cli.options import (
    SPEEDUP_PANEL,
    MaxServers,
    ResizeCost,
    Seed,
    SizeError,
    parse_number,
    parse_whole_number,
)
from hesrpt.errors import InputError
from hesrpt.files import describe_source
from hesrpt.policies import POLICIES, list_malleable_policies
from hesrpt.validation import check_choice, check_positive, check_whole_number
from hesrpt.workload import SIZES, Workload

if TYPE_CHECKING:
    from hesrpt.speedups import Speedup


def expand_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that takes the fields of each group as options of its own."""
    hints = get_type_hints(command, include_extras=True)
    groups, parameters = {}, []
    for name, parameter in inspect.signature(command).parameters.items():
        if is_dataclass(hints[name]):
            groups[name] = hints[name]
            parameters += _get_parameters(hints[name])
        else:
            parameters.append(
                parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
            )

    @wraps(command)
    def expanded(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return expanded


def _get_parameters(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]


@dataclass(frozen=True)
class SpeedupOptions:
    """The speedup that all jobs share."""

    p: Annotated[
        float | None,
        typer.Option(
            parser=parse_number,
            metavar="P",
            rich_help_panel=SPEEDUP_PANEL,
            help="Power law: k servers are k^P times as fast as one; 0 < P < 1.",
        ),
    ] = None
    parallel_fraction: Annotated[
        float | None,
        typer.Option(
            "--amdahl",
            parser=parse_number,
            metavar="F",
            rich_help_panel=SPEEDUP_PANEL,
            help="Amdahl's law with parallel fraction F.",
        ),
    ] = None
    measured: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.CSV",
            rich_help_panel=SPEEDUP_PANEL,
            help="Measured speedups: a CSV file with columns servers and speedup.",
        ),
    ] = None
    max_servers: MaxServers = None
    time_shared: Annotated[
        bool,
        typer.Option(
            "--time-shared",
            rich_help_panel=SPEEDUP_PANEL,
            help="Let jobs share a server in time: the speedup is linear below one server.",
        ),
    ] = False

    @property
    def chosen(self) -> list[str]:
        """The options that choose a speedup."""
        return _list_chosen(
            {"--p": self.p, "--amdahl": self.parallel_fraction, "--measured": self.measured}
        )

    def create(self) -> Speedup | None:
        """Return the chosen speedup, or None if there is none."""
        from hesrpt.readers import read_speedup
        from hesrpt.speedups import Amdahl, PowerLaw

        if len(self.chosen) > 1:
            raise InputError(
                f"choose one of --p, --amdahl or --measured, not {' and '.join(self.chosen)}"
            )
        speedup: Speedup
        if self.p is not None:
            speedup = PowerLaw(self.p)
        elif self.parallel_fraction is not None:
            speedup = Amdahl(self.parallel_fraction)
        elif self.measured is not None:
            speedup = read_speedup(self.measured)
        else:
            if self.max_servers is not None or self.time_shared:
                option = "--time-shared" if self.max_servers is None else "--max-servers"
                raise InputError(f"{option} needs one of --p, --amdahl or --measured")
            return None
        if self.time_shared:
            speedup = speedup.time_shared()
        if self.max_servers is not None:
            speedup = speedup.limited(check_positive("max_servers", self.max_servers))
        return speedup


_DEFAULT_SHAPE = 1.5
_DEFAULT_SIZES = "exponential"
_JOBS_PANEL = "Random jobs (instead of JOBS.CSV)"


@dataclass(frozen=True)
class JobOptions:
    """The jobs to simulate, from a file or drawn at random."""

    jobs: Annotated[
        Path | None,
        typer.Argument(
            metavar="JOBS.CSV",
            show_default=False,
            help="The jobs: a CSV file with a column size and, optionally, name, weight, arrival, "
            "p, max_servers and requested (servers, for rigid policies). Use - for standard input.",
        ),
    ] = None
    pareto: Annotated[
        int | None,
        typer.Option(
            parser=parse_whole_number,
            metavar="M",
            rich_help_panel=_JOBS_PANEL,
            help="Draw M jobs with Pareto-distributed sizes, all present at time 0.",
        ),
    ] = None
    shape: Annotated[
        float | None,
        typer.Option(
            parser=parse_number,
            metavar="A",
            rich_help_panel=_JOBS_PANEL,
            help=f"Shape of the Pareto distribution, for --pareto; {_DEFAULT_SHAPE} by default.",
        ),
    ] = None
    poisson: Annotated[
        int | None,
        typer.Option(
            parser=parse_whole_number,
            metavar="M",
            rich_help_panel=_JOBS_PANEL,
            help="Draw M jobs that arrive in a Poisson process; needs --rate.",
        ),
    ] = None
    rate: Annotated[
        float | None,
        typer.Option(
            parser=parse_number,
            metavar="R",
            rich_help_panel=_JOBS_PANEL,
            help="Arrivals per unit of time, for --poisson.",
        ),
    ] = None
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=complete_sizes,
            rich_help_panel=_JOBS_PANEL,
            help=f"Distribution of the sizes, for --poisson: {', '.join(SIZES)}; each has mean 1. "
            f"By default, {_DEFAULT_SIZES}.",
        ),
    ] = None

    def create(
        self, speedup_options: SpeedupOptions, seed: int, replications: int = 1
    ) -> list[Workload]:
        """Return one workload, or one for each replication of random jobs."""
        chosen = _list_chosen(
            {"JOBS.CSV": self.jobs, "--pareto": self.pareto, "--poisson": self.poisson}
        )
        check_whole_number("replications", replications, minimum=1)
        if len(chosen) != 1:
            rejected = f", not {' and '.join(chosen)}" if chosen else ""
            raise InputError(f"choose one of JOBS.CSV, --pareto or --poisson{rejected}")
        if self.poisson is not None and self.rate is None:
            raise InputError("--poisson needs --rate")
        for option, value, needed, count in (
            ("--rate", self.rate, "--poisson", self.poisson),
            ("--sizes", self.sizes, "--poisson", self.poisson),
            ("--shape", self.shape, "--pareto", self.pareto),
        ):
            if value is not None and count is None:
                raise InputError(f"{option} needs {needed}")
        if self.jobs is not None:
            if replications > 1:
                raise InputError("--replications needs random jobs: --pareto or --poisson")
            return [read_jobs_file(self.jobs, speedup_options)]
        speedup = speedup_options.create()
        if speedup is None:
            raise InputError(
                "random jobs need a speedup: choose one of --p, --amdahl or --measured"
            )
        seeds = range(check_whole_number("seed", seed, minimum=0), seed + replications)
        if self.pareto is not None:
            count = check_whole_number("pareto", self.pareto, minimum=1)
            shape = _DEFAULT_SHAPE if self.shape is None else self.shape
            return [
                Workload.pareto(count, shape=shape, seed=each, speedup=speedup) for each in seeds
            ]
        count = check_whole_number("poisson", self.poisson, minimum=1)
        rate = check_positive("rate", self.rate)
        sizes = check_choice("sizes", self.sizes or _DEFAULT_SIZES, tuple(SIZES))
        return [
            Workload.poisson(rate, count, sizes=sizes, seed=each, speedup=speedup) for each in seeds
        ]


@dataclass(frozen=True)
class SimulationOptions:
    """Options of a simulation. The fields are arguments of ``hesrpt.simulate``."""

    whole: Annotated[bool, typer.Option("--whole", help="Allocate whole servers only.")] = False
    resize_cost: ResizeCost = 0.0
    size_error: SizeError = 0.0
    seed: Seed = 0


def read_jobs_file(path: Path, speedup_options: SpeedupOptions) -> Workload:
    """Return the jobs in a file. Either its column p or the options choose the speedup."""
    from hesrpt.readers import read_jobs

    try:
        return read_jobs(path, speedup_options.create())
    except InputError as error:
        if error.argument != "speedup":
            raise
        source = describe_source(path)
        if speedup_options.chosen:
            raise InputError(
                f"{source}: has a column p, so each job has its own speedup; remove "
                f"{speedup_options.chosen[0]}"
            ) from error
        raise InputError(
            f"{source}: has no column p: choose one of --p, --amdahl or --measured"
        ) from error


def check_columns(policies: Iterable[str], workload: Workload) -> None:
    """Raise an error if a policy needs a column that the jobs do not have."""
    malleable = list_malleable_policies()
    for policy in policies:
        if policy == "hesrpt-weighted" and workload.weights is None:
            column = "weight"
        elif policy in POLICIES and policy not in malleable and workload.requested is None:
            column = "requested"
        else:
            continue
        raise InputError(f"policy {policy} needs jobs from a JOBS.CSV with a column {column}")


def _list_chosen(options: dict[str, object]) -> list[str]:
    return [name for name, value in options.items() if value is not None]
