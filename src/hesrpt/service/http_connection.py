"""The HTTP connection of a client to a service, and what goes wrong with it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

from hesrpt.errors import InputError

if TYPE_CHECKING:
    import httpx

#: The variables that say where the service is, and who asks: its address and a token, or its state
#: directory, which has both.
URL_VARIABLE, TOKEN_VARIABLE, STATE_VARIABLE = "HESRPT_URL", "HESRPT_TOKEN", "HESRPT_STATE"
#: The files in a state directory that have the address of its service, and the owner's token.
URL_FILE, TOKEN_FILE = "url", "token"


# The statuses of requests that make sense, but are refused: to a reader, now, or too often.
_REFUSED = (403, 409, 429, 503)


class ServiceError(InputError):
    """The service has refused a request; the message says why."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status  # of HTTP
        if status in _REFUSED:
            self.exit_code = 1


class UnreachableError(ServiceError):
    """The service cannot be reached."""

    exit_code = 3


class Connection:
    """Sends requests to the API of a service."""

    def __init__(
        self,
        url: str | None,
        token: str | None,
        timeout: float,
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

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def __del__(self) -> None:
        if hasattr(self, "_http"):  # otherwise it was refused
            self._http.close()

    def request(
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
            answer = self._http.request(
                method, path, params=params, content=body, headers=dict(headers or {})
            )
        self._check(answer)
        return answer

    def get(self, path: str, **query: Any) -> Any:
        """Return the JSON value at a path."""
        return self.request("GET", path, query=query).json()

    def stream(self, path: str, **query: Any) -> Iterator[tuple[str, Any]]:
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
            detail = str(answer.json()["detail"])
        except (ValueError, KeyError, TypeError):
            detail = f"the answer was {answer.status_code} {answer.reason_phrase}"
            is_foreign = True
        else:
            # Another service, or a path that this one does not have.
            is_foreign = detail == answer.reason_phrase or detail.startswith("there is nothing at ")
        if is_foreign and answer.status_code == 404:
            detail = "there is no hesrpt service at this address"
        raise ServiceError(f"{self.url}: {detail}", answer.status_code)


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

    text = str(error).upper()
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return "; set SSL_CERT_FILE to a file with the certificate of the service or its authority"
    if url.startswith("https:") and ("WRONG_VERSION_NUMBER" in text or "RECORD_LAYER" in text):
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
