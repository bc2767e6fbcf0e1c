"""Commands and their placeholders, and the files that describe jobs."""
