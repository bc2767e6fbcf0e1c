"""Compare heSRPT's shares in Ray Tune with the equal shares of Tune's own DistributeResources.

Three trials of different lengths share the CPUs of a private Ray cluster. An iteration takes one
second on one CPU and 1/k^p seconds on k CPUs. Tune takes two or three seconds to resize a trial,
during which the trial makes no progress. heSRPT resizes a trial only if this saves time, which is
part of its gain.

Run it: python examples/ray_tune.py [equal | hesrpt] [--json]
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from typing import Any

# Ray reads these when it is imported. Its tables of trials would hide what this script prints.
os.environ |= {"RAY_AIR_NEW_OUTPUT": "0", "RAY_USAGE_STATS_ENABLED": "0"}

import ray
from ray import tune
from ray.tune.schedulers import ResourceChangingScheduler
from ray.tune.schedulers.resource_changing_scheduler import DistributeResources

from hesrpt.integrations.ray_tune import HeSRPTAllocation

CPUS = 8
P = 0.8
ITERATIONS = [12, 6, 3]


class Training(tune.Trainable):
    """Runs iterations, faster with more CPUs."""

    def setup(self, config: dict[str, Any]) -> None:
        """Start at the first iteration; load_checkpoint restores earlier progress."""
        self.done = 0

    def step(self) -> dict[str, Any]:
        """Run one iteration."""
        cpus = self.trial_resources.required_resources["CPU"]
        time.sleep(1 / cpus**P)
        self.done += 1
        last = self.done == self.config["iterations"]
        return {"cpus": cpus, "done": last}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Return the progress."""
        return {"iterations": self.done}

    def load_checkpoint(self, checkpoint: dict[str, Any] | None) -> None:
        """Restore the progress."""
        self.done = (checkpoint or {"iterations": 0})["iterations"]


class EndTimes(tune.Callback):
    """Records when trials end, in seconds since the start of the first trial."""

    def __init__(self) -> None:
        self.began: float | None = None
        self.starts = 0
        self.ends: dict[int, float] = {}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Start the clock at the first trial."""
        self.began = self.began or time.monotonic()
        self.starts += 1

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Record the time."""
        assert self.began is not None
        self.ends[trial.config["iterations"]] = time.monotonic() - self.began


def run_trials(allocation: Any, storage: str) -> dict[str, Any]:
    """Return when each trial ends, by its number of iterations, and the number of resizes."""
    record = EndTimes()
    tuner = tune.Tuner(
        tune.with_resources(Training, {"CPU": 1}),
        param_space={"iterations": tune.grid_search(ITERATIONS)},
        tune_config=tune.TuneConfig(
            scheduler=ResourceChangingScheduler(resources_allocation_function=allocation),
            reuse_actors=False,
        ),
        run_config=tune.RunConfig(storage_path=storage, verbose=0, callbacks=[record]),
    )
    tuner.fit()
    return {"ends": record.ends, "resizes": record.starts - len(ITERATIONS)}


def compare(names: list[str]) -> dict[str, dict[str, Any]]:
    """Run the trials once with each of the named allocations."""
    allocations = {
        "equal": DistributeResources(),
        "hesrpt": HeSRPTAllocation(remaining="iterations", p=P),
    }
    storage = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # paths of sockets must be short
    ray.init(
        address="local",
        num_cpus=CPUS,
        include_dashboard=False,
        _temp_dir=storage,
        log_to_driver=False,
        logging_level="ERROR",
    )
    try:
        return {name: run_trials(allocations[name], f"{storage}/{name}") for name in names}
    finally:
        ray.shutdown()
        shutil.rmtree(storage, ignore_errors=True)


if __name__ == "__main__":
    names = [argument for argument in sys.argv[1:] if argument != "--json"]
    measured = compare(names or ["equal", "hesrpt"])
    if "--json" in sys.argv:
        print(json.dumps(measured))
    else:
        for name, result in measured.items():
            ends = result["ends"]
            mean = sum(ends.values()) / len(ends)
            times = ", ".join(f"{ends[length]:.1f} s" for length in sorted(ends))
            print(f"{name}: trials end after {mean:.1f} s on average, {result['resizes']} resizes")
            print(f"  from the shortest to the longest trial: {times}")
