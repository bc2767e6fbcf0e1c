"""Sharing servers at one price, compiled: see :mod:`hesrpt.policies.pricing`.

Jobs are listed from the first expected to end to the last. The demand of a job falls as the price
rises. So between a price that is too low and one that is too high, only the jobs whose demands at
these two differ are looked at. On whole servers, and with many jobs that wait, those are soon few.
"""

from __future__ import annotations

from math import ceil, exp, floor, inf, log, sqrt
from typing import NamedTuple

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import compiled, inlined
from hesrpt.policies.calibration_kernel import GRID, MAX_COMMON_PRICE, MIN_COMMON_PRICE
from hesrpt.speedups.shape_kernel import Shapes, find_cheapest, find_demand, find_rate

# The search for a price ends when its bounds are this close, or the demand is this exact.
_SAME_PRICE = 1e-14
# If resizes cost time, equal jobs want to be resized at the same price, but for rounding errors.
_SAME_RESIZE_PRICE = 1e-9
_EXACT = 1e-12
_MAX_STEPS, _SECANT_STEPS = 200, 12
_MIN_PRICE, _MAX_PRICE = 1e-280, 1e280
# With more combinations of jobs and servers than this, whole servers are shared by a price, too.
_MAX_CHOICES = 4_000_000
# How far from the last common price the next one is looked for first, in powers of the grid.
_NEAR = 4


class Market(NamedTuple):
    """The jobs that demand servers. Arrays have an entry for each job."""

    shapes: Shapes
    weight: FloatArray
    usable: FloatArray  # servers that speed it up
    held: FloatArray  # the servers that it gets
    now: FloatArray  # those that it holds now
    loss: FloatArray  # the part of its work until the next change that a resize costs; 0: nothing
    servers: float
    has_losses: bool  # whether any job would lose anything
    is_whole: bool  # whether servers are whole, in which case the speedups are those on whole ones


class PriceSearch(NamedTuple):
    """The search for the price of a server, with an entry for each place of a list of jobs."""

    last: FloatArray  # the price that was found last, and the weight of the jobs at that time
    relative: FloatArray  # the price when the job is expected to end, relative to the price now
    value: FloatArray  # of a unit of its work, if values are given
    below: FloatArray  # demand at a price that is too low …
    above: FloatArray  # … at one that is too high …
    tried: FloatArray  # … and at the one that is tried
    undecided: IntArray  # the places where the first two differ


def create_price_search(jobs: int) -> PriceSearch:
    """Return a search for lists of up to this many jobs."""
    relative, value, below, above, tried = np.empty((5, jobs))
    places = np.empty(jobs, dtype=np.int64)
    return PriceSearch(np.zeros(2), relative, value, below, above, tried, places)


@compiled
def share_by_price(
    listed: IntArray, count: int, market: Market, search: PriceSearch, focus: float, others: float
) -> None:
    """Share servers by the prices that jobs expect; jobs of the weight ``others`` end later."""
    if share_plenty(listed, count, market):
        return
    before = others
    for place in range(count - 1, -1, -1):
        weight = market.weight[listed[place]]
        # Each job is expected to end in the middle of its interval of ranks.
        search.relative[place] = before + weight / 2.0
        before += weight
    for place in range(count):
        part = search.relative[place] / before
        search.relative[place] = part if focus == 1.0 else part**focus
    guess = before / market.servers
    if search.last[0] > 0.0:
        guess = search.last[0] * before / search.last[1]
    price = _find_price(listed, count, market, search, guess, False)
    search.last[0], search.last[1] = price, before


@compiled
def share_by_value(
    listed: IntArray, count: int, market: Market, search: PriceSearch, focus: float
) -> None:
    """Share servers by the values of jobs at a focus, so that all earn the same by one more.

    There must not be plenty, and ``search.value`` must have the values in the batch.
    """
    _blend_values(listed, count, market, search, focus)
    choices = count * market.servers * market.servers
    if market.has_losses and market.is_whole and choices <= _MAX_CHOICES:
        _choose_servers(listed, count, market, search.value)
    else:
        _find_price(listed, count, market, search, search.last[0], True)


@compiled
def share_plenty(listed: IntArray, count: int, market: Market) -> bool:
    """If there are servers for all that jobs can use, share them, and return True."""
    total = 0.0
    for place in range(count):
        total += market.usable[listed[place]]
    if total > market.servers:
        return False
    for place in range(count):
        job = listed[place]
        market.held[job] = market.usable[job]
        if market.has_losses:
            market.held[job] = _keep_or_resize(market, job, 1.0, 0.0)
    return True


@compiled
def _choose_servers(listed: IntArray, count: int, market: Market, value: FloatArray) -> None:
    """Share whole servers so that jobs earn the most, given what they lose by resizes.

    If jobs keep what they hold, no price uses up all servers: most earn nothing by a few more. So
    this looks at all numbers of servers, job by job.
    """
    servers = int(market.servers)
    most, earned = np.zeros(servers + 1), np.zeros(servers + 1)  # by all jobs up to this; by it
    chosen = np.zeros((count, servers + 1), dtype=np.int64)
    for place in range(count - 1, -1, -1):
        job = listed[place]
        shape = market.shapes.records[market.shapes.of_job[job]]
        now, limit = int(market.now[job]), min(int(market.usable[job]), servers)
        for own in range(max(limit, min(now, servers)) + 1):
            part = 1.0 if own == now else 1.0 - market.loss[job]
            earned[own] = part * value[place] * find_rate(shape, market.shapes.corners, float(own))
        before, most = most, np.empty(servers + 1)
        for total in range(servers + 1):
            best = before[total - now] + earned[now] if now <= total else -1.0
            chosen[place, total] = now
            for own in range(min(limit, total) + 1):
                if before[total - own] + earned[own] > best * (1.0 + _EXACT):
                    best, chosen[place, total] = before[total - own] + earned[own], own
            most[total] = best
    left = servers
    for place in range(count):
        market.held[listed[place]] = chosen[place, left]
        left -= chosen[place, left]


