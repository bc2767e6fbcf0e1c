"""What the jobs of a run teach while it happens, and when that is written down."""

from __future__ import annotations

import json
from collections.abc import Iterable

from hesrpt.decisions.allocation import Calibrator
from hesrpt.decisions.learning import KindMemory, LearnedRun
from hesrpt.jobs.job_spec import JobSpec, Prior
from hesrpt.policies import Calibration
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.scheduler.recorder import Recorder

# How often to write down what was learned from jobs that still run, in seconds.
_SECONDS = 5.0


class RunMemory:
    """Keeps what is known about kinds of jobs up to date, in memory and in the journal.

    The same goes for the calibration of the policy.
    """

    def __init__(self, memory: KindMemory, calibrator: Calibrator, recorder: Recorder) -> None:
        self._memory, self._calibrator, self._recorder = memory, calibrator, recorder
        journal = recorder.journal
        if journal is not None:
            known = journal.get_value("calibration", parse=_read_calibration)
            if known is not None:
                calibrator.resume(known)
        self._calibration = calibrator.calibration  # the one in the journal
        self._runs: dict[int, LearnedRun] = {}  # of active jobs, by their numbers
        self._changed: dict[LiveJob, None] = {}  # have taught something since the last time
        self._written_at = 0.0

    def get_prior(self, spec: JobSpec) -> Prior:
        """Return what is known about a job before its first item has ended."""
        return self._memory.get_prior(spec)

    def add_changed(self, job: LiveJob) -> None:
        """Note that items of a job are done."""
        self._changed[job] = None

    def update(self, time: float) -> None:
        """Record now and then what active jobs have taught up to now."""
        if time - self._written_at >= _SECONDS:
            self._written_at = time
            self.remember_changed()

    def remember_changed(self) -> None:
        """Record what jobs have taught whose items were done since the last time."""
        changed, self._changed = self._changed, {}
        self.remember(changed)

    def remember(self, jobs: Iterable[LiveJob]) -> None:
        """Record what jobs have taught up to now."""
        runs = []
        for job in jobs:
            if job.durations.items > 0:
                if job.number not in self._runs:
                    self._runs[job.number] = self._memory.begin_run(job.spec, job.durations)
                runs.append(self._runs[job.number])
        self._recorder.add_learned_runs(runs, self._memory.forget() if runs else ())

    def record_calibration(self) -> None:
        """Record how the policy is calibrated, if that has changed."""
        has_journal = self._recorder.journal is not None
        if has_journal and self._calibrator.calibration is not self._calibration:
            self._calibration = self._calibrator.calibration
            self._recorder.record_calibration(json.dumps(self._calibrator.to_json()))

    def end_run(self, job: LiveJob) -> None:
        """Let go of a job that teaches nothing more in this run."""
        self._runs.pop(job.number, None)
        self._changed.pop(job, None)


def _read_calibration(text: str) -> Calibration:
    return Calibration.from_json(json.loads(text))
