"""Warnings about jobs that wait for somebody or something, since that looks like a hang."""

from __future__ import annotations

import logging
from math import inf

from hesrpt.decisions.core import Core
from hesrpt.units import format_count

# How long jobs may wait before a warning, in seconds.
_WARNING_SECONDS = 3.0
# With more jobs than this, how often to look at all of them, in seconds.
_MANY_JOBS, _CHECK_SECONDS = 100, 1.0

_LOG = logging.getLogger("hesrpt")


class WaitingWarner:
    """Warns once about each reason to wait, and again if it returns after it was gone."""

    def __init__(self) -> None:
        self.warns_of_pauses = True  # False: others see them, and can resume jobs
        self._since: dict[str, float] = {}  # infinity after the warning
        self._next_check = -inf

    def warn(self, core: Core, now: float) -> None:
        """Warn about what has kept jobs waiting for some time."""
        if len(core.jobs) > _MANY_JOBS:
            if now < self._next_check:
                return
            self._next_check = now + _CHECK_SECONDS
        reasons = self._list_reasons(core)
        self._since = {reason: self._since.get(reason, now) for reason in reasons}
        for reason, since in self._since.items():
            if now - since > _WARNING_SECONDS:
                self._since[reason] = inf
                _LOG.warning("hesrpt: %s", reason)

    def _list_reasons(self, core: Core) -> list[str]:
        if core.jobs and core.servers == 0:
            return ["jobs are waiting, because the cluster has no free servers"]
        if core.jobs and all(job.is_paused and not job.observed for job in core.jobs.values()):
            reason = "all jobs that have not ended are paused; none goes on until it is resumed"
            return [reason] if self.warns_of_pauses else []
        return [
            f"job {job.name!r} is waiting, because it needs at least "
            f"{format_count(job.min_servers, 'server')} on one node, and there are at "
            f"most {core.max_width}"
            for job in core.jobs.values()
            if not job.is_bag and not job.is_paused and job.min_servers > core.max_width
        ]
