"""The Python client of a service: add jobs, follow and steer them, from this or another machine."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import quote

from hesrpt.jobs.jobs_file import read_portable_jobs
from hesrpt.service.http_connection import Connection, UnreachableError

if TYPE_CHECKING:
    import httpx

# --- a job as the service describes it, and what its items print --------------------------------

_ENDED = ("done", "failed", "cancelled")


@dataclass(frozen=True, kw_only=True)
class JobInfo:
    """A job at one moment. Times are in seconds since the queue was created."""

    name: str
    number: int  # in order of arrival
    state: str  # running, waiting, paused, submitted, done, failed or cancelled
    group: str = ""
    after: tuple[str, ...] = ()  # the jobs that must have ended well before it starts
    waits_for: tuple[str, ...] = ()  # those of them that have not ended
    waits_because: str = ""  # what else it waits for
    done: int = 0  # how many items are done
    items: int | None = None  # how many there are; None: not known yet
    failed: int = 0  # how many items have failed
    servers: int = 0  # how many it holds
    planned: int | None = None  # how many the policy gives it
    min_servers: int = 0
    max_servers: int | None = None  # None: no limit
    weight: float = 1.0
    resources: Mapping[str, float] = field(default_factory=dict)
    command: str | None = None  # shortened; None if it calls a Python function
    arrived: float | None = None
    ended: float | None = None
    flow_time: float | None = None  # seconds from its arrival to its end
    eta: float | None = None  # seconds until it will have ended
    progress: float | None = None  # the fraction of the items that are done
    error: str | None = None

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> JobInfo:
        """Return the job that JSON values describe; keys of later versions are ignored."""
        known = {each.name: values[each.name] for each in fields(cls) if each.name in values}
        for key in ("after", "waits_for"):
            known[key] = tuple(known.get(key, ()))
        return cls(**known)

    @property
    def has_ended(self) -> bool:
        """Whether the job is done, failed or cancelled."""
        return self.state in _ENDED


class ItemText(NamedTuple):
    """Something that an item of a job has printed."""

    item: int
    title: str  # the number of the item; for a command also the item
    text: str


# How often to look whether jobs have ended, in seconds.
_POLL_SECONDS = 0.3
# How long a service may be away while somebody waits for its jobs, in seconds: it may be restarted.
_AWAY_SECONDS = 60.0
_PAGE = 1000


class Client:
    """A connection to ``hesrpt serve``.

    Parameters
    ----------
    url
        The address that ``hesrpt serve`` prints, with or without its token. Default: the variable
        HESRPT_URL, or the address in the state directory that the variable HESRPT_STATE names.
    token
        The token in DIR/token of the service. Default: the one in ``url``, the variable
        HESRPT_TOKEN, or the one in the state directory from which the address is.
    timeout
        How many seconds to wait for an answer.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._connection = Connection(url, token, timeout, transport)

    def __repr__(self) -> str:
        return f"<Client of {self.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The address of the service, without the token."""
        return self._connection.url

    def close(self) -> None:
        """Close the connection; jobs go on."""
        self._connection.close()

    # --- adding jobs ----------------------------------------------------------------------------

    def add(
        self,
        command: str | Sequence[str],
        *,
        name: str | None = None,
        items: Sequence[str | int | float] | Mapping[str, Any] | str | None = None,
        key: str | None = None,
        **options: Any,
    ) -> RemoteJob:
        """Add a job that runs a command; return when it is on the service's disk.

        Parameters
        ----------
        command
            A line for the shell, or a program and its arguments.
        name
            The name of the job. If another job has it, a number is appended. Default: that of the
            program.
        items
            The command runs once for each, with ``{item}`` replaced.
        key
            The job is added only once with the same key. Default: a new one, so that a repeated
            attempt to send this request adds nothing twice.
        options
            Other keys of a job in a jobs file: ``weight``, ``after``, ``group``, ``cwd``, ``env``…
        """
        if not isinstance(command, str):
            command = list(command)
        if items is not None and not isinstance(items, str | Mapping):
            items = list(items)
        job = {"command": command, "name": name, "items": items} | options
        return self.submit([job], key=key)[0]

    def submit(
        self, jobs: Sequence[Mapping[str, Any]] | str | Path, *, key: str | None = None
    ) -> list[RemoteJob]:
        """Add several jobs at once: each as the keys of a job in a jobs file, or such a file."""
        if isinstance(jobs, str | Path):
            jobs = read_portable_jobs(jobs)
        given = [{k: v for k, v in job.items() if v is not None} for job in jobs]
        answer = self._post("jobs", key, {"jobs": given})
        return [RemoteJob(self, each["name"]) for each in answer["jobs"]]

    def _post(self, path: str, key: str | None, content: Any) -> Any:
        """Send a request that adds jobs; if the connection breaks, send it once more."""
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}

        def send() -> Any:
            return self._connection.request("POST", path, content=content, headers=headers).json()

        try:
            return send()
        except UnreachableError:
            time.sleep(_POLL_SECONDS)
            return send()

    # --- looking at jobs ------------------------------------------------------------------------

    def jobs(
        self, *, state: str | None = None, group: str | None = None, search: str | None = None
    ) -> list[JobInfo]:
        """Return all jobs in order of arrival, or those in a state, in a group, or of a name."""
        found: list[JobInfo] = []
        while True:
            page = self._connection.get(
                "jobs",
                offset=len(found),
                limit=_PAGE,
                state=state,
                group=group,
                search=search,
                order="asc",
            )
            found += map(JobInfo.from_json, page["jobs"])
            if len(found) >= page["total"] or not page["jobs"]:
                return found

    def job(self, name: str) -> RemoteJob:
        """Return the job of a name, whether it exists or not."""
        return RemoteJob(self, name)

    def info(self, name: str) -> JobInfo:
        """Return what the service says about a job."""
        return JobInfo.from_json(self.details(name))

    def details(self, name: str) -> dict[str, Any]:
        """Return all that the service knows about a job, as JSON values."""
        return dict(self._connection.get(_get_path(name)))

    def logs(self, name: str, item: int | None = None, *, tail: int = 10_000_000) -> str:
        """Return what the items of a job have printed, at most the last ``tail`` bytes."""
        path = f"{_get_path(name)}/logs"
        return self._connection.request("GET", path, query={"item": item, "tail": tail}).text

    def read_logs(
        self, name: str, item: int | None = None, *, tail: int = 10_000_000
    ) -> list[ItemText]:
        """Return the same as :meth:`logs`, the output of each item apart."""
        path = f"{_get_path(name)}/logs"
        found = self._connection.get(path, item=item, tail=tail, format="json")["items"]
        return [ItemText(**each) for each in found]

    def follow_logs(self, name: str, item: int | None = None) -> Iterator[ItemText]:
        """Yield what items print, until the job has ended."""
        for kind, data in self._connection.stream(f"{_get_path(name)}/logs", item=item, follow=1):
            if kind == "end":
                return
            yield ItemText(**data)

    def wait(self, *names: str, timeout: float | None = None) -> list[JobInfo]:
        """Wait until jobs have ended, or all jobs; return them.

        Raises a TimeoutError if they have not ended after ``timeout`` seconds. The service may be
        restarted meanwhile.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        reached = time.monotonic()
        while True:
            try:
                found = [self.info(name) for name in names] if names else self.jobs()
                reached = time.monotonic()
                active = [job.name for job in found if not job.has_ended]
                if not active:
                    return found
            except UnreachableError:
                if time.monotonic() - reached > _AWAY_SECONDS:
                    raise
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"jobs have not ended after {timeout:g} s")
            time.sleep(_POLL_SECONDS)

    def servers(self) -> dict[str, Any]:
        """Return the servers, who holds them, the policy and what it has learned."""
        return dict(self._connection.get("servers"))

    def schedule(self, *, points: int = 400, jobs: int = 8) -> dict[str, Any]:
        """Return the servers held over time, and a comparison with other policies."""
        return dict(self._connection.get("schedule", points=points, jobs=jobs))

    def groups(self) -> list[dict[str, Any]]:
        """Return the groups of jobs."""
        return list(self._connection.get("groups")["groups"])

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield what changes, at most twice a second, until the service stops."""
        for kind, data in self._connection.stream("events"):
            if kind == "change":
                yield data

    # --- steering jobs --------------------------------------------------------------------------

    def cancel(self, name: str) -> str:
        """End a job; return what was done."""
        return str(self._connection.request("DELETE", _get_path(name)).json()["text"])

    def pause(self, name: str) -> str:
        """Give the servers of a job to others until it is resumed; return what was done."""
        return self._change(name, {"paused": True})

    def resume(self, name: str) -> str:
        """Let a paused job go on; return what was done."""
        return self._change(name, {"paused": False})

    def retry(self, name: str) -> str:
        """Run the failed items of a job again; return what was done."""
        return self._change(name, {"retry": True})

    def weight(self, name: str, weight: float) -> str:
        """Change what a second of the job's flow time costs; return what was done."""
        return self._change(name, {"weight": weight})

    def _change(self, name: str, content: Mapping[str, Any]) -> str:
        answer = self._connection.request("PATCH", _get_path(name), content=content)
        return str(answer.json()["text"])

    def change(
        self,
        kind: str,
        names: Sequence[str] = (),
        *,
        group: str | None = None,
        weight: float | None = None,
    ) -> list[dict[str, Any]]:
        """Cancel, pause, resume, retry or weigh jobs; without names, all that this applies to.

        With a ``group``, those of the group. Returns for each job what was done, and whether it was
        refused.
        """
        content = {"kind": kind, "jobs": list(names), "group": group, "weight": weight}
        return list(self._connection.request("POST", "changes", content=content).json()["results"])

    def change_group(
        self, name: str, *, paused: bool | None = None, weight: float | None = None
    ) -> str:
        """Pause, resume or weigh all jobs of a group; return what was done."""
        content = {"paused": paused, "weight": weight}
        given = {key: value for key, value in content.items() if value is not None}
        path = f"groups/{quote(name, safe='')}"
        return str(self._connection.request("PATCH", path, content=given).json()["text"])

    def cancel_group(self, name: str) -> list[str]:
        """End all jobs of a group; return their names."""
        path = f"groups/{quote(name, safe='')}"
        return list(self._connection.request("DELETE", path).json()["jobs"])


