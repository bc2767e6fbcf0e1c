"""What would have to be true for the result of a study to hold, and what no study models."""

from __future__ import annotations

from hesrpt.policies.registry import get_title
from hesrpt.whatif.malleability import measure_parts
from hesrpt.whatif.study_results import Study

#: What a study does not model, as sentences without an initial capital or a full stop.
OMISSIONS = (
    "where jobs run: any servers are as good as any others, so there is no fragmentation, no "
    "topology and no difference between nodes, and memory, licences and input and output are never "
    "scarce",
    "how sites rank jobs: no priorities, fair shares, partitions, reservations or limits per user; "
    "rigid policies serve jobs in the order of submission, apart from backfilling",
    "failures and maintenance, and jobs that wait for other jobs",
    "how users react: they submit the same jobs at the same times, even if earlier jobs end "
    "sooner, and ask for the same servers, even if asking for fewer would be better for them",
    "what it costs to make a job malleable, and energy",
    "jobs in the machine when the trace starts: a replay starts with an empty machine",
)


def list_conditions(study: Study) -> list[str]:
    """Return sentences on what would have to be true, without initial capitals or full stops."""
    return [
        f"jobs speed up as assumed: {study.assumption.text}; the trace does not record this. A job "
        "that ran for r seconds on q servers has size r·s(q), so on q servers it again takes r "
        "seconds",
        *_describe_reach(study),
        _describe_malleability(study),
        _describe_resizes(study),
        _describe_knowledge(study),
    ]


def _describe_reach(study: Study) -> list[str]:
    best, extrapolation = study.headline_policy, study.extrapolation
    if best is None or extrapolation is None or best not in extrapolation.beyond_request:
        return []
    part = extrapolation.beyond_request[best]
    if part == 0:
        return []
    return [
        f"this also holds where the trace shows nothing: under {get_title(best)}, {part:.0%} of "
        "server time is on servers beyond what the jobs had asked for"
    ]


def _describe_malleability(study: Study) -> str:
    anywhere = "can run on any whole number of servers up to its limit, anywhere on the machine"
    if study.malleability.is_everything:
        return f"every job {anywhere}"
    jobs, hours = measure_parts(study.trace, study.is_malleable)
    return (
        f"{study.malleability.describe()} ({jobs:.0%} of the jobs, {hours:.0%} of the "
        f"server-hours) are malleable: each of them {anywhere}"
    )


def _describe_resizes(study: Study) -> str:
    cost = "costs nothing"
    if study.resize_cost > 0:
        cost = f"stops it for {study.resize_cost:g} s, and costs nothing else"
    text = f"a malleable job can be resized at any moment, down to no server, and that {cost}"
    best = study.headline_policy
    row = next((row for row in study.rows() if row["policy"] == best), None)
    if row is None or row["resizes_per_job"] is None:
        return text
    return f"{text}; {get_title(row['policy'])} does it {row['resizes_per_job']:.1f} times per job"


def _describe_knowledge(study: Study) -> str:
    if study.headline_policy == "equi":
        return "no sizes need be known: EQUI, which is best here, does not use them"
    if study.sizes == "estimates":
        return (
            "users estimate as well as they did, and the system sees what fraction of a malleable "
            "job is done"
        )
    if study.size_error > 0:
        return f"sizes are known with an error of exp({study.size_error:g} Z), Z standard normal"
    return (
        "the system knows the size of a malleable job when it is submitted (EQUI does not need "
        "to; --sizes estimates shows what users' estimates are good for)"
    )
