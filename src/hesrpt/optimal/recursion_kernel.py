"""The recursion that gives each job its value, compiled.

The recursion of :mod:`hesrpt.optimal.recursion` gives job k a value for which phase k exactly pays
its cost. By duality, with a price λ of a server,

    v_k = max over λ of min over n of (g(λ) + λ n) / s_k(n),
    g(λ) = W_k − λ N − Σ over i < k of π_i(λ),   π_i(λ) = max over n of v_i s_i(n) − λ n.

The function of λ is concave, so an error of the price has only a second-order effect on the value,
and every price gives a value that is at most the right one: no phase earns more than it costs.

Jobs are listed from the last to end to the first. A row of ``line`` belongs to a place in the list.
"""

from __future__ import annotations

from math import exp, inf, log, sqrt
from typing import NamedTuple

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import compiled
from hesrpt.optimal.response_kernel import (
    COVERED,
    LISTED,
    PREFIXED,
    PRICE,
    VALUE,
    WEIGHT,
    Batch,
    ResponseSums,
    add_response,
    add_to_prefix,
    covers,
    find_first_above,
    respond_all,
    respond_by_sums,
    respond_together,
    set_value,
    sum_by_prefix,
)
from hesrpt.speedups.shape_kernel import POWER, TABLE, find_cheapest, find_slope_before

# A job with a weight below this fraction of the total weight up to it waits for another job to end.
# Both its earnings and the cost of its waiting are below rounding errors.
_NEGLIGIBLE = 1e-12
_ROUNDING = 2.3e-16
_MAX_OFFERS = 200
# The value of a place determines its price if its error is at most this part of what all servers
# cost. With a speedup that hardly rises, such as Amdahl's law with a tiny parallel fraction, all
# servers together cost less than the rounding error of a value. Then the search goes on until
# demand determines the price, up to the other part.
_CLEAR, _NARROW = 1e-9, 1e-12
# Prices below this part of the cost of a phase, for all servers, are 0.
_LEAST_PRICE = 1e-40
# With fewer places than this, responses are not worth summing.
FEW_PLACES = 64
# About what a sum takes, compared with one response.
_SUMMED_STEPS = 10


class Precision(NamedTuple):
    """How exact values must be.

    A price is good enough if the demand at that price differs from the servers by at most the
    fraction ``close`` of them, or if no price gives a value greater by the fraction ``exact``. A
    search extrapolates: it takes a value at the next price for granted if the error is likely to be
    at most the fraction ``likely``.
    """

    close: float
    exact: float
    likely: float


#: The error of a value is about the square of the first number.
EXACT = Precision(close=1e-7, exact=1e-14, likely=0.0)


