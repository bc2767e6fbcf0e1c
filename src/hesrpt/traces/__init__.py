"""Traces of clusters: SWF, Slurm's sacct and CSV files, plain or gzipped."""

from hesrpt.traces.formats import read_trace
from hesrpt.traces.trace import Trace

__all__ = ["Trace", "read_trace"]
