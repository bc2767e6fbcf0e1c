"""The logs of clusters, read as they are: SWF, Slurm's sacct, and CSV, plain or gzipped."""

from hesrpt.logs.formats import read_log
from hesrpt.logs.record import Log

__all__ = ["Log", "read_log"]
