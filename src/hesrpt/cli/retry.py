"""``hesrpt retry``: runs failed items again."""

from __future__ import annotations

from hesrpt.cli.job_changes import AllFailedJobs, GroupName, change_jobs
from hesrpt.cli.options import AsJson
from hesrpt.cli.run_choice import RunArguments, RunChoice


def retry(
    run: RunChoice,
    jobs: RunArguments = None,
    all_jobs: AllFailedJobs = False,
    group: GroupName = None,
    as_json: AsJson = False,
) -> None:
    """Run the failed items of jobs again, and continue jobs that were cancelled."""
    change_jobs(run, "retry", jobs, all_jobs=all_jobs, group=group, as_json=as_json)
