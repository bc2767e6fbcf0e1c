"""Who may do what, and how often: tokens, the page's cookie, limits, checks of every request.

The checks are one layer around the application, so that no route can forget them. See
docs/explanation/security.md for the reasons.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from hmac import compare_digest
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hesrpt.errors import StateError
from hesrpt.storage.state_directory import open_private

Access = Literal["owner", "read"]

COOKIE = "hesrpt_token"
_COOKIE_SECONDS = 30 * 86_400
#: Needs no token: whether the scheduler runs, and the files of the form that asks for a token.
OPEN_PATHS = (
    "/healthz",
    "/page/controls.css",
    "/page/icon.svg",
    "/page/layout.css",
    "/page/sign_in.js",
    "/page/theme.css",
)
#: Where a browser exchanges a token for a cookie.
SIGN_IN_PATH = "/sign-in"
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")

_SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def read_or_create_token(path: Path) -> str:
    """Return the token in a file that only its owner can read; create it if there is none."""
    try:
        descriptor = open_private(path, os.O_RDWR)
    except OSError as error:
        raise StateError(f"{path}: cannot be used: {error.strerror}") from None
    with os.fdopen(descriptor, "r+", encoding="ascii", errors="replace") as file:
        token = file.read().strip()
        if not token:
            token = secrets.token_urlsafe(32)
            file.seek(0)
            file.write(f"{token}\n")
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
    if len(token) < 16 or not token.isprintable() or " " in token:
        raise StateError(f"{path}: contains no token; remove the file, and a new one is created")
    return token


@dataclass(frozen=True, kw_only=True)
class AccessRules:
    """The tokens of a service, and the names under which it may be addressed."""

    owner_token: str = field(repr=False)
    read_token: str | None = field(default=None, repr=False)
    allowed_hosts: Collection[str] = ()  # besides localhost and loopback addresses
    allows_addresses: bool = False  # whether any IP address may be its name
    is_secure: bool = False  # whether it is reached by HTTPS only

    def check_token(self, token: str) -> Access | None:
        """Return what a token allows; this takes as long for a wrong token as for a right one."""
        given = token.encode("utf-8", "replace")
        is_owner = compare_digest(given, self.owner_token.encode())
        is_reader = compare_digest(given, (self.read_token or self.owner_token).encode())
        if is_owner:
            return "owner"
        return "read" if is_reader and self.read_token is not None else None

    def is_host_allowed(self, host: str) -> bool:
        """Return whether a Host header names this service, rather than a stranger's domain."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
            if name == "localhost" or name in self.allowed_hosts:
                return True
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        # Nobody can make a domain of an address, so an address cannot have been rebound.
        return address.is_loopback or self.allows_addresses


def find_token(request: HTTPConnection) -> tuple[str, str] | None:
    """Return where the token of a request was found, and the token; None without one."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and value.strip():
        return "bearer", value.strip()
    if request.scope["path"] == "/" and (token := request.query_params.get("token")):
        return "query", token
    token = request.cookies.get(COOKIE)
    return ("cookie", token) if token else None


# --- how large requests may be, and how many: one client cannot starve the others -----------------

#: The largest body of a request, in bytes.
MAX_BODY = 8 << 20
# This many writes a second are taken in the long run, and this many at once.
_WRITES_PER_SECOND, _WRITES_AT_ONCE = 100.0, 1000.0
# Likewise wrong tokens, of one client.
_WRONG_PER_SECOND, _WRONG_AT_ONCE = 1.0, 20.0
# How many clients are remembered that sent wrong tokens.
_MAX_CLIENTS = 1000
_TOO_LARGE = f"the request is too large; at most {MAX_BODY >> 20} MB are taken"


@dataclass
class TokenBucket:
    """A token bucket."""

    per_second: float
    most: float
    now: Callable[[], float] = time.monotonic
    left: float = field(init=False)
    updated: float = field(init=False)

    def __post_init__(self) -> None:
        self.left, self.updated = self.most, self.now()

    def take(self) -> bool:
        """Take one, and return True; return False if less than one is left."""
        now = self.now()
        self.left = min(self.left + (now - self.updated) * self.per_second, self.most)
        self.updated = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class RateLimits:
    """The limits of a service."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._writes = TokenBucket(_WRITES_PER_SECOND, _WRITES_AT_ONCE, now)
        self._wrong: dict[str, TokenBucket] = {}  # by client

    def may_write(self) -> bool:
        """Count a request that changes something; return whether there were not too many."""
        return self._writes.take()

    def may_try_token(self, client: str) -> bool:
        """Count a wrong token of a client; return whether there were not too many."""
        if client not in self._wrong and len(self._wrong) >= _MAX_CLIENTS:
            del self._wrong[next(iter(self._wrong))]
        allowance = TokenBucket(_WRONG_PER_SECOND, _WRONG_AT_ONCE, self._now)
        return self._wrong.setdefault(client, allowance).take()


