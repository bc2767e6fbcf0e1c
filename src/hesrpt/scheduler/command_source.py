"""The items of a command: each fills in the placeholders of its template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from hesrpt.engines.engine import CommandTask, Task
from hesrpt.errors import InputError
from hesrpt.jobs.command_template import CommandTemplate
from hesrpt.jobs.fingerprints import fingerprint_command_items
from hesrpt.jobs.text import describe_value
from hesrpt.pickling import Pickled
from hesrpt.scheduler.source import SourceListener
from hesrpt.storage.earlier_items import EarlierItems, Matches
from hesrpt.storage.item_keys import create_keys
from hesrpt.storage.logs import LogPaths


class CommandSource:
    """A command for each item, or one command on all servers of the job."""

    delivers_results = False

    def __init__(
        self, template: CommandTemplate, *, pin_cores: bool = False, max_servers: int | None = None
    ) -> None:
        self.template, self.pin_cores, self.max_servers = template, pin_cores, max_servers
        self.run, self.is_closed = 0, False

    @cached_property
    def fingerprints(self) -> Sequence[bytes]:
        """The fingerprints of all items."""
        return fingerprint_command_items(self.template)

    def resume(self, earlier: EarlierItems, run: int) -> Matches:
        self.run = run
        return earlier.match_all(self.fingerprints)

    def open(self, listener: SourceListener) -> None:
        """Do nothing: all items are known from the start."""

    def create_tasks(
        self, items: Sequence[int], servers: int, logs: LogPaths | None
    ) -> Mapping[int, Task]:
        get_log = (lambda item: None) if logs is None else logs.get
        return {item: self._create_task(item, servers, get_log(item)) for item in items}

    def _create_task(self, item: int, servers: int, log: Path | None) -> CommandTask:
        template = self.template
        try:
            filled = template.fill_in(item, servers)
        except InputError as error:
            # An earlier version has accepted the line, which is in the state directory since then.
            command = ("sh", "-c", 'printf "%s\\n" "$1" >&2; exit 2', "sh", f"hesrpt: {error}")
            return CommandTask(command, log=log)
        return CommandTask(
            filled.command,
            shell=template.shell,
            variables=filled.variables,
            directory=filled.directory,
            stdin=filled.stdin,
            stdin_file=filled.stdin_file,
            timeout=template.timeout,
            log=log,
            pin_cores=self.pin_cores,
            max_servers=self.max_servers,
        )

    def describe_value(self, item: int) -> str:
        return describe_value(self.template.items[item]) if self.template.items else ""

    def get_keys(self, items: Sequence[int]) -> Sequence[bytes]:
        return create_keys(map(self.fingerprints.__getitem__, items), self.run, items)

    def finish_items(self, items: Sequence[int], results: Sequence[Pickled]) -> None:
        """Do nothing: the template holds all items."""

    def drop_item(self, item: int, error: str) -> None:
        """Do nothing: the template holds all items."""

    def retry_items(self) -> None:
        """Do nothing: the template holds all items."""

    def close(self, reason: str = "") -> None:
        self.is_closed = True
