"""Results that are too large for the database, through the whole runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from hesrpt import Pool


def repeat(item: int, *, size: int) -> bytes:
    return bytes([item]) * size


@pytest.mark.parametrize(
    ("items", "size"),
    [(6, 3_000_000), pytest.param(2, 1_100_000_000, marks=pytest.mark.slow)],
    ids=["3 MB", "1.1 GB"],
)
def test_large_results_are_stored_and_read_back(tmp_path: Path, items: int, size: int) -> None:
    for is_resumed in (False, True):
        with Pool(2, state=tmp_path / "s", resume=is_resumed) as pool:
            job = pool.map(lambda item: repeat(item, size=size), range(items), name="large")
            for item, result in enumerate(job.iter_results(timeout=600)):
                assert len(result) == size
                assert result[:: size - 1] == bytes([item, item])
    assert len(list((tmp_path / "s" / "results").iterdir())) == items
    assert (tmp_path / "s" / "state.db").stat().st_size < 1_000_000
