"""Examples of requests and answers, which the description of the API shows."""

from __future__ import annotations

from typing import Any

_JOB: dict[str, Any] = {
    "name": "letters",
    "number": 17,
    "state": "running",
    "group": "nightly",
    "after": [],
    "waits_for": [],
    "waits_because": "",
    "done": 1,
    "items": 2,
    "failed": 0,
    "servers": 1,
    "planned": 1,
    "min_servers": 0,
    "max_servers": None,
    "weight": 1.0,
    "resources": {},
    "command": "echo {item}",
    "arrived": 10.2,
    "ended": None,
    "flow_time": None,
    "eta": 3.1,
    "progress": 0.5,
    "error": None,
}
_DETAILS = _JOB | {
    "failures": [],
    "hooks": [],
    "command_full": "echo {item}",
    "cwd": "/home/ada",
    "timeout": None,
    "retries": 1,
    "kind": "letters",
    "size": None,
    "p": None,
}
_COUNTS = {"running": 1, "waiting": 0, "paused": 0, "submitted": 0, "done": 16, "failed": 0}
_JOBS_TO_ADD = {
    "a command": {"value": {"command": ["sleep", "0.1"], "name": "nap"}},
    "a command for each item": {
        "value": {"command": "echo {item}", "items": ["a", "b"], "group": "nightly", "weight": 2}
    },
    "several jobs": {
        "value": {
            "jobs": [
                {"name": "fetch", "command": "true"},
                {"name": "use", "command": "true", "after": ["fetch"], "max_servers": 4},
            ]
        }
    },
}


def _answer(example: Any, status: int = 200) -> dict[int | str, dict[str, Any]]:
    content = {"application/json": {"example": example}}
    return {status: {"description": "Successful Response", "content": content}}


def _body(examples: dict[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": {"type": "object"}, "examples": examples}}
    return {"requestBody": {"required": True, "content": content}}


LIST_JOBS: dict[str, Any] = {
    "responses": _answer({"jobs": [_JOB], "total": 17, "counts": _COUNTS | {"cancelled": 0}})
}
SHOW_JOB: dict[str, Any] = {"responses": _answer(_DETAILS)}
ADD_JOBS: dict[str, Any] = {
    "responses": _answer({"jobs": [_JOB]}, 201),
    "openapi_extra": _body(_JOBS_TO_ADD),
}
CHANGE_JOB: dict[str, Any] = {
    "responses": _answer({"job": _JOB, "text": "now has weight 2"}),
    "openapi_extra": _body(
        {
            "pause": {"value": {"paused": True}},
            "weight": {"value": {"weight": 2}},
            "retry": {"value": {"retry": True}},
        }
    ),
}
CANCEL_JOB: dict[str, Any] = {"responses": _answer({"job": _JOB, "text": "cancelled"})}
CHANGE_ALL: dict[str, Any] = {
    "responses": _answer({"jobs": ["letters"]}),
    "openapi_extra": _body({"pause": {"value": {"paused": True}}}),
}
SHOW_ITEMS: dict[str, Any] = {
    "responses": _answer(
        {
            "items": [{"item": 0, "value": "'a'", "state": "done", "seconds": 0.02, "attempts": 1}],
            "total": 2,
        }
    )
}
SHOW_LOGS: dict[str, Any] = {
    "responses": _answer({"items": [{"item": 0, "title": "item 0 ('a')", "text": "a\n"}]})
}
CHANGE_GROUP: dict[str, Any] = {
    "openapi_extra": _body({"pause and weigh": {"value": {"paused": True, "weight": 2}}})
}
