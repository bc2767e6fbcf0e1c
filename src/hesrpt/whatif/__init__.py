"""What if the system, not the user, chose how many servers a job gets? On the log of a cluster."""

from hesrpt.whatif.assumptions import Assumption, assumption
from hesrpt.whatif.sensitivity import Sensitivity, sensitivity
from hesrpt.whatif.study import WhatIf, whatif

__all__ = ["Assumption", "Sensitivity", "WhatIf", "assumption", "sensitivity", "whatif"]