@compiled
def value_place(
    batch: Batch,
    line: FloatArray,
    order: IntArray,
    place: int,
    guess: float,
    precision: Precision,
    response_sums: ResponseSums,
) -> int:
    """Set the value and the price of a place, given all rows before; return the steps it took.

    ``response_sums`` may be empty: then responses are not summed.
    """
    close, exact, likely = precision
    job = order[place]
    shape = batch.shapes.records[batch.shapes.of_job[job]]
    row = line[place]
    before = line[place - 1, WEIGHT] if place > 0 else 0.0
    cost = row[WEIGHT] = before + batch.weights[job]
    if place == 0:
        value = cost / shape.high_rate
        row[PRICE] = value * find_slope_before(shape, batch.shapes.corners, batch.servers)
        set_value(line, place, value)
        return 1
    if is_negligible(batch, line, order, place):
        # This value is always feasible: even all servers would earn no more than the weight.
        row[PRICE] = line[place - 1, PRICE]
        set_value(line, place, batch.weights[job] / shape.high_rate)
        return 1
    low, high = 0.0, cost / batch.servers
    low_value = high_value = low_slope = high_slope = 0.0  # tangents, where slopes are not 0
    price = guess
    if not 0 < price < high:
        price = _guess_price(line, place)
        if not price < high:
            price = 0.99 * high
    best, best_price, factor = 0.0, price, 1.02
    offers = steps = 0
    has_prefix = response_sums.prefix.shape[0] > 0
    while offers < _MAX_OFFERS:
        offers += 1
        log_price = -inf
        if price > 0 and not has_prefix:
            log_price = log(price)
        is_summed = response_sums.listed.size > 0 and place >= FEW_PLACES
        if has_prefix and price > 0:
            sums, prefix = response_sums.sums, response_sums.prefix
            sum_by_prefix(shape, line, place, price, sums, prefix)
            demand, profit, growth = respond_by_sums(sums, price, log_price)
            is_smooth = True
            steps += 1
        elif is_summed and (offers == 1 or covers(response_sums, place, price)):
            demand, profit, growth, is_smooth = respond_together(
                batch, line, order, place, price, log_price, response_sums
            )
            steps += _SUMMED_STEPS + response_sums.counts[LISTED]
        else:
            start = 0
            if batch.max_slope < inf:
                start = find_first_above(line, place, price / batch.max_slope)
            demand, profit, growth, is_smooth = respond_all(
                batch, line, order, response_sums.listed[:0], start, place, price, log_price
            )
            steps += place + 1
        spare = cost - price * batch.servers - profit
        step, noise = 0.0, 0.0
        if spare <= 0:
            is_low = demand >= batch.servers
        else:
            value, servers, rate = find_cheapest(shape, batch.shapes.corners, spare, price)
            noise = 4 * _ROUNDING * cost / rate
            if value > best:
                best, best_price = value, price
            excess = demand + servers - batch.servers
            is_low = excess > 0
            is_smooth = is_smooth and not shape.has_kinks
            if shape.low < servers < shape.high and shape.family != TABLE:
                own = servers * (1 + price * (batch.servers - demand) / spare)
                growth += own if shape.family == POWER else 0.5 * own
            change = min(max(excess / growth, -3.0), 3.0) if growth > 0 else 3.0
            if growth > 0 and offers < 12:
                step = price * exp(change)
            # The value is then exact. To be worth as much, the allocation needs the right price.
            is_close = abs(excess) <= close * batch.servers
            if is_close and abs(excess * change) <= close * close * batch.servers:
                best_price = step if step > 0 else price
                break
            # The value at that price differs by this much, and by terms of third order.
            gain = 0.5 * price * excess * change / rate
            if is_smooth and step > 0 and abs(gain * change) <= likely * value:
                best, best_price = max(best, value + gain), step
                break
            if price == 0 and not is_low:
                best_price = 0.0
                break
            if is_low:
                low_value, low_slope = value, excess / rate
            else:
                high_value, high_slope = value, excess / rate
        if is_low:
            low = price
            low_slope = low_slope if spare > 0 else 0.0
        else:
            high = price
            high_slope = high_slope if spare > 0 else 0.0
        if low_slope > 0 and high_slope < 0:
            width = high - low
            along = (high_value - low_value - high_slope * width) / (low_slope - high_slope)
            along = min(max(along, 0.0), width)
            slack = exact * best + noise
            # A value that hardly depends on the price does not determine it: then demand must.
            is_clear = slack <= _CLEAR * high * batch.servers / rate
            if is_clear and low_value + low_slope * along - best <= slack:
                best_price = low + along
                break
            if not is_clear and width <= _NARROW * high:
                best_price = high
                break
            if not low < step < high:
                step = low + along
        if not low < step < high:
            if low == 0:
                step = high / factor if high > _LEAST_PRICE * cost / batch.servers else 0.0
            elif high_slope == 0 and high == cost / batch.servers:
                step = min(low * factor, 0.5 * (low + high))
            else:
                step = sqrt(low) * sqrt(high)
            factor = min(factor * factor, 1e3)
        if high - low <= 1e-15 * high or (not low < step < high and step > 0):
            break
        price = step
    row[PRICE] = best_price
    if batch.is_rising:
        best = max(best, line[place - 1, VALUE])  # rounding must not undo that values rise
    set_value(line, place, best)
    return steps


@compiled
def _guess_price(line: FloatArray, place: int) -> float:
    """Guess the price from up to three previous ones, whose logarithms change smoothly."""
    price = line[place - 1, PRICE]
    if place > 1 and line[place - 2, PRICE] > 0:
        growth = price / line[place - 2, PRICE]
        if place > 2 and growth < 2 and line[place - 3, PRICE] > 0:
            growth *= growth * line[place - 3, PRICE] / line[place - 2, PRICE]
        price *= min(growth, 2.0)
    return float(price)


@compiled
def is_negligible(batch: Batch, line: FloatArray, order: IntArray, place: int) -> bool:
    """Whether the weight of a place is negligible beside those before it."""
    return bool(batch.weights[order[place]] < _NEGLIGIBLE * line[place, WEIGHT])


@compiled
def value_places(
    batch: Batch,
    line: FloatArray,
    order: IntArray,
    first: int,
    end: int,
    precision: Precision,
    response_sums: ResponseSums,
) -> int:
    """Set the values of some places, given all before; return the steps it took.

    The prices that the line has are taken for good guesses, unless they are 0. The sums in
    ``response_sums`` must be right as far as they go. In the end they go up to the last place.
    """
    if response_sums.prefix.shape[0] > 0:
        for place in range(response_sums.counts[PREFIXED], first):
            add_to_prefix(response_sums.prefix, place, line[place, VALUE])
        response_sums.counts[PREFIXED] = end
    steps, drift = 0, 1.0  # of prices compared with their guesses
    for place in range(first, end):
        known = line[place, PRICE]
        steps += value_place(batch, line, order, place, drift * known, precision, response_sums)
        if response_sums.prefix.shape[0] > 0:
            add_to_prefix(response_sums.prefix, place, line[place, VALUE])
        elif response_sums.counts[COVERED] == place:
            add_response(batch, line, order, place, response_sums)
        drift = line[place, PRICE] / known if known > 0 else 1.0
    return steps


@compiled
def copy_values(
    batch: Batch, line: FloatArray, order: IntArray, values: FloatArray, prices: FloatArray
) -> None:
    """Fill the first rows of a line with values and prices that are known."""
    total = 0.0
    for place in range(values.size):
        total += batch.weights[order[place]]
        line[place, WEIGHT], line[place, PRICE] = total, prices[place]
        set_value(line, place, values[place])
