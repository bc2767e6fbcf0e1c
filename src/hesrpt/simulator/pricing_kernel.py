"""Sharing servers at one price, compiled: see :mod:`hesrpt.policies.pricing`.

The demand of a job falls as the price rises. So between a price that is too low and one that is too
high, only the jobs whose demands at these two differ are looked at. On whole servers, and with many
jobs that wait, those are soon very few.
"""

from __future__ import annotations

from math import exp, inf, log, sqrt
from typing import NamedTuple

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import compiled, inlined
from hesrpt.simulator.sharing_kernel import JobFacts
from hesrpt.speedups.shape_kernel import Corners, Shape, Shapes, find_demand, find_rate

# The search for a price ends when its bounds are this close, or the demand is this exact.
_SAME_PRICE = 1e-14
_EXACT = 1e-12
_MAX_STEPS, _SECANT_STEPS = 200, 12
_MIN_PRICE, _MAX_PRICE = 1e-280, 1e280


class PriceSearch(NamedTuple):
    """The search for the price of a server, with an entry for each place of a list of jobs."""

    last: FloatArray  # the price that was found last, and Σ w p/(1 − p) of the jobs at that time
    relative: FloatArray  # the price when the job is expected to end, relative to the price now
    below: FloatArray  # demand at a price that is too low …
    above: FloatArray  # … at one that is too high …
    tried: FloatArray  # … and at the one that is tried
    undecided: IntArray  # the places where the first two differ


@compiled
def share_by_price(
    listed: IntArray,
    count: int,
    facts: JobFacts,
    shapes: Shapes,
    search: PriceSearch,
    servers: float,
    focus: float,
    is_whole: bool,
) -> None:
    """Share servers among jobs listed from the first to end to the last."""
    usable, held = facts.usable, facts.held
    total_usable = wanted = 0.0
    for place in range(count):
        job = listed[place]
        total_usable += usable[job]
        wanted += facts.weight[job] * facts.gain[job]
    if total_usable <= servers:
        for place in range(count):
            held[listed[place]] = usable[listed[place]]
        return
    _expect_prices(listed, count, facts, search, focus)
    guess = wanted / servers
    if search.last[0] > 0.0:
        guess = search.last[0] * wanted / search.last[1]
    price = _find_price(listed, count, facts, shapes, search, servers, guess, is_whole)
    search.last[0], search.last[1] = price, wanted


@inlined
def _expect_prices(
    listed: IntArray, count: int, facts: JobFacts, search: PriceSearch, focus: float
) -> None:
    """Find the price when each job ends, relative to the price now."""
    before = 0.0
    for place in range(count - 1, -1, -1):
        weight = facts.weight[listed[place]]
        search.relative[place] = before + weight / 2.0
        before += weight
    for place in range(count):
        part = search.relative[place] / before
        search.relative[place] = part if focus == 1.0 else part**focus


@inlined
def _find_demand_at(
    shape: Shape,
    corners: Corners,
    price: float,
    expected: float,
    weight: float,
    gain: float,
    fewest: float,
    usable: float,
) -> float:
    """Return the servers that a job demands; it is expected to end at another price."""
    best = min(max(weight * gain / expected, fewest), usable)
    value = (weight + expected * best) / find_rate(shape, corners, best)
    return find_demand(shape, corners, price / value)


@inlined
def _find_price(
    listed: IntArray,
    count: int,
    facts: JobFacts,
    shapes: Shapes,
    search: PriceSearch,
    servers: float,
    price: float,
    is_whole: bool,
) -> float:
    """Find the price at which jobs demand all servers, and share at that price.

    Return the price, or 0 if jobs demand too much at any price, or too little.
    """
    records, of_job, corners = shapes.records, shapes.of_job, shapes.corners
    below, above, tried, undecided = search.below, search.above, search.tried, search.undecided
    for place in range(count):
        undecided[place] = place
        below[place], above[place] = facts.usable[listed[place]], 0.0
    left, fixed = count, 0.0
    low, high, most, fewest_total = 0.0, inf, inf, 0.0
    last_price = last_total = 0.0
    # While all prices were too low, or too high, the next one differs by at least and at most this.
    least, reach = 1.0 + 1e-12, 4.0
    for step in range(_MAX_STEPS):
        total = fixed
        for at in range(left):
            place = undecided[at]
            job = listed[place]
            usable = facts.usable[job]
            fewest = min(usable, 1.0) if is_whole else 0.0
            tried[place] = _find_demand_at(
                records[of_job[job]],
                corners,
                price,
                price * search.relative[place],
                facts.weight[job],
                facts.gain[job],
                fewest,
                usable,
            )
            total += tried[place]
        is_over = total > servers
        if abs(total - servers) <= _EXACT * servers or (not is_over and price <= _MIN_PRICE):
            for at in range(left):
                below[undecided[at]] = above[undecided[at]] = tried[undecided[at]]
            scale = min(1.0, servers / total) if total > 0.0 else 1.0
            for place in range(count):
                facts.held[listed[place]] = above[place] * scale
            return price if low > 0.0 or price > _MIN_PRICE else 0.0
        if is_over and price >= _MAX_PRICE:
            for at in range(left):
                above[undecided[at]] = tried[undecided[at]]
            break
        if is_over:
            low, most = price, total
        else:
            high, fewest_total = price, total
        staying = 0
        for at in range(left):
            place = undecided[at]
            if is_over:
                below[place] = tried[place]
            else:
                above[place] = tried[place]
            # Before there is a price on the other side, the demand there is 0 or all that helps.
            if below[place] == above[place]:
                fixed += below[place]
            else:
                undecided[staying] = place
                staying += 1
        left = staying
        if high < inf and high - low <= _SAME_PRICE * high:
            break
        # --- the next price ---------------------------------------------------------------------
        step_price = price * min(max(total / servers, 0.25), 4.0)  # demand is nearly 1/λ
        if step < _SECANT_STEPS and 0.0 < total != last_total > 0.0:
            slope = log(last_price / price) / log(last_total / total)
            step_price = price * exp(min(max(slope * log(servers / total), -50.0), 50.0))
        last_price, last_total = price, total
        if low == 0.0:
            price = max(min(max(step_price, price / reach), price / least), _MIN_PRICE)
        elif high == inf:
            price = min(max(min(step_price, price * reach), price * least), _MAX_PRICE)
        elif low < step_price < high and step < _SECANT_STEPS:
            price = step_price
        else:
            price = sqrt(low / high) * high
            if step % 3 != 2 and 0.0 < fewest_total < most:
                part = log(most / servers) / log(most / fewest_total)
                price = exp(log(low) + min(max(part, 0.01), 0.99) * log(high / low))
            if not low < price < high:
                price = 0.5 * (low + high)
        least = 1.0 + 2.0 * (least - 1.0)
        if step > 8:
            reach = least = min(reach * reach, 1e40)
    _serve_first_to_end(listed, count, facts, search, servers)
    return price if high < inf else 0.0


@inlined
def _serve_first_to_end(
    listed: IntArray, count: int, facts: JobFacts, search: PriceSearch, servers: float
) -> None:
    """Give jobs what they demand at the higher price, and the rest to those that end first.

    If they demand more than there is even at the higher price, those that end last get fewer.
    """
    sure = 0.0
    for place in range(count):
        sure += search.above[place]
    is_over = sure > servers
    rest = servers if is_over else servers - sure
    for place in range(count):
        base = 0.0 if is_over else search.above[place]
        room = max((search.above[place] if is_over else search.below[place]) - base, 0.0)
        extra = min(max(rest, 0.0), room)
        facts.held[listed[place]] = base + extra
        rest -= room
