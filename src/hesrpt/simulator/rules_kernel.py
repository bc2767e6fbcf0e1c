"""Sharing servers among jobs that differ, compiled: the rules of policies.

Each function decides as the policy of its rule does (:mod:`hesrpt.policies`), up to rounding.
"""

from __future__ import annotations

from math import exp, expm1, floor, inf, log, log1p
from typing import Any, NamedTuple, Protocol

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import compiled, inlined
from hesrpt.optimal.execution_kernel import allocate
from hesrpt.optimal.recursion_kernel import Precision, value_place
from hesrpt.optimal.response_kernel import PREFIX_COLUMNS, WEIGHT, Batch, ResponseSums
from hesrpt.optimal.response_kernel import PRICE as PRICE_COLUMN
from hesrpt.optimal.response_kernel import VALUE as VALUE_COLUMN
from hesrpt.policies.pricing_kernel import (
    Market,
    PriceSearch,
    share_by_price,
    share_by_value,
    share_plenty,
)
from hesrpt.speedups.shape_kernel import Shapes, find_knee

#: Kinds of rules, as in :class:`hesrpt.policies.RuleKind`.
EQUAL, FIRST_COME, SMALLEST_FIRST, CLOSED_FORM, VALUE, KNEE = range(6)
#: What happens to servers beyond all knees, as in :data:`hesrpt.policies.sharing.Leftover`.
IDLE, TO_SMALLEST, TO_ALL = range(3)
# Servers up to this fraction are rounding error, as in :mod:`hesrpt.policies.sharing`.
_ROUNDING = 1e-12
# A list with more displaced entries than this, on average, is sorted by merging.
_MAX_MOVES = 8


class RuleSettings(Protocol):
    """The rule of the policy (:class:`hesrpt.policies.Rule`), and the system that it shares."""

    kind: int
    is_whole: bool
    shares_speedup: bool  # whether all jobs have the same speedup
    max_valued: int  # with more jobs than this, values take too long
    exponent: float  # of the closed form
    focus: float  # of the closed form or the values, if it is not calibrated
    alpha: float  # of KNEE …
    leftover: int  # … and what it does with servers beyond all knees
    servers: float
    has_losses: bool  # whether resizes cost anything
    max_slope: float  # of the speedup that all jobs share


class JobFacts(NamedTuple):
    """What rules know of each job, and what they decide."""

    usable: FloatArray  # servers that speed it up
    weight: FloatArray
    fastest: FloatArray  # its rate on all servers
    arrival_rank: IntArray  # its place in the order of arrivals
    seen: FloatArray  # what remains of it, as the policy sees it
    now: FloatArray  # the servers that it holds, and which part of the time until the next …
    loss: FloatArray  # … change a resize stops it for; both 0 if resizes cost nothing
    key: FloatArray  # by which jobs are ordered
    held: FloatArray  # the servers that the rule decides on
    order: IntArray  # the jobs in the system, from the first expected to end to the last
    by_knee: IntArray  # the same by knee


class Workspace(NamedTuple):
    """Arrays for intermediate results, with an entry for each job or each place of a list."""

    keys: FloatArray
    sums: FloatArray
    entries: IntArray
    scratch: IntArray


class Values(NamedTuple):
    """The values of the jobs in the system, from the last to end to the first."""

    line: FloatArray  # see :mod:`hesrpt.optimal.response_kernel`
    listed: IntArray  # the jobs whose values the line has …
    known: IntArray  # … and how many: one entry
    price_by_weight: FloatArray  # of each job, when it was listed last; 0 at first
    held: FloatArray
    rates: FloatArray


class Decisions(NamedTuple):
    """All that a rule needs apart from the state of the loop."""

    facts: JobFacts
    shapes: Shapes
    deciding: Shapes  # the same speedups, but on whole servers if only those are assigned
    work: Workspace
    search: PriceSearch
    values: Values
    precision: Precision
    settings: Any  # an array with one record: see :class:`RuleSettings`


