"""Jobs in the body of a request: checked like those of a jobs file; errors name the key."""

from __future__ import annotations

import json
import os
from collections.abc import Container
from pathlib import Path
from typing import Any

from hesrpt.errors import InputError
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.jobs.jobs_file import TomlLines, parse_jobs
from hesrpt.jobs.text import describe_value
from hesrpt.service.item_limits import LimitedItemReader

# The longest name that is made from a command.
_MAX_NAME = 40
#: The most jobs in one request.
MAX_JOBS = 10_000


class _Places(TomlLines):
    """Says which job of a request an error is about."""

    def __init__(self, count: int) -> None:
        super().__init__("", "")
        self._count = count

    def create_error(
        self, number: int | None, key: str, message: str, kind: str = "job"
    ) -> InputError:
        if self._count > 1:
            return InputError(f"jobs[{number}]: {message}")
        if message.startswith(f"{key} "):  # the command line names its option instead
            return InputError(message.removeprefix(f"{key} "), argument=key)
        return InputError(message)


def read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in the body of a request."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"the body must be a JSON object, got {describe_value(value)}")
    return value


def read_jobs(content: dict[str, Any], known: Container[str]) -> list[JobSpec]:
    """Return the jobs that a request asks for: one, or those in its list ``jobs``.

    They may wait for each other, and for the ``known`` jobs.
    """
    jobs = content.get("jobs", [content])
    if "jobs" in content and len(content) > 1:
        other = next(key for key in content if key != "jobs")
        raise InputError(f"{other!r} must be in the jobs, not beside them")
    if not isinstance(jobs, list) or not jobs or len(jobs) > MAX_JOBS:
        raise InputError(f"jobs must be a list of 1 to {MAX_JOBS:,} jobs")
    places = _Places(len(jobs))
    tables = []
    for number, values in enumerate(jobs):
        if not isinstance(values, dict):
            raise places.create_error(
                number, "", f"a job must be an object, got {describe_value(values)}"
            )
        given = {key: value for key, value in values.items() if value is not None}
        tables.append({"name": name_command(given.get("command"))} | given)
    with LimitedItemReader() as reader:
        return parse_jobs(tables, places, Path.cwd(), known, reader)


def name_command(command: Any) -> str:
    """Return a name for the job of a command: that of its program."""
    words = command.split() if isinstance(command, str) else command
    first = words[0] if isinstance(words, list) and words and isinstance(words[0], str) else "job"
    return os.path.basename(first)[:_MAX_NAME] or "job"
