"""A trial of a pool's script or of ``hesrpt run``, which is resumed until all jobs have ended."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

from chaos.evidence import check_items_ran, check_report, read_report
from chaos.items import append_line
from chaos.plans import (
    Plan,
    create_plan,
    create_submission,
    describe_for_script,
    edit_items,
    write_jobs_file,
)
from chaos.processes import find_forks_of_script
from chaos.scheduler import Scheduler, hold_database_lock
from chaos.small_disk import SmallDisk
from chaos.trial import Trial
from hesrpt.errors import InputError, StateError
from hesrpt.jobs.jobs_file import read_jobs_file
from hesrpt.reports.inspection import read_status
from hesrpt.scheduler.requests import submit_jobs
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import Request, RequestKind

# A trial in which the scheduler ends by itself this often, with an error, is given up.
_MAX_FAILED_RUNS = 4
_POLL_SECONDS = 0.02


class RunTrial(Trial):
    """The jobs of a script or of a jobs file, and what happened to them."""

    def __init__(
        self, directory: Path, seed: int, *, max_kills: int, max_items: int, patience: float
    ) -> None:
        super().__init__(
            directory, seed, max_kills=max_kills, max_items=max_items, patience=patience
        )
        self.is_long = max_kills >= 20  # whether it may take a minute
        self.plan: Plan = create_plan(self.rng, directory)
        for job in self.plan.jobs:
            del job.items[max_items:]
        self.submitted_keys: list[str] = []
        self.submitted_jobs = 0
        self.orders: dict[int, list[list[str]]] = {}  # of the items of each job, in each life
        self.most_done: dict[int, int] = {}  # by number of the job: items seen as done
        self.report.items = sum(len(job.items) for job in self.plan.jobs)
        self.jobs_file = directory / "jobs.toml"
        if not self.plan.uses_pool:
            write_jobs_file(self.plan.jobs, self.jobs_file)
        self.disk: SmallDisk | None = None

    def clean_up(self) -> None:
        for fork in find_forks_of_script(self.directory):
            os.kill(fork, signal.SIGKILL)
        if self.disk is not None:
            self.disk.remove()

    def run_lives(self) -> None:
        if self.plan.disk_fault == "full disk":
            self.disk = SmallDisk(self.state)
            self.report.others["full disk"] += self.disk.is_mounted
        disk = self.disk
        failed_runs = 0
        while True:
            has_size_limit = self.plan.disk_fault == "file size limit" and self.report.lives == 0
            has_disk_fault = has_size_limit or (disk is not None and disk.is_small)
            submitted_before = self.submitted_jobs
            scheduler = self._start_life(has_size_limit)
            hung = self._watch(scheduler)
            self._check_done_counts()
            if hung:
                failed_runs += 1
            elif scheduler.was_killed:
                if self.rng.random() < 0.3:
                    self.check_orphans(f"after life {self.report.lives}")
            elif scheduler.process.returncode == 0:
                if self.submitted_jobs == submitted_before:
                    self._check_end(scheduler)
                    return
            elif has_disk_fault:
                self.report.others["runs ended by a full disk or a limit"] += 1
            else:
                failed_runs += 1
                errors = scheduler.read_errors()
                is_refused = "another scheduler" in errors or not self._has_started(scheduler)
                self.findings.add(
                    "refused resumes" if is_refused else "failed runs",
                    f"life {self.report.lives}: code {scheduler.process.returncode}: {errors}",
                )
            if failed_runs >= _MAX_FAILED_RUNS:
                return
            if disk is not None and (not has_disk_fault or not scheduler.was_killed):
                disk.grow()

    # --- lives ----------------------------------------------------------------------------------

    def _start_life(self, has_size_limit: bool) -> Scheduler:
        self.report.lives += 1
        life = self.report.lives
        command = self._write_script_plan(life) if self.plan.uses_pool else self._build_run()
        output = self.directory / f"life-{life}.out"
        scheduler = Scheduler(
            command, mark=self.mark, directory=self.directory, output=output, role="scheduler"
        )
        self.events_before = self.count_events()
        scheduler.start(has_size_limit)
        append_line(self.directory / "faults.log", time.monotonic(), "life", life)
        if has_size_limit:
            self.report.others["file size limit"] += 1
        return scheduler

    def _write_script_plan(self, life: int) -> list[str]:
        plan = self.plan
        if plan.edits and life > 1:
            for job in plan.jobs:
                edit_items(self.rng, job, self.directory, life)
        self.orders[life] = [job.keys for job in plan.jobs]
        path = self.directory / f"plan-{life}.json"
        content = {
            "life": life,
            "directory": str(self.directory),
            "report": str(self.directory / "report.log"),
            "state": str(self.state),
            "resume": self.database.exists(),
            "servers": plan.servers,
            "jobs": describe_for_script(plan.jobs),
            "calls": plan.calls,
            "forks": plan.forks,
        }
        path.write_text(json.dumps(content))
        return [sys.executable, "-m", "chaos.script", str(path)]

    def _build_run(self) -> list[str]:
        command = [sys.executable, "-m", "hesrpt", "run", "--state", str(self.state), "--json"]
        if not self.database.exists():
            return [*command, "--servers", str(self.plan.servers), str(self.jobs_file)]
        # A run that was killed before it recorded the jobs of the file needs the file again.
        needs_file = not {job.name for job in self.plan.jobs} <= self._read_job_names()
        file = [str(self.jobs_file)] if needs_file or self.rng.random() < 0.5 else []
        return [*command, *file]

    def _watch(self, scheduler: Scheduler) -> bool:
        """Follow a scheduler to its end, with faults on the way; return whether it hung."""
        last_progress, events = time.monotonic(), self.count_events()
        next_fault = time.monotonic() + self._choose_pause(is_first=True)
        while scheduler.process.poll() is None:
            now = time.monotonic()
            if (count := self.count_events()) != events:
                last_progress, events = now, count
            if self.kills_left > 0 and now >= next_fault:
                if self._inject_fault(scheduler):
                    last_progress = time.monotonic()
                next_fault = time.monotonic() + self._choose_pause()
            elif now - last_progress > self.patience:
                self._record_hang(scheduler)
                return True
            time.sleep(_POLL_SECONDS)
        return False

    def _choose_pause(self, is_first: bool = False) -> float:
        if is_first:  # sometimes while it starts up
            return self.rng.choice([self.rng.uniform(0.0, 1.0), *[self.rng.uniform(0.7, 2.0)] * 3])
        return self.rng.choice([0.0, 0.1, 0.3, 0.6]) * self.rng.random()

    def _inject_fault(self, scheduler: Scheduler) -> bool:
        chance = self.rng.random()
        if chance < 0.1:
            scheduler.pause_something(self.rng)
            self.report.others["paused processes"] += 1
            return True
        if chance < 0.15 and self.database.exists():
            seconds = self.rng.choice([0.1, 0.5, 2.0])
            if self.is_long and self.rng.random() < 0.02:
                seconds = 40.0
            hold_database_lock(self.database, seconds)
            self.report.others["locked databases"] += 1
            return True
        if chance < 0.3 and not self.plan.uses_pool:
            return self._submit()
        if chance < 0.45:
            return self._steer()
        self._see_done_counts()
        before = self.report.kills.total()
        scheduler.kill_something(self.rng, self.report.kills)
        killed = self.report.kills.total() - before
        self.kills_left -= killed
        return killed > 0

    def _submit(self) -> bool:
        job = create_submission(self.rng, self.directory)
        path = self.directory / f"submission-{self.submitted_jobs}.toml"
        write_jobs_file([job], path)
        try:
            submit_jobs(self.state, read_jobs_file(path).jobs)
        except (InputError, StateError):
            return False  # there is no run yet, or its database is locked
        self.submitted_keys += job.keys
        self.submitted_jobs += 1
        self.report.others["submitted jobs"] += 1
        self.report.items += len(job.items)
        return True

    def _steer(self) -> bool:
        """Ask that a job is paused and resumed, cancelled and retried, or has another weight."""
        kinds: list[RequestKind] = ["pause", "resume"]
        weight = None
        if self.rng.random() < 0.3:
            kinds, weight = ["weight"], self.rng.choice([0.5, 2.0, 10.0])
        elif self.rng.random() < 0.5 and not self.plan.uses_pool:
            kinds = ["cancel", "retry"]
        try:
            jobs = [job for job in read_status(self.state).jobs if not job.has_ended]
            if not jobs:
                return False
            number = self.rng.choice(jobs).number
            with closing(Journal.read(self.state)) as journal:
                journal.requests.add(
                    [Request(kind=kind, job=number, weight=weight) for kind in kinds]
                )
        except (InputError, StateError):
            return False  # there is no run yet, or its database is locked
        self.report.others["cancelled and retried" if "cancel" in kinds else "steered jobs"] += 1
        return True

    def _record_hang(self, scheduler: Scheduler) -> None:
        processes = [f"{process.pid} {process.command}" for process in self.find_processes()]
        stacks = scheduler.abort()
        self.findings.add("hangs", "\n".join([f"life {self.report.lives}", *processes, stacks]))

    # --- checks ---------------------------------------------------------------------------------

    def _check_end(self, scheduler: Scheduler) -> None:
        """Check that a run which says that it has ended has done everything."""
        check_items_ran(self.directory, self.submitted_keys, self.findings)
        for job in self.plan.jobs:
            check_items_ran(self.directory, job.keys, self.findings)
        report = self.directory / "report.log"
        if self.plan.uses_pool:
            check_report(self.directory, report, self.orders, self.findings)
            last = [entry for entry in read_report(report) if entry["life"] == self.report.lives]
            jobs = {entry["job"] for entry in last if "results" in entry}
            for missing in set(range(len(self.plan.jobs))) - jobs:
                self.findings.add("lost", f"job {missing} was not reported")
            return
        status = json.loads(scheduler.output.read_text())["jobs"]
        expected = len(self.plan.jobs) + self.submitted_jobs
        if len(status) != expected:
            self.findings.add("lost", f"{len(status)} jobs in the report, {expected} expected")
        for job in status:
            if job["state"] != "done" or job["done"] != job["items"]:
                self.findings.add("lost", f"reported after the end: {job}")

    def _see_done_counts(self) -> None:
        """Remember how many items ``hesrpt status`` shows as done."""
        for number, done in self._read_done_counts().items():
            self.most_done[number] = max(done, self.most_done.get(number, 0))

    def _check_done_counts(self) -> None:
        if self.plan.edits:
            return  # items that were removed do not count
        counts = self._read_done_counts()
        for number, done in self.most_done.items():
            if counts and counts.get(number, 0) < done:
                self.findings.add(
                    "lost", f"job number {number}: {done} items were done, now {counts.get(number)}"
                )
                self.most_done[number] = counts.get(number, 0)

    def _read_done_counts(self) -> dict[int, int]:
        with suppress(InputError, StateError):
            return {job.number: job.done for job in read_status(self.state).jobs}
        return {}

    def _read_job_names(self) -> set[str]:
        with suppress(InputError, StateError):
            jobs = read_status(self.state).jobs
            return {job.given_name for job in jobs if not job.spec.is_submitted}
        return set()

    def _has_started(self, scheduler: Scheduler) -> bool:
        """Return whether a life has run any item."""
        return self.count_events() > self.events_before
