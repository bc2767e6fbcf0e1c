"""The documents of the service: their commands run, and their tables agree with the code."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from support.paths import ROOT
from support.served_queue import ServedQueue
from support.service_process import start_service
from support.shell import call
from support.waiting import wait_until

from hesrpt.jobs.schema import COMMAND_FIELDS
from hesrpt.service.answers import JobDetails, Problem, RunChange
from hesrpt.service.app import create_routes
from hesrpt.service.event_stream import EventStream, StreamLimit
from hesrpt.service.schedule_view import ComparisonCache

_GUIDE = (ROOT / "docs" / "how-to" / "one-queue-for-a-team.md").read_text()
_REFERENCE = (ROOT / "docs" / "reference" / "http-api.md").read_text()


def find_block(language: str, word: str) -> str:
    """Return the block of a language that contains a word."""
    blocks = re.findall(rf"```{language}\n(.*?)```", _GUIDE, re.DOTALL)
    (found,) = [block for block in blocks if word in block]
    return str(found)


@pytest.mark.slow
def test_the_commands_of_the_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = f"{sys.executable} -m hesrpt"
    with start_service(tmp_path / "s") as service:
        monkeypatch.setenv("HESRPT_URL", service.url)
        script = re.sub(r"\bhesrpt (?=[a-z])", f"{program} ", find_block("sh", "hesrpt wait"))
        done = subprocess.run(
            ["sh", "-e", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr + done.stdout
        assert "squares: done\nlines: done\nreport: done\n" in done.stdout
        assert "item 2 ('3')\n9\n" in done.stdout
        for line in find_block("sh", "hesrpt pause").splitlines():
            words = shlex.split(line, comments=True)[1:]
            if not {"--watch", "-f"} & set(words):  # those go on until Ctrl-C
                said = call(*words, cwd=tmp_path)
                assert said.returncode == 0, (line, said.stderr + said.stdout)
        assert not any(group["paused"] for group in service.client.groups())
        example = find_block("python", "hesrpt.Client")
        printed = subprocess.run(
            [sys.executable, "-c", example], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        assert printed[:3] == ["done", "a", ""]


def test_the_reference_lists_exactly_the_routes(served: ServedQueue) -> None:
    document = served.connect().get("/api/v1/openapi.json").json()
    routes = {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }
    listed = set(re.findall(r"^\| `(GET|POST|PATCH|DELETE) (\S+)` \|", _REFERENCE, re.MULTILINE))
    assert listed == routes


def test_examples_of_requests_are_accepted(served: ServedQueue) -> None:
    document = served.connect().get("/api/v1/openapi.json").json()
    assert "cdn" not in str(document).lower()
    post = document["paths"]["/api/v1/jobs"]["post"]
    (content,) = post["requestBody"]["content"].values()
    assert set(content["schema"]["properties"]) == {field.name for field in COMMAND_FIELDS}
    for example in content["examples"].values():
        answer = served.connect().post("/api/v1/jobs", json=example["value"])
        assert answer.status_code == 201, answer.text


async def read_first_event(events: EventStream) -> bytes:
    return await anext(events.watch("owner"))


def check_answer(model: Any, answer: str, place: str) -> None:
    """Check that a JSON object has exactly the keys of a model, with values of their types."""
    adapter, content = TypeAdapter(model), json.loads(answer)
    assert adapter.dump_python(adapter.validate_json(answer), mode="json") == content, place


def test_answers_are_of_the_types_that_are_described(served: ServedQueue) -> None:
    queue, client = served.queue, served.connect()
    failed = served.add("false", retries=0, name="failed", on_end="exit 3")
    served.client.wait(failed, timeout=60)
    for name, group in (("shown", "shown"), ("other", "others")):
        command = "test {item} = a || sleep 60; echo {item}"
        served.add(command, items=["a", "b"], name=name, group=group, max_servers=1)
    wait_until(lambda: served.client.info("shown").done == 1)
    wait_until(lambda: bool(served.client.servers()["failed_hooks"]))
    # What the requests need besides their paths.
    needed: dict[tuple[str, str], dict[str, Any]] = {
        ("GET", "/jobs"): {"params": {"failures": True}},
        ("POST", "/jobs"): {"json": {"command": "true"}},
        ("PATCH", "/jobs"): {"json": {"paused": False}},
        ("PATCH", "/jobs/{name}"): {"json": {"weight": 2}},
        ("GET", "/jobs/{name}/logs"): {"params": {"format": "json"}},
        ("PATCH", "/groups/{name}"): {"json": {"weight": 2, "paused": True}},
    }
    events = EventStream(queue)
    app = create_routes(queue, events, ComparisonCache(queue.directory), StreamLimit())
    routes = [
        (method, route)
        for route in app.routes
        if isinstance(route, APIRoute) and route.include_in_schema
        for method in route.methods or ()
    ]
    routes.sort(key=lambda each: each[0] == "DELETE")
    document = app.openapi()
    for method, route in routes:
        if route.path == "/api/v1/events":
            text = asyncio.run(read_first_event(events)).decode()
            check_answer(RunChange, text.split("data: ")[1], route.path)
            continue
        name = "other" if method == "DELETE" and "groups" not in route.path else "shown"
        more = needed.get((method, route.path.removeprefix("/api/v1")), {})
        received = client.request(method, route.path.replace("{name}", name), **more)
        assert received.is_success, (method, route.path, received.text)
        shown = document["paths"][route.path][method.lower()]["responses"]
        described = shown[str(route.status_code or 200)]["content"]
        assert list(described) == [received.headers["content-type"]], route.path
        if route.path != "/metrics":
            check_answer(route.response_model, received.text, route.path)
    for name in (failed, "other"):
        check_answer(JobDetails, client.get(f"/api/v1/jobs/{name}").text, name)
    for path in ("nothing", "jobs/nobody", "jobs?limit=0"):
        check_answer(Problem, client.get(f"/api/v1/{path}").text, path)
