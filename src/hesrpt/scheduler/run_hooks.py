"""The hooks of a run: recorded with the ends of jobs, called when that is written."""

from __future__ import annotations

import heapq
import json
import logging
import os
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hesrpt._version import __version__
from hesrpt.decisions.events import CallHook
from hesrpt.engines.local.supervisor_client import KeptProcess
from hesrpt.jobs.job_spec import Hook, HookCall, HookError
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.storage.journal import Journal

# --- calling hooks, in threads of their own, so that nobody waits for them ----------------------
#
# A hook that fails is tried again, a bounded number of times. What became of each attempt is
# reported, so that the journal knows which hooks the next scheduler has to run.

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


class _FailedError(Exception):
    """A hook has failed."""

    def __init__(self, *error: Any) -> None:
        self.error = HookError(*error)


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
        self._is_closing = True
        if not self._threads:
            return
        with self._condition:
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
                    error.text,
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

    def run(self) -> HookError | None:
        """Call the hook; return why it failed, if it has."""
        hook = Hook(self.call.target)
        try:
            (self._post if hook.is_webhook else self._run_command)()
        except _FailedError as failed:
            return failed.error
        except (OSError, ValueError) as error:
            return HookError("other", 0, str(error) or type(error).__name__)
        return None

    def stop(self) -> None:
        """Kill the command, if there is one."""
        if self._process is not None:
            self._process.kill()

    def _run_command(self) -> None:
        directory = self.call.directory
        if directory is not None and not Path(directory).is_dir():
            raise _FailedError("other", 0, f"there is no directory {directory}")
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
                raise _FailedError("timeout", _TIMEOUT) from None
            if code != 0:
                size = output.seek(0, os.SEEK_END)
                output.seek(max(size - _MAX_OUTPUT, 0))
                text = output.read().decode(errors="backslashreplace").strip()
                raise _FailedError("exit_code" if code > 0 else "signal", abs(code), text)

    def _post(self) -> None:
        from http.client import HTTPException  # quick to import only when it is needed
        from urllib.error import HTTPError
        from urllib.request import Request, urlopen

        request = Request(
            self.call.target,
            data=json.dumps({"hesrpt": __version__, **self.call.facts}).encode(),
            headers={"Content-Type": "application/json", "User-Agent": f"hesrpt/{__version__}"},
        )
        try:
            with urlopen(request, timeout=_TIMEOUT) as response:
                response.read(_MAX_OUTPUT)
        except HTTPError as error:  # a status such as 500
            raise _FailedError("http_status", error.code, error.reason) from None
        except HTTPException as error:  # such as an answer that is not HTTP
            raise _FailedError("other", 0, f"{type(error).__name__}: {error}") from None


def _to_text(value: Any) -> str:
    text = "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return text.replace("\0", "")


class RunHooks:
    """Keeps the journal informed of which hooks are to be called, and what became of them."""

    def __init__(
        self,
        journal: Journal | None,
        jobs: Mapping[str, LiveJob],
        record: Callable[[HookCall], None],
    ) -> None:
        self._jobs, self._record = jobs, record
        self._runner: HookRunner | None = None  # once there is something to call
        self._last_number = 0
        self.prepared: list[HookCall] = []  # to be called when they are in the journal
        self.called: deque[HookCall] = deque()  # what became of them is not recorded yet
        self._state_directory: str | None = None
        if journal is not None:
            self._last_number = journal.hooks.read_last_number()
            self.prepared += [call for call in journal.hooks.read() if call.is_pending]
            self._state_directory = str(journal.directory.resolve())

    def prepare(self, job: LiveJob, command: CallHook, now: float) -> None:
        """Record what is to be done because a job has ended."""
        self._last_number += 1
        template = job.spec.command
        call = HookCall(
            number=self._last_number,
            job=job.number,
            target=command.hook.target,
            facts={
                "job": job.name,
                "state": command.end.state,
                "error": command.end.error,
                "group": job.spec.group,
                "items": job.items,
                "done": job.done,
                "failed": len(job.failures),
                "flow_time": now - (job.arrived or 0.0),
                "number": job.number,
            },
            directory=None if template is None else template.directory,
            state_directory=self._state_directory,
        )
        self._record(call)
        self.prepared.append(call)

    def call(self) -> None:
        """Call the hooks that are in the journal now."""
        if self._runner is None:
            self._runner = HookRunner(self.called.append)
        for call in self.prepared:
            self._runner.put(call)
        self.prepared.clear()

    def record(self) -> None:
        """Record what became of hooks since the last time."""
        while self.called:
            call = self.called.popleft()
            self._record(call)
            job = self._jobs.get(call.facts["job"])
            if job is not None and job.number == call.job:
                job.hook_errors.pop(call.target, None)
                if call.error is not None:
                    job.hook_errors[call.target] = call.error.text

    def close(self) -> None:
        """Call hooks for the last time, and record what became of them."""
        if self._runner is not None:
            self._runner.close()
            self.record()
