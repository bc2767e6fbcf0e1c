"""Resources besides servers that items need, such as GPUs and memory: how users write them."""

from __future__ import annotations

from collections.abc import Mapping

from hesrpt.errors import InputError
from hesrpt.units import format_bytes, format_number, parse_bytes
from hesrpt.validation import shorten

#: The kind of which each item is given certain ones, by their indices.
GPU = "gpu"
#: The kind that is counted in bytes.
MEMORY = "memory"

#: Amounts are counted in these parts.
PARTS = 1_000_000
_MAX_AMOUNT = 1e18
_EXAMPLE = 'such as {gpu = 1, memory = "4GB"}'


def check_resources(value: object) -> dict[str, float]:
    """Return the amounts of resources by their kinds, without those that are 0.

    >>> check_resources({"gpu": 1, "memory": "4GB", "licence": 0})
    {'gpu': 1.0, 'memory': 4000000000.0}
    """
    if not isinstance(value, Mapping):
        raise InputError(f"must be a table {_EXAMPLE}, got {shorten(value)}", argument="resources")
    amounts = {}
    for kind, given in value.items():
        if not isinstance(kind, str) or not kind.replace("_", "").replace("-", "").isalnum():
            raise InputError(
                f"must have names of kinds such as gpu, got {shorten(kind)}", argument="resources"
            )
        amount = _read_amount(given)
        if amount is None or not 0 <= amount <= _MAX_AMOUNT:
            raise InputError(
                f"must have a number of at least 0 for {kind}, or a size such as "
                f'"4GB", got {shorten(given)}',
                argument="resources",
            )
        if kind == GPU and amount != int(amount):
            raise InputError(f"must have whole gpus, got {shorten(given)}", argument="resources")
        if amount * PARTS >= 1:
            amounts[kind] = amount
    return amounts


def _read_amount(given: object) -> float | None:
    if isinstance(given, bool):
        return None
    if isinstance(given, int | float):
        return float(given)
    try:
        return parse_bytes(given) if isinstance(given, str) else None
    except ValueError:
        return None


def describe_shortage(need: Mapping[str, float], amounts: Mapping[str, float], suffix: str) -> str:
    """Say of which kinds more is needed than there is; nothing if there is enough.

    >>> describe_shortage({"gpu": 1, "memory": 2e9}, {"gpu": 0, "memory": 4e9}, "free")
    'needs 1 gpu, 0 free'
    """
    short = [kind for kind, amount in need.items() if amount > amounts.get(kind, 0.0) + 1e-9]
    return "; ".join(
        f"needs {describe_amount(kind, need[kind])}, "
        f"{describe_number(kind, amounts.get(kind, 0.0))} {suffix}"
        for kind in short
    )


def describe_number(kind: str, amount: float) -> str:
    """Return an amount of a kind, without its name."""
    return format_bytes(amount) if kind == MEMORY else format_number(amount)


def describe_amount(kind: str, amount: float) -> str:
    """Return an amount in words.

    >>> describe_amount("gpu", 2.0), describe_amount("memory", 4e9)
    ('2 gpu', '4 GB memory')
    """
    return f"{describe_number(kind, amount)} {kind}"