@inlined
def decide(present: IntArray, count: int, rule: Decisions, focus: float) -> None:
    """Decide on the servers of all jobs in the system as the rule's policy does, up to rounding."""
    facts, settings, work = rule.facts, rule.settings[0], rule.work
    kind, servers = settings.kind, settings.servers
    if kind == EQUAL:
        share_equally(present, count, facts, servers)
    elif kind == FIRST_COME:
        serve_in_order(present, count, facts, servers)
    elif kind == VALUE:
        share_between_ends(present, count, rule, focus)
    else:
        for place in range(count):
            job = present[place]
            facts.key[job] = facts.seen[job] / facts.weight[job]
        sort_by_key(facts.order, count, facts.key, facts.arrival_rank, work.scratch)
        if kind == SMALLEST_FIRST:
            serve_in_order(facts.order, count, facts, servers)
        elif kind == CLOSED_FORM:
            exponent = settings.exponent
            if focus != 1.0:  # see hesrpt.policies.adaptive.effective_exponent
                exponent = focus * exponent / (1.0 - exponent + focus * exponent)
            share_by_rank(facts.order, count, facts, servers, exponent, work.sums)
        elif kind == KNEE:
            share_up_to_knees(facts.order, count, rule)
    if settings.is_whole:
        round_fairly(present, count, facts, servers, work)


# --- simple rules ---------------------------------------------------------------------------------


@compiled
def sort_by_key(
    entries: IntArray, count: int, keys: FloatArray, ties: IntArray, scratch: IntArray
) -> None:
    """Sort the first ``count`` entries by their keys, and entries with equal keys by ``ties``.

    A list that is nearly sorted takes a time in proportion to its length.
    """
    moves = _MAX_MOVES * count
    place = 1
    while place < count and moves >= 0:
        entry = entries[place]
        key, tie = keys[entry], ties[entry]
        at = place
        while at > 0:
            before = entries[at - 1]
            if keys[before] < key or (keys[before] == key and ties[before] <= tie):
                break
            entries[at] = before
            at -= 1
        entries[at] = entry
        moves -= place - at
        place += 1
    if place == count or count < 2:
        return
    width = 1
    while width < count:
        for start in range(0, count, 2 * width):
            middle, end = min(start + width, count), min(start + 2 * width, count)
            left, right = start, middle
            for at in range(start, end):
                takes_left = right >= end
                if not takes_left and left < middle:
                    first, second = entries[left], entries[right]
                    takes_left = keys[first] < keys[second] or (
                        keys[first] == keys[second] and ties[first] <= ties[second]
                    )
                if takes_left:
                    scratch[at] = entries[left]
                    left += 1
                else:
                    scratch[at] = entries[right]
                    right += 1
        for at in range(count):
            entries[at] = scratch[at]
        width *= 2


@compiled
def share_equally(listed: IntArray, count: int, facts: JobFacts, servers: float) -> None:
    """Give all jobs of the list the same, and what some cannot use to the others."""
    equal = servers / count
    is_over = False
    for place in range(count):
        job = listed[place]
        facts.held[job] = equal
        is_over |= equal > facts.usable[job]
    if is_over:
        redistribute_excess(listed, count, facts)


@compiled
def serve_in_order(listed: IntArray, count: int, facts: JobFacts, servers: float) -> None:
    """Give each job of the list all the servers it can use, until there are none left."""
    used = 0.0
    for place in range(count):
        job = listed[place]
        facts.held[job] = min(max(servers - used, 0.0), facts.usable[job])
        used += facts.usable[job]


