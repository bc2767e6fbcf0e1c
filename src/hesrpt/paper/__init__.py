"""The paper, reproduced: all of its figures computed, and all of its claims judged.

    B. Berg, R. Vesilo, M. Harchol-Balter:
    heSRPT: Optimal Parallel Scheduling of Jobs With Known Sizes.

    >>> from hesrpt import paper
    >>> reproduction = paper.reproduce("out/paper")  # doctest: +SKIP

An :class:`Exhibit` is a figure with the data behind it, a :class:`Claim` is a statement of the
paper with our numbers and a verdict.
"""

from hesrpt.paper.claims import RULES, Claim, Verdict
from hesrpt.paper.exhibits import Exhibit, Settings
from hesrpt.paper.reproduction import Reproduction, reproduce

__all__ = ["RULES", "Claim", "Exhibit", "Reproduction", "Settings", "Verdict", "reproduce"]
