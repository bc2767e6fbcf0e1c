"""Take the screenshots of the page in docs/: python docs/screenshots.py.

It runs a service with a small workload for a minute, so that there is something to see, and needs
Chromium.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from PIL import Image

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))
from support.browser import open_browser  # noqa: E402
from support.running_service import RunningService  # noqa: E402

SERVERS = 8
LASTS, COMPARED_AT = 74.0, 40.0  # seconds
# Stands for all programs of the workload. Their items hinder each other: k of them that run
# together are about k^0.75 times as fast as one. How long an item takes depends on its name.
PROGRAM = """#!/bin/sh
for item; do :; done
mark="$RUNNING/$JOB.$$"
: >"$mark"
together=$(ls "$RUNNING/$JOB".* | wc -l)
number=$(printf %s "$item" | cksum | cut -d" " -f1)
sleep "$(awk "BEGIN { print $WORK * (0.5 + $number % 1000 / 1000) * $together ^ 0.25 }")"
rm -f "$mark"
echo "$item: done"
"""


class PlannedJob(NamedTuple):
    """A job of the workload."""

    arrives: float  # seconds after the first
    name: str
    items: int
    work: float  # seconds of an item that runs alone, on average
    command: str
    group: str = ""
    after: Sequence[str] = ()


JOBS = (
    PlannedJob(0, "thumbnails", 40, 0.5, "resize --width 400 photos/{item}.jpg"),
    PlannedJob(0, "search-index", 90, 0.7, "index --shard {item}", "web"),
    PlannedJob(0, "map-tiles", 900, 0.6, "render-tile {item}", "maps"),
    PlannedJob(6, "unit-tests", 12, 0.4, "check {item}"),
    PlannedJob(14, "invoices", 10, 0.5, "make-invoice {item}", "web"),
    PlannedJob(24, "transcripts", 40, 0.6, "transcribe calls/{item}.wav"),
    PlannedJob(33, "unit-tests-2", 12, 0.4, "check {item}"),
    PlannedJob(44, "backup", 30, 0.4, "copy-away {item}"),
    PlannedJob(52, "parameter-scan", 400, 0.6, "simulate --seed {item}", "research"),
    PlannedJob(60, "nightly-report", 20, 0.5, "report {item}", "web", ("map-tiles",)),
    PlannedJob(66, "newsletter", 300, 0.4, "send-mail {item}", "web"),
    PlannedJob(72, "unit-tests-3", 30, 0.6, "check {item}"),
)


def write_programs(directory: Path) -> None:
    """Write the programs that the jobs run, and let the service find them."""
    programs, running = directory / "bin", directory / "running"
    programs.mkdir()
    running.mkdir()
    for job in JOBS:
        file = programs / job.command.split()[0]
        file.write_text(PROGRAM)
        file.chmod(0o755)
    os.environ["PATH"] = f"{programs}:{os.environ['PATH']}"
    os.environ["RUNNING"] = str(running)


def add_jobs(service: RunningService) -> None:
    """Add the jobs of the workload when it is time."""
    start = time.monotonic()
    for job in JOBS:
        time.sleep(max(0.0, start + job.arrives - time.monotonic()))
        if job.arrives > COMPARED_AT:
            # The service compares policies when somebody looks.
            service.client.schedule()
        service.add(
            name=job.name,
            command=job.command,
            items=[f"{job.name}-{number:03}" for number in range(job.items)],
            env={"JOB": job.name, "WORK": str(job.work)},
            group=job.group,
            after=list(job.after),
        )
    time.sleep(max(0.0, start + LASTS - time.monotonic()))


def wait_for_comparison(service: RunningService) -> None:
    """Wait until the service has compared its policy with others."""
    while service.client.schedule()["comparison"] is None:
        time.sleep(1)


def take(
    browser: Browser,
    service: RunningService,
    name: str,
    size: tuple[int, int],
    scheme: Literal["light", "dark"],
) -> None:
    """Write a picture of the page, with few colours so that it is small."""
    page = browser.new_page(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, device_scale_factor=2
    )
    page.goto(f"{service.address}?token={service.token}")
    page.get_by_role("list", name="Servers of each job").get_by_role("link").first.wait_for()
    page.wait_for_timeout(1500)
    picture = Image.open(io.BytesIO(page.screenshot()))
    palette = picture.convert("RGB").quantize(96, dither=Image.Dither.NONE)
    palette.save(HERE / "how-to" / name, optimize=True)
    page.close()


def main() -> None:
    """Run the workload, and take both screenshots."""
    with tempfile.TemporaryDirectory() as name, open_browser() as browser:
        directory = Path(name)
        write_programs(directory)
        with RunningService(directory, servers=SERVERS) as service:
            add_jobs(service)
            wait_for_comparison(service)
            take(browser, service, "the-page.png", (1280, 960), "light")
            take(browser, service, "the-page-on-a-phone.png", (390, 844), "dark")


if __name__ == "__main__":
    main()
