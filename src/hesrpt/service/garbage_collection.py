"""Keeps Python's garbage collections short: each stops all threads, and so delays items.

A full collection looks at every object. A service has hundreds of thousands of them, most of which
stay for ever: modules, and jobs that have ended. So what has survived a full collection is left out
of the next ones. Now and then, when no item runs, all objects are looked at.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

# How often to look at all objects if no item runs, and at the latest, in seconds.
_EVERY_SECONDS, _LATEST_SECONDS = 3600.0, 86_400.0
# The oldest generation of objects, which only a full collection looks at.
_OLDEST = 2


@contextmanager
def keep_collections_short(is_idle: Callable[[], bool]) -> Iterator[None]:
    """Leave what survives out of garbage collections during a block."""
    has_ended = threading.Event()
    thread = threading.Thread(target=_collect_all, args=(is_idle, has_ended), daemon=True)
    gc.freeze()
    gc.callbacks.append(_leave_out_survivors)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        gc.callbacks.remove(_leave_out_survivors)
        gc.unfreeze()


@contextmanager
def load_without_collections() -> Iterator[None]:
    """Collect no garbage while a block loads what stays for ever."""
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


def _leave_out_survivors(phase: str, facts: Mapping[str, Any]) -> None:
    if phase == "stop" and facts["generation"] == _OLDEST:
        gc.freeze()


def _collect_all(is_idle: Callable[[], bool], has_ended: threading.Event) -> None:
    """Look at all objects, when that delays no item."""
    waited = 0.0
    while not has_ended.wait(_EVERY_SECONDS):
        waited += _EVERY_SECONDS
        if is_idle() or waited >= _LATEST_SECONDS:
            waited = 0.0
            collect_all()


def collect_all() -> None:
    """Collect garbage among all objects."""
    gc.unfreeze()
    gc.collect()
