"""heSRPT inside other tools: one module for each, none of them imported by ``import hesrpt``."""
