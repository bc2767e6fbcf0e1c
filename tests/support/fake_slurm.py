"""Programs named sbatch, squeue and scancel that run jobs at once, on this machine.

With them, the quick tests see pilots come and go. The tests in ``tests/slurm`` have a real Slurm.
"""

from __future__ import annotations

from pathlib import Path

_SBATCH = """#!/bin/sh
[ "$1" != --test-only ] || exit 0
job=$(($(ls "{jobs}" | wc -l) + 1))
cp "$1" "{jobs}/$job"
SLURM_JOB_ID=$job setsid sh "{jobs}/$job" >"{logs}/$job" 2>&1 </dev/null &
echo $! >"{logs}/$job.pid"
echo "Submitted batch job $job"
"""
_SQUEUE = """#!/bin/sh
for file in "{logs}"/*.pid; do
  job=$(basename "$file" .pid)
  [ ! -e "$file" ] || ! kill -0 "$(cat "$file")" 2>/dev/null || echo "$job|RUNNING|9:00"
done
"""
_SCANCEL = """#!/bin/sh
case $1 in --name=*) exit 0 ;; esac
for job; do kill -s TERM -- "-$(cat "{logs}/$job.pid")" 2>/dev/null; done
exit 0
"""


def install_fake_slurm(directory: Path) -> Path:
    """Write the programs into a directory; return where the process ids of jobs are."""
    jobs, logs = directory / "jobs", directory / "logs"
    jobs.mkdir()
    logs.mkdir()
    for name, text in (("sbatch", _SBATCH), ("squeue", _SQUEUE), ("scancel", _SCANCEL)):
        program = directory / name
        program.write_text(text.replace("{jobs}", str(jobs)).replace("{logs}", str(logs)))
        program.chmod(0o755)
    return logs
