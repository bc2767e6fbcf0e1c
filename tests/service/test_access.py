"""Who may do what: every route without a token, with a wrong one, and with one that only reads."""

from __future__ import annotations

import asyncio
import pickle
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message
from support.served_queue import OWNER, READER, ServedQueue
from support.waiting import wait_until

from hesrpt import InputError, StateError, service
from hesrpt.pool.batch_run import RunOptions
from hesrpt.service.app import create_routes
from hesrpt.service.auth import COOKIE, MAX_BODY, AccessRules, RateLimits, read_or_create_token
from hesrpt.service.event_stream import EventStream, StreamLimit
from hesrpt.service.schedule_view import ComparisonCache
from hesrpt.service.web_service import ServiceOptions


def list_routes(served: ServedQueue) -> Iterator[tuple[str, str]]:
    """Yield the methods and paths of all routes of the application, and of some that are none."""
    queue = served.queue
    app = create_routes(queue, EventStream(queue), ComparisonCache(queue.directory), StreamLimit())
    paths = app.openapi()["paths"]
    assert len(paths) >= 11
    for path, methods in paths.items():
        yield from ((method.upper(), path.replace("{name}", "nothing")) for method in methods)
    for path in ("/", "/page/page.js", "/api/v1/openapi.json", "/docs", "/nowhere"):
        yield from (("GET", path), ("POST", path))


def test_every_route_but_one_needs_a_token(served: ServedQueue) -> None:
    for method, path in list_routes(served):
        answer = served.connect(None).request(method, path)
        if path == "/healthz":
            assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
        else:
            assert answer.status_code == 401, (method, path)
            assert "a token is missing" in answer.text


def test_every_route_refuses_a_wrong_token(served: ServedQueue) -> None:
    for number, (method, path) in enumerate(list_routes(served)):
        if path != "/healthz":
            # A client of its own for each: one that tries many wrong tokens has to wait.
            client = served.connect("wrong" * 5, address=f"10.0.0.{number}")
            answer = client.request(method, path)
            assert answer.status_code == 401, (method, path)
            assert "the token is wrong" in answer.text


def test_a_token_that_only_reads_cannot_write(served: ServedQueue) -> None:
    writes = [each for each in list_routes(served) if each[0] not in ("GET", "HEAD")]
    assert {method for method, _ in writes} == {"POST", "PATCH", "DELETE"}
    assert len(writes) >= 7
    for method, path in writes:
        answer = served.connect(READER).request(method, path, json={"command": "true"})
        assert answer.status_code == 403, (method, path)
        assert answer.json() == {"detail": "this token may only read"}
    assert served.connect(READER).get("/api/v1/jobs").status_code == 200
    assert served.connect(READER).get("/api/v1/servers").json()["access"] == "read"
    assert served.connect(OWNER).get("/api/v1/servers").json()["access"] == "owner"


def test_readers_never_see_what_hooks_call_nor_environments_nor_input(served: ServedQueue) -> None:
    secret = "secret-0123"
    name = served.add(
        "true",
        name="hooked in secret",
        on_end=[f"echo {secret} >&2; exit 7", f"http://127.0.0.1:1/?key={secret}"],
        env={"KEY": secret},
        stdin=secret,
    )

    def is_tried() -> bool:
        return [hook["attempts"] > 0 for hook in served.client.details(name)["hooks"]] == [True] * 2

    wait_until(is_tried)
    paths = [path.replace("nothing", name) for method, path in list_routes(served)]
    for path in dict.fromkeys(paths):
        if path != "/api/v1/events":  # it never ends
            assert secret not in served.connect(READER).get(path).text, path
    hooks = served.connect(READER).get(f"/api/v1/jobs/{name}").json()["hooks"]
    assert [(hook["target"], hook["error"]) for hook in hooks] == [
        (None, "exit code 7"),
        (None, "failed"),
    ]

    async def watch() -> bytes:
        events = EventStream(served.queue).watch("read")
        first = await anext(events)
        await events.aclose()  # type: ignore[attr-defined]
        return first

    told = asyncio.run(watch())
    assert name.encode() in told  # among the hooks that have failed
    assert secret.encode() not in told
    # The owner sees all of it.
    assert [secret in hook["target"] for hook in served.client.details(name)["hooks"]] == [True] * 2
    assert secret in served.connect().get("/api/v1/servers").text


