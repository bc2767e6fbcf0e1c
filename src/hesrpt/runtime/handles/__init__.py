"""What callers hold of a job: its results as they come, its end, and how to wait for it."""
