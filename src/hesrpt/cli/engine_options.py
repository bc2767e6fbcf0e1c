"""The options of an engine, as they are given on the command line."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

from hesrpt.errors import InputError
from hesrpt.units import parse_bytes


def parse_engine_options(
    options: Sequence[str], address: str | None, resources: str | None
) -> dict[str, Any]:
    """Return the options of an engine by name, from all options that set one.

    >>> parse_engine_options(["address=auto", "servers_per_node=4"], None, "CPU=2")
    {'address': 'auto', 'servers_per_node': 4, 'resources': {'CPU': 2.0}}
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
    return parsed


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
