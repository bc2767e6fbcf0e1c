"""How many servers a job may have: ``servers``, ``min_servers`` and ``max_servers``."""

from __future__ import annotations

from typing import NamedTuple

from hesrpt.errors import InputError
from hesrpt.validation import check_whole_number

_MAX_NUMBER = 1_000_000


class ServerLimits(NamedTuple):
    """The fewest and the most servers of a job."""

    min_servers: int = 0  # 0: none was set
    max_servers: int | None = None  # None: no limit


def check_server_limits(
    servers: object = None, min_servers: object = None, max_servers: object = None
) -> ServerLimits:
    """Return the limits of a job; ``servers`` sets both.

    >>> check_server_limits(max_servers=3)
    ServerLimits(min_servers=0, max_servers=3)
    >>> check_server_limits(servers=2)
    ServerLimits(min_servers=2, max_servers=2)
    """
    if servers is not None:
        for name, value in (("min_servers", min_servers), ("max_servers", max_servers)):
            if value is not None:
                raise InputError(
                    f"cannot be combined with servers, which sets both limits; got {name} = "
                    f"{value!r} and servers = {servers!r}",
                    argument=name,
                )
        number = _check_number("servers", servers)
        return ServerLimits(number, number)
    fewest = 0 if min_servers is None else _check_number("min_servers", min_servers)
    most = None if max_servers is None else _check_number("max_servers", max_servers)
    if most is not None and fewest > most:
        raise InputError(
            f"must be at most max_servers, which is {most}, got {fewest}", argument="min_servers"
        )
    return ServerLimits(fewest, most)


def _check_number(name: str, value: object) -> int:
    if isinstance(value, bool):
        raise InputError(f"must be a whole number of at least 1, got {value}", argument=name)
    number = check_whole_number(name, value, minimum=1)
    if number > _MAX_NUMBER:
        raise InputError(f"must be at most {_MAX_NUMBER:,}, got {number}", argument=name)
    return number
