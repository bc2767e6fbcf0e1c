"""What is told of a run: before it starts, while it goes on, and when it has ended."""
