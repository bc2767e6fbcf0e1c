"""How functions are compiled, and a cache of compiled code that is never stale.

Numba keeps compiled code on disk, beside the source, and compiles a function again if its own file
has changed. It does not notice changes in other files: in functions that it calls, or in the named
tuples that they share. So each directory of the cache also gets a stamp of all files that take
part. If the stamp has changed, the index files of that directory are removed.

The files that take part are those with "kernel" in their names. Compiled functions live in such
files and use nothing from other files of this package. Importing them imports numba, which takes
long, so import them where they are needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numba import config, njit
from numpy.typing import ArrayLike

from hesrpt.errors import InputError
from hesrpt.files import write_text

_Function = TypeVar("_Function", bound=Callable[..., Any])

_STAMP = "kernels.stamp"
_OPTIONS = {"nogil": True, "error_model": "numpy"}


def compiled(function: _Function) -> _Function:
    """Compile a function when it is first called, and keep the result on disk."""
    return _compile(function, _OPTIONS)


def inlined(function: _Function) -> _Function:
    """Compile a small function into each of its callers."""
    return _compile(function, {**_OPTIONS, "inline": "always"})


def _compile(function: _Function, options: dict[str, Any]) -> _Function:
    try:
        dispatcher = njit(cache=True, **options)(function)
    except RuntimeError:  # numba has found no directory that it can write to
        dispatcher = njit(**options)(function)
    else:
        # With NUMBA_DISABLE_JIT, the result is the function itself.
        stats = getattr(dispatcher, "stats", None)
        if stats is not None and not remove_stale_code(Path(stats.cache_path)):
            dispatcher = njit(**options)(function)
    return dispatcher  # type: ignore[no-any-return]


def create_record(fields: type, **values: float) -> Any:
    """Return an array of one record with these fields, zero unless given.

    It is an array because passing a record to compiled code takes numba ten times as long.
    """
    return create_records(fields, 1, **values)


def create_records(fields: type, count: int, **values: ArrayLike) -> Any:
    """Return an array of records with the annotated fields of a class, zero unless given.

    Compiled code reads and writes the fields of an entry as attributes.
    """
    kinds = {"bool": np.bool_, "int": np.int64, "float": np.float64}
    records = np.zeros(
        count, [(name, kinds[kind]) for name, kind in fields.__annotations__.items()]
    )
    for name, value in values.items():
        records[name] = value
    # Plain Python finds attributes only in arrays of this type, which are slow to pass.
    is_compiling = not config.DISABLE_JIT  # type: ignore[attr-defined]
    return records if is_compiling else records.view(np.recarray)


@lru_cache
def remove_stale_code(directory: Path) -> bool:
    """Remove the code that was compiled from other versions of the kernels from a directory.

    Return whether the directory can be used. Two processes may do this at the same time.
    """
    stamp, stamp_file = compute_stamp(), directory / _STAMP
    try:
        if stamp_file.is_file() and stamp_file.read_text() == stamp:
            return True
        directory.mkdir(parents=True, exist_ok=True)
        for index in directory.glob("*.nbi"):
            index.unlink(missing_ok=True)
        write_text(stamp_file, stamp)
    except (OSError, InputError):
        return False
    return True


@lru_cache
def compute_stamp() -> str:
    """Return a digest of all files whose code is compiled."""
    package = Path(__file__).parent
    digest = sha256()
    for path in sorted({*package.rglob("*kernel*.py"), Path(__file__)}):
        digest.update(os.fsencode(path.relative_to(package)) + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
