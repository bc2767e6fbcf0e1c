"""One server of a cluster: an actor that does what it is given, one item after the other."""

from __future__ import annotations

import os
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import ray

from hesrpt.runtime.engines import commands, worker
from hesrpt.runtime.engines.engine import CommandTask
from hesrpt.runtime.engines.processes import Guardian, marked_environment, new_mark

# Of what an item prints, so many bytes are brought home.
_MOST_SAID = 2**20
# So many functions are kept, since items of a few jobs take turns.
_FUNCTIONS = 16


class Report(NamedTuple):
    """What became of an item."""

    seconds: float
    result: bytes
    error: str | None
    said: bytes


class Server:
    """Does items where it is."""

    def __init__(self) -> None:
        mark = new_mark()
        # Whatever items start carries the mark, and is ended with this process.
        self.guardian = Guardian(mark, detached=True)
        os.environ.update(marked_environment(mark))
        self.functions: OrderedDict[Any, Callable[[Any], Any]] = OrderedDict()

    def begin(self) -> None:
        """Answer that the server is there."""

    def python(
        self,
        function: list[Any],
        packed: list[bool],
        logged: bool,
        keep: bool,
        *arguments: Any,
    ) -> Any:
        """Call a function with each of some arguments.

        The function comes in a list, since Ray would fetch it anew for every call otherwise. What
        is kept is returned as a value of its own, after the reports.
        """
        reports, values = [], []
        for is_packed, argument in zip(packed, arguments, strict=True):

            def work(is_packed: bool = is_packed, argument: Any = argument) -> Any:
                value = cloudpickle.loads(argument) if is_packed else argument
                result = self._function(function[0])(value)
                return result if keep else cloudpickle.dumps(result)

            seconds, result, error, said = _with_output(work, logged)
            reports.append(Report(seconds, b"" if keep else result or b"", error, said))
            values.append(result)
        return (reports, *values) if keep else reports

    def _function(self, reference: Any) -> Callable[[Any], Any]:
        """Return a function, which is fetched once."""
        if reference not in self.functions:
            self.functions[reference] = cloudpickle.loads(ray.get(reference))
            if len(self.functions) > _FUNCTIONS:
                self.functions.popitem(last=False)
        self.functions.move_to_end(reference)
        return self.functions[reference]

    def commands(self, tasks: list[CommandTask], logged: bool) -> list[Report]:
        """Run commands, one after the other."""
        return [self._command(task, logged) for task in tasks]

    def _command(self, task: CommandTask, logged: bool) -> Report:
        began = time.perf_counter()
        with tempfile.TemporaryFile() as output:
            try:
                process = commands.begin(task, output, dict(os.environ))
                error = commands.wait(process, task.timeout)
            except commands.CannotStartError as problem:
                error = f"{problem} (on {os.uname().nodename})"
            if error is not None:
                error = commands.add_last_lines(error, output)
            said = commands.last_bytes(output, _MOST_SAID) if logged else b""
        return Report(time.perf_counter() - began, b"", error, said)


def _with_output(work: Callable[[], Any], logged: bool) -> tuple[float, Any, str | None, bytes]:
    """Return how long something took, its result, the error, and what was printed."""
    if not logged:
        return *worker.timed(work, None), b""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "log"
        told = worker.timed(work, log)
        if not log.exists():
            return *told, b""
        with log.open("rb") as output:
            return *told, commands.last_bytes(output, _MOST_SAID)
