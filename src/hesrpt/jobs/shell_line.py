"""Reads a line for the shell as a shell does, to find out where its placeholders are.

The values of placeholders are data in the environment, and the line refers to them. So the shell
takes none of their characters for its own when it reads the line. A program or a builtin that
evaluates its arguments still evaluates them, such as ``printf -v`` in bash. What the reference
looks like depends on the quotes around it. Where no reference can stand for the value, the line is
refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hesrpt.errors import InputError
from hesrpt.jobs.shell_symbols import (
    NUMBERS,
    SymbolReader,
    UnclearError,
    double_braces,
)
from hesrpt.jobs.shell_words import Word, WordCollector

_OPERATORS = ";&|()<>"


@dataclass(frozen=True)
class ShellLine:
    """A line for the shell that was read."""

    template: str  # a format string with {index} and {servers}; other values are variables
    commands: list[list[Word]]  # the words of each simple command


def read_shell_line(symbols: Sequence[str]) -> ShellLine:
    """Read a line, given as characters and placeholders such as ``{item}``."""
    try:
        reader = _Reader(symbols)
        reader.read_commands("")
        return ShellLine("".join(reader.output), reader.commands)
    except UnclearError as error:
        values = [symbol for symbol in symbols if len(symbol) > 1 and symbol not in NUMBERS]
        if values:
            raise InputError(
                f"{values[0]} cannot be passed as data in this line, because it contains {error}; "
                f"put the commands into a script, and pass {values[0]} to it as an argument"
            ) from None
        # Numbers need no quotes.
        return ShellLine("".join(map(double_braces, symbols)), [])


class _Reader(SymbolReader):
    """Reads the commands of a line, with their words, quotes, expansions and redirections."""

    def __init__(self, symbols: Sequence[str]) -> None:
        super().__init__(symbols)
        self.commands: list[list[Word]] = []

    def check_place(self, command: WordCollector) -> None:
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
        command, documents, depth = WordCollector(self.commands), list[tuple[str, bool]](), 0
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
                raise UnclearError("case inside $(…)")
        command.end_command()
        if documents:
            raise UnclearError("a here-document without a body")

    def read_part_of_word(self, command: WordCollector) -> None:
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

    def read_escaped(self, command: WordCollector) -> None:
        self.take()
        if self.is_at_placeholder:
            self.refuse("comes after a backslash, which would change its meaning; remove it")
        if self.peek() not in ("", "\n"):
            command.add(self.take())
        elif self.peek():
            self.take()

    def read_double_quotes(self, command: WordCollector) -> None:
        self.take()
        while self.is_inside_quotes('"'):
            symbol = self.peek()
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

    def read_until(self, closer: str, command: WordCollector, problem: str) -> None:
        """Read text in which nothing has a meaning but its end."""
        self.take()
        while self.is_inside_quotes(closer):
            command.add(
                self.take_number_or_refuse(problem) if self.is_at_placeholder else self.take()
            )
        self.take()

    def read_backticks(self, command: WordCollector) -> None:
        self.take()
        while self.is_inside_quotes("`"):
            if self.is_at_placeholder:
                self.take_number_or_refuse("is inside backticks; write $(…) instead")
            elif self.take() == "\\" and not self.is_at_placeholder:
                self.take()
        self.take()
        command.add("$")

    # --- expansions ---------------------------------------------------------------------------

    def read_expansion(self, command: WordCollector, *, is_quoted: bool) -> None:
        self.take()
        if self.is_at_placeholder:
            self.refuse("must not come after $, because it is no variable of the shell; remove $")
        if self.peek() == "(" and self.peek(1) == "(":
            self.read_arithmetic()
        elif self.peek() == "(":
            self.take()
            self.read_commands(")")
            if not self.peek():
                raise UnclearError("a parenthesis that is not closed")
            self.take()
        elif self.peek() == "{":
            self.read_braces()
        elif self.peek() == "'" and not is_quoted:
            raise UnclearError("$'…', which not every shell knows")
        command.add("$")

    def read_braces(self) -> None:
        while self.peek() != "}":
            if self.is_at_placeholder:
                self.take_number_or_refuse("is inside ${…}; assign it to a variable first")
            elif self.peek() in ("", *"'\"\\`") or (self.peek() == "$" and self.peek(1) in "({"):
                raise UnclearError("${…} with quotes or expansions inside")
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
                raise UnclearError("((…)) with quotes or expansions inside")
            else:
                depth += {"(": 1, ")": -1}.get(self.take(), 0)
            if depth == 0:
                return

    # --- redirections -------------------------------------------------------------------------

    def read_redirection(self, command: WordCollector, documents: list[tuple[str, bool]]) -> None:
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
                raise UnclearError("a here-document with such a delimiter")
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
