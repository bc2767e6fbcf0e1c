"""Optimal sharing of servers between parallel jobs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hesrpt import policies
from hesrpt._version import __version__
from hesrpt.errors import CertificateError, FitError, InputError, OverloadWarning, PolicyError
from hesrpt.optimal.certificate import Certificate, verify
from hesrpt.optimal.planner import Plan, plan
from hesrpt.readers import read_jobs, read_speedup
from hesrpt.schedule import Schedule
from hesrpt.simulator import Comparison, Simulation, compare, simulate
from hesrpt.speedups import (
    Amdahl,
    Custom,
    Measured,
    PowerLaw,
    Speedup,
    fit_amdahl,
    fit_power_law,
)
from hesrpt.workload import Workload

if TYPE_CHECKING:
    from hesrpt.runtime.pool import Job, JobError, Pool

__all__ = [
    "Amdahl",
    "Certificate",
    "CertificateError",
    "Comparison",
    "Custom",
    "FitError",
    "InputError",
    "Job",
    "JobError",
    "Measured",
    "OverloadWarning",
    "Plan",
    "PolicyError",
    "Pool",
    "PowerLaw",
    "Schedule",
    "Simulation",
    "Speedup",
    "Workload",
    "__version__",
    "compare",
    "fit_amdahl",
    "fit_power_law",
    "plan",
    "policies",
    "read_jobs",
    "read_speedup",
    "simulate",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import what draws figures or starts processes only when it is asked for."""
    if name == "paper":
        return import_module("hesrpt.paper")
    if name in ("Job", "JobError", "Pool"):
        return getattr(import_module("hesrpt.runtime.pool"), name)
    raise AttributeError(f"module 'hesrpt' has no attribute {name!r}")
