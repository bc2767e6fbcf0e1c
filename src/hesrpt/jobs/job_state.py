"""The states of a job: what users are told of where it is."""

from __future__ import annotations

from typing import Literal, TypeAlias

#: A job that waits has arrived and holds no server; the last three have ended.
JobState: TypeAlias = Literal["waiting", "running", "paused", "done", "failed", "cancelled"]
ENDED: tuple[JobState, ...] = ("done", "failed", "cancelled")


def describe_end(state: str) -> str:
    """Say that a job has ended, of which something was asked that it can no longer do."""
    return "has failed already" if state == "failed" else f"is {state} already"


def get_job_state(
    ended: float | None, error: str | None, *, servers: int = 0, is_paused: bool = False
) -> JobState:
    """Return the state of a job.

    Parameters
    ----------
    ended
        When it ended; None if it has not.
    error
        Why it failed or was cancelled.
    servers
        How many servers it holds, until it has ended.
    is_paused
        Whether none of its items may start.
    """
    if ended is not None:
        if error is None:
            return "done"
        return "cancelled" if error.startswith("cancelled") else "failed"
    if is_paused:
        return "paused"
    return "running" if servers > 0 else "waiting"
