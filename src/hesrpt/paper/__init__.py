"""The paper, reproduced: every figure and every claim of it, computed and judged.

    B. Berg, R. Vesilo, M. Harchol-Balter:
    heSRPT: Optimal Parallel Scheduling of Jobs With Known Sizes.

    >>> from hesrpt import paper
    >>> made = paper.reproduce("out/paper")  # doctest: +SKIP

Figures with the data behind them are :class:`Exhibit`, statements of the paper with what we found
are :class:`Claim`.
"""

from hesrpt.paper.exhibits import Exhibit, Settings
from hesrpt.paper.judging import RULES, Claim, Verdict
from hesrpt.paper.reproduction import Reproduction, reproduce

__all__ = ["RULES", "Claim", "Exhibit", "Reproduction", "Settings", "Verdict", "reproduce"]
