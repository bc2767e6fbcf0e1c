"""The exceptions and warnings of hesrpt. Functions that check arguments are in validation.py."""

from __future__ import annotations

__all__ = ["CertificateError", "FitError", "InputError", "OverloadWarning", "PolicyError"]


class InputError(ValueError):
    """A value from the user is invalid; the message names it and says what was expected.

    If a single argument is at fault, ``argument`` is its name and ``problem`` the rest of the
    message, so that the command line can name its option instead.
    """

    def __init__(self, problem: str, *, argument: str | None = None) -> None:
        super().__init__(problem if argument is None else f"{argument} {problem}")
        self.problem = problem
        self.argument = argument


class FitError(InputError):
    """The measured points do not determine a speedup of the requested family."""


class PolicyError(InputError):
    """A policy made a decision that cannot be carried out; the message says when and which."""


class OverloadWarning(UserWarning):
    """Jobs arrive faster than they can be served, so averages mean little."""


class CertificateError(ValueError):
    """A plan or its certificate fails verification."""
