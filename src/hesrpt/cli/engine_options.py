"""The options of an engine, as they are given on the command line."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

from hesrpt.errors import InputError
from hesrpt.units import parse_bytes

#: The names in ``--slurm``, and those of the engine's options.
SLURM_OPTIONS = {
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


def parse_engine_options(
    options: Sequence[str],
    address: str | None,
    resources: str | None,
    slurm: str | None = None,
) -> dict[str, Any]:
    """Return the options of an engine by name, from all options that set one.

    >>> parse_engine_options(["address=auto", "servers_per_node=4"], None, "CPU=2")
    {'address': 'auto', 'servers_per_node': 4, 'resources': {'CPU': 2.0}}
    >>> parse_engine_options([], None, None, "partition=short,max=4,walltime=2h")
    {'partition': 'short', 'max_pilots': 4, 'walltime': '2h'}
    """
    parsed: dict[str, Any] = {}
    for option in options:
        name, separator, text = option.partition("=")
        name = name.strip().replace("-", "_")
        if not separator or not name.isidentifier():
            raise InputError(f"must be NAME=VALUE, got {option!r}", argument="engine_option")
        if name in parsed:
            raise InputError(f"sets {name} twice", argument="engine_option")
        parsed[name] = _parse_value(text.strip())
    for name, value in (("address", address), ("resources", resources)):
        if value is not None and name in parsed:
            raise InputError(f"is also set by --engine-option {name}=…", argument=name)
    if address is not None:
        parsed["address"] = address
    if resources is not None:
        parsed["resources"] = _parse_resources(resources)
    if slurm is not None:
        parsed |= _parse_slurm(slurm)
    return parsed


def _parse_slurm(text: str) -> dict[str, Any]:
    """Return the options in a text such as partition=short,max=40,walltime=2h."""
    options: dict[str, Any] = {}
    for part in text.split(","):
        name, separator, value = (piece.strip() for piece in part.partition("="))
        if name not in SLURM_OPTIONS or not separator or not value:
            names = ", ".join(SLURM_OPTIONS)
            raise InputError(
                f"must be NAME=VALUE,… with names out of {names}; got {part!r}", argument="slurm"
            )
        option = SLURM_OPTIONS[name]
        if option in options:
            raise InputError(f"sets {name} twice", argument="slurm")
        options[option] = int(value) if value.isdigit() else value
    return options


def _parse_value(text: str) -> Any:
    """Return a value in TOML, or the text itself if it is none.

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
