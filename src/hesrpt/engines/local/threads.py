"""How many threads libraries start: by default, as many as their process has servers.

NumPy, SciPy, PyTorch and others start a thread for each core of the machine, in every process. With
four workers on four cores, that would be sixteen threads. The variables here say how many to start.
Libraries read them when they are imported, so they must be set before a process starts.
"""

from __future__ import annotations

from collections.abc import Mapping

#: The variables that libraries read. The others follow the first one, if only that is set.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
)
#: The number that a scheduler has set, which a scheduler inside an item may change.
OURS_VARIABLE = "HESRPT_THREADS"


def choose_threads(servers: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a process with this many servers; those that a user has set stay.

    >>> choose_threads(2, {"MKL_NUM_THREADS": "8"})["MKL_NUM_THREADS"]
    '8'
    >>> choose_threads(2, {"MKL_NUM_THREADS": "8"})["OMP_NUM_THREADS"]
    '2'
    >>> choose_threads(2, {"OMP_NUM_THREADS": "3"})["NUMBA_NUM_THREADS"]
    '3'
    """
    ours = environment.get(OURS_VARIABLE)
    theirs = {
        name: environment[name] for name in THREAD_VARIABLES if environment.get(name, ours) != ours
    }
    first, _, _ = theirs.get(THREAD_VARIABLES[0], "").partition(",")  # such as 4,2
    number = first if first.isdigit() else str(servers)
    return {**dict.fromkeys(THREAD_VARIABLES, number), **theirs, OURS_VARIABLE: number}
