"""Everything that a pool needs before its first job: an engine, a journal, a core and a driver."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from hesrpt.decisions.core import Core
from hesrpt.decisions.kinds import KindMemory, LearnedRun
from hesrpt.engines.engine import Engine
from hesrpt.engines.registry import create_engine
from hesrpt.errors import InputError
from hesrpt.policies import PolicyLike, get_malleable_policy
from hesrpt.reports.inspection import read_learned_runs
from hesrpt.scheduler.driver import Driver
from hesrpt.scheduler.job_registry import OnChange
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import Changes
from hesrpt.validation import check_whole_number


@contextmanager
def open_driver(
    policy: PolicyLike,
    engine: str | Engine,
    engine_options: Mapping[str, Any],
    *,
    servers: int | None,
    state: str | Path | None,
    resume: bool,
    learned: str | Path | None,
    on_change: OnChange,
) -> Iterator[Driver]:
    """Create the driver of a new run, or of one to continue; whoever calls this starts it.

    If the ``with`` block raises an error, the engine and the journal are closed.
    """
    if servers is not None:
        servers = check_whole_number("servers", servers, minimum=1)
    if resume and state is None:
        raise InputError("resume=True needs state=, the directory of the run to continue")
    get_malleable_policy(policy)  # refuses an invalid policy before anything is created
    runs = [] if learned is None else read_learned_runs(Path(learned))
    journal = None
    with ExitStack() as on_error:
        if state is not None and resume:
            journal = Journal.resume(state)
            on_error.callback(journal.close)
            if engine == "local":
                if servers is None:
                    servers = journal.get_value("servers")
                if engine_options.get("resources") is None:
                    recorded = journal.get_value("resources", {}, parse=json.loads)
                    engine_options = {**engine_options, "resources": recorded}
        running_engine = create_engine(engine, servers, engine_options)
        on_error.callback(running_engine.close)
        resources = running_engine.resource_totals()
        core = Core(
            running_engine.capacity(),
            policy,
            running_engine.batch_seconds,
            resources,
            running_engine.max_batch,
        )
        if journal is not None:
            _record_resume(journal, core)
        elif state is not None:
            journal = Journal.create(state, core.servers, core.allocator.policy.name)
            on_error.callback(journal.close)
        if journal is not None:
            journal.write(Changes(values={"resources": json.dumps(dict(resources))}))
            running_engine.claim(journal.directory)
            runs = _choose_learned_runs(journal, runs)
        yield Driver(core, running_engine, journal, KindMemory(runs), on_change)
        on_error.pop_all()


def _record_resume(journal: Journal, core: Core) -> None:
    """Record the servers and the policy with which a run goes on."""
    policy = core.allocator.policy.name
    values: dict[str, float | str] = {"servers": core.servers, "policy": policy}
    if journal.get_value("policy", policy) != policy:
        values["policy_changed"] = 1
    journal.write(Changes(values=values))


def _choose_learned_runs(journal: Journal, others: list[LearnedRun]) -> list[LearnedRun]:
    """Return what the journal's own runs have taught; if that is nothing, record the others."""
    if own := journal.read_learned_runs():
        return own
    journal.write(Changes(learned_runs=others))
    return others