@compiled
def share_by_rank(
    listed: IntArray,
    count: int,
    facts: JobFacts,
    servers: float,
    exponent: float,
    sums: FloatArray,
) -> None:
    """Give jobs, listed from the first to end to the last, heSRPT's shares.

    These are (W_i/W_m)^c − (W_{i−1}/W_m)^c, where W_i is the weight of the last i jobs to end: see
    :func:`hesrpt.optimal.closed_form.compute_shares`.
    """
    c = 1.0 / (1.0 - exponent)
    total = 0.0
    for place in range(count - 1, -1, -1):
        total += facts.weight[listed[place]]
        sums[place] = total
    is_over = False
    for place in range(count):
        job = listed[place]
        weight, up_to = facts.weight[job], sums[place]
        own = 1.0
        if place < count - 1:
            part = weight / up_to
            log_ratio = log1p(-part) if part <= 0.5 else log(sums[place + 1] / up_to)
            own = -expm1(c * log_ratio)
        log_part = log1p((up_to - total) / total) if up_to > total / 2 else log(up_to / total)
        facts.held[job] = servers * (exp(c * log_part) * own)
        is_over |= facts.held[job] > facts.usable[job]
    if is_over:
        redistribute_excess(listed, count, facts)


@compiled
def share_up_to_knees(listed: IntArray, count: int, rule: Decisions) -> None:
    """Give jobs, listed from the smallest to the largest, their knees, the lowest knee first.

    ``facts.key`` has what remains of each job. See :class:`hesrpt.policies.Knee`.
    """
    facts, shapes, work, settings = rule.facts, rule.shapes, rule.work, rule.settings[0]
    servers = settings.servers
    for place in range(count):
        job = listed[place]
        work.entries[job] = place  # of equal knees, the one of the smallest job comes first
        shape = shapes.records[shapes.of_job[job]]
        knee = find_knee(shape, shapes.corners, facts.key[job] / settings.alpha, servers)
        work.keys[job] = max(np.ceil(knee), 1.0) if settings.is_whole else knee
    sort_by_key(facts.by_knee, count, work.keys, work.entries, work.scratch)
    free = servers
    for place in range(count):
        job = facts.by_knee[place]
        facts.held[job] = min(work.keys[job], max(free, 0.0))
        free -= work.keys[job]
    unassigned = servers
    for place in range(count):
        unassigned -= facts.held[facts.by_knee[place]]
    if unassigned <= _ROUNDING * servers:
        return
    if settings.leftover == TO_SMALLEST:
        facts.held[facts.by_knee[0]] += unassigned
    elif settings.leftover == TO_ALL:
        for place in range(count):
            facts.held[facts.by_knee[place]] += unassigned / count


@compiled
def redistribute_excess(listed: IntArray, count: int, facts: JobFacts) -> None:
    """Give servers that some jobs cannot use to the others, in proportion to what those hold.

    See :func:`hesrpt.policies.sharing.redistribute_excess`.
    """
    held, usable = facts.held, facts.usable
    while True:
        excess = growing = 0.0
        is_over = False
        for place in range(count):
            job = listed[place]
            if held[job] > usable[job]:
                is_over = True
                excess += held[job] - usable[job]
                held[job] = usable[job]
            elif held[job] < usable[job]:
                growing += held[job]
        if not is_over:
            return
        if growing <= 0.0:
            for place in range(count):
                job = listed[place]
                room = usable[job] - held[job]
                held[job] += min(max(excess, 0.0), room)
                excess -= room
            return
        for place in range(count):
            job = listed[place]
            if held[job] < usable[job]:
                held[job] += excess * held[job] / growing


@compiled
def round_fairly(
    listed: IntArray, count: int, facts: JobFacts, servers: float, work: Workspace
) -> None:
    """Round all shares down, then give one server more to the jobs that lost the most.

    See :func:`hesrpt.policies.sharing.round_fairly`.
    """
    total = rounded = 0.0
    for place in range(count):
        job = listed[place]
        held = facts.held[job]
        whole = floor(held + 1e-9)
        total += held
        rounded += whole
        work.keys[job] = -np.rint((held - whole) * 1e9)
        facts.held[job] = whole
    missing = int(min(floor(total + 1e-9), servers) - rounded)
    if missing > 0:
        for place in range(count):
            work.entries[place] = listed[place]
        sort_by_key(work.entries, count, work.keys, facts.arrival_rank, work.scratch)
        for place in range(min(missing, count)):
            facts.held[work.entries[place]] += 1.0


