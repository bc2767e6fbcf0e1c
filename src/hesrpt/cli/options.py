"""Options that several commands share, singly and in groups.

A command takes a group as one argument. Typer only knows single options, so
:func:`expand_option_groups` turns each group into its options.
"""

from __future__ import annotations

import inspect
import os
import shlex
import tomllib
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_type_hints

import typer
from typer.models import OptionInfo

from hesrpt.cli.completion import complete_engine, complete_job, complete_malleable_policy
from hesrpt.errors import InputError
from hesrpt.files import describe_source
from hesrpt.objectives import FlowObjective, needs_weights
from hesrpt.policies import POLICIES, get_policy, list_malleable_policies
from hesrpt.units import parse_bytes
from hesrpt.validation import check_choice, check_positive, check_whole_number
from hesrpt.workload import SIZES, Workload

if TYPE_CHECKING:
    from hesrpt.cli.run_access import DirectoryRun, ServiceRun
    from hesrpt.speedups import Speedup

POLICY_NAMES = ", ".join(POLICIES)
_SPEEDUP_PANEL = "Speedup"

_DEFAULT_SHAPE = 1.5
_DEFAULT_SIZES = "exponential"


class NumberError(typer.BadParameter):
    """The value of an option is not a number as expected; the message follows its name."""


def parse_number(text: str) -> float:
    """Return the number that a text contains, or raise an error that quotes the text."""
    try:
        return float(text)
    except ValueError:
        raise NumberError(f"must be a number, got {text!r}") from None


def parse_whole_number(text: str) -> int:
    """Return the whole number that a text contains; 1e6 is accepted too."""
    try:
        return int(text)  # exact, however large
    except ValueError:
        number = parse_number(text)
    if not number.is_integer():
        raise NumberError(f"must be a whole number, got {text!r}")
    return int(number)


def parse_quantity(
    option: str, text: str | None, parse: Callable[[str], float], expected: str
) -> float | None:
    """Return the duration or the bytes that the text of an option stands for, if there is one."""
    try:
        return None if text is None else parse(text)
    except ValueError:
        raise InputError(f"{option} must be {expected}, got {text!r}") from None


def parse_pairs(
    text: str, expected: str, argument: str, names: Container[str] | None = None
) -> dict[str, str]:
    """Return the pairs in a text such as gpu=2,memory=64GB, in which each name may be once."""
    pairs: dict[str, str] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        is_known = names is None or name in names
        if not name or not value or name in pairs or not is_known:
            raise InputError(f"must be {expected}; got {part!r}", argument=argument)
        pairs[name] = value
    return pairs


def split_list(text: str) -> list[str]:
    """Return the parts of a comma-separated list."""
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_policies(text: str) -> list[str]:
    """Return the names in a comma-separated list of policies."""
    names = split_list(text)
    if not names:
        raise InputError("must name at least one policy", argument="policies")
    return names


def option(
    text: str,
    *names: str,
    panel: str | None = None,
    complete: Callable[..., Any] | None = None,
    **settings: Any,
) -> Any:
    """Return an option with its help text; ``settings`` are other arguments of ``typer.Option``.

    ``complete`` returns values for completion in the shell.
    """
    return typer.Option(
        *names, help=text, rich_help_panel=panel, autocompletion=complete, **settings
    )


number_option = partial(option, parser=parse_number)
whole_number_option = partial(option, parser=parse_whole_number, metavar="N")
speedup_option = partial(option, panel=_SPEEDUP_PANEL)
output_option = partial(option, panel="Output")


def malleable_policy_option(default: str) -> Any:
    """Return an option that names a policy of the live scheduler, and says what is the default."""
    return option(
        f"One of {', '.join(list_malleable_policies())}. By default, {default}.",
        metavar="NAME",
        complete=complete_malleable_policy,
    )


