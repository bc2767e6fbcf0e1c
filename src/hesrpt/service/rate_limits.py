"""How large requests may be, and how many may come: so that one client cannot starve the others."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive

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

    def refill(self) -> float:
        """Return how much is left."""
        now = self.now()
        self.left = min(self.left + (now - self.updated) * self.per_second, self.most)
        self.updated = now
        return self.left

    def take(self) -> bool:
        """Take one, and return True; return False if less than one is left."""
        if self.refill() < 1:
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

    def check_length(self, headers: Headers) -> Response | None:
        """Return an answer that refuses a body which is too long, if its length is given."""
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > MAX_BODY:
            return JSONResponse({"detail": _TOO_LARGE}, status_code=413)
        return None

    def limit_body(self, receive: Receive) -> Receive:
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
