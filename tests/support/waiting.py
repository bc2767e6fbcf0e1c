"""Waiting for what happens elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(ready: Callable[[], bool], seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)
