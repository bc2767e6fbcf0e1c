"""What a user says about pilots, checked, and as dask-jobqueue wants it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hesrpt.engines.slurm.pilots import PilotSettings
from hesrpt.errors import InputError
from hesrpt.units import parse_duration
from hesrpt.validation import check_whole_number

_MIN_WALLTIME = 60.0  # Slurm counts walltimes in minutes


@dataclass(frozen=True, kw_only=True)
class PilotOptions:
    """The options of pilots, as in :class:`hesrpt.engines.SlurmEngine`."""

    servers: int | None = None
    max_pilots: int | None = None
    cores: int = 1
    walltime: str | float = "1h"
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    memory: str | None = None
    sbatch: str | Sequence[str] = ()
    setup: str | Sequence[str] = ()
    interface: str | None = None
    directory: str | Path | None = None
    idle: str | float = "1m"
    poll: str | float = "10s"

    def __post_init__(self) -> None:
        check_whole_number("cores", self.cores, 1)
        if self.max_pilots is not None:
            check_whole_number("max_pilots", self.max_pilots, 1)
        elif self.servers is None:
            raise InputError(
                "is missing: say how many pilots there may be at a time, with max=N or --servers N",
                argument="max_pilots",
            )
        for name in ("partition", "account", "qos", "memory", "interface"):
            value = getattr(self, name)
            if value is not None and (not str(value).strip() or any(map(str.isspace, str(value)))):
                raise InputError(f"must be one word, got {value!r}", argument=name)
        if self.walltime_seconds < _MIN_WALLTIME:
            raise InputError(
                f"must be at least a minute, got {self.walltime!r}", argument="walltime"
            )
        for name in ("idle", "poll"):
            _parse_seconds(name, getattr(self, name))

    @property
    def walltime_seconds(self) -> float:
        """The walltime in seconds."""
        if isinstance(self.walltime, str) and not self.walltime.strip().isdigit():
            return _parse_seconds("walltime", self.walltime)
        # Slurm would take it for minutes, and everything else here takes it for seconds.
        raise InputError(
            f"must have a unit, as in 2h or 90m, or be as in 1-12:00:00, got {self.walltime!r}",
            argument="walltime",
        )

    @property
    def poll_seconds(self) -> float:
        """Seconds between two looks at Slurm's queue."""
        return _parse_seconds("poll", self.poll)

    @property
    def max_servers(self) -> int:
        """The most servers that there may be."""
        most = math.inf if self.max_pilots is None else self.max_pilots * self.cores
        return int(most if self.servers is None else min(self.servers, most))

    @property
    def settings(self) -> PilotSettings:
        """What bounds the pilots."""
        return PilotSettings(
            max_pilots=math.ceil(self.max_servers / self.cores),
            cores=self.cores,
            walltime=self.walltime_seconds,
            idle_seconds=_parse_seconds("idle", self.idle),
        )

    def describe_cluster(self) -> dict[str, Any]:
        """Return the options of dask-jobqueue's ``SLURMCluster``."""
        directives = ["--no-requeue", *_split_lines(self.sbatch)]
        if self.qos is not None:
            directives.append(f"--qos={self.qos}")
        # dask-jobqueue insists on a memory. Without one, Slurm's default counts.
        memory: Mapping[str, Any] = {"memory": self.memory}
        if self.memory is None:
            memory = {"memory": "0", "job_mem": "0", "job_directives_skip": ["--mem="]}
        return {
            "queue": self.partition,
            "account": self.account,
            "cores": self.cores,
            "processes": 1,
            "walltime": format_walltime(self.walltime_seconds),
            "interface": self.interface,
            "job_extra_directives": directives,
            "job_script_prologue": _split_lines(self.setup),
            **memory,
        }


def format_walltime(seconds: float) -> str:
    """Return a walltime as Slurm writes it, in whole minutes.

    >>> format_walltime(5400), format_walltime(86400 + 61)
    ('0-01:30:00', '1-00:01:00')
    """
    hours, minutes = divmod(int(seconds // 60), 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02}:{minutes:02}:00"


def _parse_seconds(name: str, value: str | float) -> float:
    try:
        return parse_duration(str(value))
    except ValueError:
        raise InputError(
            f"must be a duration such as 2h, 90m or 1-12:00:00, got {value!r}", argument=name
        ) from None


def _split_lines(text: str | Sequence[str]) -> list[str]:
    return [text] if isinstance(text, str) else list(text)
