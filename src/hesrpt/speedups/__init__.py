"""Speedup functions s(k): how much faster a job runs on k servers than on one.

Every speedup is concave with s(0) = 0. Besides its rate, it computes the demand that optimal
sharing is based on: the number of servers worth having at a given *price* of a server (in work per
second). This package contains families of speedups, their limits and their fits. It knows nothing
about workloads and schedules.
"""

from hesrpt.speedups.custom import Custom, as_speedup, speedup_from_json, speedup_to_json
from hesrpt.speedups.families import Amdahl, PowerLaw
from hesrpt.speedups.fitting import fit_amdahl, fit_power_law
from hesrpt.speedups.limits import Limited, TimeShared, WholeServers
from hesrpt.speedups.measured import Measured
from hesrpt.speedups.speedup import Speedup, SpeedupVector

__all__ = [
    "Amdahl",
    "Custom",
    "Limited",
    "Measured",
    "PowerLaw",
    "Speedup",
    "SpeedupVector",
    "TimeShared",
    "WholeServers",
    "as_speedup",
    "fit_amdahl",
    "fit_power_law",
    "speedup_from_json",
    "speedup_to_json",
]
