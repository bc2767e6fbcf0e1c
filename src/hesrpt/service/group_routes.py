"""The routes of groups: to list, weigh, pause and resume them, and to cancel their jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from hesrpt.errors import InputError
from hesrpt.jobs.groups import Group
from hesrpt.jobs.text import describe_value
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.service import api_examples
from hesrpt.service.answers import answer
from hesrpt.service.job_queue import JobQueue, UnknownJobError
from hesrpt.service.job_requests import read_object
from hesrpt.service.path_names import Name
from hesrpt.storage.journal_entries import JobRecord
from hesrpt.units import format_count
from hesrpt.validation import check_positive


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
        return await run_in_threadpool(_change, queue, name, content)

    @router.delete(
        "/groups/{name}", summary="Cancel the jobs of a group", **api_examples.CANCEL_GROUP
    )
    def cancel_group(name: Name) -> Response:
        _find(queue, name)
        cancelled = list(queue.change_all("cancel", lambda job: job.spec.group == name))
        return answer(
            {"jobs": cancelled, "text": f"cancelled {format_count(len(cancelled), 'job')}"}
        )

    return router


def _find(queue: JobQueue, name: str) -> Group:
    group = queue.list_groups().get(name)
    if group is None:
        raise UnknownJobError(f"there is no group {name!r}")
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


def _change(queue: JobQueue, name: str, content: dict[str, Any]) -> Response:
    _find(queue, name)
    weight, is_paused = content.get("weight", 1.0), content.get("paused", False)
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        raise InputError(f"weight must be a number greater than 0, got {describe_value(weight)}")
    if not isinstance(is_paused, bool):
        raise InputError(f"paused must be true or false, got {describe_value(is_paused)}")
    words = []
    if "paused" in content:
        words.append(queue.change_group(name, "pause" if is_paused else "resume"))
    if "weight" in content:
        weight = check_positive("weight", float(weight))
        words.append(queue.change_group(name, "weight", weight))
    group = _describe(queue, name, _find(queue, name))
    return answer({"group": group, "text": ", and ".join(words)})
