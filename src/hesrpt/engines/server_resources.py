"""The resources that one server of a cluster holds, such as ``{"CPU": 1}``."""

from __future__ import annotations

from collections.abc import Mapping

from hesrpt.errors import InputError


def check_resources(resources: Mapping[str, float]) -> dict[str, float]:
    """Return the resources of a server as a dictionary, or raise an error.

    >>> check_resources({"CPU": 1, "GPU": 0.5})
    {'CPU': 1, 'GPU': 0.5}
    """
    if not isinstance(resources, Mapping) or not resources:
        raise InputError(f"must be like {{'CPU': 1}}, got {resources!r}", argument="resources")
    for name, amount in resources.items():
        is_number = isinstance(amount, int | float) and not isinstance(amount, bool)
        if not is_number or not 1e-4 <= amount < 1e15:
            raise InputError(
                f"must hold 0.0001 to 1e15 of {name!r}, got {amount!r}", argument="resources"
            )
    return dict(resources)
