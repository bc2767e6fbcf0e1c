"""Running many simulations on all cores."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from hesrpt.optimal.bounds import BOUND_STEPS, LowerBound, lower_bound
from hesrpt.parallel import run_tasks
from hesrpt.policies import Knee, Policy, RigidDiscipline, as_ranked, find_rule
from hesrpt.simulator.simulation import Simulation, run_simulation
from hesrpt.workload import Workload

Key = TypeVar("Key", bound=Hashable)

# Starting processes takes seconds. It pays off if Python policies serve at least this many jobs.
_MIN_JOBS_FOR_PROCESSES = 100_000
# KNEE is tuned by this many simulations.
_TRIALS = 100


@dataclass(frozen=True)
class Replication:
    """One simulation among many; the options are those of :func:`run_simulation`."""

    workload: Workload
    servers: float
    policy: Policy | RigidDiscipline
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_compiled(self) -> bool:
        """Whether it runs without calling the policy at each event."""
        if isinstance(self.policy, RigidDiscipline):
            return True
        if self.workload.rigid is not None:
            return False
        speedups, whole = self.workload.speedups, bool(self.options.get("whole"))
        is_ranked = as_ranked(self.policy, speedups) is not None
        return is_ranked or find_rule(self.policy, speedups, whole) is not None

    @property
    def jobs(self) -> int:
        """The number of jobs to simulate, counting those of all trials."""
        is_tuned = isinstance(self.policy, Knee) and self.policy.alpha is None
        return (_TRIALS if is_tuned else 1) * len(self.workload)

    def run(self) -> Simulation:
        """Run the simulation."""
        return run_simulation(self.workload, self.servers, self.policy, **self.options)


def run_simulations(
    replications: Mapping[Key, Replication], progress: Callable[[int, int], None] | None = None
) -> dict[Key, Simulation]:
    """Run simulations on all cores; ``progress`` is called with the number done and the total.

    The compiled loop releases the interpreter's lock, so threads keep all cores busy. Policies that
    are called at each event hold the lock, so long simulations of these run in processes.
    """
    done = 0

    def count(key: Key) -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, len(replications))

    longest_first = sorted(replications, key=lambda key: -replications[key].jobs)
    interpreted = [key for key in replications if not replications[key].is_compiled]
    jobs = sum(replications[key].jobs for key in interpreted)
    uses_processes = len(interpreted) > 1 and jobs >= _MIN_JOBS_FOR_PROCESSES
    simulations = run_tasks(
        {key: replications[key].run for key in longest_first},
        in_threads={key for key in replications if not uses_processes or key not in interpreted},
        on_done=count,
    )
    # Simulations from another process have a copy of the workload.
    return {
        key: replace(simulations[key], workload=replication.workload)
        for key, replication in replications.items()
    }


def run_with_bounds(
    replications: Mapping[Key, Replication],
    workloads: Sequence[Workload],
    servers: float,
    whole: bool,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[dict[Key, Simulation], tuple[LowerBound, ...]]:
    """Run simulations, then bound what any schedule of these workloads could reach.

    ``progress`` counts one step for each simulation, and many for each bound, which takes longer.
    """
    total = len(replications) + BOUND_STEPS * len(workloads)

    def report_after(before: int) -> Callable[[int, int], None] | None:
        return None if progress is None else lambda done, _: progress(before + done, total)

    simulations = run_simulations(replications, report_after(0))
    bounds = [
        lower_bound(
            workload,
            servers,
            whole=whole,
            progress=report_after(len(replications) + BOUND_STEPS * number),
        )
        for number, workload in enumerate(workloads)
    ]
    return simulations, tuple(bounds)
