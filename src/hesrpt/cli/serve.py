"""``hesrpt serve``: one queue for a machine or a cluster, with a web page."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from hesrpt.cli.options import (
    EngineOptions,
    malleable_policy_option,
    option,
    parse_quantity,
    whole_number_option,
)
from hesrpt.display.console import escape
from hesrpt.errors import InputError

if TYPE_CHECKING:
    from hesrpt.scheduler.pruning import Retention
    from hesrpt.service.web_service import WebService

_ACCESS_PANEL = "Access"
_access_option = partial(option, panel=_ACCESS_PANEL)


def serve(
    engine_options: EngineOptions,
    state: Annotated[
        Path,
        option(
            "Keep the queue in this directory. If it holds one already, go on with it.",
            metavar="DIR",
            envvar="HESRPT_STATE",
        ),
    ],
    servers: Annotated[
        int | None,
        whole_number_option(
            "Number of servers. By default, as before, or else all cores of this machine."
        ),
    ] = None,
    policy: Annotated[str | None, malleable_policy_option("as before, or else adaptive")] = None,
    keep: Annotated[
        str | None,
        option(
            "Remove jobs with their output this long after their end, for example 30d.",
            metavar="DURATION",
        ),
    ] = None,
    keep_bytes: Annotated[
        str | None,
        option(
            "Remove the oldest jobs while results and output take more, for example 10GB.",
            metavar="SIZE",
        ),
    ] = None,
    keep_jobs: Annotated[
        int | None, whole_number_option("Keep at most this many jobs that have ended.")
    ] = 10_000,
    on_stop: Annotated[
        Literal["drain", "stop"],
        option(
            "On SIGTERM and Ctrl-C: drain lets running items end, stop stops them. The "
            "next start goes on in either case.",
            metavar="CHOICE",
        ),
    ] = "drain",
    drain_timeout: Annotated[
        float, option("How long to wait for running items.", metavar="SECONDS")
    ] = 60.0,
    host: Annotated[
        str,
        _access_option(
            "Address to listen on. Any but this machine's own needs TLS, or --insecure.",
            metavar="ADDRESS",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        whole_number_option(
            "Port to listen on; 0 chooses a free one.", metavar="PORT", panel=_ACCESS_PANEL
        ),
    ] = 8642,
    certfile: Annotated[
        Path | None, _access_option("Certificate for HTTPS (PEM).", metavar="FILE")
    ] = None,
    keyfile: Annotated[
        Path | None, _access_option("Key of the certificate (PEM).", metavar="FILE")
    ] = None,
    insecure: Annotated[
        bool,
        _access_option(
            "Listen on the network without TLS: others there can read the token.", "--insecure"
        ),
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        _access_option(
            "Further name of this service, such as that of a proxy. Can be repeated.",
            metavar="NAME",
        ),
    ] = None,
    read_only_token: Annotated[
        bool,
        _access_option(
            "Also accept a token that may only look, and print its URL.", "--read-only-token"
        ),
    ] = False,
    print_unit: Annotated[
        bool,
        option("Print a systemd user unit with these options, and start nothing.", "--print-unit"),
    ] = False,
) -> None:
    """Run a queue to which jobs are added at any time, with a web page and an HTTP API.

    It runs until it is stopped. The same command continues after a crash, and nothing is lost. The
    URL that it prints contains the token that lets you in; DIR/token has it too.
    """
    try:
        import fastapi  # noqa: F401 (an optional dependency)
        import uvicorn  # noqa: F401 (an optional dependency)
    except ModuleNotFoundError:
        raise InputError("hesrpt serve needs: pip install 'hesrpt[serve]'") from None
    from hesrpt.pool.batch_run import RunOptions
    from hesrpt.reports.inspection import read_policy
    from hesrpt.service.web_service import ServiceOptions, WebService, write_unit
    from hesrpt.storage.state_directory import holds_run

    earlier_policy = read_policy(state) if holds_run(state) else None
    options = ServiceOptions(
        run=RunOptions(
            servers=servers,
            policy=policy or earlier_policy or "adaptive",
            state=state,
            engine=engine_options.engine,
            engine_options=engine_options.parse(),
            retention=_create_retention(keep, keep_bytes, keep_jobs),
        ),
        host=host,
        port=port,
        certfile=certfile,
        keyfile=keyfile,
        is_insecure=insecure,
        allowed_hosts=allow_host or (),
        has_read_token=read_only_token,
        on_stop=on_stop,
        drain_timeout=drain_timeout,
    )
    if print_unit:
        print(write_unit(_get_command(state), str(Path.cwd()), drain_timeout), end="")
        return
    service = WebService(options)
    service.run(lambda: _print_addresses(service), _print_line)


def _print_line(line: str) -> None:
    with suppress(OSError):  # nobody reads the output any more: stop all the same
        print(line, flush=True)


def _print_addresses(service: WebService) -> None:
    directory = service.options.state
    print(escape(f"hesrpt serves the queue in {directory}"))
    print(f"  open  {service.get_url(service.token)}")
    if service.read_token is not None:
        print(f"  look  {service.get_url(service.read_token)}")
    print(escape(f"  add   hesrpt add --state {directory} -- COMMAND"), flush=True)
    if service.options.run.engine == "ray":
        print(
            "  note  Ray opens ports of its own. Whoever can connect to them, such as users of "
            "this machine, may be able to run code as you."
        )
    sys.stdout.flush()


def _create_retention(age: str | None, size: str | None, jobs: int | None) -> Retention:
    from hesrpt.scheduler.pruning import Retention
    from hesrpt.units import parse_bytes, parse_duration

    max_age = parse_quantity("--keep", age, parse_duration, "a duration such as 30d")
    max_bytes = parse_quantity("--keep-bytes", size, parse_bytes, "a size such as 10GB")
    return Retention(max_age=max_age, max_bytes=max_bytes, max_jobs=jobs)


def _get_command(state: Path) -> list[str]:
    """Return this command, with paths that hold anywhere and without --print-unit."""
    program = os.path.abspath(shutil.which(sys.argv[0]) or sys.argv[0])
    words = [word for word in sys.argv[1:] if word != "--print-unit"]
    return [program, *(str(state.resolve()) if word == str(state) else word for word in words)]
