"""Run two scikit-learn grid searches on one pool: the small one does not wait for the large one.

Each search is a job. joblib submits its fits to the pool, which shares its servers between the two.

Run it: python examples/grid_searches.py [ray]
"""

from __future__ import annotations

import sys
from threading import Thread

from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeClassifier

from hesrpt import Pool
from hesrpt.integrations.joblib import on_pool

X, Y = make_classification(300, random_state=1)
SEARCHES = {
    "large": GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": range(1, 41)}),
    "small": GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}),
}


def run_search(pool: Pool, name: str) -> None:
    """Run one search as a job of the pool."""
    with on_pool(pool, name=name):
        SEARCHES[name].fit(X, Y)


if __name__ == "__main__":
    on_ray = sys.argv[1:] == ["ray"]
    pool = Pool(servers=2, engine="ray", address="local") if on_ray else Pool(servers=2)
    with pool:
        threads = [Thread(target=run_search, args=(pool, name)) for name in SEARCHES]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for job in sorted(pool.jobs, key=lambda job: job.flow_time):
            best = SEARCHES[job.name].best_params_
            print(f"{job.name}: {job.done} calls in {job.flow_time:.1f} s; best is {best}")