@compiled
def _keep_or_resize(market: Market, job: int, value: float, price: float) -> float:
    """Return what a job demands if a resize costs a part of its work until the next change."""
    shape, corners = market.shapes.records[market.shapes.of_job[job]], market.shapes.corners
    now, left = market.now[job], value * (1.0 - market.loss[job])
    if left <= 0.0:
        return float(now)
    demand = find_demand(shape, corners, price / left)
    profit = left * find_rate(shape, corners, demand) - price * demand
    keeps = bool(value * find_rate(shape, corners, now) - price * now >= profit)
    return float(now) if keeps else demand


@compiled
def _blend_values(
    listed: IntArray, count: int, market: Market, search: PriceSearch, focus: float
) -> None:
    """Replace the batch's values in ``search.value`` by those at a focus below 1.

    A guess of the price that follows from them is left in ``search.last``.
    """
    total = 0.0
    for place in range(count):
        total += market.weight[listed[place]]
    low = floor(log(MIN_COMMON_PRICE * total / market.servers) / log(GRID))
    high = ceil(log(MAX_COMMON_PRICE * total) / log(GRID))
    demand_low, demand_high = inf, market.servers
    near = low - _NEAR  # without a guess, neither edge is in between
    if search.last[0] > 0.0:  # the price is nearly in proportion to the weight of the jobs
        near = int(log(search.last[0] * total / search.last[1]) / log(GRID))
    edge = near - _NEAR
    while high - low > 1:
        middle = (low + high) // 2
        if low < edge < high:  # a guess saves steps only
            middle = edge
        edge = near + _NEAR
        demand = _demand_at(listed, count, market, GRID**middle)
        if demand > market.servers:
            low, demand_low = middle, demand
        else:
            high, demand_high = middle, demand
    part = 1.0
    if demand_high < market.servers and demand_low < inf:
        part = log(demand_low / market.servers) / log(demand_low / demand_high)
    price = GRID ** (low + part)
    for place in range(count):
        job = listed[place]
        shape = market.shapes.records[market.shapes.of_job[job]]
        common = find_cheapest(shape, market.shapes.corners, market.weight[job], price)[0]
        search.value[place] = common * (search.value[place] / common) ** focus
    search.last[0], search.last[1] = price, total


@inlined
def _demand_at(listed: IntArray, count: int, market: Market, price: float) -> float:
    """Return the servers with which jobs work at the least cost, if a server has this price."""
    total = 0.0
    for place in range(count):
        job = listed[place]
        shape = market.shapes.records[market.shapes.of_job[job]]
        total += find_cheapest(shape, market.shapes.corners, market.weight[job], price)[1]
    return total


@inlined
def _find_price(
    listed: IntArray, count: int, market: Market, search: PriceSearch, price: float, is_valued: bool
) -> float:
    """Find the price at which jobs demand all servers, and share at that price.

    Return the price, or 0 if jobs demand too much at any price, or too little.
    """
    servers, held = market.servers, market.held
    records, corners, of_job = market.shapes
    below, above, tried, undecided = search.below, search.above, search.tried, search.undecided
    for place in range(count):
        undecided[place] = place
        below[place], above[place] = market.usable[listed[place]], 0.0
    same_price = _SAME_RESIZE_PRICE if market.has_losses else _SAME_PRICE
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
            shape = records[of_job[job]]
            if is_valued:
                value = search.value[place]
            else:
                expected = price * search.relative[place]  # when the job ends
                value = find_cheapest(shape, corners, market.weight[job], expected)[0]
            if market.has_losses:
                tried[place] = _keep_or_resize(market, job, value, price)
            else:
                tried[place] = find_demand(shape, corners, price / value)
            total += tried[place]
        is_over = total > servers
        if abs(total - servers) <= _EXACT * servers or (not is_over and price <= _MIN_PRICE):
            for at in range(left):
                below[undecided[at]] = above[undecided[at]] = tried[undecided[at]]
            scale = min(1.0, servers / total) if total > 0.0 else 1.0
            for place in range(count):
                held[listed[place]] = above[place] * scale
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
        if high < inf and high - low <= same_price * high:
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
    _serve_first_to_end(listed, count, market, search)
    return price if high < inf else 0.0


@inlined
def _serve_first_to_end(listed: IntArray, count: int, market: Market, search: PriceSearch) -> None:
    """Give jobs what they demand at the higher price, and the rest to those that end first.

    If they demand more than there is even at the higher price, those that end last get fewer.
    """
    sure = 0.0
    for place in range(count):
        sure += search.above[place]
    is_over = sure > market.servers
    rest = market.servers if is_over else market.servers - sure
    for place in range(count):
        job = listed[place]
        base = 0.0 if is_over else search.above[place]
        room = max((search.above[place] if is_over else search.below[place]) - base, 0.0)
        extra = min(max(rest, 0.0), room)
        market.held[job] = base + extra
        rest -= extra
