"""Names of jobs in paths. They may contain anything, slashes included, and are percent-encoded."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import unquote

from fastapi import Path
from pydantic import AfterValidator
from starlette.types import ASGIApp, Receive, Scope, Send


def keep_encoded_slashes(app: ASGIApp) -> ASGIApp:
    """Leave %2F and %25 in paths encoded, so that a slash in a name does not end the name."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and b"%" in (raw := scope.get("raw_path") or b""):
            path = re.sub(r"%(?=2[Ff]|25)", "%25", raw.decode("latin-1"))
            scope = {**scope, "path": unquote(path)}
        await app(scope, receive, send)

    return call


def restore_name(text: str) -> str:
    """Return the name in a path, after the routing."""
    return re.sub("%(2[Ff]|25)", lambda found: unquote(found[0]), text)


#: A name in the path of a route.
Name = Annotated[str, Path(description="Percent-encoded."), AfterValidator(restore_name)]
