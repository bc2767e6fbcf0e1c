"""``hesrpt cancel``: ends jobs of a run."""

from __future__ import annotations

from hesrpt.cli.job_changes import AllJobs, GroupName, change_jobs
from hesrpt.cli.options import AsJson
from hesrpt.cli.run_choice import RunArguments, RunChoice


def cancel(
    run: RunChoice,
    jobs: RunArguments = None,
    all_jobs: AllJobs = False,
    group: GroupName = None,
    as_json: AsJson = False,
) -> None:
    """End jobs of a run. They stay cancelled until they are retried.

    Items that are running are stopped. Results of items that are done are kept.
    """
    change_jobs(run, "cancel", jobs, all_jobs=all_jobs, group=group, as_json=as_json)
