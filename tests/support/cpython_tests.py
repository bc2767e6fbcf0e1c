"""Finds CPython's own tests of executors. This module imports nothing that has to be installed."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

# `make test` fetches the tests to this directory, or says there why it could not.
_FETCHED = Path(sys.prefix) / "cpython-tests"


def find_tests() -> Path | None:
    """Return the installed tests of this version of Python: a file or, since 3.12, a directory."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    directories = (
        Path(sysconfig.get_path("stdlib")) / "test",
        Path("/usr/lib") / version / "test",  # Debian: libpython3-testsuite
        _FETCHED / "usr/lib" / version / "test",
    )
    names = ("test_concurrent_futures.py", "test_concurrent_futures")
    found = (directory / name for directory in directories for name in names)
    return next((path for path in found if path.exists()), None)


def explain_absence() -> str:
    """Return why there are no tests."""
    reason = _FETCHED / "reason"
    if reason.exists():
        return reason.read_text().strip()
    return "CPython's tests of executors are not installed; `make test` fetches them on Debian"


def create_test_package(directory: Path, tests: Path) -> None:
    """Create a package ``test`` in a directory: the interpreter's own, and these tests."""
    package = directory / "test"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import pkgutil\n__path__ = pkgutil.extend_path(__path__, __name__)\n"
    )
    (package / tests.name).symlink_to(tests)
