"""Shared clients on a real Dask cluster: their jobs share its threads by size."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import dask
import joblib
import pytest
from distributed import Client, LocalCluster, wait

from hesrpt import InputError, JobError, Pool
from hesrpt.engines import DaskEngine
from hesrpt.integrations.dask import SharedClient
from hesrpt.integrations.joblib import on_pool


@pytest.fixture
def cluster(dask_cluster: LocalCluster) -> LocalCluster:
    return dask_cluster


@pytest.fixture
def shared(cluster: LocalCluster) -> Iterator[SharedClient]:
    with Client(cluster) as client, SharedClient(client) as shared:
        yield shared


@pytest.fixture
def other(cluster: LocalCluster) -> Iterator[SharedClient]:
    with Client(cluster) as client, SharedClient(client) as shared:
        yield shared


def nap(value: int, seconds: float = 0.02) -> int:
    time.sleep(seconds)
    return value


def test_small_job_does_not_wait_for_the_large_job_of_another_client(
    shared: SharedClient, other: SharedClient
) -> None:
    large = shared.map(nap, range(200), name="large")
    small = other.map(nap, range(8), name="small")
    assert small.results() == list(range(8))
    assert large._ended < 100, "the large job was served first"
    assert large.results() == list(range(200))


@pytest.mark.slow
def test_plain_dask_serves_the_large_job_first(cluster: LocalCluster) -> None:
    """What the shared client is for; if this fails, Dask has learned it."""
    with Client(cluster) as one, Client(cluster) as two:
        large = one.map(nap, range(200), pure=False)
        time.sleep(0.3)  # graphs that arrive within 0.1 s are mixed
        wait(two.map(nap, range(8), pure=False))
        assert sum(future.done() for future in large) > 150


def test_priorities_let_short_computations_overtake_long_ones(cluster: LocalCluster) -> None:
    """What the documentation recommends for single large graphs."""
    with Client(cluster) as one, Client(cluster) as two:
        large = one.map(nap, range(200), pure=False, priority=-4.0)
        time.sleep(0.3)
        wait(two.map(nap, range(8), pure=False, priority=-0.16))
        assert sum(future.done() for future in large) < 100


def test_dead_workers_cost_no_items(shared: SharedClient) -> None:
    job = shared.map(nap, range(100), [0.05] * 100)
    pids = shared.client.run(os.getpid)
    os.kill(next(iter(pids.values())), signal.SIGKILL)
    assert job.results() == list(range(100))


@pytest.mark.slow
def test_client_that_dies_leaves_its_threads_to_others(
    shared: SharedClient, cluster: LocalCluster
) -> None:
    script = (
        "import os, sys, time\n"
        "from distributed import Client\n"
        "from hesrpt.integrations.dask import SharedClient\n"
        "shared = SharedClient(Client(sys.argv[1]))\n"
        "shared.map(time.sleep, [0.5] * 100)\n"
        "time.sleep(1)\n"
        "os._exit(1)\n"
    )
    subprocess.run([sys.executable, "-c", script, cluster.scheduler_address])
    started = time.monotonic()
    assert shared.map(nap, range(8)).results() == list(range(8))
    assert time.monotonic() - started < 10, "the jobs of the dead client still ran"


def test_collections_are_computed_one_by_one(shared: SharedClient) -> None:
    values = [dask.delayed(nap)(dask.delayed(nap)(number)) for number in range(10)]
    assert shared.compute(values).results() == list(range(10))


def test_results_can_stay_on_the_workers(shared: SharedClient) -> None:
    futures = shared.map(nap, range(10)).futures()
    assert shared.client.submit(sum, futures).result() == 45


def test_calls_of_an_executor(shared: SharedClient) -> None:
    with shared.executor("calls") as executor:
        assert list(executor.map(pow, [2, 3], [10, 10])) == [1024, 59049]
        with pytest.raises(ZeroDivisionError):
            executor.submit(divmod, 1, 0).result()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(abs, 1)


def test_calls_of_a_client_that_is_closed_end(cluster: LocalCluster) -> None:
    with Client(cluster) as client, SharedClient(client) as shared:
        executor = shared.executor("calls")
        futures = [executor.submit(nap, number, 0.5) for number in range(20)]
    assert all(future.done() for future in futures)
    assert futures[-1].cancelled()


def test_results_of_calls_do_not_stay_in_the_cluster(shared: SharedClient) -> None:
    with shared.executor("calls") as executor:
        assert sum(executor.map(abs, range(20))) == 190
    assert executor.job._futures == {}


def test_joblib_runs_on_a_shared_client(shared: SharedClient) -> None:
    with on_pool(shared, name="squares"):
        squares = joblib.Parallel()(joblib.delayed(pow)(k, 2) for k in range(30))
    assert squares == [k * k for k in range(30)]


def test_joblib_runs_on_a_pool_on_dask(cluster: LocalCluster) -> None:
    with Pool(engine=DaskEngine(cluster)) as pool, on_pool(pool, name="squares"):
        squares = joblib.Parallel()(joblib.delayed(pow)(k, 2) for k in range(30))
    assert squares == [k * k for k in range(30)]


@pytest.mark.slow
def test_scikit_learn_searches_on_a_shared_client(shared: SharedClient) -> None:
    from sklearn.datasets import load_iris
    from sklearn.model_selection import GridSearchCV
    from sklearn.tree import DecisionTreeClassifier

    x, y = load_iris(return_X_y=True)
    search = GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": [1, 2, 3]})
    with on_pool(shared, name="search"):
        search.fit(x, y)
    assert search.best_params_["max_depth"] > 1


def test_error_of_an_item_is_raised(shared: SharedClient) -> None:
    job = shared.map(divmod, [1, 2, 3], [1, 0, 1])
    with pytest.raises(ZeroDivisionError):
        job.results()
    assert job.futures()[2].result() == (3, 0)


def test_job_can_be_cancelled(shared: SharedClient) -> None:
    job = shared.map(nap, range(1000), [0.1] * 1000, name="long")
    with pytest.raises(TimeoutError, match=r"'long' has not ended within 0\.1 s"):
        job.results(timeout=0.1)
    job.cancel()
    with pytest.raises(JobError, match="'long' was cancelled"):
        job.results()


def test_function_that_cannot_be_sent_fails_its_job_only(shared: SharedClient) -> None:
    good = shared.map(nap, range(20))
    bad = shared.map(bool, [threading.Lock()])
    with pytest.raises(TypeError):
        bad.results()
    assert good.results() == list(range(20))


def test_empty_map(shared: SharedClient) -> None:
    assert shared.map(abs, []).results() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight": 0}, "weight must be greater than 0, got 0"),
        ({"size": -1.0}, "size must be greater than 0, got -1"),
    ],
)
def test_invalid_options_are_refused(
    shared: SharedClient, options: dict[str, float], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        shared.map(abs, [1], **options)  # type: ignore[arg-type]


def test_iterables_of_different_lengths_are_refused(shared: SharedClient) -> None:
    with pytest.raises(InputError, match="iterables must have the same length, got 2, 1"):
        shared.map(pow, [1, 2], [3])


def test_error_without_dask_says_what_to_install() -> None:
    script = "import sys; sys.modules['distributed'] = None; import hesrpt.integrations.dask"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert "hesrpt.integrations.dask needs Dask: pip install 'hesrpt[dask]'" in done.stderr
