"""The routes of Python functions: to send them with the owner's token, and to fetch results."""

from __future__ import annotations

import secrets
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response

from hesrpt.service import api_examples
from hesrpt.service.answers import answer
from hesrpt.service.call_format import MEDIA_TYPE, PackedCalls, pack_results
from hesrpt.service.call_store import CallStore, get_number
from hesrpt.service.job_queue import JobQueue
from hesrpt.service.job_routes import MAX_KEY
from hesrpt.service.job_views import JobDescriber
from hesrpt.service.path_names import Name


def create_call_routes(queue: JobQueue, store: CallStore | None) -> APIRouter:
    """Create the routes; without a store, functions are refused."""
    router = APIRouter(tags=["python"])

    @router.post(
        "/calls",
        summary="Call a Python function with each item",
        status_code=201,
        **api_examples.ADD_CALLS,
    )
    async def add_calls(
        request: Request, idempotency_key: Annotated[str, Header(max_length=MAX_KEY)] = ""
    ) -> Response:
        if store is None:
            raise HTTPException(403, "this service runs commands only (--commands-only)")
        if request.headers.get("content-type", "") != MEDIA_TYPE:
            raise HTTPException(415, f"the body must be {MEDIA_TYPE}, as Client.map sends it")
        body = await request.body()

        def add() -> Response:
            calls = PackedCalls.unpack(body)
            job = store.add(calls, idempotency_key or secrets.token_hex())
            return answer({"jobs": [JobDescriber(queue).describe(job)]}, 201)

        return await run_in_threadpool(add)

    @router.get(
        "/jobs/{name}/results",
        summary="Fetch pickled results of Python items",
        **api_examples.FETCH_RESULTS,
    )
    def fetch_results(
        name: Name,
        offset: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    ) -> Response:
        number = get_number(queue.find_job(name))
        results = list(queue.journal.read_pickled(number, range(offset, offset + limit)))
        return Response(pack_results(results), media_type=MEDIA_TYPE)

    return router
