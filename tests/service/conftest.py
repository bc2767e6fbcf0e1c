"""The queue that most tests of the service share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.served_queue import ServedQueue, serve_queue


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedQueue]:
    """A queue with two servers."""
    with serve_queue(Path(tmp_path_factory.mktemp("queue")) / "state") as found:
        yield found
