"""A grid search of scikit-learn that shares a pool with another job."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.waiting import wait_until

from hesrpt import Pool
from hesrpt.integrations.joblib import on_pool


@pytest.mark.slow
def test_grid_search_beside_another_job_finds_the_same_model() -> None:
    # Every process that collects tests imports this module, and scikit-learn takes long.
    from sklearn.datasets import make_classification
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    x, y = make_classification(200, n_features=8, flip_y=0.2, random_state=1)

    def create_search() -> Any:
        return GridSearchCV(LogisticRegression(), {"C": [1e-4, 1e-2, 1.0, 100.0]}, cv=3)

    def search(pool: Pool) -> Any:
        with on_pool(pool, name="search"):
            return create_search().fit(x, y)

    with Pool(servers=2) as pool, ThreadPoolExecutor(1) as threads:
        searching = threads.submit(search, pool)
        wait_until(lambda: bool(pool.jobs))
        means = pool.map(lambda column: float(x[:, column].mean()), range(8), name="means")
        assert means.results() == [float(x[:, column].mean()) for column in range(8)]
        found = searching.result()
        states = {job.name: (job.state, job.done) for job in pool.jobs}
    assert states == {"search": ("done", 12), "means": ("done", 8)}
    alone = create_search().fit(x, y)
    assert found.best_params_ == alone.best_params_
    assert list(found.cv_results_["mean_test_score"]) == list(alone.cv_results_["mean_test_score"])
    assert (found.predict(x) == alone.predict(x)).all()
