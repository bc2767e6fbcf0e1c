"""Compiled code that is kept on disk is never stale, and a cache is never needed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hesrpt
from hesrpt import compiled

CALLER = """
from hesrpt.callee_kernel import add_some
from hesrpt.compiled import compiled

@compiled
def add_twice(n: int) -> int:
    return add_some(add_some(n))

print(add_twice(0))
"""
CALLEE = """
from hesrpt.compiled import compiled

@compiled
def add_some(n: int) -> int:
    return n + {some}
"""


def test_a_changed_callee_in_another_file_is_noticed(tmp_path: Path) -> None:
    package, source = tmp_path / "hesrpt", Path(hesrpt.__file__).parent
    package.mkdir()
    (package / "__init__.py").touch()
    for name in ("compiled", "errors", "files"):
        shutil.copy(source / f"{name}.py", package)
    (package / "caller_kernel.py").write_text(CALLER)

    def run(some: int) -> int:
        (package / "callee_kernel.py").write_text(CALLEE.format(some=some))
        done = subprocess.run(
            [sys.executable, "-m", "hesrpt.caller_kernel"],
            # Python would take a file that changes within a second for the one that it compiled.
            env={"PYTHONPATH": str(tmp_path), "PATH": "", "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        return int(done.stdout)

    assert run(1) == 2
    assert list(package.rglob("*.nbi"))
    assert run(2) == 4


@pytest.mark.slow
def test_code_is_kept_for_the_user_if_the_package_cannot_be_written(tmp_path: Path) -> None:
    package, source = tmp_path / "hesrpt", Path(hesrpt.__file__).parent
    package.mkdir()
    (package / "__init__.py").touch()
    for name in ("compiled", "errors", "files"):
        shutil.copy(source / f"{name}.py", package)
    (package / "callee_kernel.py").write_text(
        CALLEE.format(some=1) + "add_some(1)\nprint(sum(add_some.stats.cache_hits.values()))\n"
    )
    # Tests may run as root, which may write to any directory, but not to a file as if it were one.
    (package / "__pycache__").touch()

    def count_hits() -> int:
        done = subprocess.run(
            [sys.executable, "-m", "hesrpt.callee_kernel"],
            env={"PYTHONPATH": str(tmp_path), "PATH": "", "HOME": str(tmp_path / "home")},
            capture_output=True,
            text=True,
            check=True,
        )
        return int(done.stdout)

    assert count_hits() == 0
    assert list((tmp_path / "home").rglob("*.nbi"))
    assert count_hits() == 1


def test_stale_code_is_removed_once(tmp_path: Path) -> None:
    index, code = tmp_path / "run.nbi", tmp_path / "run.nbc"
    index.touch()
    code.touch()
    assert compiled.remove_stale_code(tmp_path)
    assert not index.exists()
    assert code.exists()
    index.touch()
    compiled.remove_stale_code.cache_clear()  # as in another process
    assert compiled.remove_stale_code(tmp_path)
    assert index.exists()


def test_a_directory_that_cannot_be_written_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if numba has found it writable before. Tests may run as root, which ignores modes."""
    (tmp_path / "a file, not a directory").touch()
    assert not compiled.remove_stale_code(tmp_path / "a file, not a directory")

    monkeypatch.setattr(compiled, "remove_stale_code", lambda directory: False)

    def double(n: int) -> int:
        return 2 * n

    assert compiled.compiled(double)(4) == 8
    assert compiled.compiled(double).stats.cache_path is None  # type: ignore[attr-defined]
