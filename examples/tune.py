"""Ray Tune with heSRPT's shares, compared with the equal ones that Tune hands out itself.

Three trials of different lengths share the CPUs of a Ray of their own. An iteration takes a second
on one CPU, and 1/k^p seconds on k. To resize a trial takes Ray two or three seconds, in which the
trial stands still, so part of the difference is that heSRPT resizes only where it pays.
Try: python examples/tune.py
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from typing import Any

# Read when Ray is imported: tables of all trials would drown the two lines that are printed here.
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
    """Iterations that are faster the more CPUs the trial has."""

    def setup(self, config: dict[str, Any]) -> None:
        """Begin; what has been done before is read by load_checkpoint."""
        self.done = 0

    def step(self) -> dict[str, Any]:
        """Do one iteration."""
        cpus = self.trial_resources.required_resources["CPU"]
        time.sleep(1 / cpus**P)
        self.done += 1
        last = self.done == self.config["iterations"]
        return {"cpus": cpus, "done": last}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Return all that must be known to go on."""
        return {"iterations": self.done}

    def load_checkpoint(self, checkpoint: dict[str, Any] | None) -> None:
        """Go on from there."""
        self.done = (checkpoint or {"iterations": 0})["iterations"]


class Watch(tune.Callback):
    """When trials end; the clock starts with the first of them, not while Tune gets ready."""

    def __init__(self) -> None:
        self.began: float | None = None
        self.starts = 0
        self.ends: dict[int, float] = {}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Start the clock."""
        self.began = self.began or time.monotonic()
        self.starts += 1

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Note the time."""
        assert self.began is not None
        self.ends[trial.config["iterations"]] = time.monotonic() - self.began


def watched(allocation: Any, storage: str) -> dict[str, Any]:
    """Return when the trials end, by their numbers of iterations, and how many resizes it took."""
    watch = Watch()
    tuner = tune.Tuner(
        tune.with_resources(Training, {"CPU": 1}),
        param_space={"iterations": tune.grid_search(ITERATIONS)},
        tune_config=tune.TuneConfig(
            scheduler=ResourceChangingScheduler(resources_allocation_function=allocation),
            reuse_actors=False,
        ),
        run_config=tune.RunConfig(storage_path=storage, verbose=0, callbacks=[watch]),
    )
    tuner.fit()
    return {"ends": watch.ends, "resizes": watch.starts - len(ITERATIONS)}


def compare() -> dict[str, dict[str, Any]]:
    """Return the same for both."""
    storage = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # short: sockets have short paths
    ray.init(
        address="local", num_cpus=CPUS, include_dashboard=False, _temp_dir=storage,
        log_to_driver=False, logging_level="ERROR",
    )  # fmt: skip
    try:
        hesrpt = HeSRPTAllocation(remaining="iterations", p=P)
        return {
            "equal": watched(DistributeResources(), f"{storage}/equal"),
            "hesrpt": watched(hesrpt, f"{storage}/hesrpt"),
        }
    finally:
        ray.shutdown()
        shutil.rmtree(storage, ignore_errors=True)


if __name__ == "__main__":
    measured = compare()
    if "--json" in sys.argv:
        print(json.dumps(measured))
    else:
        for name, each in measured.items():
            ends = each["ends"]
            mean = sum(ends.values()) / len(ends)
            times = ", ".join(f"{ends[length]:.1f} s" for length in sorted(ends))
            print(f"{name}: trials end after {mean:.1f} s on average, {each['resizes']} resizes")
            print(f"  from the shortest trial to the longest: {times}")
