"""One server of a cluster: a Ray actor that runs the items it is given, one after another."""

from __future__ import annotations

import os
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import ray

from hesrpt.engines.engine import CommandTask
from hesrpt.engines.item_reports import (
    NO_DETAILS,
    CallReport,
    ErrorDetails,
    call_with_log,
    dump_result_pieces,
    time_call,
)
from hesrpt.engines.local.channel import wait_for
from hesrpt.engines.local.output import flush_output, read_end
from hesrpt.engines.local.processes import build_environment, create_mark
from hesrpt.engines.local.supervisor import GoneReport
from hesrpt.engines.local.supervisor_client import Supervision, choose_threads
from hesrpt.engines.local.workers_and_commands import CommandProcess, CommandStartError
from hesrpt.jobs.text import describe_value

# A server remembers this many functions, because the items of several jobs alternate.
_REMEMBERED_FUNCTIONS = 16


class ItemReport(NamedTuple):
    """How an item ended, and what it printed."""

    seconds: float
    result: bytes = b""
    error: str | None = None
    details: ErrorDetails = NO_DETAILS
    output: bytes = b""


class Server:
    """Runs items in its own process, on the node where Ray started it.

    Libraries that items use start ``threads`` threads.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        mark = create_mark()
        # Processes that items start inherit the mark, and die with this one. Ray may kill our
        # children with us, so the guardian is not our child.
        self._supervision = Supervision(mark, is_detached=True)
        os.environ.update(choose_threads(threads, os.environ))
        os.environ.update(build_environment(mark))
        self._functions: OrderedDict[Any, Callable[[Any], Any]] = OrderedDict()

    def confirm_start(self) -> None:
        """Do nothing: any reply means that the server has started."""

    def call_function(
        self,
        function: list[Any],
        is_pickled: list[bool],
        with_output: bool,
        keep_results: bool,
        *arguments: Any,
    ) -> Any:
        """Call a function with each of the arguments, and return an :class:`ItemReport` for each.

        The reference to the function comes inside a list. Otherwise Ray would fetch the function
        for every call. Results to keep follow the reports, as separate return values.
        """
        reports, results = [], []
        work = partial(self._call, function[0], keep_results)
        for argument in zip(arguments, is_pickled, strict=True):
            call, output = _run_with_output(work, argument, with_output)
            result = b"" if keep_results else call.result or b""
            reports.append(ItemReport(call.seconds, result, call.error, call.details, output))
            results.append(call.result)
        return (reports, *results) if keep_results else reports

    def _call(self, function: Any, keep_result: bool, argument: tuple[Any, bool]) -> Any:
        value = _unpickle(argument)
        result = self._fetch_function(function)(value)
        return result if keep_result else b"".join(dump_result_pieces(result))

    def _fetch_function(self, reference: Any) -> Callable[[Any], Any]:
        """Return the function behind a reference, fetching it the first time."""
        if reference not in self._functions:
            self._functions[reference] = cloudpickle.loads(ray.get(reference))
            # Those of executors remember that their initializer has run.
            others = [
                key
                for key, function in self._functions.items()
                if not hasattr(type(function), "needs_new_worker")
            ]
            for key in others[:-_REMEMBERED_FUNCTIONS]:
                del self._functions[key]
        self._functions.move_to_end(reference)
        return self._functions[reference]

    def run_commands(self, tasks: list[CommandTask], with_output: bool) -> list[ItemReport]:
        """Run commands one after another."""
        return [self._run_command(task, with_output) for task in tasks]

    def _run_command(self, task: CommandTask, with_output: bool) -> ItemReport:
        try:
            # Its log is on the machine of the scheduler, which receives the output.
            command = CommandProcess("", 0, replace(task, log=None))
            command.start(1, self._supervision, threads=self._threads)
            report = self._wait_for_end(command)
        except CommandStartError as problem:
            return ItemReport(0.0, error=f"{problem} (on {os.uname().nodename})")
        error = command.describe_failure(report)
        if report.error is not None:
            error = f"{error} (on {os.uname().nodename})"
        output = read_end(command.output) if with_output else b""
        command.close()
        seconds, details = command.measure_seconds(report), command.details
        return ItemReport(seconds, error=error, details=details, output=output)

    def _wait_for_end(self, command: CommandProcess) -> GoneReport:
        """Wait until a command and all its descendants are gone."""
        supervision = self._supervision
        while True:
            patience = command.deadline - time.monotonic()
            wait_for([], min(max(patience, 0.0), 1.0), [supervision.channel])
            for report in supervision.receive():
                if isinstance(report, GoneReport):
                    return report
            if supervision.is_broken:
                os._exit(1)  # this server starts no command any more: let Ray report its end
            command.limit_output()
            if command.deadline <= time.monotonic():
                command.expire()
                command.is_ending = True
                supervision.request("kill", command.number)


def _unpickle(argument: tuple[Any, bool]) -> Any:
    """Return the argument of an item, which comes with whether it is pickled."""
    value, is_pickled = argument
    return cloudpickle.loads(value) if is_pickled else value


def _describe(argument: tuple[Any, bool]) -> str:
    return describe_value(_unpickle(argument))


def _run_with_output(
    work: Callable[[Any], Any], argument: tuple[Any, bool], with_output: bool
) -> tuple[CallReport[Any], bytes]:
    """Call ``work``; return a report and, if ``with_output``, what it printed."""
    if not with_output:
        report = time_call(work, argument, _describe, is_logged=False)
        flush_output()
        return report, b""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "log"
        report = call_with_log(work, argument, _describe, log)
        if not log.exists():
            return report, b""
        with log.open("rb") as file:
            return report, read_end(file)