Servers = Annotated[float, number_option("Number of servers.", metavar="N")]
Seed = Annotated[int, whole_number_option("Random seed.", metavar="S")]
Whole = Annotated[bool, option("Allocate whole servers only.", "--whole")]
ResizeCost = Annotated[
    float,
    number_option(
        "Time for which a job pauses when its number of servers changes; for traces, seconds.",
        metavar="T",
    ),
]
SizeError = Annotated[
    float,
    number_option(
        "Error of the sizes that the policy sees: each is multiplied by exp(E·Z), with Z "
        "standard normal.",
        metavar="E",
    ),
]
AsJson = Annotated[bool, output_option("Print JSON.", "--json")]
PlotFile = Annotated[
    Path | None, output_option("Save a plot of the result as .png, .svg or .pdf.", metavar="FILE")
]
CsvFile = Annotated[Path | None, output_option("Write the result as CSV.", "--csv", metavar="FILE")]


def expand_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that takes the fields of each group as options of its own."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters = _list_parameters(command)

    @wraps(command)
    def expanded(**values: Any) -> None:
        for name, group in groups.items():
            given = {field.name: values.pop(field.name) for field in fields(group)}
            values[name] = group(**given)
        command(**values)

    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return expanded


def _list_parameters(target: Any) -> list[inspect.Parameter]:
    """Return the options of a command with those of its groups, or of a group with its panel."""
    hints = get_type_hints(target, include_extras=True)
    parameters = []
    for name, parameter in inspect.signature(target).parameters.items():
        if is_dataclass(hints[name]):
            parameters += _list_parameters(hints[name])
            continue
        for declared in getattr(hints[name], "__metadata__", ()):
            if isinstance(declared, OptionInfo) and hasattr(target, "panel"):
                declared.rich_help_panel = target.panel
        parameters.append(
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        )
    return parameters