def test_the_token_in_the_address_becomes_a_cookie(served: ServedQueue) -> None:
    client = served.connect(None)
    assert client.get("/?token=wrong-token-0123456789").status_code == 401
    answer = client.get(f"/?token={OWNER}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/api/v1/jobs").status_code == 200  # the client has kept the cookie
    assert served.connect(None).get(f"/api/v1/jobs?token={OWNER}").status_code == 401
    # A browser says where a request comes from.
    job = {"command": "true"}
    assert client.post("/api/v1/jobs", json=job).status_code == 403
    for origin, status in (
        ("http://127.0.0.1:8642", 201),
        ("http://127.0.0.1:8643", 403),
        ("https://127.0.0.1:8642", 403),
        ("http://evil.example", 403),
        ("null", 403),
    ):
        answer = client.post("/api/v1/jobs", json=job, headers={"Origin": origin})
        assert answer.status_code == status, origin
    client.cookies.set(COOKIE, "something else entirely")
    assert client.get("/api/v1/jobs").status_code == 401


def test_browsers_get_a_form_without_data_and_exchange_a_token_for_a_cookie(
    served: ServedQueue,
) -> None:
    served.add("true", name="secret-job")
    client = served.connect(None, Accept="text/html,*/*;q=0.8")
    missing, wrong = client.get("/"), client.get("/?token=wrong-token-0123456789")
    assert (missing.status_code, wrong.status_code) == (401, 401)
    assert "The token is wrong." in wrong.text
    assert "The token is wrong." not in missing.text
    for form in (missing.text, wrong.text):
        assert "{problem}" not in form
        assert "wrong-token-0123456789" not in form
        assert "secret-job" not in form
        files = re.findall(r'"(page/[^"]+)"', form)
        assert len(files) >= 4
        for file in files:
            answer = served.connect(None).get(f"/{file}")
            assert (answer.status_code, "secret-job" in answer.text) == (200, False)
    assert served.connect(None).get("/page/main.js").status_code == 401
    headers = {"Origin": "http://127.0.0.1:8642"}
    assert client.post("/sign-in", headers=headers).status_code == 401
    for token in ("guess", OWNER, READER):
        answer = client.post("/sign-in", headers=headers | {"Authorization": f"Bearer {token}"})
        is_right = token != "guess"
        assert (answer.status_code, answer.text == "") == (204 if is_right else 401, is_right)
        assert ("httponly" in answer.headers.get("set-cookie", "").lower()) == is_right
    assert client.get("/api/v1/servers").json()["access"] == "read"  # by the cookie
    evil = {"Origin": "http://evil.example", "Authorization": f"Bearer {OWNER}"}
    assert client.post("/sign-in", headers=evil).status_code == 403


def test_strangers_domains_and_pages_are_refused(served: ServedQueue) -> None:
    for host, status in (
        ("localhost:8642", 200),
        ("127.0.0.1", 200),
        ("[::1]:8642", 200),
        ("LOCALHOST", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("192.168.0.7:8642", 403),
        ("", 403),
        ("[", 403),
    ):
        answer = served.connect(Host=host).get("/api/v1/servers")
        assert answer.status_code == status, host
    answer = served.connect(Origin="http://evil.example").get("/api/v1/servers")
    assert (answer.status_code, answer.json()["detail"]) == (
        403,
        "the request comes from a page of another site",
    )


def test_addresses_are_allowed_as_hosts_on_a_network_only() -> None:
    rules = AccessRules(owner_token="x" * 20, allowed_hosts=["box"], allows_addresses=True)
    assert rules.is_host_allowed("192.168.0.7:8642")
    assert rules.is_host_allowed("[fe80::1]:8642")
    assert rules.is_host_allowed("box:80")
    assert not rules.is_host_allowed("evil.example")


def test_web_sockets_are_closed(served: ServedQueue) -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def connect() -> None:
        await served.app({"type": "websocket", "path": "/api/v1/events"}, receive, send)

    asyncio.run(connect())
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_answers_have_security_headers(served: ServedQueue) -> None:
    for path in ("/healthz", "/api/v1/jobs", "/nowhere"):
        headers = served.connect().get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


def test_large_requests_are_refused(served: ServedQueue) -> None:
    body = b" " * (MAX_BODY + 1)
    answer = served.connect().post("/api/v1/jobs", content=body)
    assert (answer.status_code, answer.json()["detail"]) == (
        413,
        "the request is too large; at most 8 MB are taken",
    )
    pieces = (b" " * (1 << 20) for _ in range(9))  # without a stated length
    assert served.connect().post("/api/v1/jobs", content=pieces).status_code == 413


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.path,)


