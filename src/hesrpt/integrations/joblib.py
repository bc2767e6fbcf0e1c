"""joblib, and scikit-learn with it, on the servers of a pool.

>>> import hesrpt, joblib
>>> from hesrpt.integrations.joblib import on_pool
>>> with hesrpt.Pool(servers=2) as pool, on_pool(pool, name="roots"):
...     joblib.Parallel()(joblib.delayed(pow)(x, 0.5) for x in (1, 4, 9))
[1.0, 2.0, 3.0]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from hesrpt.pool.pool import Pool

try:
    from joblib import parallel_config
    from joblib.parallel import ParallelBackendBase
except ImportError as missing:
    raise ImportError(
        "hesrpt.integrations.joblib needs joblib: pip install 'hesrpt[joblib]'"
    ) from missing

__all__ = ["on_pool"]


@contextmanager
def on_pool(pool: Pool, name: str = "joblib", **options: Any) -> Iterator[None]:
    """Run all joblib calls within this context as one job of a pool.

    Parameters
    ----------
    pool
        The pool whose servers to use.
    name
        The name of the job.
    options
        Options of :meth:`hesrpt.Pool.executor`: size, speedup, weight, timeout.
    """
    with pool.executor(name, **options) as executor:
        backend = _PoolBackend(pool, executor.submit)
        with parallel_config(backend=backend, n_jobs=-1):
            yield


class _PoolBackend(ParallelBackendBase):  # type: ignore[misc]
    """A joblib backend that submits joblib's batches to an executor."""

    supports_retrieve_callback = True
    uses_threads = False

    def __init__(self, pool: Pool, submit: Callable[..., Future[Any]]) -> None:
        super().__init__(nesting_level=0)
        self._pool = pool
        self._submit = submit
        self._futures: set[Future[Any]] = set()

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return how many calls to keep in flight: one for each server, whatever ``n_jobs`` is."""
        return max(self._pool.servers, 1)

    def submit(
        self, func: Callable[[], Any], callback: Callable[[Future[Any]], None]
    ) -> Future[Any]:
        """Submit a batch of joblib's calls."""
        future = self._submit(func)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """Return the results of a batch, or raise its error."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel the batches that have not started."""
        for future in list(self._futures):
            future.cancel()
