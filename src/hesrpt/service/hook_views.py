"""Hooks as JSON values: readers learn that one has failed, but nothing of what it calls."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from hesrpt.jobs.hooks import HookCall
from hesrpt.service.auth import Access

# How the error of a hook may begin for readers: what follows may quote its command or address.
_HARMLESS = re.compile(
    r"exit code \d+|killed by signal \d+|it was stopped after \d+ s|HTTP \w+ \d+"
)


def describe_hook(call: HookCall, access: Access) -> dict[str, Any]:
    """Return what is shown of a hook with its job."""
    return {
        "target": call.target if access == "owner" else None,
        "attempts": call.attempts,
        "error": _describe_error(call, access),
        "pending": call.is_pending,
    }


def describe_failed_hooks(calls: Iterable[HookCall], access: Access) -> list[dict[str, Any]]:
    """Return the hooks that have failed, without their targets, which may contain secrets."""
    return [
        {
            "job": call.facts["job"],
            "attempts": call.attempts,
            "error": _describe_error(call, access),
        }
        for call in calls
        if call.error is not None
    ]


def _describe_error(call: HookCall, access: Access) -> str | None:
    if call.error is None or access == "owner":
        return call.error
    found = _HARMLESS.match(call.error)
    return "failed" if found is None else found[0]
