"""The service as users run it: a process that can be killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hesrpt import Client
from support.waiting import wait_until


class ServiceProcess:
    """``hesrpt serve`` on a state directory."""

    def __init__(
        self,
        state: Path,
        *options: str,
        servers: int = 2,
        program: Sequence[str] = (sys.executable, "-m", "hesrpt"),
    ) -> None:
        self.state = state
        words = ["serve", "--state", str(state), "--servers", str(servers), "--port", "0"]
        self.process = subprocess.Popen(
            [*program, *words, *options],
            cwd=state.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.output = ""
        self._has_url = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._has_url.wait(120), self.output
        found = re.search(r"http\S+", self.output)
        assert found, self.output
        self.url = found[0]
        self.client = Client(self.url)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.output += line
                if "hesrpt add" in line:
                    self._has_url.set()
        self._has_url.set()

    def kill(self) -> None:
        """Kill it without a warning."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)

    def stop(self) -> int:
        """Ask it to stop; return its exit code."""
        self.process.terminate()
        return self.process.wait(120)

    def close(self) -> None:
        """Make sure that it is gone, with what it has started."""
        self.client.close()
        if self.process.poll() is None:
            self.kill()
        self._reader.join(60)
        wait_until(lambda: not list_processes_in(self.state), 60)


@contextmanager
def start_service(state: Path, *options: str, servers: int = 2) -> Iterator[ServiceProcess]:
    """Run a service, and make sure that nothing of it is left."""
    service = ServiceProcess(state, *options, servers=servers)
    try:
        yield service
    finally:
        service.close()


def list_processes_in(directory: Path, program: str = "") -> list[int]:
    """Return the processes whose command lines mention a directory and a program.

    A process that was just forked still has the command line of its parent.
    """
    found = []
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                content = Path(f"/proc/{entry}/cmdline").read_bytes()
            except OSError:
                continue
            if str(directory).encode() in content and program.encode() in content:
                found.append(int(entry))
    return found
