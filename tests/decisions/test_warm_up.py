"""After a warm-up, the scheduler's decisions import nothing more."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import sys
from hesrpt.decisions.core import Core
from hesrpt.decisions.events import JobArrived
from hesrpt.decisions.core import warm_up
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.speedups import PowerLaw

warm_up("adaptive", {servers})
known = set(sys.modules)
assert "numba" in known
for jobs in (1, 5, 30, 300):
    core = Core({servers}, "adaptive")
    for number in range(jobs):
        spec = JobSpec(name=str(number), items=5, speedup=PowerLaw(0.5), weight=1.0 + number % 2)
        core.handle(JobArrived(float(number), spec))
print(sorted(set(sys.modules) - known))
"""


@pytest.mark.slow
@pytest.mark.parametrize("servers", [pytest.param(2, marks=pytest.mark.slow), 64])
def test_nothing_is_loaded_while_jobs_wait(servers: int) -> None:
    program = _PROGRAM.format(servers=servers)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
