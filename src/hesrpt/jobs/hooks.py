"""What to do when a job has ended: run a command, or send a message to a web server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from hesrpt.errors import InputError
from hesrpt.units import format_count
from hesrpt.validation import shorten

_SCHEMES = ("http://", "https://")
_MAX_HOOKS = 20
#: How often a hook is tried.
MAX_ATTEMPTS = 4


@dataclass(frozen=True)
class Hook:
    """A line for the shell, or the address of a web server, to which JSON is posted."""

    target: str

    @property
    def is_webhook(self) -> bool:
        """Whether the target is the address of a web server."""
        return self.target.lower().startswith(_SCHEMES)


#: What went wrong with a hook: how its command ended, what a web server answered, or else.
HookProblem: TypeAlias = Literal["exit_code", "signal", "timeout", "http_status", "other"]

_SUMMARIES: dict[HookProblem, str] = {
    "exit_code": "exit code {:g}",
    "signal": "killed by signal {:g}",
    "timeout": "it was stopped after {:g} s",
    "http_status": "HTTP Error {:g}",
    "other": "failed",
}


@dataclass(frozen=True)
class HookError:
    """Why an attempt of a hook has failed.

    >>> HookError("exit_code", 7, "no space left").text
    'exit code 7: no space left'
    """

    problem: HookProblem
    code: float = 0  # of the command's end or of the answer, or the seconds that the command had
    detail: str = ""  # what the command has printed, or else what went wrong

    @property
    def summary(self) -> str:
        """What went wrong, without anything that may quote the command or the address."""
        return _SUMMARIES[self.problem].format(self.code)

    @property
    def text(self) -> str:
        """What went wrong."""
        if self.problem == "other":
            return self.detail
        return f"{self.summary}: {self.detail}" if self.detail else self.summary

    def to_json(self) -> str:
        """Return the error as JSON."""
        return json.dumps([self.problem, self.code, self.detail])

    @classmethod
    def from_json(cls, text: str) -> HookError:
        """Return the error that :meth:`to_json` wrote."""
        problem, code, detail = json.loads(text)
        if problem not in _SUMMARIES:
            raise ValueError(f"unknown problem {problem!r}")
        return cls(problem, code, detail)


@dataclass(frozen=True, kw_only=True)
class HookCall:
    """A hook of a job that has ended, and what became of it."""

    number: int  # never used again
    job: int  # the number of its job
    target: str  # the command, or the address
    facts: Mapping[str, Any]  # about the job and its end
    directory: str | None = None  # in which a command runs; None: that of the scheduler
    state_directory: str | None = None  # of the run, if it has one
    attempts: int = 0
    error: HookError | None = None  # of the last attempt

    @property
    def is_pending(self) -> bool:
        """Whether it is to be tried, or tried again."""
        return self.attempts == 0 or (self.error is not None and self.attempts < MAX_ATTEMPTS)

    @property
    def variables(self) -> dict[str, str]:
        """What lets a command ask for something in the run, in its environment."""
        return {} if self.state_directory is None else {"HESRPT_STATE": self.state_directory}


@dataclass(frozen=True, kw_only=True)
class FailedHook:
    """What is shown of a hook that has failed."""

    job: str
    target: str | None  # the command or the address; None for readers: it may contain secrets
    attempts: int
    error: str

    def describe(self) -> str:
        """Return which hook has failed, and why."""
        tries, error = format_count(self.attempts, "attempt"), self.error.partition("\n")[0]
        target = f" {self.target!r}" if self.target else ""
        return f"{self.job}: on_end{target} failed, {tries}: {error}"


def list_failed_hooks(calls: Iterable[HookCall], *, is_owner: bool) -> list[FailedHook]:
    """Return the hooks that have failed; only the owner sees what they call, and what that says."""
    return [
        FailedHook(
            job=call.facts["job"],
            target=call.target if is_owner else None,
            attempts=call.attempts,
            error=call.error.text if is_owner else call.error.summary,
        )
        for call in calls
        if call.error is not None
    ]


def check_hooks(value: object) -> tuple[Hook, ...]:
    """Return the hooks that a command, an address or a list of these stands for.

    >>> check_hooks("make report")
    (Hook(target='make report'),)
    """
    targets = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    hooks = []
    for target in targets:
        if isinstance(target, Hook):
            target = target.target
        if not isinstance(target, str) or not target.strip() or "\0" in target:
            raise InputError(
                f"must be a command, an address such as https://…, or a list of these, got "
                f"{shorten(value)}",
                argument="on_end",
            )
        hook = Hook(target.strip())
        if hook.is_webhook and not _has_host(hook.target):
            raise InputError(f"must name a host, got {shorten(target)}", argument="on_end")
        hooks.append(hook)
    if len(hooks) > _MAX_HOOKS:
        raise InputError(f"must have at most {_MAX_HOOKS} entries", argument="on_end")
    return tuple(hooks)


def _has_host(address: str) -> bool:
    try:
        return bool(urlsplit(address).hostname) and address.isprintable() and " " not in address
    except ValueError:  # of a malformed port or bracket
        return False
