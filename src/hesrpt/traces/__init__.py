"""The logs of clusters, read as they are: SWF, Slurm's sacct, and CSV, plain or gzipped."""

from hesrpt.traces.formats import read_log
from hesrpt.traces.trace import Log

__all__ = ["Log", "read_log"]
