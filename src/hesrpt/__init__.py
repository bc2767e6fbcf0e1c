"""Optimal sharing of servers between parallel jobs."""

from hesrpt._version import __version__
from hesrpt.errors import CertificateError, FitError, InputError
from hesrpt.optimal.certificate import Certificate, verify
from hesrpt.optimal.planner import Plan, plan
from hesrpt.schedule import Schedule
from hesrpt.speedup import (
    Amdahl,
    Custom,
    Measured,
    PowerLaw,
    Speedup,
    fit_amdahl,
    fit_power_law,
)
from hesrpt.traces import read_jobs, read_speedup
from hesrpt.workload import Workload

__all__ = [
    "Amdahl",
    "Certificate",
    "CertificateError",
    "Custom",
    "FitError",
    "InputError",
    "Measured",
    "Plan",
    "PowerLaw",
    "Schedule",
    "Speedup",
    "Workload",
    "__version__",
    "fit_amdahl",
    "fit_power_law",
    "plan",
    "read_jobs",
    "read_speedup",
    "verify",
]
