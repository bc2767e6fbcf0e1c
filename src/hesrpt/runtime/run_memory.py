"""What the jobs of a run teach while it happens, and when that is written down."""

from __future__ import annotations

from collections.abc import Iterable

from hesrpt.runtime.decisions.kinds import KindMemory, LearnedRun
from hesrpt.runtime.decisions.learning import Prior
from hesrpt.runtime.job_spec import JobSpec
from hesrpt.runtime.live_job import LiveJob
from hesrpt.runtime.recorder import Recorder

# How often to write down what was learned from jobs that still run, in seconds.
_SECONDS = 5.0


class RunMemory:
    """Keeps what is known about kinds of jobs up to date, in memory and in the journal."""

    def __init__(self, memory: KindMemory, recorder: Recorder) -> None:
        self._memory, self._recorder = memory, recorder
        self._runs: dict[int, LearnedRun] = {}  # of active jobs, by their numbers
        self._written_at = 0.0

    def get_prior(self, spec: JobSpec) -> Prior:
        """Return what is known about a job before its first item has ended."""
        return self._memory.get_prior(spec)

    def update(self, jobs: Iterable[LiveJob], time: float) -> None:
        """Record now and then what active jobs have taught up to now."""
        if time - self._written_at >= _SECONDS:
            self._written_at = time
            self.remember(jobs)

    def remember(self, jobs: Iterable[LiveJob]) -> None:
        """Record what jobs have taught up to now."""
        runs = []
        for job in jobs:
            if job.durations.items > 0:
                if job.number not in self._runs:
                    self._runs[job.number] = self._memory.begin_run(job.spec, job.durations)
                runs.append(self._runs[job.number])
        self._recorder.add_learned_runs(runs, self._memory.forget() if runs else ())

    def end_run(self, job: LiveJob) -> None:
        """Let go of a job that teaches nothing more in this run."""
        self._runs.pop(job.number, None)
