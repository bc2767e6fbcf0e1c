"""The guardian of a run: ``python -m hesrpt.runtime.engines.guardian MARK``.

Its standard input is a pipe that the scheduler holds open. When it ends, the scheduler has gone.
"""

from __future__ import annotations

import signal
import sys

from hesrpt.runtime.engines.processes import end_marked

if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    sys.stdin.read()
    end_marked(sys.argv[1])
