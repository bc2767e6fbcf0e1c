"""What if the system, not the user, chose the servers of each job? Traces replayed both ways."""

from hesrpt.whatif.assumptions import Assumption, assume_speedup
from hesrpt.whatif.malleability import Malleability, parse_malleability
from hesrpt.whatif.study import run_study
from hesrpt.whatif.study_jobs import DEFAULT_POLICIES, StudyOptions
from hesrpt.whatif.study_results import RIGID, Study
from hesrpt.whatif.variations import (
    FractionSweep,
    Sensitivity,
    Variations,
    run_fractions,
    run_sensitivity,
)

__all__ = [
    "DEFAULT_POLICIES",
    "RIGID",
    "Assumption",
    "FractionSweep",
    "Malleability",
    "Sensitivity",
    "Study",
    "StudyOptions",
    "Variations",
    "assume_speedup",
    "parse_malleability",
    "run_fractions",
    "run_sensitivity",
    "run_study",
]
