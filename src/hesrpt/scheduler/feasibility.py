"""Whether a job can ever start: it may need more than an engine can have."""

from __future__ import annotations

from hesrpt.engines.engine import Engine
from hesrpt.jobs.item_resources import describe_amount, describe_number
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.units import format_count


def explain_impossible(spec: JobSpec, engine: Engine) -> str | None:
    """Return why a job can never start on an engine, or None."""
    return _check_width(spec, engine) or _check_resources(spec, engine)


def _check_width(spec: JobSpec, engine: Engine) -> str | None:
    """Return why a job can never start, if it needs more servers than there can be."""
    most = engine.max_capacity()
    need = f"it needs at least {format_count(spec.min_servers, 'server')}"
    if spec.min_servers > most:
        return f"{need}, but there are only {most:g}"
    if not spec.is_bag and spec.min_servers > engine.max_command_width():
        return f"{need}, but a command can have only {engine.max_command_width():g} here"
    return None


def _check_resources(spec: JobSpec, engine: Engine) -> str | None:
    """Return why a job can never start, if an item needs more of a resource than there is."""
    totals = engine.resource_totals()
    for kind, amount in spec.resources.items():
        if kind not in totals:
            return (
                f"each item needs {describe_amount(kind, amount)}, but how much there is was not "
                f"said: use resources={{{kind!r}: …}}, or --resources {kind}=…"
            )
        if amount > totals[kind]:
            total = describe_number(kind, totals[kind])
            return f"each item needs {describe_amount(kind, amount)}, but there is only {total}"
    return None
