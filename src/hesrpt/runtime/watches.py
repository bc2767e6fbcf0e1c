"""Those who want to be woken when something about a job makes a condition true."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hesrpt.runtime.live_job import LiveJob


@dataclass(frozen=True, eq=False)
class Watch:
    """Somebody who wants to be woken once."""

    job: LiveJob
    is_ready: Callable[[], bool]
    wake: Callable[[], object]  # must be quick


class Watches:
    """All watches of a driver, by job. Whoever calls a method holds the driver's condition."""

    def __init__(self) -> None:
        self._watches: dict[LiveJob, set[Watch]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._watches.values()))

    def add(self, watch: Watch) -> None:
        """Add a watch."""
        self._watches.setdefault(watch.job, set()).add(watch)

    def remove(self, watch: Watch) -> None:
        """Remove a watch, unless it has been taken."""
        if (others := self._watches.get(watch.job)) is not None:
            others.discard(watch)
            if not others:
                del self._watches[watch.job]

    def take_ready(self, jobs: Iterable[LiveJob]) -> list[Watch]:
        """Return and remove the watches of jobs whose conditions hold now."""
        if not self._watches:
            return []
        watches = [watch for job in jobs for watch in self._watches.get(job, ())]
        ready = [watch for watch in watches if watch.is_ready()]
        for watch in ready:
            self.remove(watch)
        return ready

    def take_all(self) -> list[Watch]:
        """Return and remove all watches."""
        watches = [watch for others in self._watches.values() for watch in others]
        self._watches.clear()
        return watches


def wake_all(watches: Iterable[Watch]) -> None:
    """Wake those who watch. They may want the driver's condition, so nobody may hold it."""
    for watch in watches:
        watch.wake()
