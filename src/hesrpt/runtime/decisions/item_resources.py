"""Resources besides servers that items need, such as GPUs and memory: how many, and which ones.

Amounts are counted in millionths, as whole numbers, so that nothing is lost when they are added and
subtracted many times.
"""

from __future__ import annotations

from collections.abc import Mapping

from hesrpt.errors import InputError
from hesrpt.units import format_bytes, format_number, parse_bytes
from hesrpt.validation import shorten

#: The kind of which each item is given certain ones, by their indices.
GPU = "gpu"
#: The kind that is counted in bytes.
MEMORY = "memory"

_PARTS = 1_000_000
_MAX_AMOUNT = 1e18
_EXAMPLE = 'such as {gpu = 1, memory = "4GB"}'


def check_resources(value: object, argument: str = "resources") -> dict[str, float]:
    """Return the amounts of resources by their kinds, without those that are 0.

    >>> check_resources({"gpu": 1, "memory": "4GB", "licence": 0})
    {'gpu': 1.0, 'memory': 4000000000.0}
    """
    if not isinstance(value, Mapping):
        raise InputError(f"must be a table {_EXAMPLE}, got {shorten(value)}", argument=argument)
    amounts = {}
    for kind, given in value.items():
        if not isinstance(kind, str) or not kind.replace("_", "").replace("-", "").isalnum():
            raise InputError(
                f"must have names of kinds such as gpu, got {shorten(kind)}", argument=argument
            )
        amount = _read_amount(given)
        if amount is None or not 0 <= amount <= _MAX_AMOUNT:
            raise InputError(
                f"must have a number of at least 0 for {kind}, or a size such as "
                f'"4GB", got {shorten(given)}',
                argument=argument,
            )
        if kind == GPU and amount != int(amount):
            raise InputError(f"must have whole gpus, got {shorten(given)}", argument=argument)
        if amount * _PARTS >= 1:
            amounts[kind] = amount
    return amounts


def parse_resources(text: str, argument: str = "resources") -> dict[str, float]:
    """Return the resources in a text such as ``gpu=2,memory=64GB``.

    >>> parse_resources("gpu=2,memory=64GB")
    {'gpu': 2.0, 'memory': 64000000000.0}
    """
    amounts: dict[str, object] = {}
    for part in text.split(","):
        kind, _, amount = (piece.strip() for piece in part.partition("="))
        if not kind or not amount or kind in amounts:
            raise InputError(
                f"must be KIND=AMOUNT,… with each kind once, such as gpu=2,memory=64GB; "
                f"got {part!r}",
                argument=argument,
            )
        amounts[kind] = amount
    return check_resources(amounts, argument)


def _read_amount(given: object) -> float | None:
    if isinstance(given, bool):
        return None
    if isinstance(given, int | float):
        return float(given)
    try:
        return parse_bytes(given) if isinstance(given, str) else None
    except ValueError:
        return None


def describe_amount(kind: str, amount: float) -> str:
    """Return an amount in words.

    >>> describe_amount("gpu", 2.0), describe_amount("memory", 4e9)
    ('2 gpu', '4 GB memory')
    """
    text = format_bytes(amount) if kind == MEMORY else format_number(amount)
    return f"{text} {kind}"
