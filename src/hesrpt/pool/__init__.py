"""The pool, what callers hold of its jobs, and runs of jobs files, for which it is made too."""
