"""Starts, serves and stops: the scheduler in a thread, the web server in this one, signals."""

from __future__ import annotations

import gc
import logging
import shlex
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import uvicorn

from hesrpt.decisions.core import warm_up
from hesrpt.errors import InputError
from hesrpt.files import write_text
from hesrpt.pool.batch_run import RunOptions
from hesrpt.service.app import create_app
from hesrpt.service.auth import AccessRules, read_or_create_token
from hesrpt.service.client import TOKEN_FILE, URL_FILE
from hesrpt.service.connections import ConnectionLimits, LimitedServer
from hesrpt.service.event_stream import EventStream, StreamLimit
from hesrpt.service.job_queue import JobQueue
from hesrpt.service.schedule_view import ComparisonCache
from hesrpt.units import format_count

_LOG = logging.getLogger("hesrpt")

OnStop = Literal["drain", "stop"]
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
# A thread that needs Python's lock gets it after this many seconds, so that no item waits long.
_SWITCH_SECONDS = 0.0005
# How long after the start to load what the policy needs for many jobs, in seconds.
_WARM_UP_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """Where a service listens, whom it trusts, and how it ends."""

    run: RunOptions
    host: str = "127.0.0.1"
    port: int = 8642
    certfile: Path | None = None
    keyfile: Path | None = None
    is_insecure: bool = False
    allowed_hosts: Sequence[str] = ()
    has_read_token: bool = False
    on_stop: OnStop = "drain"
    drain_timeout: float = 60.0

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise InputError(f"--port must be from 0 to 65535, got {self.port}")
        if (self.certfile is None) != (self.keyfile is None):
            raise InputError("--certfile and --keyfile need each other")
        for file in (self.certfile, self.keyfile):
            if file is not None and not file.is_file():
                raise InputError(f"{file}: does not exist; a file in PEM format was expected")
        if self.host not in _LOOPBACK and self.certfile is None and not self.is_insecure:
            raise InputError(
                f"--host {self.host} would send the token over the network in clear; give "
                "--certfile and --keyfile, or accept that with --insecure"
            )

    @property
    def state(self) -> Path:
        """The state directory."""
        assert self.run.state is not None
        return self.run.state


class WebService:
    """A scheduler with a web server in front of it."""

    def __init__(self, options: ServiceOptions) -> None:
        self.options = options
        with ExitStack() as on_error:
            self._socket = on_error.enter_context(_listen(options.host, options.port))
            self.queue = on_error.enter_context(closing(JobQueue(options.run)))
            self._server = self._create_server()
            on_error.pop_all()
        self._has_signal = False
        self._notify: Callable[[str], None] = lambda line: None

    def _create_server(self) -> LimitedServer:
        options = self.options
        self.token = read_or_create_token(options.state / TOKEN_FILE)
        self.read_token = None
        if options.has_read_token:
            self.read_token = read_or_create_token(options.state / "read-token")
        is_local = options.host in _LOOPBACK
        names = {options.host, *options.allowed_hosts}
        if not is_local:
            names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        rules = AccessRules(
            owner_token=self.token,
            read_token=self.read_token,
            allowed_hosts={name.lower() for name in names},
            allows_addresses=not is_local,
            is_secure=options.certfile is not None,
        )
        self._events = EventStream(self.queue)
        self._comparisons = ComparisonCache(options.state)
        self.queue.continue_jobs()
        limits = ConnectionLimits.choose(self.queue.pool.servers)
        streams = StreamLimit(limits.most // 2)
        config = uvicorn.Config(
            create_app(self.queue, rules, self._events, self._comparisons, streams),
            ssl_certfile=options.certfile,
            ssl_keyfile=options.keyfile,
            access_log=False,  # addresses may contain the token
            log_level="error",  # anybody can cause warnings, with requests that make no sense
            server_header=False,
            ws="none",
            proxy_headers=False,  # clients could claim to be others
            timeout_graceful_shutdown=5,
        )
        return LimitedServer(config, self._socket, limits, self._handle_signal)

    @property
    def port(self) -> int:
        """The port, which the system has chosen if port 0 was asked for."""
        return int(self._socket.getsockname()[1])

    def get_url(self, token: str | None = None) -> str:
        """Return the address of the page; with a token, it opens without further questions."""
        host = self.options.host
        if host in ("0.0.0.0", "::"):
            host = socket.gethostname()
        scheme = "http" if self.options.certfile is None else "https"
        place = f"[{host}]" if ":" in host else host
        return f"{scheme}://{place}:{self.port}/" + ("" if token is None else f"?token={token}")

    def run(
        self,
        on_start: Callable[[], None] = lambda: None,
        notify: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Serve until a signal or a failed scheduler ends it; ``notify`` is told about signals."""
        self._notify = notify
        sys.setswitchinterval(_SWITCH_SECONDS)
        watcher = threading.Thread(target=self._watch_scheduler, daemon=True)
        policy, servers = self.options.run.policy, self.queue.pool.servers
        warm_up_timer = threading.Timer(_WARM_UP_SECONDS, warm_up, (policy, servers))
        try:
            watcher.start()
            warm_up_timer.start()
            write_text(self.options.state / URL_FILE, f"{self.get_url()}\n")
            on_start()
            gc.freeze()  # what was loaded stays, and searches for garbage stop all threads
            self._server.run()
        finally:
            gc.unfreeze()
            warm_up_timer.cancel()
            self._stop_serving()
            self._comparisons.close()
            self.queue.close()
        self.queue.driver.raise_failure()
        notify("stopped; the next start goes on")

    def _watch_scheduler(self) -> None:
        """Stop if the scheduler fails, so that whoever started the service can start it again."""
        self.queue.driver.join()
        self._stop_serving()

    def _stop_serving(self) -> None:
        self.queue.is_closed = True
        self._events.close_soon()  # they would never end
        self._server.should_exit = True

    def _handle_signal(self) -> None:
        """Drain or stop; a second signal stops at once."""
        if self._has_signal or self.options.on_stop == "stop":
            self._stop_serving()
        else:
            self._has_signal = True
            threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self) -> None:
        items = format_count(self.queue.count_running_items(), "item")
        wait = f"waits up to {self.options.drain_timeout:g} s for {items}"
        self._notify(f"stopping: {wait}; a second signal stops at once")
        if not self.queue.drain(self.options.drain_timeout):
            _LOG.warning("hesrpt: items are still running; they run again at the next start")
        self._stop_serving()


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens, or raise an error that says why that is impossible."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(512)
    except OSError as error:
        listener.close()
        raise InputError(f"cannot listen on {host}, port {port}: {error.strerror}") from None
    return listener


# --- a systemd user unit that keeps the service running -------------------------------------------

_UNIT = """\
# Save as ~/.config/systemd/user/hesrpt.service (mkdir -p ~/.config/systemd/user), then:
#   systemctl --user enable --now hesrpt
#   loginctl enable-linger        # run without a login session
[Unit]
Description=hesrpt: one queue for this machine

[Service]
ExecStart={command}
WorkingDirectory={directory}
Restart=on-failure
RestartSec=2
KillMode=mixed
TimeoutStopSec={timeout}
PrivateTmp=no
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""


def write_unit(command: Sequence[str], directory: str, drain_timeout: float) -> str:
    """Return the unit that runs a command; a stop may take as long as draining does."""
    words = [word.replace("%", "%%").replace("$", "$$") for word in command]
    return _UNIT.format(
        command=shlex.join(words),
        directory=directory.replace("%", "%%"),
        timeout=int(drain_timeout) + 30,
    )