# --- values, from equal ones to those of the batch: see :mod:`hesrpt.policies.optimal` -----------
#
# The value of a job depends only on jobs that end later, so the values of jobs before the first
# change in the list are kept from event to event.


@inlined
def share_between_ends(present: IntArray, count: int, rule: Decisions, focus: float) -> None:
    """Share servers as the planner does, if jobs meet the prices that go with the focus."""
    facts, settings, search, listed = rule.facts, rule.settings[0], rule.search, rule.facts.order
    for place in range(count):
        job = present[place]
        facts.key[job] = facts.seen[job] / facts.fastest[job] / facts.weight[job]
    sort_by_key(listed, count, facts.key, facts.arrival_rank, rule.work.scratch)
    market = Market(
        rule.deciding,
        facts.weight,
        facts.usable,
        facts.held,
        facts.now,
        facts.loss,
        settings.servers,
        settings.has_losses,
        settings.is_whole,
    )
    is_rising = settings.shares_speedup and has_rising_weights(listed, count, facts)
    if count > settings.max_valued and not is_rising:
        share_by_price(listed, count, market, search, focus, 0.0)
    elif focus == 1.0 and not settings.has_losses:
        share_by_batch_value(listed, count, rule, is_rising)
    elif not share_plenty(listed, count, market):
        search.value[:count] = 1.0
        if focus > 0.0:
            find_batch_values(listed, count, rule, is_rising)
            for place in range(count):
                search.value[place] = rule.values.line[count - 1 - place, VALUE_COLUMN]
        share_by_value(listed, count, market, search, focus)


@compiled
def has_rising_weights(listed: IntArray, count: int, facts: JobFacts) -> bool:
    """Whether no job weighs more than one before it; the first to end is listed first."""
    for place in range(1, count):
        if facts.weight[listed[place]] > facts.weight[listed[place - 1]]:
            return False
    return True


@inlined
def create_batch(rule: Decisions, is_rising: bool) -> Batch:
    """Return the jobs as the planner sees them."""
    weight, settings = rule.facts.weight, rule.settings[0]
    max_slope = settings.max_slope if is_rising else inf
    return Batch(rule.deciding, weight[:0], weight, settings.servers, is_rising, max_slope)


@inlined
def find_batch_values(listed: IntArray, count: int, rule: Decisions, is_rising: bool) -> None:
    """Find the values in a batch of jobs listed from the first to end to the last."""
    weight, values = rule.facts.weight, rule.values
    batch = create_batch(rule, is_rising)
    known = 0
    while known < min(count, values.known[0]):
        if values.listed[known] != listed[count - 1 - known]:
            break
        known += 1
    none = np.empty(0, np.int64)
    no_sums = ResponseSums(np.empty(0), none, none, np.empty((0, PREFIX_COLUMNS)))
    for place in range(known, count):
        job = listed[count - 1 - place]
        values.listed[place] = job
        # Prices are nearly in proportion to the weight of the jobs present.
        before = values.line[place - 1, WEIGHT] if place > 0 else 0.0
        guess = values.price_by_weight[job] * (before + weight[job])
        value_place(batch, values.line, values.listed, place, guess, rule.precision, no_sums)
        found = values.line[place]
        values.price_by_weight[job] = found[PRICE_COLUMN] / found[WEIGHT]
    values.known[0] = count


@inlined
def share_by_batch_value(listed: IntArray, count: int, rule: Decisions, is_rising: bool) -> None:
    """Share servers as in a batch among jobs listed from the first to end to the last."""
    find_batch_values(listed, count, rule, is_rising)
    batch, values = create_batch(rule, is_rising), rule.values
    start = allocate(batch, values.line, values.listed, count, values.held, values.rates)
    for place in range(count):
        rule.facts.held[values.listed[place]] = values.held[place] if place >= start else 0.0
