"""The routes of the API: those of jobs, of groups, and of the run as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from anyio import CapacityLimiter, move_on_after, to_thread
from fastapi import APIRouter, Header, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from hesrpt.errors import InputError
from hesrpt.jobs.groups import Group
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.jobs.text import describe_value
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.scheduler.requests import UnknownTargetError
from hesrpt.service import api_examples
from hesrpt.service.answers import answer
from hesrpt.service.comparison_cache import ComparisonCache
from hesrpt.service.event_stream import EventStream, StreamLimit
from hesrpt.service.item_limits import READ_SECONDS
from hesrpt.service.item_views import (
    MAX_TAIL,
    describe_output,
    follow_logs,
    list_items,
    read_logs,
    read_text,
)
from hesrpt.service.job_queue import JobQueue
from hesrpt.service.job_requests import compute_digest, read_jobs, read_object
from hesrpt.service.metrics import MEDIA_TYPE, write_metrics
from hesrpt.service.path_names import Name
from hesrpt.service.schedule_view import describe_schedule
from hesrpt.service.views import (
    MAX_PAGE,
    JobDescriber,
    JobQuery,
    Sorting,
    describe_servers,
    list_failures,
    list_hooks,
    list_page,
)
from hesrpt.storage.journal_entries import JobRecord, RequestKind
from hesrpt.units import format_count
from hesrpt.validation import check_positive

# --- jobs: to list, add and change them, and to read what they print ----------------------------

# How many requests to add jobs are read at a time, and for how long each.
_READERS, _READ_SECONDS = CapacityLimiter(16), READ_SECONDS + 5

Offset = Annotated[int, Query(ge=0)]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]


def create_job_routes(queue: JobQueue, streams: StreamLimit) -> APIRouter:
    """Create the routes below ``/jobs``."""
    router = APIRouter(tags=["jobs"])

    @router.get("/jobs", summary="List jobs", **api_examples.LIST_JOBS)
    def list_jobs(
        offset: Offset = 0,
        limit: Limit = 50,
        state: str = "",
        group: str | None = None,
        search: str = "",
        sort: Sorting = "arrived",
        order: Literal["asc", "desc"] = "desc",
    ) -> Response:
        query = JobQuery(
            offset=offset,
            limit=limit,
            states=tuple(part for part in state.split(",") if part),
            group=group,
            search=search,
            sort=sort,
            descending=order == "desc",
        )
        return answer(list_page(queue, query))

    @router.post("/jobs", summary="Add jobs", status_code=201, **api_examples.ADD_JOBS)
    async def add_jobs(
        request: Request, idempotency_key: Annotated[str, Header(max_length=MAX_KEY)] = ""
    ) -> Response:
        body = await request.body()

        def read() -> list[JobSpec]:
            return read_jobs(read_object(body), queue)

        # In a thread: this looks at files, and a file system may not answer at all.
        with move_on_after(_READ_SECONDS) as scope:
            specs = await to_thread.run_sync(read, abandon_on_cancel=True, limiter=_READERS)
        if scope.cancelled_caught:
            raise InputError(f"the jobs could not be read within {_READ_SECONDS:g} s")
        jobs = await queue.add(specs, idempotency_key, compute_digest(body))
        describer = JobDescriber(queue)
        return answer({"jobs": [describer.describe(job) for job in jobs]}, 201)

    @router.patch("/jobs", summary="Pause or resume all jobs", **api_examples.CHANGE_ALL)
    async def change_all(request: Request) -> Response:
        content = read_object(await request.body())
        kind, _ = _read_change(content, only_pauses=True)

        def change() -> Response:
            return answer({"jobs": queue.change_all(kind, lambda job: True)})

        return await run_in_threadpool(change)

    @router.post("/changes", summary="Change several jobs", **api_examples.CHANGE_CHOSEN)
    async def change_chosen(request: Request) -> Response:
        change = _read_chosen(read_object(await request.body()))
        results = await run_in_threadpool(queue.change_chosen, **change)
        shown = [
            {"job": each.job, "text": each.text, "refused": each.is_refused} for each in results
        ]
        return answer({"results": shown})

    @router.get("/jobs/{name}/items", summary="List the items of a job", **api_examples.SHOW_ITEMS)
    def show_items(name: Name, offset: Offset = 0, limit: Limit = 100) -> Response:
        return answer(list_items(queue, queue.find_job(name), offset, limit))

    @router.get(
        "/jobs/{name}/logs", summary="Read what a job has printed", **api_examples.SHOW_LOGS
    )
    async def show_logs(
        name: Name,
        request: Request,
        item: Annotated[int | None, Query(ge=0)] = None,
        tail: Annotated[int, Query(ge=1, le=MAX_TAIL)] = 64_000,
        form: Annotated[Literal["text", "json"], Query(alias="format")] = "text",
        follow: bool = False,
    ) -> Response:
        if follow:
            await run_in_threadpool(queue.find_job, name)
            return streams.stream(follow_logs(queue, name, item), request.state.access)
        if form == "json":
            outputs = await run_in_threadpool(read_logs, queue, name, item, tail)
            return answer({"items": [describe_output(*output) for output in outputs]})
        content = await run_in_threadpool(read_text, queue, name, item, tail)
        return Response(content, media_type="text/plain; charset=utf-8")

    @router.get("/jobs/{name}", summary="Show a job", **api_examples.SHOW_JOB)
    def show_job(name: Name, request: Request) -> Response:
        job = queue.find_job(name)
        failures, hooks = list_failures(queue, job), list_hooks(queue, job)
        return answer(
            JobDescriber(queue).describe_fully(job, failures, hooks, request.state.access)
        )

    @router.patch(
        "/jobs/{name}", summary="Pause, resume, retry or weigh a job", **api_examples.CHANGE_JOB
    )
    async def change_job(name: Name, request: Request) -> Response:
        kind, weight = _read_change(read_object(await request.body()))
        return await run_in_threadpool(_change, queue, name, kind, weight)

    @router.delete("/jobs/{name}", summary="Cancel a job", **api_examples.CANCEL_JOB)
    def cancel_job(name: Name) -> Response:
        return _change(queue, name, "cancel")

    return router


def _change(queue: JobQueue, name: str, kind: RequestKind, weight: float | None = None) -> Response:
    text = queue.change(name, kind, weight)
    return answer({"job": JobDescriber(queue).describe(queue.find_job(name)), "text": text})


def _read_chosen(content: dict[str, Any]) -> dict[str, Any]:
    """Return which change of which jobs a request asks for."""
    kinds = ("cancel", "pause", "resume", "retry", "weight")
    if unknown := [key for key in content if key not in ("kind", "jobs", "group", "weight")]:
        raise InputError(f"unknown key {unknown[0]!r}; the keys are: kind, jobs, group, weight")
    kind, names, group = content.get("kind"), content.get("jobs", []), content.get("group")
    if kind not in kinds:
        raise InputError(f"kind must be one of {', '.join(kinds)}, got {describe_value(kind)}")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"jobs must be a list of names, got {describe_value(names)}")
    if group is not None and not isinstance(group, str):
        raise InputError(f"group must be a name, got {describe_value(group)}")
    if (kind == "weight") != (content.get("weight") is not None):
        raise InputError('weight must be given with kind "weight", and only then')
    weight = _check_weight(content["weight"]) if kind == "weight" else None
    return {"kind": kind, "names": names, "group": group, "weight": weight}


def _check_weight(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"weight must be a number greater than 0, got {describe_value(value)}")
    return check_positive("weight", float(value))


def _read_change(
    content: dict[str, Any], *, only_pauses: bool = False
) -> tuple[RequestKind, float | None]:
    """Return what a request asks for, and the weight if it is one."""
    keys = ("paused",) if only_pauses else ("paused", "weight", "retry")
    if len(content) != 1 or next(iter(content)) not in keys:
        raise InputError(f"exactly one of these keys is needed: {', '.join(keys)}")
    ((key, value),) = content.items()
    if key == "weight":
        return "weight", _check_weight(value)
    if not isinstance(value, bool) or (key == "retry" and not value):
        expected = "true" if key == "retry" else "true or false"
        raise InputError(f"{key} must be {expected}, got {describe_value(value)}")
    if key == "retry":
        return "retry", None
    return ("pause" if value else "resume"), None


# --- groups: to list, weigh, pause and resume them, and to cancel their jobs --------------------


def create_group_routes(queue: JobQueue) -> APIRouter:
    """Create the routes below ``/groups``."""
    router = APIRouter(tags=["groups"])

    @router.get("/groups", summary="List the groups of jobs", **api_examples.LIST_GROUPS)
    def list_groups() -> Response:
        members: dict[str, list[LiveJob | JobRecord]] = {}
        for job in queue.list_jobs():
            members.setdefault(job.spec.group, []).append(job)
        groups = queue.list_groups().items()
        shown = [_summarise(name, group, members.get(name, [])) for name, group in groups]
        return answer({"groups": shown})

    @router.get("/groups/{name}", summary="Show a group of jobs", **api_examples.SHOW_GROUP)
    def show_group(name: Name) -> Response:
        return answer(_describe(queue, name, _find(queue, name)))

    @router.patch(
        "/groups/{name}",
        summary="Pause, resume or weigh a group of jobs",
        **api_examples.CHANGE_GROUP,
    )
    async def change_group(name: Name, request: Request) -> Response:
        content = read_object(await request.body())
        unknown = [key for key in content if key not in ("paused", "weight")]
        if unknown or not content:
            raise InputError("the keys of a group are: paused, weight")
        return await run_in_threadpool(_change_group, queue, name, content)

    @router.delete(
        "/groups/{name}", summary="Cancel the jobs of a group", **api_examples.CANCEL_GROUP
    )
    def cancel_group(name: Name) -> Response:
        _find(queue, name)
        cancelled = queue.change_all("cancel", lambda job: job.spec.group == name)
        return answer(
            {"jobs": cancelled, "text": f"cancelled {format_count(len(cancelled), 'job')}"}
        )

    return router


def _find(queue: JobQueue, name: str) -> Group:
    group = queue.list_groups().get(name)
    if group is None:
        raise UnknownTargetError(f"there is no group {name!r}")
    return group


def _describe(queue: JobQueue, name: str, group: Group) -> dict[str, Any]:
    return _summarise(name, group, [job for job in queue.list_jobs() if job.spec.group == name])


def _summarise(name: str, group: Group, jobs: Sequence[LiveJob | JobRecord]) -> dict[str, Any]:
    return {
        "name": name,
        "weight": group.weight,
        "paused": group.is_paused,
        "jobs": len(jobs),
        "active": sum(not job.has_ended for job in jobs),
        "servers": sum(job.servers for job in jobs if isinstance(job, LiveJob)),
    }


def _change_group(queue: JobQueue, name: str, content: dict[str, Any]) -> Response:
    _find(queue, name)
    weight, is_paused = _check_weight(content.get("weight", 1.0)), content.get("paused", False)
    if not isinstance(is_paused, bool):
        raise InputError(f"paused must be true or false, got {describe_value(is_paused)}")
    words = []
    if "paused" in content:
        words.append(queue.change_group(name, "pause" if is_paused else "resume"))
    if "weight" in content:
        words.append(queue.change_group(name, "weight", weight))
    group = _describe(queue, name, _find(queue, name))
    return answer({"group": group, "text": ", and ".join(words)})


# --- the run: servers, schedule, events, and whether the service is well ------------------------


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


#: The longest key that keeps a request from being obeyed twice.
MAX_KEY = 200
