"""The routes of the run as a whole: servers, schedule, events, and whether the service is well."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from hesrpt.service import api_examples
from hesrpt.service.answers import answer
from hesrpt.service.comparison_cache import ComparisonCache
from hesrpt.service.event_stream import EventStream, StreamLimit
from hesrpt.service.job_queue import JobQueue
from hesrpt.service.metrics import MEDIA_TYPE, write_metrics
from hesrpt.service.run_views import describe_servers
from hesrpt.service.schedule_view import describe_schedule


def create_run_routes(
    queue: JobQueue, events: EventStream, comparisons: ComparisonCache, streams: StreamLimit
) -> APIRouter:
    """Create the routes that are about no single job."""
    router = APIRouter(tags=["run"])

    @router.get(
        "/api/v1/servers", summary="Show the servers and the policy", **api_examples.SHOW_SERVERS
    )
    def show_servers(request: Request) -> Response:
        return answer(describe_servers(queue, request.state.access))

    @router.get(
        "/api/v1/schedule", summary="Show the servers held over time", **api_examples.SHOW_SCHEDULE
    )
    def show_schedule(
        points: Annotated[int, Query(ge=2, le=2000)] = 400,
        jobs: Annotated[int, Query(ge=1, le=50)] = 8,
    ) -> Response:
        return answer(describe_schedule(queue, comparisons, points, jobs))

    @router.get(
        "/api/v1/events",
        summary="Follow changes as server-sent events",
        **api_examples.FOLLOW_EVENTS,
    )
    async def follow_events(request: Request) -> Response:
        access = request.state.access
        return streams.stream(events.watch(access), access)

    @router.get("/metrics", summary="Metrics for Prometheus", **api_examples.SHOW_METRICS)
    def show_metrics() -> Response:
        return Response(write_metrics(queue, events), media_type=MEDIA_TYPE)

    @router.get("/healthz", summary="Say whether the scheduler runs", **api_examples.CHECK_HEALTH)
    def check_health() -> Response:
        problem = queue.driver.describe_end()
        return answer({"status": problem or "ok"}, 503 if problem else 200)

    return router
