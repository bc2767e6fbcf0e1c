"""What people see of a run: tables in the terminal, HTML in notebooks, lines in files."""
