"""The web application: the page, the API, its errors, and the layer of checks around all."""

from __future__ import annotations

import re
from http import HTTPStatus
from pathlib import Path
from urllib.parse import unquote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from hesrpt._version import __version__
from hesrpt.errors import InputError, StateError
from hesrpt.jobs.text import describe_value
from hesrpt.reports.inspection import UnknownItemError
from hesrpt.scheduler.requests import (
    BusyError,
    ImpossibleJobError,
    RemovedError,
    UnknownTargetError,
)
from hesrpt.service.answers import Problem, Reason, answer
from hesrpt.service.auth import AccessMiddleware, AccessRules, RateLimits
from hesrpt.service.event_stream import EventStream, StreamLimit
from hesrpt.service.job_queue import JobQueue, RefusedError, StoppingError
from hesrpt.service.routes import create_group_routes, create_job_routes, create_run_routes
from hesrpt.service.schedule_view import ComparisonCache

PREFIX = "/api/v1"
_PAGE = Path(__file__).parent / "page"


# --- errors become answers: one plain sentence with the right status ------------------------------

_PROBLEMS: dict[type[Exception], tuple[int, Reason]] = {
    UnknownTargetError: (404, "unknown"),
    UnknownItemError: (404, "unknown"),
    RefusedError: (409, "refused"),
    ImpossibleJobError: (409, "refused"),
    RemovedError: (410, "removed"),
    StoppingError: (503, "unavailable"),
    BusyError: (503, "unavailable"),
    StateError: (503, "unavailable"),
}


def add_error_handlers(app: FastAPI) -> None:
    """Let errors become answers."""

    @app.exception_handler(InputError)
    def refuse(request: Request, error: InputError) -> Response:
        status, reason = next(
            (known for kind, known in _PROBLEMS.items() if isinstance(error, kind)),
            (422, "invalid"),
        )
        text = None if error.argument is None else error.problem
        return answer(Problem(detail=str(error), reason=reason, text=text), status)

    @app.exception_handler(RequestValidationError)
    def refuse_parameter(request: Request, error: RequestValidationError) -> Response:
        problem = error.errors()[0]
        name = problem["loc"][-1]
        detail = f"{name}: {str(problem['msg']).lower()}"
        return answer(Problem(detail=detail, reason="invalid", text=None), 422)

    @app.exception_handler(HTTPException)
    def pass_on(request: Request, error: HTTPException) -> Response:
        path = describe_value(request.url.path)
        missing = {404: f"there is nothing at {path}", 405: f"{path} has no {request.method}"}
        if error.detail == HTTPStatus(error.status_code).phrase and error.status_code in missing:
            detail = f"{missing[error.status_code]}; /api/v1/openapi.json describes the API"
            return answer(
                Problem(detail=detail, reason="no_such_path", text=None), error.status_code
            )
        return answer(Problem(detail=error.detail, reason="refused", text=None), error.status_code)

    @app.exception_handler(ClientDisconnect)
    def give_up(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=400)  # nobody gets it


# --- the application ------------------------------------------------------------------------------


def create_routes(
    queue: JobQueue, events: EventStream, comparisons: ComparisonCache, streams: StreamLimit
) -> FastAPI:
    """Create the application without the checks around it."""
    app = FastAPI(
        title="hesrpt",
        version=__version__,
        summary="One queue for a machine or a cluster.",
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    add_error_handlers(app)
    app.include_router(create_job_routes(queue, streams), prefix=PREFIX)
    app.include_router(create_group_routes(queue), prefix=PREFIX)
    app.include_router(create_run_routes(queue, events, comparisons, streams))

    page = _read_page("index.html")

    @app.get("/", include_in_schema=False)
    def show_page() -> Response:
        return HTMLResponse(page)

    app.mount("/page", StaticFiles(directory=_PAGE, check_dir=False), name="page")
    return app


def create_app(
    queue: JobQueue,
    rules: AccessRules,
    events: EventStream | None = None,
    comparisons: ComparisonCache | None = None,
    streams: StreamLimit | None = None,
) -> ASGIApp:
    """Create the application."""
    cache = comparisons or ComparisonCache(queue.directory)
    routes = create_routes(queue, events or EventStream(queue), cache, streams or StreamLimit())
    page = _read_page("sign_in.html")
    return AccessMiddleware(keep_encoded_slashes(routes), rules, RateLimits(), page)


def _read_page(name: str) -> str:
    """Return an HTML page with what all pages have in their heads."""
    text = (_PAGE / name).read_text(encoding="utf-8")
    return text.replace("<!-- head -->\n", (_PAGE / "head.html").read_text(encoding="utf-8"))


def keep_encoded_slashes(app: ASGIApp) -> ASGIApp:
    """Leave %2F and %25 in paths encoded, so that a slash in a name does not end the name."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and b"%" in (raw := scope.get("raw_path") or b""):
            path = re.sub(r"%(?=2[Ff]|25)", "%25", raw.decode("latin-1"))
            scope = {**scope, "path": unquote(path)}
        await app(scope, receive, send)

    return call
