"""``hesrpt resume``: lets paused jobs go on."""

from __future__ import annotations

from hesrpt.cli.job_changes import AllJobs, GroupName, JobNames, change_jobs
from hesrpt.cli.options import AsJson, StateDirectory


def resume(
    state: StateDirectory,
    jobs: JobNames = None,
    all_jobs: AllJobs = False,
    group: GroupName = None,
    as_json: AsJson = False,
) -> None:
    """Let paused jobs go on."""
    change_jobs(state, "resume", jobs, all_jobs=all_jobs, group=group, as_json=as_json)
