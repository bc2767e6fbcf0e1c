"""Reading a line for the shell symbol by symbol, while the line with its references is written.

A symbol is a character, or a placeholder such as ``{item}``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from hesrpt.errors import InputError

#: Placeholders whose values are digits, which mean the same in every context.
NUMBERS = ("{index}", "{servers}")


def get_variable(placeholder: str) -> str:
    """Return the environment variable that holds the value of a placeholder.

    >>> get_variable("{item}")
    'HESRPT_ITEM'
    """
    return f"HESRPT_{placeholder[1:-1].upper()}"


class UnclearError(Exception):
    """The line has a construct that shells read differently, or that is too complex to follow."""


class SymbolReader:
    """Reads symbols one by one, and writes the line with references to variables."""

    def __init__(self, symbols: Sequence[str]) -> None:
        self.symbols = symbols
        self.position = 0
        self.output: list[str] = []

    def peek(self, offset: int = 0) -> str:
        """Return a symbol that is still to be read; "" at the end."""
        place = self.position + offset
        return self.symbols[place] if place < len(self.symbols) else ""

    def take(self) -> str:
        """Read a character."""
        symbol = self.peek()
        self.position += 1
        self.output.append(double_braces(symbol))
        return symbol

    def take_placeholder(self, *, quote: str = "") -> str:
        """Read a placeholder, and write the reference to its value."""
        symbol = self.peek()
        self.position += 1
        reference = symbol if symbol in NUMBERS else f"${{{{{get_variable(symbol)}}}}}"
        self.output.append(f"{quote}{reference}{quote}")
        return symbol

    @property
    def is_at_placeholder(self) -> bool:
        """Whether the next symbol is a placeholder."""
        return len(self.peek()) > 1

    def take_number_or_refuse(self, problem: str) -> str:
        """Read a placeholder that is a number; refuse any other one."""
        if self.peek() not in NUMBERS:
            self.refuse(problem)
        return self.take_placeholder()

    def refuse(self, problem: str) -> NoReturn:
        """Raise an error that names the next symbol, a placeholder."""
        raise InputError(f"{self.peek()} {problem}")

    def is_inside_quotes(self, closer: str) -> bool:
        """Return whether the closing quote is still to come; it must not be missing."""
        if not self.peek():
            raise UnclearError("a quote that is not closed")
        return self.peek() != closer


def double_braces(symbol: str) -> str:
    """Return a character as it is written in a format string; a placeholder stays as it is."""
    return symbol if len(symbol) > 1 else symbol.replace("{", "{{").replace("}", "}}")
