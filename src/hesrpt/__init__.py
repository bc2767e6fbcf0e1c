"""Optimal sharing of servers between parallel jobs."""

from typing import TYPE_CHECKING, Any

from hesrpt import policies
from hesrpt._version import __version__
from hesrpt.errors import (
    CertificateError,
    FitError,
    FitWarning,
    InputError,
    JobError,
    OverloadWarning,
    PolicyError,
    StateError,
)
from hesrpt.optimal.bounds import LowerBound, lower_bound, verify_bound
from hesrpt.optimal.certificate import Certificate, verify
from hesrpt.optimal.planner import Plan, plan
from hesrpt.readers import read_jobs, read_speedup
from hesrpt.schedule import Schedule
from hesrpt.simulator import Comparison, Simulation, compare, simulate
from hesrpt.speedups import Amdahl, Custom, Measured, PowerLaw, Speedup, fit_amdahl, fit_power_law
from hesrpt.workload import Workload

if TYPE_CHECKING:
    from hesrpt import engines, paper, plotting, traces, whatif
    from hesrpt.pool.pool import ItemFailure, Job, Pool
    from hesrpt.scheduler.pruning import Retention
    from hesrpt.service.client import Client

__all__ = [
    "Amdahl",
    "Certificate",
    "CertificateError",
    "Client",
    "Comparison",
    "Custom",
    "FitError",
    "FitWarning",
    "InputError",
    "ItemFailure",
    "Job",
    "JobError",
    "LowerBound",
    "Measured",
    "OverloadWarning",
    "Plan",
    "PolicyError",
    "Pool",
    "PowerLaw",
    "Retention",
    "Schedule",
    "Simulation",
    "Speedup",
    "StateError",
    "Workload",
    "__version__",
    "compare",
    "engines",
    "fit_amdahl",
    "fit_power_law",
    "lower_bound",
    "paper",
    "plan",
    "plotting",
    "policies",
    "read_jobs",
    "read_speedup",
    "simulate",
    "traces",
    "verify",
    "verify_bound",
    "whatif",
]


def __getattr__(name: str) -> Any:
    """Import what draws figures or starts processes when it is first used."""
    from importlib import import_module

    if name in ("engines", "paper", "plotting", "traces", "whatif"):
        return import_module(f"hesrpt.{name}")
    if name in ("ItemFailure", "Job", "Pool"):
        module = "hesrpt.pool.pool"
    elif name == "Client":
        module = "hesrpt.service.client"
    elif name == "Retention":
        module = "hesrpt.scheduler.pruning"
    else:
        raise AttributeError(f"module 'hesrpt' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(module), name)
    return found


def __dir__() -> list[str]:
    """Return the public names, so that completion offers nothing else."""
    return sorted(__all__)
