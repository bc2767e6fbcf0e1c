"""The claims of the paper: a function for each that checks it, and the rules for verdicts."""
