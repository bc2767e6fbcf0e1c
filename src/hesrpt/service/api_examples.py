"""Examples of requests and answers, which the description of the API shows.

A test compares them with what a service answers.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response

from hesrpt._version import __version__
from hesrpt.service import metrics

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
_COUNTS = {"running": 1, "waiting": 0, "paused": 0, "submitted": 0}
_COUNTS |= {"done": 16, "failed": 0, "cancelled": 0}
_GROUP = {"name": "nightly", "weight": 2.0, "paused": True, "jobs": 9, "active": 1, "servers": 0}
_SERVERS: dict[str, Any] = {
    "servers": 16,
    "held": 12,
    "peak": 16,
    "engine": "local",
    "policy": "adaptive",
    "resources": {"gpu": {"total": 2.0, "free": 1.0}},
    "calibration": {"focus": 0.4, "is_stream": True, "jobs_seen": 17},
    "version": __version__,
    "time": 812.5,
    "stopping": False,
    "failed_hooks": [{"job": "backup", "attempts": 4, "error": "exit code 7: no space left"}],
    "access": "owner",
}
#: How policies compare, as :func:`hesrpt.service.analysis.analyse` finds it.
COMPARISON: dict[str, Any] = {
    "comparison": {
        "measured": 23.4,
        "jobs": 16,
        "policy": "adaptive",
        "simulated": [
            {"policy": "adaptive", "mean_flow_time": 23.1, "margin": 0.4},
            {"policy": "fifo", "mean_flow_time": 48.2, "margin": 1.9},
            {"policy": "equi", "mean_flow_time": 24.0, "margin": 2.2},
        ],
        "reason": None,
    },
    "bound": {"mean_flow_time": 22.0, "ratio": 1.063, "jobs": 16, "reason": None},
}
_SCHEDULE = {
    "times": [0.0, 406.25],
    "series": [{"name": "letters", "servers": [0.0, 1.2]}],
    "others": [11.5, 10.8],
    "capacity": [16.0, 16.0],
    "mean_flow_time": 23.4,
    "ended": 16,
} | COMPARISON
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


def _answer(
    example: Any, status: int = 200, media_type: str = "application/json"
) -> dict[int | str, dict[str, Any]]:
    content = {media_type: {"example": example}}
    return {status: {"description": "Successful Response", "content": content}}


def _answer_text(example: str, media_type: str) -> dict[str, Any]:
    """Return what describes a route that does not answer JSON."""
    return {"response_class": Response, "responses": _answer(example, 200, media_type)}


def _body(examples: dict[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": {"type": "object"}, "examples": examples}}
    return {"requestBody": {"required": True, "content": content}}


LIST_JOBS: dict[str, Any] = {"responses": _answer({"jobs": [_JOB], "total": 17, "counts": _COUNTS})}
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
CHANGE_CHOSEN: dict[str, Any] = {
    "responses": _answer(
        {"results": [{"job": "letters", "text": "runs its failed items again", "refused": False}]}
    ),
    "openapi_extra": _body(
        {
            "these jobs": {"value": {"kind": "retry", "jobs": ["letters"]}},
            "a group": {"value": {"kind": "weight", "group": "nightly", "weight": 2}},
            "all jobs": {"value": {"kind": "pause"}},
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
LIST_GROUPS: dict[str, Any] = {"responses": _answer({"groups": [_GROUP]})}
SHOW_GROUP: dict[str, Any] = {"responses": _answer(_GROUP)}
CHANGE_GROUP: dict[str, Any] = {
    "responses": _answer(
        {"group": _GROUP, "text": "paused, with jobs that come later, and now has weight 2"}
    ),
    "openapi_extra": _body({"pause and weigh": {"value": {"paused": True, "weight": 2}}}),
}
CANCEL_GROUP: dict[str, Any] = {
    "responses": _answer({"jobs": ["letters"], "text": "cancelled 1 job"})
}
SHOW_SERVERS: dict[str, Any] = {"responses": _answer(_SERVERS)}
SHOW_SCHEDULE: dict[str, Any] = {"responses": _answer(_SCHEDULE)}
_CHANGE = {"jobs": [_JOB], "removed": ["old"], "counts": _COUNTS, "servers": _SERVERS}
FOLLOW_EVENTS = _answer_text(
    f"id: 3\nevent: change\ndata: {json.dumps(_CHANGE)}\n\n", "text/event-stream"
)
SHOW_METRICS = _answer_text(
    "# HELP hesrpt_servers_held Servers that jobs hold.\n"
    "# TYPE hesrpt_servers_held gauge\n"
    "hesrpt_servers_held 12\n",
    metrics.MEDIA_TYPE,
)
CHECK_HEALTH: dict[str, Any] = {"responses": _answer({"status": "ok"})}
