"""The command line: one file for each command, and everything that prints to a terminal."""
