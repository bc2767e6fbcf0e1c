"""Thumbnails of pictures, of which one is broken."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image, UnidentifiedImageError

from hesrpt import JobError, Pool


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    """Six pictures that are twice as wide as they are high."""
    paths = [tmp_path / f"{number}.png" for number in range(6)]
    for number, path in enumerate(paths):
        Image.radial_gradient("L").resize((200 + 100 * number, 100 + 50 * number)).save(path)
    return paths


def shrink(path: Path) -> tuple[int, int]:
    with Image.open(path) as picture:
        picture.thumbnail((64, 64))
        picture.save(path.with_suffix(".jpg"))
        return picture.size


def test_one_broken_picture_is_named_repaired_and_done_again(pictures: list[Path]) -> None:
    broken = pictures[3]
    content = broken.read_bytes()
    broken.write_bytes(b"not a picture")
    with Pool(servers=2) as pool:
        job = pool.map(shrink, pictures, name="thumbnails", on_error="keep", retries=0)
        sizes = job.results(errors="return")
        assert isinstance(sizes.pop(3), UnidentifiedImageError)
        assert sizes == [(64, 32)] * 5
        (failure,) = job.failures
        assert (failure.item, failure.attempts) == (3, 1)
        assert str(broken) in failure.value
        assert "in shrink\n    with Image.open(path) as picture:\n" in failure.traceback
        with pytest.raises(JobError, match=r"1 of 6 items failed: item 3 .*3\.png") as raised:
            job.results()
        assert isinstance(raised.value.__cause__, UnidentifiedImageError)

        first_thumbnail = pictures[0].with_suffix(".jpg")
        written = first_thumbnail.stat().st_mtime_ns
        broken.write_bytes(content)
        job.retry()
        assert job.results() == [(64, 32)] * 6
        assert job.failures == []
        assert first_thumbnail.stat().st_mtime_ns == written  # only the broken one ran again


def test_first_broken_picture_stops_the_job_unless_told_otherwise(pictures: list[Path]) -> None:
    pictures[0].write_bytes(b"not a picture")
    with Pool(servers=1) as pool:
        job = pool.map(shrink, pictures, name="thumbnails", retries=0)
        with pytest.raises(JobError, match=r"item 0 .*UnidentifiedImageError"):
            job.results()
        assert job.state == "failed"
        assert job.done < 5
