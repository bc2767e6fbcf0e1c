"""Reading text and writing files atomically."""

from __future__ import annotations

import gzip
import os
import stat
from pathlib import Path

import pytest

from hesrpt import InputError
from hesrpt.files import read_csv, read_text, write_bytes, write_csv, write_text


def test_text_is_read_plain_and_gzipped(tmp_path: Path) -> None:
    for data in (b"\xef\xbb\xbfa\r\nb\n", gzip.compress(b"a\nb\n"), b"a\nb"):
        (tmp_path / "file").write_bytes(data)
        assert read_text(tmp_path / "file", max_length=4) == "a\nb\n"
        with pytest.raises(InputError, match="file: is longer than 3 characters"):
            read_text(tmp_path / "file", max_length=3)


def test_csv_rows_carry_line_numbers(tmp_path: Path) -> None:
    (tmp_path / "file").write_text('a, b\n\n1,"two\nlines"\n , \n3,4\n')
    assert list(read_csv(tmp_path / "file")) == [
        (1, ["a", "b"]),
        (4, ["1", "two\nlines"]),
        (6, ["3", "4"]),
    ]


def test_written_rows_are_read_back(tmp_path: Path) -> None:
    write_csv(tmp_path / "file", [{"name": "a, b", "size": 1.5}, {"name": "ç", "size": 2}])
    cells = [cells for _, cells in read_csv(tmp_path / "file")]
    assert cells == [["name", "size"], ["a, b", "1.5"], ["ç", "2"]]


def test_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "file.txt"
    write_text(target, "old")

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(InputError, match=r"file\.txt: cannot be written: No space left on device"):
        write_text(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_links_and_permissions_are_respected(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "link", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "link").is_symlink()
    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o640


def test_missing_directory_is_created_only_on_request(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written: No such file or directory"):
        write_bytes(tmp_path / "new" / "file", b"data")
    write_bytes(tmp_path / "new" / "file", b"data", create_directory=True)
    assert (tmp_path / "new" / "file").read_bytes() == b"data"
