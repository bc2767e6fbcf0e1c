"""What a run leaves on disk: its directory, the journal, large results and logs."""
