"""Clients that steer a service while it is killed, and what each was told about its own jobs.

A job belongs to one client, which does one thing at a time. So it knows what the service may say.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from chaos.evidence import Findings
from chaos.plans import PlannedJob, create_served_job, describe_for_service
from hesrpt.cli.run_access import DirectoryRun
from hesrpt.errors import StateError
from hesrpt.service.client import Client, ServiceError, UnreachableError

ENDED = ("done", "failed", "cancelled")
# How long a client waits for a service that was killed, before it looks again, in seconds.
_AWAY_SECONDS = 0.05
# The most jobs that a client has at a time that have not ended.
_MAX_ACTIVE = 5


@dataclass
class Pause:
    """A time during which a job was paused, by the clock of the machine."""

    start: float  # when that was confirmed
    end: float = float("inf")  # when the client asked for the opposite


@dataclass
class OwnedJob:
    """A job that the service has confirmed, and what its client knows about it."""

    name: str
    plan: PlannedJob
    after: list[OwnedJob]
    end: str | None = None  # how it ended, and stays ended unless it is retried
    is_paused: bool = False
    weight: float | None = None  # None: the client cannot know
    pauses: list[Pause] = field(default_factory=list)
    done: dict[str, float] = field(default_factory=dict)  # keys of items, and when seen as done


class TimedTransport(httpx.HTTPTransport):
    """Measures how long answers take that come."""

    def __init__(self, note: Callable[[str, float], None]) -> None:
        super().__init__()
        self._note = note

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        start = time.monotonic()
        answer = super().handle_request(request)
        self._note(f"{request.method} {request.url.path}", time.monotonic() - start)
        return answer


class TrialOverError(Exception):
    """The trial is over, and this client ends."""


class SteeringClient(threading.Thread):
    """Adds jobs, and cancels, pauses, resumes, retries, weighs and looks at its own."""

    def __init__(
        self,
        number: int,
        seed: int,
        directory: Path,
        findings: Findings,
        find_url: Callable[[], str | None],
        note_answer: Callable[[str, float], None],
        max_jobs: int,
    ) -> None:
        super().__init__(name=f"client-{number}")
        self.rng = random.Random(seed)
        self.directory, self.findings = directory, findings
        self.group = f"group{number}"
        self.group_is_paused: bool | None = False  # None: not known
        self.max_jobs = max_jobs
        self.jobs: list[OwnedJob] = []
        self.counts: dict[str, int] = {}
        self.error: Exception | None = None
        self._find_url, self._note_answer = find_url, note_answer
        self._client: Client | None = None
        self._stops = threading.Event()
        self._unconfirmed: tuple[PlannedJob, list[OwnedJob], str] | None = None

    # --- the connection ---------------------------------------------------------------------------

    def stop(self) -> None:
        """Let the thread end after what it is doing; any thread may call this."""
        self._stops.set()

    def connect(self) -> Client:
        """Return a client of the service that runs now; wait for one if necessary."""
        while (url := self._find_url()) is None:
            if self._stops.is_set():
                raise TrialOverError
            time.sleep(_AWAY_SECONDS)
        if self._client is None or not url.startswith(self._client.url):
            self.disconnect()
            self._client = Client(url, transport=TimedTransport(self._note_answer))
        return self._client

    def disconnect(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
        self._client = None

    # --- what it does -----------------------------------------------------------------------------

    def run(self) -> None:
        try:
            while not self._stops.is_set():
                self._act()
                self._stops.wait(self.rng.choice([0.0, 0.02, 0.1]))
        except TrialOverError:
            pass
        except Exception as error:
            self.error = error
        finally:
            self.disconnect()

    def _act(self) -> None:
        active = [job for job in self.jobs if job.end is None]
        can_add = len(active) < _MAX_ACTIVE and len(self.jobs) < self.max_jobs
        if self._unconfirmed is not None or (can_add and self.rng.random() < 0.4):
            self.add()
            return
        if not self.jobs:
            return
        job = self.rng.choice(active or self.jobs)
        actions: list[tuple[float, Callable[[], None]]] = [
            (4, lambda: self.look(job)),
            (2, lambda: self._look_at_items(job)),
            (1, self._compare_doors),
            (2, lambda: self.cancel(job)),
            (2, lambda: self.pause(job, True)),
            (3, lambda: self.pause(job, False)),
            (2, lambda: self.retry(self.rng.choice(self.jobs))),
            (1, lambda: self._weigh(job)),
            (1, lambda: self.pause_group(not self.group_is_paused)),
        ]
        weights, functions = zip(*actions, strict=True)
        self.rng.choices(functions, weights)[0]()

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def add(self) -> None:
        """Add a job. If no answer comes, the same request is sent again, with the same key."""
        if self._unconfirmed is None:
            plan = create_served_job(self.rng, self.directory)
            # Names differ between clients: after = "twin" means the newest job of that name.
            plan.name = f"{plan.name}-{self.group}"
            newest = {job.plan.name: job for job in self.jobs}.values()
            active = [job for job in newest if job.end in (None, "done")]
            after = self.rng.sample(active, 1) if active and self.rng.random() < 0.3 else []
            plan.options = plan.options | {"after": [job.plan.name for job in after]}
            if self.rng.random() < 0.4:
                plan.options["group"] = self.group
            self._unconfirmed = plan, after, f"key-{self.rng.randrange(10**12)}"
        plan, after, key = self._unconfirmed
        try:
            (added,) = self.connect().submit([describe_for_service(plan)], key=key)
        except UnreachableError:
            return
        except ServiceError as error:
            if error.status == 503:  # it says that it did not take the job
                return
            self._unconfirmed = None
            if not after:  # otherwise, a job may have ended badly meanwhile
                self._complain(f"a job was refused: {error}")
            return
        self._unconfirmed = None
        self.jobs.append(OwnedJob(added.name, plan, after, weight=1.0))
        self._count("added jobs")

    @property
    def has_unconfirmed(self) -> bool:
        """Whether it has sent a job without getting an answer."""
        return self._unconfirmed is not None

    def _ask(self, what: str, request: Callable[[Client], Any]) -> tuple[str, bool | None]:
        """Send a request; return the answer, and whether it was obeyed (None: not known)."""
        try:
            text = str(request(self.connect()))
        except UnreachableError:
            return "", None
        except ServiceError as error:
            if error.status != 409:
                self._complain(f"{what}: {error}")
            return str(error), False
        self._count(what)
        return text, None if text.startswith("will be done") else True

    def cancel(self, job: OwnedJob) -> None:
        _, is_obeyed = self._ask("cancelled jobs", lambda client: client.cancel(job.name))
        if is_obeyed:
            if job.end not in (None, "cancelled"):
                self._complain(f"{job.name} was {job.end}, and could be cancelled")
            job.end = "cancelled"
        self._forget_ends_of_successors(job)

    def retry(self, job: OwnedJob) -> None:
        """Run failed items again, or a job that was cancelled; others that waited for it too.

        A job that goes on after its end is not paused any more.
        """
        asked_at = time.monotonic()
        _, is_obeyed = self._ask("retried jobs", lambda client: client.retry(job.name))
        if is_obeyed is False:
            return
        if is_obeyed and job.end == "done":
            self._complain(f"{job.name} was done, and could be retried")
        self._forget_end(job, asked_at)
        self._forget_ends_of_successors(job)

    def _forget_end(self, job: OwnedJob, asked_at: float) -> None:
        if job.end != "done":
            job.end, job.is_paused = None, False
            for pause in job.pauses:
                pause.end = min(pause.end, asked_at)

    def _forget_ends_of_successors(self, job: OwnedJob) -> None:
        """What becomes of jobs that wait for others is known when the service has said it again."""
        for other in self.jobs:
            if job in other.after and other.end != "done":
                self._forget_end(other, time.monotonic())
                self._forget_ends_of_successors(other)

    def pause(self, job: OwnedJob, is_paused: bool) -> None:
        asked_at = time.monotonic()
        if is_paused:
            _, is_obeyed = self._ask("paused jobs", lambda client: client.pause(job.name))
        else:
            _, is_obeyed = self._ask("resumed jobs", lambda client: client.resume(job.name))
        if is_obeyed is not False and not is_paused and job.pauses:
            job.pauses[-1].end = min(job.pauses[-1].end, asked_at)
        if is_obeyed and is_paused and not job.is_paused:
            job.pauses.append(Pause(time.monotonic()))
        if is_obeyed is not False:
            job.is_paused = bool(is_paused and is_obeyed)

    def pause_group(self, is_paused: bool) -> None:
        if not any(job.plan.options.get("group") for job in self.jobs):
            return

        def change(client: Client) -> str:
            return client.change_group(self.group, paused=is_paused)

        _, is_obeyed = self._ask("paused and resumed groups", change)
        if is_obeyed is not False:
            self.group_is_paused = is_paused if is_obeyed else None

    def _weigh(self, job: OwnedJob) -> None:
        weight = self.rng.choice([0.5, 2.0, 10.0])
        _, is_obeyed = self._ask("weighed jobs", lambda client: client.weight(job.name, weight))
        if is_obeyed is not False:
            job.weight = weight if is_obeyed else None

    # --- what it sees -----------------------------------------------------------------------------

    def look(self, job: OwnedJob) -> None:
        """Compare what the service says about a job with what the client knows."""
        try:
            values = self.connect().details(job.name)
        except UnreachableError:
            return
        except ServiceError as error:
            self.findings.add("lost", f"{job.name}: {error}")
            return
        self.check_view(job, values, "by URL")

    def check_view(self, job: OwnedJob, values: dict[str, Any], door: str) -> None:
        """Check what is said about a job, and remember how it ended."""
        state = values["state"]
        if job.end is not None and state != job.end:
            self._complain(f"{job.name} was {job.end}, now it is {state} {door}")
        if state in ENDED:
            job.end = state
        elif state != "submitted":
            is_paused = job.is_paused or (self.group_is_paused and job.plan.options.get("group"))
            if is_paused and state != "paused":
                self._complain(f"{job.name} was paused, now it is {state} {door}")
        if job.weight is not None and values["weight"] != job.weight:
            weight = values["weight"]
            self._complain(f"{job.name} has weight {weight} {door}, not {job.weight}")

    def _look_at_items(self, job: OwnedJob) -> None:
        if job.plan.resize is not None:
            return
        try:
            client = self.connect()
            items = client._get(f"jobs/{job.name}/items", limit=100)["items"]
        except ServiceError:
            return
        now = time.monotonic()
        for each in items:
            key = job.plan.items[each["item"]].key
            if each["state"] == "done":
                job.done.setdefault(key, now)
            elif key in job.done:
                self._complain(f"item {key} was done, now it is {each['state']}")

    def _compare_doors(self) -> None:
        """Compare what the directory says with what the URL said before it."""
        try:
            by_url = {job.name: job for job in self.connect().jobs()}
            run = DirectoryRun(self.directory / "state").read()
        except (ServiceError, StateError):
            return
        found = {values["name"]: values for values in run.to_json_value()["jobs"]}
        for job in self.jobs:
            if job.name not in by_url:
                self.findings.add("lost", f"{job.name} is not listed by URL")
            elif job.name in found:
                values = found[job.name]
                self.check_view(job, values, "by directory")
                said = by_url[job.name]
                if said.has_ended and values["state"] != said.state:
                    state = values["state"]
                    self._complain(f"{job.name} is {said.state} by URL, {state} by directory")
            else:
                self.findings.add("lost", f"{job.name} is not in the directory")
        self._count("comparisons of URL and directory")

    def _complain(self, line: str) -> None:
        self.findings.add("wrong statuses", f"{time.monotonic():.2f} {self.name}: {line}")