@dataclass(frozen=True)
class SpeedupOptions:
    """The speedup that all jobs share."""

    panel: ClassVar = _SPEEDUP_PANEL

    p: Annotated[
        float | None,
        number_option("Power law: k servers are k^P times as fast as one; 0 < P < 1.", metavar="P"),
    ] = None
    parallel_fraction: Annotated[
        float | None,
        number_option("Amdahl's law with parallel fraction F.", "--amdahl", metavar="F"),
    ] = None
    measured: Annotated[
        Path | None,
        option(
            "Measured speedups: a CSV file with columns servers and speedup.", metavar="FILE.CSV"
        ),
    ] = None
    max_servers: Annotated[
        float | None, number_option("Maximum number of servers that one job can use.", metavar="K")
    ] = None
    time_shared: Annotated[
        bool,
        option(
            "Let jobs share a server in time: the speedup is linear below one server.",
            "--time-shared",
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
                name = "--time-shared" if self.max_servers is None else "--max-servers"
                raise InputError(f"{name} needs one of --p, --amdahl or --measured")
            return None
        if self.time_shared:
            speedup = speedup.time_shared()
        if self.max_servers is not None:
            speedup = speedup.limited(check_positive("max_servers", self.max_servers))
        return speedup


@dataclass(frozen=True)
class JobOptions:
    """The jobs to simulate, from a file or drawn at random."""

    panel: ClassVar = "Random jobs (instead of JOBS.CSV)"

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
        whole_number_option(
            "Draw M jobs with Pareto-distributed sizes, all present at time 0.", metavar="M"
        ),
    ] = None
    shape: Annotated[
        float | None,
        number_option(
            f"Shape of the Pareto distribution, for --pareto; {_DEFAULT_SHAPE} by default.",
            metavar="A",
        ),
    ] = None
    poisson: Annotated[
        int | None,
        whole_number_option(
            "Draw M jobs that arrive in a Poisson process; needs --rate.", metavar="M"
        ),
    ] = None
    rate: Annotated[
        float | None, number_option("Arrivals per unit of time, for --poisson.", metavar="R")
    ] = None
    sizes: Annotated[
        str | None,
        option(
            f"Distribution of the sizes, for --poisson: {', '.join(SIZES)}; each has mean 1. "
            f"By default, {_DEFAULT_SIZES}.",
            metavar="NAME",
            complete=lambda: list(SIZES),
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
        for name, value, needed, count in (
            ("--rate", self.rate, "--poisson", self.poisson),
            ("--sizes", self.sizes, "--poisson", self.poisson),
            ("--shape", self.shape, "--pareto", self.pareto),
        ):
            if value is not None and count is None:
                raise InputError(f"{name} needs {needed}")
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

    whole: Whole = False
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
        if policy not in POLICIES:
            continue  # it is refused when it is used
        objective: FlowObjective = getattr(get_policy(policy), "objective", "flow")
        if needs_weights(objective) and workload.weights is None:
            column = "weight"
        elif policy not in malleable and workload.requested is None:
            column = "requested"
        else:
            continue
        raise InputError(f"policy {policy} needs jobs from a JOBS.CSV with a column {column}")


def _list_chosen(options: dict[str, object]) -> list[str]:
    return [name for name, value in options.items() if value is not None]


# --- which run a command is about: a state directory, or a service with a URL ---------------------


_run_option = partial(option, panel="Which run")


def run_argument(metavar: str, text: str, *, complete: Any = complete_job) -> Any:
    """Return the argument of a command about a run: a state directory may come first."""
    return typer.Argument(metavar=metavar, help=text, autocompletion=complete, show_default=False)


#: The arguments of commands about jobs.
RunArguments = Annotated[
    list[str] | None,
    run_argument(
        "[DIR] [JOB]...",
        "State directory of the run, unless --url, --state or a variable says which; and names of "
        "jobs.",
    ),
]


@dataclass(frozen=True)
class RunChoice:
    """The options that say which run a command is about."""

    url: Annotated[
        str | None,
        _run_option(
            "Address of a service (hesrpt serve). By default, the variable HESRPT_URL.",
            metavar="URL",
        ),
    ] = None
    token: Annotated[
        str | None,
        _run_option(
            "Its token, unless the URL contains it. By default, the variable HESRPT_TOKEN.",
            metavar="TOKEN",
        ),
    ] = None
    state: Annotated[
        Path | None,
        _run_option(
            "State directory of a run or service. By default, the variable HESRPT_STATE.",
            metavar="DIR",
        ),
    ] = None

    def find(self, arguments: Sequence[str] | None) -> tuple[DirectoryRun | ServiceRun, list[str]]:
        """Return the run, and the arguments that do not say which it is."""
        from hesrpt.cli.run_access import DirectoryRun, ServiceRun
        from hesrpt.storage.state_directory import holds_run

        rest = list(arguments or ())
        if self.url is not None and self.state is not None:
            raise InputError("--url and --state exclude each other")
        if self.url is not None:
            return ServiceRun(self.url, self.token), rest
        if self.state is not None:
            return DirectoryRun(self.state), rest
        if rest and holds_run(Path(rest[0])):
            return DirectoryRun(Path(rest[0])), rest[1:]
        if os.environ.get("HESRPT_URL"):
            return ServiceRun(os.environ["HESRPT_URL"], self.token), rest
        if os.environ.get("HESRPT_STATE"):
            return DirectoryRun(Path(os.environ["HESRPT_STATE"])), rest
        if rest:
            return DirectoryRun(Path(rest[0])), rest[1:]  # reading it will say what is wrong
        raise InputError(
            "DIR is missing: give a state directory, --state DIR or --url URL, or set "
            "HESRPT_STATE or HESRPT_URL"
        )


# --- where items run ------------------------------------------------------------------------------

# The names in ``--slurm``: those of the engine's options, except that max is short for max_pilots.
_SLURM_OPTIONS = (
    *("partition", "account", "qos", "max", "cores"),
    *("memory", "walltime", "idle", "interface", "directory"),
)


@dataclass(frozen=True)
class EngineOptions:
    """Where jobs run."""

    panel: ClassVar = "Engine"

    engine: Annotated[
        str,
        option(
            "Where to run: local (this machine), ray (a Ray cluster), dask (a Dask cluster), "
            "slurm (Slurm jobs), or an engine that another package adds.",
            metavar="NAME",
            complete=complete_engine,
        ),
    ] = "local"
    engine_option: Annotated[
        list[str] | None,
        option(
            "An option of the engine, for example address=auto. The value is a text, or TOML "
            "such as 4 or {CPU = 4}. Repeat it for several options.",
            metavar="NAME=VALUE",
        ),
    ] = None
    address: Annotated[
        str | None,
        option(
            "Address of the cluster, short for --engine-option address=…. For Ray, auto finds "
            "the cluster this machine belongs to.",
            metavar="HOST:PORT",
        ),
    ] = None
    resources: Annotated[
        str | None,
        option(
            "What this machine has besides servers, for example gpu=2,memory=64GB. On a "
            "cluster, the resources of one server, for example CPU=4,GPU=0.5; by default, one "
            "core.",
            metavar="NAME=N,…",
        ),
    ] = None
    slurm: Annotated[
        str | None,
        option(
            "With --engine slurm: the Slurm jobs to submit, called pilots. For example "
            "partition=short,max=40,cores=4: at most 40 pilots of 4 cores. Also account, qos, "
            "memory, walltime, idle, interface and directory.",
            metavar="NAME=VALUE,…",
        ),
    ] = None

    def parse(self) -> dict[str, Any]:
        """Return the options of the engine by name, from all options that set one.

        >>> options = EngineOptions("ray", ["address=auto", "servers_per_node=4"], None, "CPU=2")
        >>> options.parse()
        {'address': 'auto', 'servers_per_node': 4, 'resources': {'CPU': 2.0}}
        >>> EngineOptions("slurm", slurm="partition=short,max=4,walltime=2h").parse()
        {'partition': 'short', 'max_pilots': 4, 'walltime': '2h'}
        """
        if self.slurm is not None and self.engine != "slurm":
            raise InputError(f"needs --engine slurm, got {self.engine!r}", argument="slurm")
        parsed: dict[str, Any] = {}
        for setting in self.engine_option or ():
            name, separator, text = setting.partition("=")
            name = name.strip().replace("-", "_")
            if not separator or not name.isidentifier():
                raise InputError(f"must be NAME=VALUE, got {setting!r}", argument="engine_option")
            if name in parsed:
                raise InputError(f"sets {name} twice", argument="engine_option")
            parsed[name] = _parse_value(text.strip())
        for name, value in (("address", self.address), ("resources", self.resources)):
            if value is not None and name in parsed:
                raise InputError(f"is also set by --engine-option {name}=…", argument=name)
        if self.address is not None:
            parsed["address"] = self.address
        if self.resources is not None:
            expected = "NAME=NUMBER,… with each name once, such as gpu=2,memory=64GB"
            pairs = parse_pairs(self.resources, expected, "resources")
            try:
                parsed["resources"] = {name: parse_bytes(text) for name, text in pairs.items()}
            except ValueError:
                got = f"must be {expected}; got {self.resources!r}"
                raise InputError(got, argument="resources") from None
        if self.slurm is not None:
            parsed |= _parse_slurm(self.slurm)
        return parsed

    def write(self) -> str:
        """Return the options as they are typed, each after a space.

        >>> EngineOptions("ray", ["address=auto"]).write()
        ' --engine ray --engine-option address=auto'
        """
        given = [("--engine", self.engine if self.engine != "local" else None)]
        given += [("--engine-option", setting) for setting in self.engine_option or ()]
        given += [
            ("--address", self.address),
            ("--resources", self.resources),
            ("--slurm", self.slurm),
        ]
        return "".join(f" {name} {shlex.quote(value)}" for name, value in given if value)


def _parse_slurm(text: str) -> dict[str, Any]:
    """Return the options in a text such as partition=short,max=40,walltime=2h."""
    expected = f"NAME=VALUE,… with names out of {', '.join(_SLURM_OPTIONS)}, each once"
    pairs = parse_pairs(text, expected, "slurm", _SLURM_OPTIONS)
    return {
        "max_pilots" if name == "max" else name: int(value) if value.isdigit() else value
        for name, value in pairs.items()
    }


def _parse_value(text: str) -> Any:
    """Return a value in TOML, or the text itself if it is not TOML.

    >>> [_parse_value(text) for text in ("4", "true", "{CPU = 4}", "tcp://host:8786")]
    [4, True, {'CPU': 4}, 'tcp://host:8786']
    """
    try:
        (value,) = tomllib.loads(f"value = {text}").values()
    except ValueError:
        return text
    return value
