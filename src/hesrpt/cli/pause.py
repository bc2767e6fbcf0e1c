"""``hesrpt pause``: gives the servers of jobs to others for a while."""

from __future__ import annotations

from hesrpt.cli.job_changes import AllJobs, GroupName, change_jobs
from hesrpt.cli.options import AsJson
from hesrpt.cli.run_choice import RunArguments, RunChoice


def pause(
    run: RunChoice,
    jobs: RunArguments = None,
    all_jobs: AllJobs = False,
    group: GroupName = None,
    as_json: AsJson = False,
) -> None:
    """Give the servers of jobs to others until the jobs are resumed.

    A job with items finishes those that are running, and starts no others. A single command is
    suspended with all its processes, or stopped if it resizes by restarting.
    """
    change_jobs(run, "pause", jobs, all_jobs=all_jobs, group=group, as_json=as_json)
