"""A trial of ``hesrpt serve``: it is killed and started again while several clients steer jobs."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from chaos.clients import ENDED, OwnedJob, SteeringClient
from chaos.evidence import read_events
from chaos.items import append_line, get_permit_path
from chaos.scheduler import Scheduler, hold_database_lock
from chaos.trial import Trial
from hesrpt.cli.run_access import DirectoryRun, ServiceRun
from hesrpt.service.client import Client, ServiceError

_CLIENTS = 3
#: The longest that an answer of the API may take, in seconds.
MAX_ANSWER = 5.0
# How long a service may take to start, and to stop, in seconds.
_START_SECONDS, _STOP_SECONDS = 120.0, 60.0
_POLL_SECONDS = 0.02


class ServiceTrial(Trial):
    """A service, its clients, and what they were told."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        *,
        max_kills: int,
        max_items: int,
        patience: float,
        max_answer: float = MAX_ANSWER,
    ) -> None:
        super().__init__(
            directory, seed, max_kills=max_kills, max_items=max_items, patience=patience
        )
        self.servers = self.rng.choice([2, 3, 4])
        self.max_answer = max_answer
        self._answers = threading.Lock()
        self._url: str | None = None  # while it runs
        (directory / "tmp").mkdir()
        jobs_each = max(2, min(12, max_items // 30))
        self.clients = [
            SteeringClient(
                number,
                self.rng.randrange(10**9),
                directory,
                self.findings,
                lambda: self._url,
                self._note_answer,
                jobs_each,
            )
            for number in range(_CLIENTS)
        ]

    def _note_answer(self, what: str, seconds: float) -> None:
        with self._answers:
            self.report.longest_answer = max(self.report.longest_answer, seconds)
            if seconds > self.max_answer:
                self.findings.add("slow answers", f"{time.monotonic():.2f} {what}: {seconds:.2f} s")

    def clean_up(self) -> None:
        self._url = None
        for client in self.clients:
            client.stop()
            if client.ident is not None:
                client.join()

    def run_lives(self) -> None:
        """Kill the service until there were enough kills, then let all jobs end and check them."""
        for client in self.clients:
            client.start()
        while self.kills_left > 0:
            if (service := self._start_life()) is None:
                return
            if self._disturb(service):
                break
            self._url = None
            if not service.was_killed:
                self._record_failure(service)
                return
            if self.rng.random() < 0.3:
                self.check_orphans(f"after life {self.report.lives}")
        else:
            if (service := self._start_life()) is None:
                return
        self._end_in_peace(service)

    # --- lives ------------------------------------------------------------------------------------

    def _start_life(self) -> Scheduler | None:
        """Start the service, and wait until it answers; None if it does not."""
        for _ in range(20):
            self.report.lives += 1
            life = self.report.lives
            words = ["serve", "--state", str(self.state), "--servers", str(self.servers)]
            service = Scheduler(
                [sys.executable, "-m", "hesrpt", *words, "--port", "0", "--on-stop", "stop"],
                mark=self.mark,
                directory=self.directory,
                output=self.directory / f"life-{life}.out",
                role="service",
            )
            service.environment["TMPDIR"] = str(self.directory / "tmp")
            service.start()
            append_line(self.directory / "faults.log", time.monotonic(), "life", life)
            deadline = time.monotonic() + _START_SECONDS
            kill_at = float("inf")
            if self.kills_left > 0 and self.rng.random() < 0.15:  # while it starts
                kill_at = time.monotonic() + self.rng.uniform(0.0, 3.0)
            while service.process.poll() is None and time.monotonic() < deadline:
                if found := re.search(r"http\S+", service.output.read_text()):
                    self._url = found[0]
                    return service
                if time.monotonic() >= kill_at:
                    service.process.kill()
                    service.process.wait()
                    service.was_killed = True
                    self.kills_left -= 1
                    self.report.kills["service while it starts"] += 1
                time.sleep(_POLL_SECONDS)
            if not service.was_killed:
                self._record_failure(service)
                return None
        return None

    def _disturb(self, service: Scheduler) -> bool:
        """Kill and stop processes until the service is dead; return whether it was enough."""
        next_fault = time.monotonic() + self.rng.uniform(0.2, 4.0)
        while service.process.poll() is None:
            if any(client.error for client in self.clients):
                return True
            if time.monotonic() >= next_fault:
                if self.kills_left <= 0:
                    return True
                self._inject_fault(service)
                next_fault = time.monotonic() + self.rng.choice([0.0, 0.2, 0.6, 1.5])
            time.sleep(_POLL_SECONDS)
        return False

    def _inject_fault(self, service: Scheduler) -> None:
        chance = self.rng.random()
        if chance < 0.15:
            service.pause_something(self.rng)
            self.report.others["paused processes"] += 1
        elif chance < 0.2:
            hold_database_lock(self.database, self.rng.choice([0.1, 0.5]))
            self.report.others["locked databases"] += 1
        else:
            before = self.report.kills.total()
            service.kill_something(self.rng, self.report.kills)
            self.kills_left -= self.report.kills.total() - before
        if service.was_killed:
            service.process.wait()

    def _record_failure(self, service: Scheduler) -> None:
        has_ended = service.process.poll() is not None
        if not has_ended:
            errors = service.abort()
            self.findings.add("hangs", f"life {self.report.lives} does not start: {errors}")
            return
        code, errors = service.process.returncode, service.read_errors(3000)
        self.findings.add("failed runs", f"life {self.report.lives}: code {code}: {errors}")

    # --- the end ----------------------------------------------------------------------------------

    def _end_in_peace(self, service: Scheduler) -> None:
        """Let all jobs end, check what is said about them, and stop the service."""
        assert self._url is not None
        for client in self.clients:
            client.stop()
        for client in self.clients:
            client.join()
            if client.error is not None:
                raise client.error
        get_permit_path(self.directory).touch()
        for client in self.clients:
            while client.has_unconfirmed:
                client.add()
            self._resume_all(client)
            self.report.others.update(client.counts)
        # A job may have been retried together with another, so look again.
        for _ in range(3):
            if not self._wait_for_ends(service):
                return
            for client in self.clients:
                for job in client.jobs:
                    client.look(job)
                for job in client.jobs:
                    if job.end == "failed":
                        client.retry(job)
        if not self._wait_for_ends(service):
            return
        self._check_jobs()
        for client in self.clients:
            client.disconnect()
        service.process.send_signal(signal.SIGTERM)
        try:
            code = service.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.findings.add("hangs", f"the service does not stop: {service.abort()}")
            return
        if code != 0:
            self._record_failure(service)
        self.check_orphans("after it was stopped")
        for path in sorted((self.directory / "tmp").iterdir()):
            self.findings.add("orphans", f"a file was left: {path.name}")
        for path in self.state.rglob("*"):
            if path.is_socket():
                self.findings.add("orphans", f"a socket was left: {path}")

    def _resume_all(self, client: SteeringClient) -> None:
        if client.group_is_paused is not False:
            client.pause_group(False)
        for job in client.jobs:
            client.pause(job, False)

    def _wait_for_ends(self, service: Scheduler) -> bool:
        """Wait until all jobs have ended; return whether they have."""
        last_progress, seen = time.monotonic(), -1
        assert self._url is not None
        with Client(self._url) as client:
            while time.monotonic() - last_progress < self.patience:
                try:
                    active = [job for job in client.jobs() if not job.has_ended]
                except ServiceError:
                    self._record_failure(service)
                    return False
                if not active:
                    return True
                if (events := self.count_events()) != seen:
                    last_progress, seen = time.monotonic(), events
                time.sleep(0.1)
        jobs = ", ".join(f"{job.name} {job.state} {job.done}/{job.items}" for job in active)
        processes = [f"{process.pid} {process.command}" for process in self.find_processes()]
        stacks = service.abort()
        lines = [f"life {self.report.lives}: {jobs}", *processes, stacks]
        self.findings.add("hangs", "\n".join(lines))
        return False

    def _check_jobs(self) -> None:
        """Compare both doors with each other, with what clients know, and with the evidence."""
        assert self._url is not None
        by_url = {
            job["name"]: job for job in ServiceRun(self._url, None).read().to_json_value()["jobs"]
        }
        content = DirectoryRun(self.state).read().to_json_value()
        by_directory = {job["name"]: job for job in content["jobs"]}
        owned = {job.name: (client, job) for client in self.clients for job in client.jobs}
        for name in sorted({*by_url, *by_directory} - owned.keys()):
            self.findings.add("lost", f"nobody knows job {name}: it was added twice")
        for name, (client, job) in owned.items():
            if name not in by_url or name not in by_directory:
                self.findings.add("lost", f"{name} is not in both lists at the end")
                continue
            self._compare_views(by_url[name], by_directory[name])
            client.check_view(job, by_directory[name], "by directory at the end")
            self.check_evidence(job, by_url[name])
            self.report.items += len(job.plan.items)

    def _compare_views(self, by_url: dict[str, Any], by_directory: dict[str, Any]) -> None:
        for key, value in by_directory.items():
            if by_url[key] != value:
                said = by_url[key]
                line = f"{by_url['name']}: {key} is {said!r} by URL, {value!r} by directory"
                self.findings.add("wrong statuses", line)

    def _collect_times(self) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
        times: dict[str, dict[str, list[float]]] = {"start": {}, "end": {}}
        for words in read_events(self.directory):
            if words[0] in times:
                times[words[0]].setdefault(words[1], []).append(float(words[3]))
        return times["start"], times["end"]

    def check_evidence(self, job: OwnedJob, values: dict[str, Any]) -> None:
        """Compare what is said about a job with what its items did."""
        starts, ends = self._collect_times()
        name, state, keys = job.name, values["state"], job.plan.keys
        ended = [key for key in keys if key in ends]
        if state not in ENDED:
            self.findings.add("wrong statuses", f"{name} is {state} at the end")
        if state == "failed":
            self.findings.add("lost", f"{name} has failed at the end: {values['error']}")
        if state == "done" and (len(ended) < len(keys) or values["done"] != len(keys)):
            line = f"{name} is done: {len(ended)} of {len(keys)} items ran, {values['done']} done"
            self.findings.add("lost", line)
        if values["done"] > len(ended):
            line = f"{name} has {values['done']} items done, {len(ended)} ran to their end"
            self.findings.add("wrong statuses", line)
        for key, seen in job.done.items():
            if any(start > seen for start in starts.get(key, ())):
                self.findings.add("second copies", f"{key} ran again after it was seen as done")
        begun = [time for key in keys for time in starts.get(key, ())]
        for other in job.after if begun else ():
            first = min(begun)
            late = [key for key in other.plan.keys if min(ends.get(key, [first + 1])) > first]
            if late:
                line = f"{name} started before {other.name} was done: {late[0]}"
                self.findings.add("wrong statuses", line)
        for pause in job.pauses if job.plan.resize is None else ():
            late = [
                key for key in keys if any(pause.start < t < pause.end for t in starts.get(key, ()))
            ]
            if len(late) > self.servers:  # so many may have been on their way
                self.findings.add("wrong statuses", f"{name} was paused, and started {late}")
