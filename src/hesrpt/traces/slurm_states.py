"""The states of jobs in Slurm's accounting."""

from __future__ import annotations

_UNFINISHED = {
    *("running", "pending", "suspended", "configuring", "completing", "resizing"),
    *("r", "pd", "s", "cf", "cg", "rs"),
}
_FINISHED = {
    *("boot_fail", "cancelled", "completed", "deadline", "failed", "node_fail", "out_of_memory"),
    *("preempted", "requeued", "revoked", "timeout"),
    *("bf", "ca", "cd", "dl", "f", "nf", "oom", "pr", "rq", "rv", "to"),
}


def is_unfinished(state: str) -> bool:
    """Return whether a job in this state has not ended.

    >>> is_unfinished("RUNNING"), is_unfinished("CANCELLED by 1000")
    (True, False)
    """
    return _normalise(state) in _UNFINISHED


def is_state(text: str) -> bool:
    """Return whether a text is a state of a job."""
    return _normalise(text) in _UNFINISHED | _FINISHED


def _normalise(state: str) -> str:
    return state.strip().lower().partition(" ")[0].rstrip("+")  # sacct cuts "CANCELLED+"
