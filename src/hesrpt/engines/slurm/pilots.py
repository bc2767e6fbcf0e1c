"""Pilots: their options, and when they are submitted, drained and ended.

A pilot is a Slurm job that runs items until it is not needed any more, or until its walltime is
near. Then it is drained: it starts nothing, and ends when its last item has ended. Nothing here
talks to Slurm.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from hesrpt.errors import InputError
from hesrpt.units import parse_duration
from hesrpt.validation import check_whole_number

# A pilot whose worker has been away for this many seconds is ended, unless it never was there.
_AWAY_SECONDS = 30.0
# Items are expected to take as long as the longest item so far, and this much more.
_ITEM_MARGIN = 1.1
# At most this fraction of a walltime is kept free for items: new pilots must be usable.
_MAX_KEPT_FREE = 0.95
# When this many pilots in a row end before they have connected, the next ones will do so, too.
MAX_FAILED_STARTS = 3


class SlurmState(Enum):
    """What Slurm says about the job of a pilot."""

    WAITING = "waiting"
    RUNNING = "running"
    GONE = "gone"


@dataclass(eq=False)
class Pilot:
    """A pilot that was submitted and has not ended."""

    name: str  # of its Dask worker
    submitted: float
    is_there: bool = False  # whether its worker is connected
    was_there: bool = False
    away_since: float = math.inf
    ends: float = math.inf  # when its walltime is over; infinity while it waits
    idle_since: float = math.inf  # since when it runs nothing; infinity while it does
    is_draining: bool = False


class PilotChanges(NamedTuple):
    """What to do about pilots."""

    submit: int = 0
    end: Sequence[str] = ()


@dataclass
class PilotTable:
    """The pilots of an engine, and what bounds them."""

    max_pilots: int
    cores: int  # of each pilot; each is a server
    walltime: float  # seconds
    idle_seconds: float  # an idle pilot that is not needed ends after this many seconds
    pilots: dict[str, Pilot] = field(default_factory=dict)
    failed_starts: int = 0  # how many in a row have ended before they connected

    def add(self, name: str, now: float) -> None:
        """Record that a pilot was submitted."""
        self.pilots[name] = Pilot(name, submitted=now)

    def observe_workers(self, busy: Mapping[str, int], now: float) -> None:
        """Take in which workers are connected, by name, and how many items each runs."""
        for pilot in self.pilots.values():
            was_there, pilot.is_there = pilot.is_there, pilot.name in busy
            if pilot.is_there:
                pilot.was_there, pilot.away_since, self.failed_starts = True, math.inf, 0
                is_idle = busy[pilot.name] == 0
                pilot.idle_since = min(pilot.idle_since, now) if is_idle else math.inf
            elif was_there:
                pilot.away_since = now

    def observe_jobs(self, states: Mapping[str, tuple[SlurmState, float]], now: float) -> list[str]:
        """Take in what Slurm says about the pilots, with the seconds left of their walltimes.

        Returns the pilots that are gone, and forgets them.
        """
        gone = []
        for name, (state, left) in states.items():
            pilot = self.pilots.get(name)
            if pilot is not None and state is SlurmState.RUNNING:
                pilot.ends = now + left
            elif pilot is not None and state is SlurmState.GONE:
                gone.append(name)
                self.failed_starts += not pilot.was_there
        for name in gone:
            del self.pilots[name]
        return gone

    def outlasts(self, name: str, seconds: float, now: float) -> bool:
        """Return whether an item that may take this many seconds would end in time in a pilot."""
        pilot = self.pilots.get(name)
        return pilot is None or pilot.ends - now >= self._keep_free(seconds)

    def drain(self, waiting: Sequence[float], idle: Collection[str], now: float) -> set[str]:
        """Drain pilots that hardly have time left, or keep items waiting; return all drained ones.

        ``waiting`` is how many seconds each item that waits for a server may take, and ``idle`` are
        the pilots with a free server: an item that waits does not fit into their time.
        """
        longest = max(waiting, default=0.0)
        for pilot in self.pilots.values():
            seconds = longest if pilot.name in idle else 0.0
            pilot.is_draining |= not self.outlasts(pilot.name, seconds, now)
        return {pilot.name for pilot in self.pilots.values() if pilot.is_draining}

    def _keep_free(self, seconds: float) -> float:
        """Return how much of a walltime must be left for an item to start."""
        grace = min(30.0, 0.05 * self.walltime)  # in which nothing should run any more
        wanted = _ITEM_MARGIN * seconds + grace
        return min(wanted, _MAX_KEPT_FREE * self.walltime)

    def decide(self, demand: int, now: float) -> PilotChanges:
        """Decide which pilots to submit and to end, if the jobs could use ``demand`` servers."""
        wanted = min(math.ceil(demand / self.cores), self.max_pilots)
        ended = [pilot.name for pilot in self.pilots.values() if self._has_to_end(pilot, now)]
        lasting = [
            pilot
            for pilot in self.pilots.values()
            if not pilot.is_draining and pilot.name not in ended
        ]
        # Those that wait in Slurm's queue go first, then those that have been idle for longest.
        surplus = sorted(lasting, key=lambda pilot: (pilot.is_there, pilot.idle_since))
        for pilot in surplus[: max(len(lasting) - wanted, 0)]:
            since = pilot.idle_since if pilot.is_there else pilot.submitted
            if now - since >= self.idle_seconds:
                ended.append(pilot.name)
        room = self.max_pilots - (len(self.pilots) - len(ended))
        return PilotChanges(max(min(wanted - len(lasting), room), 0), tuple(ended))

    def _has_to_end(self, pilot: Pilot, now: float) -> bool:
        if now - pilot.away_since > _AWAY_SECONDS:
            return True
        return pilot.is_draining and pilot.idle_since < math.inf


# --- options --------------------------------------------------------------------------------------

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

    def create_table(self) -> PilotTable:
        """Return a table without pilots."""
        return PilotTable(
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
