"""What if the system, not the user, chose the servers of each job? Traces replayed both ways."""

from hesrpt.whatif.assumptions import Assumption, assume_speedup
from hesrpt.whatif.sensitivity import Sensitivity, run_sensitivity
from hesrpt.whatif.study import Study, run_study

__all__ = [
    "Assumption",
    "Sensitivity",
    "Study",
    "assume_speedup",
    "run_sensitivity",
    "run_study",
]
