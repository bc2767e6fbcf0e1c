"""Clients that would stop a service, at a low limit on open files: a job that runs ends as done."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from support.served_queue import serve_queue
from support.service_process import ServiceProcess
from support.waiting import wait_until

from hesrpt.service import job_requests
from hesrpt.service.connections import MAX_HEADERS

_DESCRIPTORS = 256
_START = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({_DESCRIPTORS}, {_DESCRIPTORS}))
from hesrpt.service import connections
connections.HEADER_SECONDS = connections.BODY_SECONDS = connections.WRITE_SECONDS = 1.0
from hesrpt.cli.main import main
main()
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    state = tmp_path_factory.mktemp("service") / "state"
    program = (sys.executable, "-c", _START)
    process = ServiceProcess(state, "--read-only-token", program=program)
    try:
        process.client.add("sleep 0.02 # {item}", name="work", items=list(range(100)), retries=0)
        yield process
        # Nothing of all this has stopped the service or its job.
        assert process.client.wait("work", timeout=60)[0].state == "done"
        assert process.process.poll() is None
    finally:
        process.close()


def connect(service: ServiceProcess, text: str = "") -> socket.socket:
    parts = urlsplit(service.url)
    connection = socket.create_connection((parts.hostname, parts.port), 30)
    with suppress(ConnectionError):  # it may be refused before it is sent
        connection.sendall(text.encode())
    return connection


def read_status(connection: socket.socket) -> str:
    """Return the status of an answer; an empty text if the connection is closed without one."""
    try:
        return connection.recv(12).decode().removeprefix("HTTP/1.1 ")
    except ConnectionResetError:
        return ""


def get_token(service: ServiceProcess, name: str) -> str:
    return (service.state / name).read_text().strip()


def test_idle_connections_keep_nobody_out_and_are_closed(service: ServiceProcess) -> None:
    idle = [connect(service) for _ in range(2 * _DESCRIPTORS)]
    assert service.client.jobs()[0].name == "work"
    descriptors = f"/proc/{service.process.pid}/fd"
    if os.path.isdir(descriptors):
        assert len(os.listdir(descriptors)) < _DESCRIPTORS - 64
    assert {read_status(each) for each in idle} <= {"", "408"}
    for each in idle:
        each.close()


def test_long_headers_and_endless_trailers_are_refused(service: ServiceProcess) -> None:
    line = "x" * (2 * MAX_HEADERS)
    with connect(service, f"GET / HTTP/1.1\r\nHost: localhost\r\nX: {line}") as connection:
        assert read_status(connection) == "431"
    bearer = f"Authorization: Bearer {get_token(service, 'token')}"
    head = f"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\n{bearer}\r\n"
    trailer = f"{head}Transfer-Encoding: chunked\r\n\r\n0\r\nX: {10 * line}"
    with connect(service, trailer) as connection:
        assert read_status(connection) in (
            "431",
            "",
        )  # not 408: it had time left


def test_slow_requests_are_given_up(service: ServiceProcess) -> None:
    bearer = f"Authorization: Bearer {get_token(service, 'token')}"
    head = f"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\n{bearer}\r\n"
    for text in ("GET / HT", f"{head}Content-Length: 9\r\n\r\n{{"):
        with connect(service, text) as connection:
            assert read_status(connection) == "408"


def test_a_flood_of_pipelined_requests_is_refused(service: ServiceProcess) -> None:
    text = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5000
    received = b""
    with connect(service, text) as connection, suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            received += piece
    assert received.count(b"HTTP/1.1 200") < 500


@pytest.mark.parametrize("path", ["events", "jobs/long/logs?follow=1"])
def test_streams_of_readers_leave_some_to_the_owner(service: ServiceProcess, path: str) -> None:
    bearer = f"Authorization: Bearer {get_token(service, 'read-token')}"
    text = f"GET /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\n{bearer}\r\n\r\n"
    if "logs" in path:
        service.client.add("sleep 600", name="long")
    streams: list[socket.socket] = []
    statuses: list[str] = []
    while "429" not in statuses and len(streams) < 100:
        streams.append(connect(service, text))
        statuses.append(read_status(streams[-1]))
    assert statuses.count("200") == (_DESCRIPTORS - 64 - 16) // 2 // 2 // 2
    assert statuses[-1] == "429"
    assert next(service.client.events())["servers"]
    for each in streams:
        each.close()


def test_items_are_read_within_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_requests, "READ_SECONDS", 0.5)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "lines").write_text("a\nb\n")
    (tmp_path / "link").symlink_to(tmp_path / "lines")
    with serve_queue(tmp_path / "state") as served:

        def post(items: object) -> httpx.Response:
            job = {"command": "true {item}", "items": items}
            return served.connect().post("/api/v1/jobs", json=job)

        for name in (str(tmp_path / "fifo"), "/dev/zero", "/proc/self/status"):
            answer = post({"lines": name})
            assert answer.status_code == 422
            assert "not a regular file on a disk" in answer.json()["detail"]
        began = time.monotonic()
        endless = post("/**/no-such-name")
        assert "took longer than 0.5 s" in endless.json()["detail"]
        assert time.monotonic() - began < 30
        monkeypatch.setattr(job_requests, "READ_SECONDS", 30.0)
        assert post({"lines": str(tmp_path / "link")}).json()["jobs"][0]["items"] == 2
        assert post(f"{tmp_path}/li*").json()["jobs"][0]["items"] == 2
        ranges = [{"command": "true {item}", "items": {"range": [600_000]}}] * 2
        many = served.connect().post("/api/v1/jobs", json={"jobs": ranges})
        assert "of one request can have at most 1,000,000 items" in many.json()["detail"]


def test_refused_jobs_leave_nothing_behind(tmp_path: Path) -> None:
    state = tmp_path / "state"
    refused = [
        {"command": "true", "after": ["nobody"], "group": "g"},
        {"command": "true", "servers": 99, "group": "g", "on_end": "true"},
        {"command": "true", "resources": {"gpu": 9}, "group": "g"},
        {"jobs": [{"command": "true", "name": "a"}, {"command": "true", "servers": 99}]},
    ]
    for _ in range(2):
        with serve_queue(state) as served:
            for number, job in enumerate(refused):
                headers = {"Idempotency-Key": f"key {number}"}
                answer = served.connect(**headers).post("/api/v1/jobs", json=job)
                assert answer.status_code in (409, 422), answer.text
            assert served.client.jobs() == []
            assert served.queue.list_groups() == {}
            wait_until(lambda: served.queue.journal.requests.read() == [])


def test_nobody_tries_more_tokens_by_claiming_other_addresses(service: ServiceProcess) -> None:
    statuses = set()
    for number in range(250):
        claim = {"Authorization": "Bearer wrong", "X-Forwarded-For": f"10.0.0.{number}"}
        statuses.add(httpx.get(f"{service.url}api/jobs", headers=claim).status_code)
        if 429 in statuses:
            break
    assert statuses == {401, 429}
