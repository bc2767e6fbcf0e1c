"""What if the system, not the user, chose the servers of each job? Traces replayed both ways."""

from hesrpt.whatif.assumptions import Assumption, assume_speedup
from hesrpt.whatif.fractions import FractionSweep, run_fractions
from hesrpt.whatif.headline import RIGID
from hesrpt.whatif.malleability import Malleability, parse_malleability
from hesrpt.whatif.sensitivity import Sensitivity, run_sensitivity
from hesrpt.whatif.study import run_study
from hesrpt.whatif.study_results import Study
from hesrpt.whatif.variations import Variations

__all__ = [
    "RIGID",
    "Assumption",
    "FractionSweep",
    "Malleability",
    "Sensitivity",
    "Study",
    "Variations",
    "assume_speedup",
    "parse_malleability",
    "run_fractions",
    "run_sensitivity",
    "run_study",
]
