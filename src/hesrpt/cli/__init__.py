"""The command line: one file a command, and everything that is printed to a terminal."""