def limit_body(receive: Receive) -> Receive:
    """Return a function that receives a body, and raises an error if it is too long."""
    received = 0

    async def receive_limited() -> Message:
        nonlocal received
        message = await receive()
        if message["type"] == "http.request":
            received += len(message.get("body", b""))
            if received > MAX_BODY:
                raise HTTPException(413, _TOO_LARGE)
        return message

    return receive_limited


# --- the layer of checks --------------------------------------------------------------------------


class AccessMiddleware:
    """Refuses what is not allowed, and adds security headers to all answers."""

    def __init__(
        self, app: ASGIApp, rules: AccessRules, limits: RateLimits, sign_in_page: str
    ) -> None:
        self._app, self._rules, self._limits = app, rules, limits
        self._sign_in_page = sign_in_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # a WebSocket
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        answer = self._check(scope)
        if answer is not None:
            await answer(scope, receive, send_with_headers)
        else:
            await self._app(scope, limit_body(receive), send_with_headers)

    def _check(self, scope: Scope) -> Response | None:
        """Return an answer that refuses the request, or None; then the scope says who asks."""
        request, path = HTTPConnection(scope), scope["path"]
        headers = request.headers
        scheme = "https" if self._rules.is_secure else scope["scheme"]
        host = headers.get("host", "")
        if not self._rules.is_host_allowed(host):
            return _refuse(403, "the Host header does not name this service (see --allow-host)")
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"{scheme}://{host}".lower():
            return _refuse(403, "the request comes from a page of another site")
        if path in OPEN_PATHS:
            return None
        found = find_token(request)
        access = None if found is None else self._rules.check_token(found[1])
        if found is None or access is None:
            client = "" if request.client is None else request.client.host
            # A right token is taken whatever others at the same address have tried.
            if found is not None and not self._limits.may_try_token(client):
                return self._ask_for_token(path, headers, 429, "too many wrong tokens")
            problem = "a token is missing" if found is None else "the token is wrong"
            return self._ask_for_token(path, headers, 401, problem)
        place, token = found
        if place == "query":
            # The page is loaded again without the token in its address, which others may see.
            return self._set_cookie(RedirectResponse("/", status_code=303), token)
        if path == SIGN_IN_PATH and scope["method"] == "POST":
            return self._set_cookie(Response(status_code=204), token)
        if scope["method"] not in _SAFE_METHODS:
            if access != "owner":
                return _refuse(403, "this token may only read")
            if place == "cookie" and origin is None:
                return _refuse(403, "a request with a cookie needs an Origin header")
            if not self._limits.may_write():
                return _refuse(429, "too many requests; try again in a second")
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > MAX_BODY:
            return _refuse(413, _TOO_LARGE)
        scope.setdefault("state", {})["access"] = access
        return None

    def _set_cookie(self, answer: Response, token: str) -> Response:
        answer.set_cookie(
            COOKIE,
            token,
            max_age=_COOKIE_SECONDS,
            httponly=True,
            samesite="strict",
            secure=self._rules.is_secure,
        )
        return answer

    def _ask_for_token(self, path: str, headers: Headers, status: int, problem: str) -> Response:
        """Refuse a request: a browser gets a form, which contains no data, others a sentence."""
        hint = "open the address that `hesrpt serve` has printed; its token is in DIR/token"
        realm = {"WWW-Authenticate": 'Bearer realm="hesrpt"'}
        if status == 429:
            hint, realm = "wait a few seconds", {"Retry-After": "5"}
        if path.startswith("/api/") or path == SIGN_IN_PATH:
            return JSONResponse({"detail": f"{problem}; {hint}"}, status_code=status, headers=realm)
        if path == "/" and "text/html" in headers.get("accept", ""):
            # Whoever opens the page without a token has made no mistake.
            shown = "" if problem == "a token is missing" else f"{problem.capitalize()}."
            if status == 429:
                shown = f"{problem.capitalize()}; {hint}."
            page = self._sign_in_page.replace("{problem}", shown)
            return HTMLResponse(page, status_code=status, headers=realm)
        return PlainTextResponse(f"hesrpt: {problem}; {hint}\n", status_code=status, headers=realm)


def _refuse(status: int, detail: str) -> Response:
    return JSONResponse({"detail": detail}, status_code=status)
