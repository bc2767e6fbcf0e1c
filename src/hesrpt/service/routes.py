"""The routes of the API: those of jobs, of groups, and of the run as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from anyio import CapacityLimiter, move_on_after, to_thread
from fastapi import APIRouter, Header, Path, Query, Request
from pydantic import AfterValidator
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from hesrpt.errors import InputError
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.jobs.job_view import STATES
from hesrpt.jobs.schema import COMMAND_FIELDS, Field
from hesrpt.jobs.text import describe_value
from hesrpt.reports.inspection import MAX_TAIL, list_logs, read_log_ends
from hesrpt.scheduler.requests import RequestResult, UnknownTargetError
from hesrpt.service import answers
from hesrpt.service.answers import answer
from hesrpt.service.event_stream import EventStream, StreamLimit, follow_logs, show_output
from hesrpt.service.job_queue import JobQueue, KnownJob
from hesrpt.service.job_requests import READ_SECONDS, read_jobs, read_object
from hesrpt.service.schedule_view import ComparisonCache, show_schedule
from hesrpt.service.views import (
    MAX_PAGE,
    METRICS_TYPE,
    Sorting,
    count_states,
    is_wanted,
    list_groups,
    list_items,
    show_servers,
    sort_jobs,
    view_fully,
    view_jobs,
    write_metrics,
)
from hesrpt.storage.journal_entries import RequestKind
from hesrpt.units import format_count
from hesrpt.validation import check_positive

# --- jobs: to list, add and change them, and to read what they print ----------------------------

# How many requests to add jobs are read at a time, and for how long each.
_READERS, _READ_SECONDS = CapacityLimiter(16), READ_SECONDS + 5

Offset = Annotated[int, Query(ge=0, lt=2**62)]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]


def restore_name(text: str) -> str:
    """Return the name in a path, after the routing."""
    return re.sub("%(2[Ff]|25)", lambda found: unquote(found[0]), text)


#: A name in the path of a route; it may contain slashes (see :func:`app.keep_encoded_slashes`).
Name = Annotated[str, Path(description="Percent-encoded."), AfterValidator(restore_name)]


def _describe_body(fields: Iterable[Field] = (), **examples: Any) -> dict[str, Any]:
    """Return what describes the body of a request, with its keys and with examples."""
    shown = {name.replace("_", " "): {"value": value} for name, value in examples.items()}
    schema: dict[str, Any] = {"type": "object"}
    if fields:
        schema["properties"] = {each.name: {"description": each.expected} for each in fields}
    content = {"application/json": {"schema": schema, "examples": shown}}
    return {"requestBody": {"required": True, "content": content}}


def _describe_text(media_type: str) -> dict[str, Any]:
    """Return what describes a route that does not answer JSON."""
    content = {media_type: {"schema": {"type": "string"}}}
    description = {"description": "Successful Response", "content": content}
    return {"response_class": Response, "responses": {200: description}}


_JOBS_TO_ADD = {
    "a_command": {"command": ["sleep", "0.1"], "name": "nap"},
    "a_command_for_each_item": {
        "command": "echo {item}",
        "items": ["a", "b"],
        "group": "nightly",
        "weight": 2,
    },
    "several_jobs": {
        "jobs": [
            {"name": "fetch", "command": "true"},
            {"name": "use", "command": "true", "after": ["fetch"], "max_servers": 4},
        ]
    },
}


def create_job_routes(queue: JobQueue, streams: StreamLimit) -> APIRouter:
    """Create the routes below ``/jobs``."""
    router = APIRouter(tags=["jobs"])

    def change(name: str, kind: RequestKind, weight: float | None = None) -> Response:
        text = queue.change(name, kind, weight)
        return answer(
            answers.ChangedJob(job=view_jobs(queue, [queue.find_job(name)])[0], text=text)
        )

    @router.get("/jobs", summary="List jobs", response_model=answers.JobPage)
    def list_jobs(
        offset: Offset = 0,
        limit: Limit = 50,
        state: str = "",
        group: str | None = None,
        search: str = "",
        sort: Sorting = "arrived",
        order: Literal["asc", "desc"] = "desc",
        failures: bool = False,
    ) -> Response:
        states = [part for part in state.split(",") if part]
        if unknown := [part for part in states if part not in STATES]:
            raise InputError(f"state must be one of {', '.join(STATES)}, got {unknown[0]!r}")
        jobs: list[KnownJob] = [*queue.list_jobs(), *queue.list_submitted()]
        found = [job for job in jobs if is_wanted(job, states, group, search)]
        sort_jobs(found, sort, queue.driver.recall_ends(), descending=order == "desc")
        page = view_jobs(queue, found[offset : offset + limit], lists_failures=failures)
        return answer(answers.JobPage(jobs=page, total=len(found), counts=count_states(jobs)))

    @router.post(
        "/jobs",
        summary="Add jobs",
        status_code=201,
        response_model=answers.AddedJobs,
        openapi_extra=_describe_body(COMMAND_FIELDS, **_JOBS_TO_ADD),
    )
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
        digest = blake2b(body, digest_size=16).hexdigest()
        jobs = await queue.add(specs, idempotency_key, digest)
        return answer(answers.AddedJobs(jobs=view_jobs(queue, jobs)), 201)

    @router.patch(
        "/jobs",
        summary="Pause or resume all jobs",
        response_model=answers.ChangedJobs,
        openapi_extra=_describe_body(pause={"paused": True}),
    )
    async def change_all(request: Request) -> Response:
        content = read_object(await request.body())
        kind, _ = _read_change(content, only_pauses=True)
        results = await run_in_threadpool(queue.change_chosen, kind)
        return answer(answers.ChangedJobs(jobs=_list_changed(results)))

    @router.post(
        "/changes",
        summary="Change several jobs",
        response_model=answers.ChangeResults,
        openapi_extra=_describe_body(
            these_jobs={"kind": "retry", "jobs": ["letters"]},
            a_group={"kind": "weight", "group": "nightly", "weight": 2},
            all_jobs={"kind": "pause"},
        ),
    )
    async def change_chosen(request: Request) -> Response:
        change = _read_chosen(read_object(await request.body()))
        results = await run_in_threadpool(queue.change_chosen, **change)
        shown = [
            answers.ChangeResult(job=each.job, text=each.text, refused=each.is_refused)
            for each in results
        ]
        return answer(answers.ChangeResults(results=shown))

    @router.get(
        "/jobs/{name}/items", summary="List the items of a job", response_model=answers.ItemPage
    )
    def show_items(name: Name, offset: Offset = 0, limit: Limit = 100) -> Response:
        return answer(list_items(queue, queue.find_job(name), offset, limit))

    @router.get(
        "/jobs/{name}/logs", summary="Read what a job has printed", response_model=answers.JobLogs
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
        return await run_in_threadpool(read_output, name, item, tail, form)

    def read_output(name: str, item: int | None, tail: int, form: str) -> Response:
        queue.find_job(name)
        logs = list_logs(queue.directory, name, item)
        outputs = read_log_ends(logs, tail)
        if form == "json":
            return answer(answers.JobLogs(items=list(map(show_output, outputs))))
        parts: list[bytes] = []
        for _, title, content in outputs:
            parts += [f"--- {name}, {title}\n".encode() if len(logs) > 1 else b"", content]
        return Response(b"".join(parts), media_type="text/plain; charset=utf-8")

    @router.get("/jobs/{name}", summary="Show a job", response_model=answers.JobDetails)
    def show_job(name: Name, request: Request) -> Response:
        return answer(view_fully(queue, queue.find_job(name), request.state.access))

    @router.patch(
        "/jobs/{name}",
        summary="Pause, resume, retry or weigh a job",
        response_model=answers.ChangedJob,
        openapi_extra=_describe_body(
            pause={"paused": True}, weight={"weight": 2}, retry={"retry": True}
        ),
    )
    async def change_job(name: Name, request: Request) -> Response:
        kind, weight = _read_change(read_object(await request.body()))
        return await run_in_threadpool(change, name, kind, weight)

    @router.delete("/jobs/{name}", summary="Cancel a job", response_model=answers.ChangedJob)
    def cancel_job(name: Name) -> Response:
        return change(name, "cancel")

    return router


def _read_chosen(content: dict[str, Any]) -> dict[str, Any]:
    """Return which change of which jobs a request asks for."""
    kinds = ("cancel", "pause", "resume", "retry", "weight")
    if unknown := [key for key in content if key not in ("kind", "jobs", "group", "weight")]:
        raise InputError(f"unknown key {unknown[0]!r}; the keys are: kind, jobs, group, weight")
    kind, names, group = content.get("kind"), content.get("jobs"), content.get("group")
    if kind not in kinds:
        raise InputError(f"kind must be one of {', '.join(kinds)}, got {describe_value(kind)}")
    if names is not None and not (
        isinstance(names, list) and names and all(isinstance(name, str) for name in names)
    ):
        raise InputError(
            f"jobs must be a list of one or more names, got {describe_value(names)}; without the "
            "key, all jobs are meant"
        )
    if names is not None and group is not None:
        raise InputError("give either jobs or a group, not both")
    if group is not None and not isinstance(group, str):
        raise InputError(f"group must be a name, got {describe_value(group)}")
    if (kind == "weight") != (content.get("weight") is not None):
        raise InputError('weight must be given with kind "weight", and only then')
    weight = _check_weight(content["weight"]) if kind == "weight" else None
    return {"kind": kind, "names": names or [], "group": group, "weight": weight}


def _list_changed(results: Sequence[RequestResult]) -> list[str]:
    """Return the names of the jobs that were changed."""
    return [each.job for each in results if not each.is_refused]


def _check_weight(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"weight must be a number greater than 0, got {describe_value(value)}")
    return check_positive("weight", value)


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

    @router.get("/groups", summary="List the groups of jobs", response_model=answers.GroupList)
    def show_groups() -> Response:
        return answer(answers.GroupList(groups=list_groups(queue)))

    @router.get("/groups/{name}", summary="Show a group of jobs", response_model=answers.ShownGroup)
    def show_group(name: Name) -> Response:
        return answer(_find_group(queue, name))

    @router.patch(
        "/groups/{name}",
        summary="Pause, resume or weigh a group of jobs",
        response_model=answers.ChangedGroup,
        openapi_extra=_describe_body(pause_and_weigh={"paused": True, "weight": 2}),
    )
    async def change_group(name: Name, request: Request) -> Response:
        content = read_object(await request.body())
        unknown = [key for key in content if key not in ("paused", "weight")]
        if unknown or not content:
            raise InputError("the keys of a group are: paused, weight")
        return await run_in_threadpool(_change_group, queue, name, content)

    @router.delete(
        "/groups/{name}",
        summary="Cancel the jobs of a group",
        response_model=answers.CancelledGroup,
    )
    def cancel_group(name: Name) -> Response:
        _find_group(queue, name)
        cancelled = _list_changed(queue.change_chosen("cancel", group=name))
        text = f"cancelled {format_count(len(cancelled), 'job')}"
        return answer(answers.CancelledGroup(jobs=cancelled, text=text))

    return router


def _find_group(queue: JobQueue, name: str) -> answers.ShownGroup:
    for group in list_groups(queue):
        if group["name"] == name:
            return group
    raise UnknownTargetError(f"there is no group {name!r}")


def _change_group(queue: JobQueue, name: str, content: dict[str, Any]) -> Response:
    _find_group(queue, name)
    weight, is_paused = _check_weight(content.get("weight", 1.0)), content.get("paused", False)
    if not isinstance(is_paused, bool):
        raise InputError(f"paused must be true or false, got {describe_value(is_paused)}")
    words = []
    if "paused" in content:
        words.append(queue.change_group(name, "pause" if is_paused else "resume"))
    if "weight" in content:
        words.append(queue.change_group(name, "weight", weight))
    text = ", and ".join(words)
    return answer(answers.ChangedGroup(group=_find_group(queue, name), text=text))


# --- the run: servers, schedule, events, and whether the service is well ------------------------


def create_run_routes(
    queue: JobQueue, events: EventStream, comparisons: ComparisonCache, streams: StreamLimit
) -> APIRouter:
    """Create the routes that are about no single job."""
    router = APIRouter(tags=["run"])

    @router.get(
        "/api/v1/servers",
        summary="Show the servers and the policy",
        response_model=answers.ShownServers,
    )
    def get_servers(request: Request) -> Response:
        return answer(show_servers(queue, request.state.access))

    @router.get(
        "/api/v1/schedule",
        summary="Show the servers held over time",
        response_model=answers.ShownSchedule,
    )
    def get_schedule(
        points: Annotated[int, Query(ge=2, le=2000)] = 400,
        jobs: Annotated[int, Query(ge=1, le=50)] = 8,
    ) -> Response:
        return answer(show_schedule(queue, comparisons, points, jobs))

    @router.get(
        "/api/v1/events",
        summary="Follow changes as server-sent events",
        **_describe_text("text/event-stream"),
    )
    async def follow_events(request: Request) -> Response:
        access = request.state.access
        return streams.stream(events.watch(access), access)

    @router.get("/metrics", summary="Metrics for Prometheus", **_describe_text(METRICS_TYPE))
    def show_metrics() -> Response:
        return Response(write_metrics(queue, events.watchers), media_type=METRICS_TYPE)

    @router.get("/healthz", summary="Say whether the scheduler runs", response_model=answers.Health)
    def check_health() -> Response:
        problem = queue.driver.describe_end()
        return answer(answers.Health(status=problem or "ok"), 503 if problem else 200)

    return router


#: The longest idempotency key, in characters.
MAX_KEY = 200
