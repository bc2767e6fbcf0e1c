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


def count_max_servers(servers: int | None, max_pilots: int | None, cores: int) -> int:
    """Return the most servers that there may be if each pilot has ``cores`` cores.

    >>> count_max_servers(5, 4, 2), count_max_servers(None, 4, 2)
    (5, 8)
    """
    check_whole_number("cores", cores, 1)
    if max_pilots is not None:
        in_pilots = check_whole_number("max_pilots", max_pilots, 1) * cores
        return in_pilots if servers is None else min(servers, in_pilots)
    if servers is None:
        raise InputError(
            "is missing: say how many pilots there may be at a time, with max=N or --servers N",
            argument="max_pilots",
        )
    return servers


def describe_pilots(
    *,
    walltime: float,
    sbatch: str | Sequence[str],
    setup: str | Sequence[str],
    memory: str | None,
    qos: str | None,
    **words: str | None,
) -> dict[str, Any]:
    """Return options of dask-jobqueue's ``SLURMCluster``; ``words`` are those that it has, too."""
    for name, value in {"memory": memory, "qos": qos, **words}.items():
        if value is not None and (not str(value).strip() or any(map(str.isspace, str(value)))):
            raise InputError(f"must be one word, got {value!r}", argument=name)
    directives = ["--no-requeue", *_split_lines(sbatch)]
    if qos is not None:
        directives.append(f"--qos={qos}")
    options = {
        "queue": words.pop("partition", None),
        **words,
        "memory": memory,
        "processes": 1,
        "walltime": format_walltime(walltime),
        "job_extra_directives": directives,
        "job_script_prologue": _split_lines(setup),
    }
    if memory is None:  # dask-jobqueue insists on one. Without it, Slurm's default counts.
        options |= {"memory": "0", "job_mem": "0", "job_directives_skip": ["--mem="]}
    return options


def parse_walltime(walltime: str) -> float:
    """Return a walltime in seconds."""
    if not isinstance(walltime, str) or walltime.strip().isdigit():
        # Slurm would take it for minutes, and everything else here takes it for seconds.
        raise InputError(
            f"must have a unit, as in 2h or 90m, or be as in 1-12:00:00, got {walltime!r}",
            argument="walltime",
        )
    seconds = parse_seconds("walltime", walltime)
    if seconds < _MIN_WALLTIME:
        raise InputError(f"must be at least a minute, got {walltime!r}", argument="walltime")
    return seconds


def format_walltime(seconds: float) -> str:
    """Return a walltime as Slurm writes it, in whole minutes.

    >>> format_walltime(5400), format_walltime(86400 + 61)
    ('0-01:30:00', '1-00:01:00')
    """
    hours, minutes = divmod(int(seconds // 60), 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02}:{minutes:02}:00"


def parse_seconds(name: str, value: str | float) -> float:
    """Return the duration that an option gives, in seconds."""
    try:
        return parse_duration(str(value))
    except ValueError:
        raise InputError(
            f"must be a duration such as 2h, 90m or 1-12:00:00, got {value!r}", argument=name
        ) from None


def _split_lines(text: str | Sequence[str]) -> list[str]:
    return [text] if isinstance(text, str) else list(text)
