"""The policies: one small file each, a registry of their names, and what they have in common."""

from hesrpt.policies.adaptive import Adaptive
from hesrpt.policies.calibration import Calibration
from hesrpt.policies.equi import Equi
from hesrpt.policies.fifo import Fifo
from hesrpt.policies.hell import Hell
from hesrpt.policies.helrpt import HeLrpt
from hesrpt.policies.hesrpt import HeSrpt
from hesrpt.policies.knee import Knee
from hesrpt.policies.optimal import Optimal
from hesrpt.policies.policy import (
    Policy,
    RankedPolicy,
    Rule,
    RuleKind,
    State,
    WorkloadFacts,
    as_ranked,
    find_rule,
)
from hesrpt.policies.registry import (
    POLICIES,
    PolicyBinder,
    PolicyEntry,
    PolicyLike,
    approximate_exponent,
    describe_workload,
    get_malleable_policy,
    get_policy,
    list_malleable_policies,
    respect_weights,
)
from hesrpt.policies.rigid import Easy, Fcfs, Moldable, RigidDiscipline
from hesrpt.policies.sharing import round_fairly
from hesrpt.policies.srpt import Srpt

__all__ = [
    "POLICIES",
    "Adaptive",
    "Calibration",
    "Easy",
    "Equi",
    "Fcfs",
    "Fifo",
    "HeLrpt",
    "HeSrpt",
    "Hell",
    "Knee",
    "Moldable",
    "Optimal",
    "Policy",
    "PolicyBinder",
    "PolicyEntry",
    "PolicyLike",
    "RankedPolicy",
    "RigidDiscipline",
    "Rule",
    "RuleKind",
    "Srpt",
    "State",
    "WorkloadFacts",
    "approximate_exponent",
    "as_ranked",
    "describe_workload",
    "find_rule",
    "get_malleable_policy",
    "get_policy",
    "list_malleable_policies",
    "respect_weights",
    "round_fairly",
]
