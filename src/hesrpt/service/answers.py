"""Answers of the API: JSON, and errors as one plain sentence with the right status."""

from __future__ import annotations

import json
import math
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from hesrpt.errors import InputError, StateError
from hesrpt.jobs.text import describe_value
from hesrpt.reports.inspection import UnknownItemError
from hesrpt.scheduler.requests import (
    BusyError,
    ImpossibleJobError,
    RemovedError,
    UnknownTargetError,
)
from hesrpt.service.job_queue import RefusedError, StoppingError

_STATUSES: dict[type[Exception], int] = {
    UnknownTargetError: 404,
    UnknownItemError: 404,
    RefusedError: 409,
    ImpossibleJobError: 409,
    RemovedError: 410,
    StoppingError: 503,
    BusyError: 503,
    StateError: 503,
}


def answer(value: Any, status: int = 200) -> Response:
    """Return a JSON value as an answer."""
    return Response(encode(value), status_code=status, media_type="application/json")


def encode(value: Any) -> bytes:
    """Return a value as JSON, in which numbers that are not finite are null."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_replace_infinite(value), ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace")


def _replace_infinite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _replace_infinite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_infinite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def add_error_handlers(app: FastAPI) -> None:
    """Let errors become answers."""

    def refuse(request: Request, error: Exception) -> Response:
        status = next((code for kind, code in _STATUSES.items() if isinstance(error, kind)), 422)
        return answer({"detail": str(error)}, status)

    def refuse_parameter(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        problem = error.errors()[0]
        name = problem["loc"][-1]
        return answer({"detail": f"{name}: {str(problem['msg']).lower()}"}, 422)

    def pass_on(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = describe_value(request.url.path)
        missing = {404: f"there is nothing at {path}", 405: f"{path} has no {request.method}"}
        detail = error.detail
        if error.detail == HTTPStatus(error.status_code).phrase and error.status_code in missing:
            detail = f"{missing[error.status_code]}; /api/v1/openapi.json describes the API"
        return answer({"detail": detail}, error.status_code)

    def give_up(request: Request, error: Exception) -> Response:
        return Response(status_code=400)  # nobody gets it

    app.add_exception_handler(ClientDisconnect, give_up)
    app.add_exception_handler(InputError, refuse)
    app.add_exception_handler(RequestValidationError, refuse_parameter)
    app.add_exception_handler(HTTPException, pass_on)