@dataclass(frozen=True)
class RemoteJob:
    """A job of a service."""

    client: Client
    name: str

    def __repr__(self) -> str:
        return f"<RemoteJob {self.name!r} of {self.client.url}>"

    @property
    def info(self) -> JobInfo:
        """What the service says about the job now."""
        return self.client.info(self.name)

    @property
    def state(self) -> str:
        """The state of the job now."""
        return self.info.state

    def wait(self, timeout: float | None = None) -> JobInfo:
        """Wait until the job has ended; return what the service says about it."""
        return self.client.wait(self.name, timeout=timeout)[0]

    def cancel(self) -> str:
        """End the job; return what was done."""
        return self.client.cancel(self.name)

    def pause(self) -> str:
        """Give its servers to others until it is resumed; return what was done."""
        return self.client.pause(self.name)

    def resume(self) -> str:
        """Let it go on after a pause; return what was done."""
        return self.client.resume(self.name)

    def retry(self) -> str:
        """Run its failed items again; return what was done."""
        return self.client.retry(self.name)

    def set_weight(self, weight: float) -> str:
        """Change what a second of its flow time costs; return what was done."""
        return self.client.weight(self.name, weight)

    def logs(self, item: int | None = None) -> str:
        """Return what its items have printed."""
        return self.client.logs(self.name, item)


def _get_path(name: str) -> str:
    return f"jobs/{quote(name, safe='')}"
