"""``hesrpt report``: the flow times of a run, and those that other policies would have achieved."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hesrpt._version import __version__
from hesrpt.cli.options import AsJson, CsvFile, PlotFile
from hesrpt.cli.run_choice import RunChoice
from hesrpt.cli.terminal import check_output_files, print_locations, save_figure
from hesrpt.display.console import create_console
from hesrpt.errors import InputError
from hesrpt.files import write_csv

if TYPE_CHECKING:
    from hesrpt.cli.service_run import ServiceRun
    from hesrpt.reports.counterfactuals import RunComparison
    from hesrpt.storage.journal_entries import JobRecord

# How many of the latest jobs to compare policies on, as a service does, and how few say too little.
_RECENT_JOBS, _FEWEST_JOBS = 40, 2


def report(
    run: RunChoice,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DIR]",
            show_default=False,
            help="State directory of the run, unless --url, --state or a variable says which.",
        ),
    ] = None,
    as_json: AsJson = False,
    csv: CsvFile = None,
    plot: PlotFile = None,
) -> None:
    """Show the flow times of a run, and those of simulations of it under other policies.

    If the run as a whole cannot be simulated, its latest jobs are that can be. --csv writes one
    line for each job. --csv and --plot need the state directory; so do the work and the p of jobs.
    """
    from hesrpt.cli.directory_run import DirectoryRun
    from hesrpt.cli.failed_items import failures_as_json, print_failures
    from hesrpt.cli.run_tables import print_outcome
    from hesrpt.reports.counterfactuals import compare_policies
    from hesrpt.reports.inspection import NOTHING_ENDED, NothingEndedError, read_report

    check_output_files(figures=[plot], others=[csv])
    target, others = run.find(arguments)
    if others:
        raise InputError(f"a report is about all jobs of a run, got {others[0]!r}")
    if not isinstance(target, DirectoryRun):
        if csv is not None or plot is not None:
            raise InputError("--csv and --plot need the state directory of the run")
        _report_on_service(target, as_json)
        return
    try:
        run_report = read_report(target.directory)
    except NothingEndedError:
        if csv is not None or plot is not None:
            raise
        if as_json:
            empty = dict.fromkeys(("metrics", "comparison", "recent"))
            servers = target.read().overview.servers
            content: dict[str, Any] = {
                "hesrpt": __version__,
                "servers": servers,
                **empty,
                "jobs": [],
            }
            print(json.dumps(content, indent=2))
        else:
            print(NOTHING_ENDED)
        return
    schedule, comparison = run_report.schedule, compare_policies(run_report.history)
    recent = None if comparison.simulated else _compare_recent(target.directory)
    rows = [_describe(*each) for each in zip(schedule.rows(), run_report.records, strict=True)]
    if csv is not None:
        write_csv(csv, rows)
    if plot is not None:
        save_figure(schedule.plot(in_seconds=True), plot)
    if as_json:
        print(
            json.dumps(
                {
                    "hesrpt": __version__,
                    "servers": run_report.servers,
                    "metrics": run_report.metrics,
                    "comparison": comparison.to_json_value(),
                    "recent": None if recent is None else recent.to_json_value(),
                    "jobs": [
                        row | {"failed_items": failures_as_json(record.failed_items)}
                        for row, record in zip(rows, run_report.records, strict=True)
                    ],
                },
                indent=2,
            )
        )
    else:
        console = create_console()
        print_outcome(
            console,
            run_report.records,
            servers=run_report.servers,
            first_start=run_report.first_start,
            comparison=comparison,
            recent=recent,
        )
        print_failures(console, run_report.records)
        print_locations(plot, csv)


def _describe(row: Mapping[str, Any], record: JobRecord) -> dict[str, Any]:
    """Return what is known of a job that has ended; of one that never ran, no work or slowdown."""
    return dict(row) | ({} if record.size else {"size": 0.0, "slowdown": None})


def _compare_recent(directory: Path) -> RunComparison | None:
    """Compare policies on the latest jobs that can be simulated, if there are several."""
    from hesrpt.reports.counterfactuals import compare_policies
    from hesrpt.reports.recent_history import read_recent_history

    history = read_recent_history(directory, _RECENT_JOBS)
    if history is None or len(history.records) < _FEWEST_JOBS:
        return None
    comparison = compare_policies(history)
    return comparison if comparison.simulated else None


def _report_on_service(target: ServiceRun, as_json: bool) -> None:
    """Print the flow times of a service so far, and of other policies by simulation."""
    from hesrpt.cli.run_tables import explain_missing_comparison, print_service_report
    from hesrpt.reports.inspection import NOTHING_ENDED

    schedule, jobs = target.client.schedule(points=2), target.client.jobs()
    ended = [job for job in jobs if job.has_ended]
    if as_json:
        content = {
            "mean_flow_time": schedule["mean_flow_time"],
            "done": schedule["ended"],  # of which the mean is
            "ended": len(ended),
            "comparison": schedule["comparison"],
            "bound": schedule["bound"],
            "reason": explain_missing_comparison(schedule),
        }
        rows = [dict(vars(job)) for job in ended]
        print(json.dumps({"hesrpt": __version__} | content | {"jobs": rows}, indent=2))
    elif ended:
        print_service_report(create_console(), schedule, ended)
    else:
        print(NOTHING_ENDED)
