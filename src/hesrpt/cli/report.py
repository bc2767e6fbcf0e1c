"""``hesrpt report``: the flow times of a run, and those that other policies would have achieved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hesrpt.cli.options import AsJson, CsvFile, PlotFile, RunChoice, run_argument
from hesrpt.cli.terminal import (
    check_output_files,
    create_table,
    print_json,
    print_locations,
    print_table,
    save_figure,
)
from hesrpt.display.console import create_console, literal
from hesrpt.errors import InputError
from hesrpt.files import write_csv
from hesrpt.policies.registry import get_title
from hesrpt.units import format_duration, format_duration_with_margin

if TYPE_CHECKING:
    from hesrpt.cli.run_access import ServiceRun
    from hesrpt.jobs.job_view import JobView
    from hesrpt.reports.counterfactuals import RunComparison
    from hesrpt.storage.journal_entries import JobRecord


def report(
    run: RunChoice,
    arguments: Annotated[
        list[str] | None,
        run_argument(
            "[DIR]",
            "State directory of the run, unless --url, --state or a variable says which.",
            complete=None,
        ),
    ] = None,
    as_json: AsJson = False,
    csv: CsvFile = None,
    plot: PlotFile = None,
) -> None:
    """Show the flow times of a run, and those of simulations of it under other policies.

    If the whole run cannot be simulated, the comparison is about the latest jobs that can. --csv
    writes one line for each job. --csv and --plot need the state directory; so do the work and the
    p of jobs.
    """
    from hesrpt.cli.outcomes import print_failures, print_outcome
    from hesrpt.cli.run_access import DirectoryRun
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
            _print_json(servers=target.read().overview.servers, reason=NOTHING_ENDED)
        else:
            print(NOTHING_ENDED)
        return
    history, schedule = run_report.history, run_report.schedule
    comparison = compare_policies(history)
    recent = None if comparison.simulated else _compare_recent(target.directory)
    rows = [_describe(*each) for each in zip(schedule.rows(), history.records, strict=True)]
    if csv is not None:
        write_csv(csv, rows)
    if plot is not None:
        save_figure(schedule.plot(in_seconds=True), plot)
    if as_json:
        metrics = run_report.metrics
        _print_json(
            servers=history.servers,
            metrics=metrics,
            mean_flow_time=None if metrics is None else metrics["mean_flow_time"],
            comparison=comparison.to_json_value(),
            recent=None if recent is None else recent.to_json_value(),
            reason=comparison.reason,
            jobs=[
                view.to_json_value() | row for view, row in zip(run_report.views, rows, strict=True)
            ],
        )
    else:
        console = create_console()
        print_outcome(
            console,
            history.records,
            servers=history.servers,
            first_start=history.first_start,
            comparison=comparison,
            recent=recent,
        )
        print_failures(console, run_report.views)
        print_locations(plot, csv)


def _print_json(*, servers: int, jobs: Sequence[Mapping[str, Any]] = (), **found: Any) -> None:
    """Print a report, with the same keys by state directory and by URL."""
    content = {
        "servers": servers,
        "metrics": None,
        "mean_flow_time": None,  # of the jobs that are done
        "done": sum(job["state"] == "done" for job in jobs),
        "ended": len(jobs),
        "comparison": None,  # of all jobs
        "recent": None,  # of the latest, if not all can be compared
        "bound": None,  # for the latest
        "reason": None,  # why not all were compared
        "jobs": jobs,
    }
    print_json(**content | found)


def _describe(row: Mapping[str, Any], record: JobRecord) -> dict[str, Any]:
    """Return the row of a job that has ended; one that never ran has no work and no slowdown."""
    return dict(row) | ({} if record.size else {"size": 0.0, "slowdown": None})


def _compare_recent(directory: Path) -> RunComparison | None:
    """Compare policies on the latest jobs that can be simulated, if there are several."""
    from hesrpt.reports.counterfactuals import compare_policies, read_recent_history

    history = read_recent_history(directory)
    comparison = None if history is None else compare_policies(history)
    return comparison if comparison is not None and comparison.simulated else None


def _report_on_service(target: ServiceRun, as_json: bool) -> None:
    """Print the flow times of a service so far, and of other policies by simulation."""
    from hesrpt.reports.inspection import NOTHING_ENDED

    client = target.client
    schedule, jobs = client.schedule(points=2), client.jobs(failures=as_json)
    ended = [job for job in jobs if job.has_ended]
    if as_json:
        recent = schedule["comparison"]
        if recent is not None:
            measured = {"policy": recent["policy"], "mean_flow_time": recent["measured"]}
            recent = {key: recent[key] for key in ("simulated", "reason")} | {"measured": measured}
        _print_json(
            servers=client.servers()["servers"],
            mean_flow_time=schedule["mean_flow_time"],
            recent=recent,
            bound=schedule["bound"],
            reason=_explain_missing_comparison(schedule) if ended else NOTHING_ENDED,
            jobs=[job.to_json_value() | _create_row(job) for job in ended],
        )
    elif ended:
        _print_service_report(schedule, ended)
    else:
        print(NOTHING_ENDED)


def _create_row(job: JobView) -> dict[str, Any]:
    """Return the keys of a job in a schedule; a service does not tell the sizes of its jobs."""
    return {
        "job": job.name,
        "arrival": job.arrived,
        "size": None,
        "weight": job.weight,
        "completion_time": job.ended,
        "flow_time": job.flow_time,
        "slowdown": None,
    }


def _explain_missing_comparison(schedule: Mapping[str, Any]) -> str | None:
    """Return why a service has no comparison with other policies; None if it has one."""
    from hesrpt.reports.counterfactuals import FEWEST_JOBS

    comparison = schedule["comparison"]
    if comparison is not None:
        return str(comparison["reason"]) if comparison["reason"] else None
    if schedule["ended"] < FEWEST_JOBS:
        return f"fewer than {FEWEST_JOBS} jobs are done"
    return "the service works it out in the background; ask again in a minute"


def _print_service_report(schedule: Mapping[str, Any], jobs: Sequence[JobView]) -> None:
    """Print the flow times of ended jobs of a service, and of other policies by simulation."""
    from hesrpt.cli.outcomes import create_grid, describe_done, describe_latest

    console = create_console()
    table = create_table("job", "state", "items", "flow time", left=["job", "state"])
    for job in jobs:
        flow_time = format_duration(job.flow_time or 0.0)
        table.add_row(literal(job.name), literal(job.state), f"{job.done:,}", flow_time)
    print_table(console, table)
    console.print()
    mean, comparison, bound = (schedule[key] for key in ("mean_flow_time", "comparison", "bound"))
    if mean is None:
        console.print("mean flow time: none, because no job is done")
        return
    grid = create_grid()
    whose = describe_done(schedule["ended"])
    grid.add_row("mean flow time", format_duration(mean), "measured", whose)
    if comparison is not None and comparison["simulated"]:
        measured = format_duration(comparison["measured"])
        grid.add_row("", measured, "measured", describe_latest(comparison["jobs"]))
        for each in comparison["simulated"]:
            value = format_duration_with_margin(each["mean_flow_time"], each["margin"])
            grid.add_row("", value, "simulated", literal(get_title(each["policy"])))
    if bound is not None and bound["mean_flow_time"] is not None:
        value = format_duration(bound["mean_flow_time"])
        grid.add_row("", value, "lower bound", f"{bound['ratio']:.2f} times this was needed")
    print_table(console, grid)
    if reason := _explain_missing_comparison(schedule):
        console.print(literal(f"no comparison with other policies: {reason}"), soft_wrap=True)
    if bound is not None and bound["reason"]:
        console.print(literal(f"no lower bound: {bound['reason']}"), soft_wrap=True)
    console.print(
        "the work and the p of each job: hesrpt report --state DIR, where the service runs"
    )
