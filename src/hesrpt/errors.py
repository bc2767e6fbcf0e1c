"""The exceptions and warnings of hesrpt. Functions that check arguments are in validation.py."""

from __future__ import annotations

__all__ = [
    "CertificateError",
    "FitError",
    "FitWarning",
    "InputError",
    "JobError",
    "OverloadWarning",
    "PolicyError",
    "StateError",
]


class InputError(ValueError):
    """A value from the user is invalid; the message names it and says what was expected.

    If a single argument is at fault, ``argument`` is its name and ``problem`` the rest of the
    message, so that the command line can name its option instead.
    """

    #: With which code the command line ends.
    exit_code: int = 2

    def __init__(self, problem: str, *, argument: str | None = None) -> None:
        super().__init__(problem if argument is None else f"{argument} {problem}")
        self.problem = problem
        self.argument = argument


class FitError(InputError):
    """The measured points do not determine a speedup of the requested family."""


class PolicyError(InputError):
    """A policy made a decision that cannot be carried out; the message says when and which."""


class StateError(InputError):
    """The state directory of a pool cannot be used; the message names it and says why.

    ``Pool(state=...)`` raises it if, for example, the directory holds an earlier run, another
    scheduler is running on it, or other users can read it. If the disk is full or the journal
    damaged, waiting for a job may raise it too.
    """


class JobError(RuntimeError):
    """A job failed or was cancelled. If an item has raised an exception, that is the cause."""


class OverloadWarning(UserWarning):
    """Jobs arrive faster than they can be served, so averages mean little."""


class FitWarning(UserWarning):
    """A fitted speedup hardly agrees with the measured points; the message says why."""


class CertificateError(ValueError):
    """A plan or its certificate fails verification."""
