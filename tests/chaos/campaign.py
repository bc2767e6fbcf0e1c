"""A campaign: trials with consecutive seeds, several at a time, until there were enough kills."""

from __future__ import annotations

import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.evidence import FAULTS
from chaos.run_trial import RunTrial
from chaos.service_trial import MAX_ANSWER, ServiceTrial
from chaos.trial import Trial, TrialReport

#: What a campaign kills: a pool's script or ``hesrpt run``, or ``hesrpt serve``. Trials take turns.
SUBJECTS = ("run", "run", "service")


@dataclass
class CampaignReport:
    """The sums over all trials."""

    seed: int
    trials: int = 0
    lives: int = 0
    items: int = 0
    seconds: float = 0.0
    longest_answer: float = 0.0
    kills: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    faults: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in FAULTS})
    errors: list[str] = field(default_factory=list)  # of the campaign itself

    @property
    def is_clean(self) -> bool:
        return not self.errors and not any(self.faults.values())

    def add(self, trial: TrialReport) -> None:
        self.trials += 1
        self.lives += trial.lives
        self.items += trial.items
        self.kills += trial.kills
        self.others += trial.others
        self.longest_answer = max(self.longest_answer, trial.longest_answer)
        for kind, lines in trial.findings.lines.items():
            self.faults[kind] += [f"seed {trial.seed}, {trial.directory}: {line}" for line in lines]

    def to_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "trials": self.trials,
            "scheduler starts": self.lives,
            "items": self.items,
            "longest answer": round(self.longest_answer, 3),
            "kills": dict(self.kills),
            "other faults": dict(self.others),
            "faults": {kind: len(lines) for kind, lines in self.faults.items()},
            "findings": self.faults,
            "errors": self.errors,
        }


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """How long a campaign is and where it works."""

    directory: Path
    seed: int = 1
    kills: int = 1000
    seconds: float = float("inf")
    parallel: int = 3
    kills_per_trial: int = 20
    max_items: int = 1000  # of a job
    patience: float = 60.0
    subjects: Sequence[str] = SUBJECTS
    max_answer: float = MAX_ANSWER  # seconds that an answer of the API may take

    def run(self, show: Callable[[CampaignReport], None] = lambda report: None) -> CampaignReport:
        """Run trials until there were enough kills, or no time is left for another trial."""
        report = CampaignReport(self.seed)
        start = time.monotonic()
        seeds = self._create_seeds()
        running: set[Future[TrialReport]] = set()
        with ThreadPoolExecutor(self.parallel) as threads:
            while True:
                report.seconds = time.monotonic() - start
                show(report)
                planned = report.kills.total() + len(running) * self.kills_per_trial
                has_time = report.seconds < self.seconds
                while len(running) < self.parallel and has_time and planned < self.kills:
                    quota = min(self.kills_per_trial, self.kills - planned)
                    running.add(threads.submit(self._run_trial, next(seeds), quota))
                    planned += self.kills_per_trial
                if not running:
                    return report
                ended, running = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
                for future in ended:
                    try:
                        report.add(future.result())
                    except Exception:
                        report.errors.append(traceback.format_exc())

    def _create_seeds(self) -> Iterator[int]:
        seed = self.seed * 100_000
        while True:
            yield seed
            seed += 1

    def _run_trial(self, seed: int, kills: int) -> TrialReport:
        threading.current_thread().name = f"trial-{seed}"
        subject = self.subjects[seed % len(self.subjects)]
        directory = self.directory / str(seed)
        trial: Trial
        if subject == "service":
            trial = ServiceTrial(
                directory,
                seed,
                max_kills=kills,
                max_items=self.max_items,
                patience=self.patience,
                max_answer=self.max_answer,
            )
        else:
            trial = RunTrial(
                directory,
                seed,
                max_kills=kills,
                max_items=self.max_items,
                patience=self.patience,
            )
        return trial.run()
