"""What to do when a job has ended: run a command, or send a message to a web server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from hesrpt.errors import InputError
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
    error: str | None = None  # of the last attempt

    @property
    def is_pending(self) -> bool:
        """Whether it is to be tried, or tried again."""
        return self.attempts == 0 or (self.error is not None and self.attempts < MAX_ATTEMPTS)

    @property
    def variables(self) -> dict[str, str]:
        """What lets a command ask for something in the run, in its environment."""
        return {} if self.state_directory is None else {"HESRPT_STATE": self.state_directory}


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
