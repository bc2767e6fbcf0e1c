"""The scheduler's decisions, without I/O: events go in, and commands come out."""
