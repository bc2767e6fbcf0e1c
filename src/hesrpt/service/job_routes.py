"""The routes of jobs: to list, add and change them, and to read what they print."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from anyio import CapacityLimiter, move_on_after, to_thread
from fastapi import APIRouter, Header, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from hesrpt.errors import InputError
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.jobs.text import describe_value
from hesrpt.service import api_examples
from hesrpt.service.answers import answer
from hesrpt.service.event_stream import StreamLimit
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
from hesrpt.service.job_views import (
    MAX_PAGE,
    JobDescriber,
    JobQuery,
    Sorting,
    list_failures,
    list_hooks,
    list_page,
)
from hesrpt.service.path_names import Name
from hesrpt.service.submissions import Submissions
from hesrpt.storage.journal_entries import RequestKind
from hesrpt.validation import check_positive

#: The longest key that keeps a request from being obeyed twice.
MAX_KEY = 200
# How many requests to add jobs are read at a time, and for how long each.
_READERS, _READ_SECONDS = CapacityLimiter(16), READ_SECONDS + 5

Offset = Annotated[int, Query(ge=0)]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]


def create_job_routes(queue: JobQueue, streams: StreamLimit) -> APIRouter:
    """Create the routes below ``/jobs``."""
    router = APIRouter(tags=["jobs"])
    submissions = Submissions(queue)

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
        jobs = await submissions.add(specs, idempotency_key, compute_digest(body))
        describer = JobDescriber(queue)
        return answer({"jobs": [describer.describe(job) for job in jobs]}, 201)

    @router.patch("/jobs", summary="Pause or resume all jobs", **api_examples.CHANGE_ALL)
    async def change_all(request: Request) -> Response:
        content = read_object(await request.body())
        kind, _ = _read_change(content, only_pauses=True)

        def change() -> Response:
            return answer({"jobs": list(queue.change_all(kind, lambda job: True))})

        return await run_in_threadpool(change)

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


def _read_change(
    content: dict[str, Any], *, only_pauses: bool = False
) -> tuple[RequestKind, float | None]:
    """Return what a request asks for, and the weight if it is one."""
    keys = ("paused",) if only_pauses else ("paused", "weight", "retry")
    if len(content) != 1 or next(iter(content)) not in keys:
        raise InputError(f"exactly one of these keys is needed: {', '.join(keys)}")
    ((key, value),) = content.items()
    if key == "weight":
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"weight must be a number greater than 0, got {describe_value(value)}")
        return "weight", check_positive("weight", float(value))
    if not isinstance(value, bool) or (key == "retry" and not value):
        expected = "true" if key == "retry" else "true or false"
        raise InputError(f"{key} must be {expected}, got {describe_value(value)}")
    if key == "retry":
        return "retry", None
    return ("pause" if value else "resume"), None
