"""Where the items of jobs come from: iterables, commands, and calls of an executor."""
