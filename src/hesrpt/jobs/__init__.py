"""What a job is: its specification, its commands and items, and what identifies its results."""
