"""The options that say where jobs run: the engine, and its own options."""

from __future__ import annotations

import shlex
import tomllib
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from hesrpt.cli.completion import complete_engine
from hesrpt.cli.options import option
from hesrpt.errors import InputError
from hesrpt.units import parse_bytes

# The names in ``--slurm``, and those of the engine's options.
_SLURM_OPTIONS = {
    "partition": "partition",
    "account": "account",
    "qos": "qos",
    "max": "max_pilots",
    "cores": "cores",
    "memory": "memory",
    "walltime": "walltime",
    "idle": "idle",
    "interface": "interface",
    "directory": "directory",
}

_option = partial(option, panel="Engine")


@dataclass(frozen=True)
class EngineOptions:
    """Where jobs run."""

    engine: Annotated[
        str,
        _option(
            "Where to run: local (this machine), ray (a Ray cluster), dask (a Dask cluster), "
            "slurm (Slurm jobs), or an engine that another package adds.",
            metavar="NAME",
            complete=complete_engine,
        ),
    ] = "local"
    engine_option: Annotated[
        list[str] | None,
        _option(
            "An option of the engine, for example address=auto. The value is a text, or TOML "
            "such as 4 or {CPU = 4}. Repeat it for several options.",
            metavar="NAME=VALUE",
        ),
    ] = None
    address: Annotated[
        str | None,
        _option(
            "Address of the cluster, short for --engine-option address=…. For Ray, auto finds "
            "the cluster this machine belongs to.",
            metavar="HOST:PORT",
        ),
    ] = None
    resources: Annotated[
        str | None,
        _option(
            "What this machine has besides servers, for example gpu=2,memory=64GB. On a "
            "cluster, the resources of one server, for example CPU=4,GPU=0.5; by default, one "
            "core.",
            metavar="NAME=N,…",
        ),
    ] = None
    slurm: Annotated[
        str | None,
        _option(
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
            parsed["resources"] = _parse_resources(self.resources)
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
    options: dict[str, Any] = {}
    for part in text.split(","):
        name, separator, value = (piece.strip() for piece in part.partition("="))
        if name not in _SLURM_OPTIONS or not separator or not value:
            names = ", ".join(_SLURM_OPTIONS)
            raise InputError(
                f"must be NAME=VALUE,… with names out of {names}; got {part!r}", argument="slurm"
            )
        full_name = _SLURM_OPTIONS[name]
        if full_name in options:
            raise InputError(f"sets {name} twice", argument="slurm")
        options[full_name] = int(value) if value.isdigit() else value
    return options


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


def _parse_resources(text: str) -> dict[str, float]:
    """Return the resources in a text such as CPU=4,GPU=0.5 or gpu=2,memory=64GB."""
    resources: dict[str, float] = {}
    for part in text.split(","):
        name, _, amount = (piece.strip() for piece in part.partition("="))
        try:
            if not name or name in resources:
                raise ValueError
            resources[name] = parse_bytes(amount)
        except ValueError:
            raise InputError(
                "must be NAME=NUMBER,… with each name once, such as gpu=2,memory=64GB; got "
                f"{part!r}",
                argument="resources",
            ) from None
    return resources
