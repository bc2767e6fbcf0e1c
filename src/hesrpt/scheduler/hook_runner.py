"""Runs the hooks of jobs that have ended, in threads of their own, so that nobody waits for them.

A hook that fails is tried again, a bounded number of times. What became of each attempt is
reported, so that the journal knows which hooks the next scheduler has to run.
"""

from __future__ import annotations

import heapq
import json
import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hesrpt._version import __version__
from hesrpt.engines.local.kept_process import KeptProcess
from hesrpt.jobs.hooks import Hook, HookCall

# How long one attempt may take, and how long to wait after each failed one, in seconds.
_TIMEOUT = 60.0
_DELAYS = (1.0, 5.0, 30.0)
# How long attempts may go on when the run ends, in seconds.
_CLOSING_SECONDS = 10.0
# How many hooks run at the same time.
_THREADS = 4
# How much of the output of a command its error shows, in bytes.
_MAX_OUTPUT = 2000

# HESRPT_STATE is the state directory, for commands such as hesrpt retry.
_VARIABLES = {"state": "HESRPT_JOB_STATE"}

_LOG = logging.getLogger("hesrpt")


class HookError(Exception):
    """A hook has failed."""


class HookRunner:
    """Calls hooks; ``report`` gets each of them after each attempt, in any thread."""

    def __init__(
        self, report: Callable[[HookCall], None], *, delays: tuple[float, ...] = _DELAYS
    ) -> None:
        self._report, self._delays = report, delays
        self._condition = threading.Condition()
        self._calls: list[tuple[float, int, HookCall]] = []  # a heap: when to try, and what
        self._threads: list[threading.Thread] = []
        self._running: dict[int, _Attempt] = {}
        self._is_closing = False

    def put(self, call: HookCall, delay: float = 0.0) -> None:
        """Call a hook as soon as possible, or after some seconds."""
        with self._condition:
            heapq.heappush(self._calls, (time.monotonic() + delay, call.number, call))
            self._condition.notify()
            if len(self._threads) < min(_THREADS, len(self._calls) + len(self._running)):
                thread = threading.Thread(target=self._work, name="hesrpt-hooks", daemon=True)
                self._threads.append(thread)
                thread.start()

    def close(self) -> None:
        """Call what has never been tried, and wait for that for some seconds; try nothing again."""
        with self._condition:
            self._is_closing = True
            self._calls = [entry for entry in self._calls if entry[2].attempts == 0]
            heapq.heapify(self._calls)
            self._condition.notify_all()
        deadline = time.monotonic() + _CLOSING_SECONDS
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        with self._condition:
            self._calls.clear()
            for attempt in self._running.values():
                attempt.stop()
        for thread in self._threads:
            thread.join(1.0)

    def _work(self) -> None:
        while (attempt := self._take()) is not None:
            call = attempt.call
            error = attempt.run()
            with self._condition:
                del self._running[call.number]
            done = replace(call, attempts=call.attempts + 1, error=error)
            if error is not None:
                again = "; it is tried again" if done.is_pending else ""
                _LOG.warning(
                    "hesrpt: on_end of job %r: %r failed: %s%s",
                    call.facts.get("job"),
                    call.target,
                    error,
                    again,
                )
            self._report(done)
            if done.is_pending and not self._is_closing:
                self.put(done, self._delays[min(done.attempts, len(self._delays)) - 1])

    def _take(self) -> _Attempt | None:
        """Wait for the next call; None if there are no more."""
        with self._condition:
            while True:
                now = time.monotonic()
                if self._calls and (self._calls[0][0] <= now or self._is_closing):
                    *_, call = heapq.heappop(self._calls)
                    attempt = self._running[call.number] = _Attempt(call)
                    return attempt
                if self._is_closing:
                    return None
                self._condition.wait(self._calls[0][0] - now if self._calls else None)


class _Attempt:
    """One attempt of a hook."""

    def __init__(self, call: HookCall) -> None:
        self.call = call
        self._process: KeptProcess | None = None

    def run(self) -> str | None:
        """Call the hook; return why it failed, if it has."""
        hook = Hook(self.call.target)
        try:
            (self._post if hook.is_webhook else self._run_command)()
        except (HookError, OSError, ValueError) as error:
            return str(error) or type(error).__name__
        return None

    def stop(self) -> None:
        """Kill the command, if there is one."""
        if self._process is not None:
            self._process.kill()

    def _run_command(self) -> None:
        directory = self.call.directory
        if directory is not None and not Path(directory).is_dir():
            raise HookError(f"there is no directory {directory}")
        # Facts are never part of the text that the shell reads: an error may contain anything.
        variables = {
            _VARIABLES.get(name, f"HESRPT_{name.upper()}"): _to_text(value)
            for name, value in self.call.facts.items()
        }
        with tempfile.TemporaryFile() as output:
            self._process = KeptProcess(
                ["/bin/sh", "-c", self.call.target],
                output=output.fileno(),
                errors=output.fileno(),
                directory=directory,
                variables={**variables, **self.call.variables},
            )
            try:
                code = self._process.wait(_TIMEOUT)
            except TimeoutError:
                raise HookError(f"it was stopped after {_TIMEOUT:g} s") from None
            if code != 0:
                size = output.seek(0, os.SEEK_END)
                output.seek(max(size - _MAX_OUTPUT, 0))
                text = output.read().decode(errors="backslashreplace").strip()
                what = f"exit code {code}" if code > 0 else f"killed by signal {-code}"
                raise HookError(f"{what}: {text}" if text else what)

    def _post(self) -> None:
        from http.client import HTTPException  # quick to import only when it is needed
        from urllib.request import Request, urlopen

        request = Request(
            self.call.target,
            data=json.dumps({"hesrpt": __version__, **self.call.facts}).encode(),
            headers={"Content-Type": "application/json", "User-Agent": f"hesrpt/{__version__}"},
        )
        try:
            with urlopen(request, timeout=_TIMEOUT) as response:  # an OSError for codes like 500
                response.read(_MAX_OUTPUT)
        except HTTPException as error:  # such as an answer that is not HTTP
            raise HookError(f"{type(error).__name__}: {error}") from None


def _to_text(value: Any) -> str:
    text = "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return text.replace("\0", "")
