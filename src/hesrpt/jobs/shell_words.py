"""The words of the commands in a line for the shell, collected while the line is read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

#: Stands for a placeholder in the text of a word.
PLACEHOLDER_MARK = "\0"


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


class WordCollector:
    """Collects the words of the simple commands at one level of nesting."""

    def __init__(self, commands: list[list[Word]]) -> None:
        self._commands = commands
        self._words: list[Word] = []
        self.word: Word | None = None
        self._expects_target = False
        self.is_in_brackets = False  # between [[ and ]]

    def add(self, symbol: str) -> None:
        """Add a character or a placeholder to the word, or start one with it."""
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
        """End the word and the command; return the text of the word."""
        text = self.end_word()
        if self._words:
            self._commands.append(self._words)
            self._words = []
        return text

    def start_redirection(self) -> None:
        """End the word; drop it if it is the number of a file descriptor."""
        if self.word is not None and self.word.text.isdigit():
            self.word = None
        self.end_word()

    def expect_target(self) -> None:
        """Take the next word for the target of a redirection."""
        self._expects_target = True
