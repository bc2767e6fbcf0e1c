"""Running many simulations on all cores."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import replace
from threading import Event
from typing import Any, TypeAlias, TypeVar

from hesrpt.policies import Knee, PolicyLike, as_ranked, get_policy
from hesrpt.simulator.simulation import Simulation, create_run, execute_run
from hesrpt.speedups import PowerLaw
from hesrpt.workload import Workload

#: What to simulate: jobs, servers, policy and options.
Task: TypeAlias = tuple[Workload, float, PolicyLike, Mapping[str, Any]]
Key = TypeVar("Key", bound=Hashable)

# Starting processes takes seconds. It pays where policies must be asked for at least so many jobs.
_WORTH_PROCESSES = 100_000
# A policy that tunes itself tries so many parameters.
_TRIALS = 100


def run_all(tasks: Mapping[Key, Task]) -> Iterator[tuple[Key, Simulation]]:
    """Yield simulations as they end.

    The compiled loop holds no lock, so that threads keep all cores busy. Policies that are asked at
    each event run in Python, which goes on in one thread at a time: many of them get processes.
    """
    asked = {
        key
        for key, (workload, _, policy, _) in tasks.items()
        if as_ranked(get_policy(policy), workload.speedups) is None
    }
    work = sum(_jobs(tasks[key]) for key in asked)
    stop = Event()
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(os.cpu_count()))
        processes = None
        if len(asked) > 1 and work >= _WORTH_PROCESSES and (os.cpu_count() or 1) > 1:
            from loky import get_reusable_executor

            processes = get_reusable_executor(max_workers=min(os.cpu_count() or 1, len(asked)))
        futures: dict[Future[Simulation], Key] = {}
        try:
            # The longest first, so that no core is left waiting for it in the end.
            for key in sorted(tasks, key=lambda key: -_jobs(tasks[key])):
                if processes is not None and key in asked:
                    futures[processes.submit(_run, tasks[key])] = key
                else:
                    futures[pool.submit(_run_in_thread, tasks[key], stop)] = key
            for future in as_completed(futures):
                key = futures[future]
                # From another process comes a copy of the jobs.
                yield key, replace(future.result(), workload=tasks[key][0])
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            if processes is not None:
                processes.shutdown(wait=False, kill_workers=True)
            raise


def _jobs(task: Task) -> int:
    workload, _, policy, _ = task
    made = get_policy(policy)
    # Under a power law, trials are compiled.
    compiled = isinstance(workload.speedups.shared, PowerLaw)
    tunes = isinstance(made, Knee) and made.alpha is None and not compiled
    return len(workload) * (_TRIALS if tunes else 1)


def _run(task: Task) -> Simulation:
    workload, servers, policy, options = task
    return execute_run(create_run(workload, servers, policy, **options))


def _run_in_thread(task: Task, stop: Event) -> Simulation:
    from hesrpt.simulator.loop import stopped

    stopped.set(stop)
    return _run(task)
