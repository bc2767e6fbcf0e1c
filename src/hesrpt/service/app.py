"""The web application: the page, the API, and the layer of checks around both."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from hesrpt._version import __version__
from hesrpt.service.answers import add_error_handlers
from hesrpt.service.auth import AccessMiddleware, AccessRules
from hesrpt.service.comparison_cache import ComparisonCache
from hesrpt.service.event_stream import EventStream, StreamLimit
from hesrpt.service.job_queue import JobQueue
from hesrpt.service.path_names import keep_encoded_slashes
from hesrpt.service.rate_limits import RateLimits
from hesrpt.service.routes import create_group_routes, create_job_routes, create_run_routes

PREFIX = "/api/v1"
_PAGE = Path(__file__).parent / "page"


def create_routes(
    queue: JobQueue,
    events: EventStream,
    comparisons: ComparisonCache,
    streams: StreamLimit,
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
