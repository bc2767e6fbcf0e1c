"""Those who want to be woken when something about a job makes a condition true."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hesrpt.scheduler.live_job import LiveJob


@dataclass(frozen=True, eq=False)
class Watch:
    """Somebody who wants to be woken once."""

    job: LiveJob
    is_ready: Callable[[], bool]
    wake: Callable[[], object]  # must be quick and wait for nothing


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

    def wake_ready(self, jobs: Iterable[LiveJob]) -> None:
        """Wake those who watch one of these jobs, and whose conditions hold now."""
        if self._watches:
            watches = [watch for job in jobs for watch in self._watches.get(job, ())]
            for watch in watches:
                if watch.is_ready():
                    self.remove(watch)
                    watch.wake()

    def wake_all(self) -> None:
        """Wake all who watch."""
        for watches in list(self._watches.values()):
            for watch in list(watches):
                self.remove(watch)
                watch.wake()
