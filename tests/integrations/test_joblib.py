"""joblib and scikit-learn on a pool."""

from __future__ import annotations

import subprocess
import sys

import joblib
import pytest
from support.paths import EXAMPLES

from hesrpt import Pool
from hesrpt.integrations.joblib import on_pool


@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_joblib_calls_run_as_one_job_of_the_pool(
    engine: str, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue("ray_address") if engine == "ray" else None
    with Pool(2, engine=engine, address=address) as pool:
        with on_pool(pool, name="squares"):
            squares = joblib.Parallel()(joblib.delayed(pow)(k, 2) for k in range(30))
            assert squares == [k * k for k in range(30)]
            with pytest.raises(ZeroDivisionError):
                joblib.Parallel()(joblib.delayed(divmod)(1, k) for k in (1, 0))
        (job,) = pool.jobs
        assert (job.name, job.state) == ("squares", "done")


@pytest.mark.slow
def test_two_grid_searches_share_a_pool() -> None:
    example = EXAMPLES / "grid_searches.py"
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    # On a busy machine, either search may end first.
    calls = {line.partition(" in ")[0] for line in done.stdout.splitlines()}
    assert calls == {"small: 10 calls", "large: 200 calls"}


def test_error_without_joblib_says_what_to_install() -> None:
    script = "import sys; sys.modules['joblib'] = None; import hesrpt.integrations.joblib"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert "hesrpt.integrations.joblib needs joblib: pip install 'hesrpt[joblib]'" in done.stderr
