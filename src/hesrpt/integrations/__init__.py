"""heSRPT inside other schedulers: one module for each, none of them imported by ``hesrpt``."""
