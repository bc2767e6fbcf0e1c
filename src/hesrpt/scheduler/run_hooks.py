"""The hooks of a run: recorded with the ends of jobs, called when that is written."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from hesrpt.decisions.events import CallHook
from hesrpt.jobs.hooks import HookCall
from hesrpt.jobs.job_state import get_job_state
from hesrpt.scheduler.hook_runner import HookRunner
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.scheduler.recorder import Recorder


class RunHooks:
    """Keeps the journal informed of which hooks are to be called, and what became of them."""

    def __init__(self, recorder: Recorder, jobs: Mapping[str, LiveJob]) -> None:
        self._recorder, self._jobs = recorder, jobs
        self._called: deque[HookCall] = deque()  # what became of them is not recorded yet
        self._runner = HookRunner(self._called.append)
        self._last_number = 0
        self._recorded: list[HookCall] = []  # to be called when they are in the journal
        self._state_directory: str | None = None
        if (journal := recorder.journal) is not None:
            self._last_number = journal.hooks.read_last_number()
            self._recorded += [call for call in journal.hooks.read() if call.is_pending]
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
                "state": get_job_state(now, command.error),
                "error": command.error,
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
        self._recorder.record_hook(call)
        self._recorded.append(call)

    def call(self) -> None:
        """Call the hooks that are in the journal now."""
        calls, self._recorded = self._recorded, []
        for call in calls:
            self._runner.put(call)

    def record(self) -> None:
        """Record what became of hooks since the last time."""
        while self._called:
            call = self._called.popleft()
            self._recorder.record_hook(call)
            job = self._jobs.get(call.facts["job"])
            if job is not None and job.number == call.job:
                job.hook_errors.pop(call.target, None)
                if call.error is not None:
                    job.hook_errors[call.target] = call.error

    def close(self) -> None:
        """Call hooks for the last time, and record what became of them."""
        self._runner.close()
        self.record()