def test_nothing_that_is_sent_is_unpickled(served: ServedQueue, tmp_path: Path) -> None:
    trap = tmp_path / "unpickled"
    body = pickle.dumps(Trap(trap))
    for method, path in list_routes(served):
        if method in ("POST", "PATCH"):
            answer = served.connect().request(method, path, content=body)
            assert answer.status_code in (404, 405, 422), (method, path)
    assert not trap.exists()
    pickle.loads(body)
    assert trap.exists()
    for module in Path(service.__path__[0]).rglob("*.py"):
        assert "pickle" not in module.read_text(), module


def test_rates_are_limited_but_a_thousand_writes_a_minute_pass() -> None:
    now = 0.0
    limits = RateLimits(lambda: now)
    assert sum(limits.may_write() for _ in range(5000)) == 1000
    for second in range(60):
        now = 100.0 + second
        assert all(limits.may_write() for _ in range(17))
    assert all(limits.may_try_token("10.0.0.1") for _ in range(20))
    assert not limits.may_try_token("10.0.0.1")
    assert limits.may_try_token("10.0.0.2")
    now += 1.5
    assert limits.may_try_token("10.0.0.1")


def test_who_tries_wrong_tokens_has_to_wait(served: ServedQueue) -> None:
    client = served.connect("wrong" * 5, address="10.9.9.9")
    statuses = [client.get("/api/v1/jobs").status_code for _ in range(30)]
    assert statuses[:20] == [401] * 20
    assert statuses[-1] == 429
    shown = client.get("/", headers={"Accept": "text/html"})
    assert (shown.status_code, shown.headers["retry-after"]) == (429, "5")
    assert "Too many wrong tokens; wait a few seconds." in shown.text
    assert 'id="sign-in"' in shown.text
    assert served.connect(address="10.9.9.9").get("/api/v1/jobs").status_code == 200


def test_tokens_are_private_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = read_or_create_token(path)
    assert len(token) > 40
    assert read_or_create_token(path) == token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    read_or_create_token(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("short\n")
    with pytest.raises(StateError, match="contains no token"):
        read_or_create_token(path)


def test_tokens_are_compared_in_full() -> None:
    rules = AccessRules(owner_token="a" * 20)
    assert rules.check_token("a" * 20) == "owner"
    assert rules.check_token("a" * 19) is None
    assert rules.check_token("ä" * 20) is None
    assert rules.check_token("") is None
    assert "aaa" not in repr(rules)


def test_a_network_needs_tls(tmp_path: Path) -> None:
    run = RunOptions(state=tmp_path)
    with pytest.raises(InputError, match=r"--host 0\.0\.0\.0 would send the token .* in clear"):
        ServiceOptions(run=run, host="0.0.0.0")
    with pytest.raises(InputError, match="--certfile and --keyfile need each other"):
        ServiceOptions(run=run, certfile=tmp_path / "cert.pem")
    with pytest.raises(InputError, match="does not exist"):
        ServiceOptions(run=run, certfile=tmp_path / "no.pem", keyfile=tmp_path / "no.pem")
    assert ServiceOptions(run=run, host="0.0.0.0", is_insecure=True).is_insecure
