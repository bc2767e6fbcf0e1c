"""Reads a line for the shell as a shell does, to find out where its placeholders are.

The values of placeholders never become part of the line: they are in the environment, and the line
refers to them, so the shell takes none of their characters for its own. What the reference looks
like depends on the quotes around it. Where no reference can stand for the value, the line is
refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from hesrpt.errors import InputError

#: Stands for a placeholder in the text of a word.
PLACEHOLDER_MARK = "\0"
#: Placeholders whose values are digits, which mean the same in every context.
NUMBERS = ("{index}", "{servers}")

_OPERATORS = ";&|()<>"


@dataclass
class Word:
    """A word of a command, without its quotes."""

    text: str = ""  # a mark stands for each placeholder, and $ for each expansion
    placeholders: list[str] = field(default_factory=list)  # such as {item}
    is_target: bool = False  # whether it belongs to a redirection

    def add(self, symbol: str) -> None:
        """Add a character or a placeholder."""
        if len(symbol) > 1:
            self.placeholders.append(symbol)
        self.text += PLACEHOLDER_MARK if len(symbol) > 1 else symbol


@dataclass(frozen=True)
class ShellLine:
    """A line for the shell that was read."""

    template: str  # a format string with {index} and {servers}; other values are variables
    commands: list[list[Word]]  # the words of each simple command


def get_variable(placeholder: str) -> str:
    """Return the environment variable that holds the value of a placeholder.

    >>> get_variable("{item}")
    'HESRPT_ITEM'
    """
    return f"HESRPT_{placeholder[1:-1].upper()}"


def read_shell_line(symbols: Sequence[str]) -> ShellLine:
    """Read a line, given as characters and placeholders such as ``{item}``."""
    try:
        reader = _Reader(symbols)
        reader.read_commands("")
        return ShellLine("".join(reader.output), reader.commands)
    except _UnclearError as error:
        values = [symbol for symbol in symbols if len(symbol) > 1 and symbol not in NUMBERS]
        if values:
            raise InputError(
                f"{values[0]} cannot be quoted safely in this line, because it contains {error}; "
                f"put the commands into a script, and pass {values[0]} to it as an argument"
            ) from None
        # Numbers need no quotes.
        return ShellLine("".join(map(_double_braces, symbols)), [])


class _UnclearError(Exception):
    """The line has a construct that shells read differently, or that is too complex to follow."""


class _Command:
    """Collects the words of the simple commands at one level of nesting."""

    def __init__(self, commands: list[list[Word]]) -> None:
        self._commands = commands
        self._words: list[Word] = []
        self.word: Word | None = None
        self._expects_target = False
        self.is_in_brackets = False  # between [[ and ]]

    def add(self, symbol: str) -> None:
        if self.word is None:
            self.word = Word(is_target=self._expects_target)
            self._expects_target = False
        self.word.add(symbol)

    @property
    def is_in_index(self) -> bool:
        """Whether the next symbol is in the index of an array that gets a value."""
        return (
            self.word is not None
            and not self._words
            and re.fullmatch(r"\w+\[[^]]*", self.word.text) is not None
        )

    def start_word(self) -> None:
        """Start a word even if it turns out to be empty, such as ''."""
        if self.word is None:
            self.add("")

    def end_word(self) -> str:
        """End the word, if there is one; return its text."""
        if self.word is None:
            return ""
        word, self.word = self.word, None
        if not word.is_target:
            self._words.append(word)
        if word.text in ("[[", "]]"):
            self.is_in_brackets = word.text == "[["
        return word.text

    def end_command(self) -> str:
        text = self.end_word()
        if self._words:
            self._commands.append(self._words)
            self._words = []
        return text

    def start_redirection(self) -> None:
        if self.word is not None and self.word.text.isdigit():
            self.word = None  # the number of a file descriptor
        self.end_word()

    def expect_target(self) -> None:
        self._expects_target = True


class _Reader:
    """Reads symbols one by one, and writes the line with references to variables."""

    def __init__(self, symbols: Sequence[str]) -> None:
        self.symbols = symbols
        self.position = 0
        self.output: list[str] = []
        self.commands: list[list[Word]] = []

    # --- symbols ------------------------------------------------------------------------------

    def peek(self, offset: int = 0) -> str:
        """Return a symbol that is still to be read; "" at the end."""
        place = self.position + offset
        return self.symbols[place] if place < len(self.symbols) else ""

    def take(self) -> str:
        """Read a character."""
        symbol = self.peek()
        self.position += 1
        self.output.append(_double_braces(symbol))
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
        return len(self.peek()) > 1

    def take_number_or_refuse(self, problem: str) -> str:
        """Read a placeholder that is a number; refuse any other one."""
        if self.peek() not in NUMBERS:
            self.refuse(problem)
        return self.take_placeholder()

    def refuse(self, problem: str) -> NoReturn:
        raise InputError(f"{self.peek()} {problem}")

    def check_place(self, command: _Command) -> None:
        """Refuse a placeholder where the shell would evaluate its value."""
        if self.peek() in NUMBERS:
            return
        if command.is_in_brackets:
            self.refuse("is inside [[ … ]], which may evaluate it; write [ … ] instead")
        if command.is_in_index:
            self.refuse("is the index of an array, which the shell would evaluate")

    # --- commands -----------------------------------------------------------------------------

    def read_commands(self, closer: str) -> None:
        """Read commands up to the end of the line, or to the ``)`` of a command substitution."""
        command, documents, depth = _Command(self.commands), list[tuple[str, bool]](), 0
        while symbol := self.peek():
            if symbol == closer and depth == 0:
                break
            ended = ""
            if self.is_at_placeholder:
                self.check_place(command)
                command.add(self.take_placeholder(quote='"'))
            elif symbol in " \t":
                self.take()
                ended = command.end_word()
            elif symbol == "\n":
                self.take()
                ended = command.end_command()
                while documents:
                    self.read_document(*documents.pop(0))
            elif symbol == "#" and command.word is None:
                while self.peek() not in ("", "\n"):
                    self.take_placeholder() if self.is_at_placeholder else self.take()
            elif symbol == "(" and self.peek(1) == "(":
                self.read_arithmetic()
                ended = command.end_command()
            elif symbol in "<>":
                command.start_redirection()
                self.read_redirection(command, documents)
            elif symbol in _OPERATORS:
                depth += {"(": 1, ")": -1}.get(self.take(), 0)
                ended = command.end_command()
            else:
                self.read_part_of_word(command)
            if ended == "case" and closer:
                raise _UnclearError("case inside $(…)")
        command.end_command()
        if documents:
            raise _UnclearError("a here-document without a body")

    def read_part_of_word(self, command: _Command) -> None:
        symbol = self.peek()
        if symbol == "\\":
            self.read_escaped(command)
        elif symbol == "'":
            command.start_word()
            self.read_until("'", command, "is inside single quotes; use double quotes, or none")
        elif symbol == '"':
            command.start_word()
            self.read_double_quotes(command)
        elif symbol == "`":
            self.read_backticks(command)
        elif symbol == "$":
            self.read_expansion(command, is_quoted=False)
        else:
            command.add(self.take())

    def read_escaped(self, command: _Command) -> None:
        self.take()
        if self.is_at_placeholder:
            self.refuse("comes after a backslash, which would change its meaning; remove it")
        if self.peek() not in ("", "\n"):
            command.add(self.take())
        elif self.peek():
            self.take()

    def read_double_quotes(self, command: _Command) -> None:
        self.take()
        while (symbol := self.peek()) != '"':
            if not symbol:
                raise _UnclearError("a quote that is not closed")
            if self.is_at_placeholder:
                self.check_place(command)
                command.add(self.take_placeholder())
            elif symbol == "\\":
                self.read_escaped(command)
            elif symbol == "`":
                self.read_backticks(command)
            elif symbol == "$":
                self.read_expansion(command, is_quoted=True)
            else:
                command.add(self.take())
        self.take()

    def read_until(self, closer: str, command: _Command, problem: str) -> None:
        """Read text in which nothing has a meaning but its end."""
        self.take()
        while (symbol := self.peek()) != closer:
            if not symbol:
                raise _UnclearError("a quote that is not closed")
            command.add(
                self.take_number_or_refuse(problem) if self.is_at_placeholder else self.take()
            )
        self.take()

    def read_backticks(self, command: _Command) -> None:
        self.take()
        while (symbol := self.peek()) != "`":
            if not symbol:
                raise _UnclearError("a quote that is not closed")
            if self.is_at_placeholder:
                self.take_number_or_refuse("is inside backticks; write $(…) instead")
            elif self.take() == "\\" and not self.is_at_placeholder:
                self.take()
        self.take()
        command.add("$")

    # --- expansions ---------------------------------------------------------------------------

    def read_expansion(self, command: _Command, *, is_quoted: bool) -> None:
        self.take()
        if self.is_at_placeholder:
            self.refuse("must not come after $, because it is no variable of the shell; remove $")
        if self.peek() == "(" and self.peek(1) == "(":
            self.read_arithmetic()
        elif self.peek() == "(":
            self.take()
            self.read_commands(")")
            if not self.peek():
                raise _UnclearError("a parenthesis that is not closed")
            self.take()
        elif self.peek() == "{":
            self.read_braces()
        elif self.peek() == "'" and not is_quoted:
            raise _UnclearError("$'…', which not every shell knows")
        command.add("$")

    def read_braces(self) -> None:
        while self.peek() != "}":
            if self.is_at_placeholder:
                self.take_number_or_refuse("is inside ${…}; assign it to a variable first")
            elif self.peek() in ("", *"'\"\\`") or (self.peek() == "$" and self.peek(1) in "({"):
                raise _UnclearError("${…} with quotes or expansions inside")
            else:
                self.take()
        self.take()

    def read_arithmetic(self) -> None:
        depth = 0
        while True:
            symbol = self.peek()
            if self.is_at_placeholder:
                self.take_number_or_refuse("is inside ((…)), where the shell would evaluate it")
            elif symbol in ("", *"'\"\\`") or (symbol == "$" and self.peek(1) in "({"):
                raise _UnclearError("((…)) with quotes or expansions inside")
            else:
                depth += {"(": 1, ")": -1}.get(self.take(), 0)
            if depth == 0:
                return

    # --- redirections -------------------------------------------------------------------------

    def read_redirection(self, command: _Command, documents: list[tuple[str, bool]]) -> None:
        operator = self.take()
        while self.peek() in ("<", ">", "&", "|"):
            operator += self.take()
        if operator == "<<":
            documents.append(self.read_delimiter())
        else:
            command.expect_target()

    def read_delimiter(self) -> tuple[str, bool]:
        """Read the delimiter of a here-document; return it, and whether tabs are stripped."""
        is_indented = self.peek() == "-"
        if is_indented:
            self.take()
        while self.peek() in (" ", "\t"):
            self.take()
        delimiter = ""
        while self.peek() not in ("", *" \t\n", *_OPERATORS):
            if self.is_at_placeholder:
                self.refuse("cannot be the delimiter of a here-document")
            if self.peek() in "$`":
                raise _UnclearError("a here-document with such a delimiter")
            symbol = self.take()
            delimiter += symbol if symbol not in "'\"\\" else ""
        return delimiter, is_indented

    def read_document(self, delimiter: str, is_indented: bool) -> None:
        """Read the body of a here-document, which the program that reads it may run as code."""
        while self.peek():
            line = ""
            while self.peek() not in ("", "\n"):
                if self.is_at_placeholder:
                    problem = (
                        "is inside a here-document; pass it as an argument, as in "
                        "sh -s -- {item} <<'END', and write \"$1\" there"
                    )
                    line += self.take_number_or_refuse(problem)
                else:
                    line += self.take()
            if self.peek():
                self.take()
            if (line.lstrip("\t") if is_indented else line) == delimiter:
                return


def _double_braces(symbol: str) -> str:
    return symbol if len(symbol) > 1 else symbol.replace("{", "{{").replace("}", "}}")
