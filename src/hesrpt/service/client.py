"""The Python client of a service: add jobs, follow and steer them, from this or another machine."""

from __future__ import annotations

import json
import os
import ssl
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import parse_qs, quote, urlsplit, urlunsplit

from hesrpt.errors import InputError
from hesrpt.jobs.job_view import JobView
from hesrpt.jobs.jobs_file import read_portable_jobs

if TYPE_CHECKING:
    import httpx


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
# What OpenSSL calls an answer that is not TLS, depending on its version.
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")


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
        try:
            import httpx
        except ModuleNotFoundError:
            raise InputError("a client needs: pip install 'hesrpt[serve]'") from None
        url = url or os.environ.get(URL_VARIABLE)
        default = None
        if not url:
            url, default = _read_state(URL_FILE), _read_state(TOKEN_FILE)
        if not url:
            raise InputError(
                f"is missing; give the address that hesrpt serve prints, or set {URL_VARIABLE} or, "
                f"on its machine, {STATE_VARIABLE}",
                argument="url",
            )
        self.url, found = split_url(url)
        token = token or found or os.environ.get(TOKEN_VARIABLE) or default
        if not token:
            raise InputError(
                f"is missing; it is in DIR/token of the service, or set {TOKEN_VARIABLE}",
                argument="token",
            )
        self._http = httpx.Client(
            base_url=f"{self.url}/api/v1/",
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(timeout, connect=min(timeout, 10.0)),
            transport=transport,
            trust_env=transport is None,
        )

    def __repr__(self) -> str:
        return f"<Client of {self.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; jobs go on."""
        self._http.close()

    def __del__(self) -> None:
        if hasattr(self, "_http"):  # otherwise it was refused
            self._http.close()

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
        content, headers = {"jobs": given}, {"Idempotency-Key": key or uuid.uuid4().hex}
        try:
            answer = self._request("POST", "jobs", content=content, headers=headers)
        except UnreachableError:  # the connection broke: the key keeps them from being added twice
            time.sleep(_POLL_SECONDS)
            answer = self._request("POST", "jobs", content=content, headers=headers)
        return [RemoteJob(self, each["name"]) for each in answer.json()["jobs"]]

    # --- looking at jobs ------------------------------------------------------------------------

    def jobs(
        self,
        *,
        state: str | None = None,
        group: str | None = None,
        search: str | None = None,
        failures: bool = False,
    ) -> list[JobView]:
        """Return all jobs in order of arrival, or those in a state, in a group, or of a name.

        With ``failures``, they have their ``failed_items``, which may be many.
        """
        found: list[JobView] = []
        while True:
            page = self._get(
                "jobs",
                offset=len(found),
                limit=_PAGE,
                state=state,
                group=group,
                search=search,
                order="asc",
                failures=True if failures else None,
            )
            found += map(JobView.from_json_value, page["jobs"])
            if len(found) >= page["total"] or not page["jobs"]:
                return found

    def job(self, name: str) -> RemoteJob:
        """Return the job of a name, whether it exists or not."""
        return RemoteJob(self, name)

    def info(self, name: str) -> JobView:
        """Return what the service says about a job."""
        return JobView.from_json_value(self.details(name))

    def details(self, name: str) -> dict[str, Any]:
        """Return all that the service knows about a job, as JSON values."""
        return dict(self._get(_get_path(name)))

    def logs(self, name: str, item: int | None = None, *, tail: int = 10_000_000) -> str:
        """Return what the items of a job have printed, at most the last ``tail`` bytes."""
        path = f"{_get_path(name)}/logs"
        return self._request("GET", path, query={"item": item, "tail": tail}).text

    def read_logs(
        self, name: str, item: int | None = None, *, tail: int = 10_000_000
    ) -> list[ItemText]:
        """Return the same as :meth:`logs`, the output of each item apart."""
        path = f"{_get_path(name)}/logs"
        found = self._get(path, item=item, tail=tail, format="json")["items"]
        return [ItemText(**each) for each in found]

    def follow_logs(self, name: str, item: int | None = None) -> Iterator[ItemText]:
        """Yield what items print, until the job has ended."""
        for kind, data in self._stream(f"{_get_path(name)}/logs", item=item, follow=1):
            if kind == "end":
                return
            yield ItemText(**data)

    def wait(self, *names: str, timeout: float | None = None) -> list[JobView]:
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
        return dict(self._get("servers"))

    def schedule(self, *, points: int = 400, jobs: int = 8) -> dict[str, Any]:
        """Return the servers held over time, and a comparison with other policies."""
        return dict(self._get("schedule", points=points, jobs=jobs))

    def groups(self) -> list[dict[str, Any]]:
        """Return the groups of jobs."""
        return list(self._get("groups")["groups"])

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield what changes, at most twice a second, until the service stops."""
        for kind, data in self._stream("events"):
            if kind == "change":
                yield data

    # --- steering jobs --------------------------------------------------------------------------

    def cancel(self, name: str) -> str:
        """End a job; return what was done."""
        return str(self._request("DELETE", _get_path(name)).json()["text"])

    def pause(self, name: str) -> str:
        """Give the servers of a job to others until it is resumed; return what was done."""
        return self._change(_get_path(name), {"paused": True})

    def resume(self, name: str) -> str:
        """Let a paused job go on; return what was done."""
        return self._change(_get_path(name), {"paused": False})

    def retry(self, name: str) -> str:
        """Run the failed items of a job again; return what was done."""
        return self._change(_get_path(name), {"retry": True})

    def weight(self, name: str, weight: float) -> str:
        """Change what a second of the job's flow time costs; return what was done."""
        return self._change(_get_path(name), {"weight": weight})

    def _change(self, path: str, content: Mapping[str, Any]) -> str:
        return str(self._request("PATCH", path, content=content).json()["text"])

    def change(
        self,
        kind: str,
        names: Sequence[str] | None = None,
        *,
        group: str | None = None,
        weight: float | None = None,
    ) -> list[dict[str, Any]]:
        """Cancel, pause, resume or retry jobs, or set their weight.

        Without names, all jobs that this applies to are meant, or those of a ``group``. Returns
        what was done about each job, and whether it was refused.
        """
        jobs = None if names is None else list(names)
        content = {"kind": kind, "jobs": jobs, "group": group, "weight": weight}
        return list(self._request("POST", "changes", content=content).json()["results"])

    def change_group(
        self, name: str, *, paused: bool | None = None, weight: float | None = None
    ) -> str:
        """Pause, resume or weigh all jobs of a group; return what was done."""
        content = {"paused": paused, "weight": weight}
        given = {key: value for key, value in content.items() if value is not None}
        return self._change(_get_path(name, "groups"), given)

    def cancel_group(self, name: str) -> list[str]:
        """End all jobs of a group; return their names."""
        return list(self._request("DELETE", _get_path(name, "groups")).json()["jobs"])

    # --- requests, and what goes wrong with them --------------------------------------------------

    def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        content: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Send a request, and return its answer; raise an error if it was refused."""
        body = None if content is None else json.dumps(content).encode()
        params = {key: value for key, value in (query or {}).items() if value is not None}
        with self._explain():
            answer = self._http.request(method, path, params=params, content=body, headers=headers)
        self._check(answer)
        return answer

    def _get(self, path: str, **query: Any) -> Any:
        """Return the JSON value at a path."""
        return self._request("GET", path, query=query).json()

    def _stream(self, path: str, **query: Any) -> Iterator[tuple[str, Any]]:
        """Yield the kinds and values of server-sent events."""
        import httpx

        params = {key: value for key, value in query.items() if value is not None}
        timeout = httpx.Timeout(self._http.timeout.connect, read=60.0)
        with ExitStack() as stack:
            with self._explain():
                stream = self._http.stream("GET", path, params=params, timeout=timeout)
                answer = stack.enter_context(stream)
                if answer.is_error:
                    answer.read()
            self._check(answer)
            try:
                yield from _parse_events(answer.iter_lines())
            except httpx.TransportError as error:
                problem = f"the connection to {self.url} was lost: {error}"
                raise UnreachableError(problem) from None

    @contextmanager
    def _explain(self) -> Iterator[None]:
        """Turn errors of a request that was not answered into errors that suggest a cure."""
        import httpx

        try:
            yield
        except httpx.TransportError as error:
            hint = _suggest_cure(self.url, error)
            raise UnreachableError(f"cannot reach {self.url}: {error}{hint}") from None
        except httpx.InvalidURL as error:
            raise InputError(f"url must be an address, got {self.url!r}: {error}") from None

    def _check(self, answer: httpx.Response) -> None:
        if answer.is_success:
            return
        try:
            problem = answer.json()
            detail, text = str(problem["detail"]), problem.get("text")
            is_foreign = detail == answer.reason_phrase or problem.get("reason") == "no_such_path"
        except (ValueError, KeyError, TypeError, AttributeError):
            detail, text = f"the answer was {answer.status_code} {answer.reason_phrase}", None
            is_foreign = True
        if is_foreign and answer.status_code == 404:
            detail = "there is no hesrpt service at this address"
        raise ServiceError(f"{self.url}: {detail}", answer.status_code, text)


@dataclass(frozen=True)
class RemoteJob:
    """A job of a service."""

    client: Client
    name: str

    def __repr__(self) -> str:
        return f"<RemoteJob {self.name!r} of {self.client.url}>"

    @property
    def info(self) -> JobView:
        """What the service says about the job now."""
        return self.client.info(self.name)

    @property
    def state(self) -> str:
        """The state of the job now."""
        return self.info.state

    def wait(self, timeout: float | None = None) -> JobView:
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


def _get_path(name: str, kind: str = "jobs") -> str:
    return f"{kind}/{quote(name, safe='')}"


# --- addresses and errors -------------------------------------------------------------------------

#: The variables that say where the service is, and who asks: its address and a token, or its state
#: directory, which has both.
URL_VARIABLE, TOKEN_VARIABLE, STATE_VARIABLE = "HESRPT_URL", "HESRPT_TOKEN", "HESRPT_STATE"
#: The files in a state directory that have the address of its service, and the owner's token.
URL_FILE, TOKEN_FILE = "url", "token"


# The statuses of requests that make sense, but are refused: to a reader, now, or too often.
_REFUSED = (403, 409, 429, 503)


class ServiceError(InputError):
    """The service has refused a request; the message says why."""

    def __init__(self, message: str, status: int = 0, text: str | None = None) -> None:
        super().__init__(message)
        self.status = status  # of HTTP
        self.text = text  # why, without the names of the service and of the job
        if status in _REFUSED:
            self.exit_code = 1


class UnreachableError(ServiceError):
    """The service cannot be reached."""

    exit_code = 3


def _read_state(name: str) -> str | None:
    """Return what a file says in the state directory that a variable names, if there is one."""
    directory = os.environ.get(STATE_VARIABLE)
    with suppress(OSError):
        return Path(directory, name).read_text().strip() if directory else None
    return None


def _parse_events(lines: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield the kinds and values of server-sent events."""
    kind, data = "message", ""
    for line in lines:
        if line.startswith("event:"):
            kind = line[6:].strip()
        elif line.startswith("data:"):
            data += line[5:]
        elif not line and data:
            yield kind, json.loads(data)
            kind, data = "message", ""


def _suggest_cure(url: str, error: httpx.TransportError) -> str:
    """Return what to try if TLS may be the reason that a service cannot be reached."""
    import httpx

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return "; set SSL_CERT_FILE to a file with the certificate of the service or its authority"
    if url.startswith("https:") and cause is not None and cause.reason in _NO_TLS:
        return f"; it may not use TLS: try http{url.removeprefix('https')}"
    if url.startswith("http:") and isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
        return f"; it may use TLS: try https{url.removeprefix('http')}"
    return ""


def split_url(url: str) -> tuple[str, str | None]:
    """Return the address of a service without a token, and the token if there was one.

    >>> split_url("http://127.0.0.1:8642/?token=abc")
    ('http://127.0.0.1:8642', 'abc')
    """
    if "//" not in url:
        url = f"http://{url}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InputError(f"must be like http://127.0.0.1:8642, got {url!r}", argument="url")
    token = parse_qs(parts.query).get("token", [None])[0]
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", "")), token
