"""Lines for the shell: values travel in the environment, and the line refers to them.

So the shell never reads a value as part of the line. How a line refers to a variable depends on
quotes, so this module follows quotes, comments and ``$(…)``. It refuses placeholders where nothing
can refer to a variable, and where shells differ or the end of a construct is uncertain. What
programs do with their arguments is not its concern.
"""

from __future__ import annotations

import re
from functools import lru_cache

from hesrpt.errors import InputError
from hesrpt.jobs.placeholders import PLACEHOLDERS, find_placeholders

#: Placeholders whose values are digits: they need no variables, and may stand inside any quotes.
NUMBERS = frozenset({"index", "servers"})

_NUMBER = r"\{(?:index|servers)\}"
_PLACEHOLDER = r"\{(?:" + "|".join(PLACEHOLDERS) + r")\}"
_BRACE = r"\{\{|\}\}"  # lines are format strings, so all other braces are doubled
# What ${…} and ((…)) may contain so that it is certain where they end.
_SIMPLE = rf"[^(){{}}'\"\\`]|{_NUMBER}"
_SUM = rf"(?:{_SIMPLE}|{_BRACE}|\((?:{_SIMPLE}|{_BRACE})*\))*\)\)(?!\#)"

_SUM_REASON = (
    "is inside ((…)), where the shell would evaluate it, or after one that is hard to follow; "
    "write it before"
)
_DOCUMENT_REASON = (
    "is inside or after a here-document; pass it with stdin or as an argument, or write it before"
)
_CASE_REASON = "comes after case inside $(…); assign it to a variable first"

# Constructs in which values are refused, and why. One whose end is uncertain reaches to the end of
# the line.
_REFUSED = {
    "escaped": (
        rf"\\{_PLACEHOLDER}",
        "comes after a backslash, which would change its meaning; remove the backslash",
    ),
    "dollar": (rf"\${_PLACEHOLDER}", "must not come right after $; remove $"),
    "backticks": (r"`(?:(?:[^`\\]|\\.)*`|.*)", "is inside backticks; write $(…) instead"),
    "braces": (
        rf"\$\{{\{{(?:(?:{_SIMPLE})*\}}\}}|.*)",
        "is inside ${…}, or after one with quotes or expansions inside; assign it to a variable "
        "first",
    ),
    "sum": (rf"\$\(\((?:{_SUM}|.*)", _SUM_REASON),
    "old_sum": (rf"\$\[(?:(?:(?!\])(?:{_SIMPLE}))*\]|.*)", _SUM_REASON),
    "unclear": (
        r"(?:\$\$[({'[]|[$(<]\\\n).*",
        "comes after $$( or the like, or after a line that ends with $\\, (\\ or <\\; "
        "assign it to a variable first",
    ),
}
_REFUSED_IN_CODE = {
    "single_quotes": (
        r"'(?:[^']*'|.*)",
        "is inside single quotes; write it outside of them, and pass it as an argument if they are "
        "code: sh -c 'echo \"$1\"' sh {item}",
    ),
    "ansi_quotes": (
        r"\$'(?:(?:[^'\\]|\\[^'])*'|.*)",
        "is inside $'…', or after one with \\' inside, which shells read differently; write it "
        'outside, and "\'" for a single quote',
    ),
    "sum_command": (rf"\(\((?:{_SUM}|.*)", _SUM_REASON),
    "delimiter": (rf"<<-?[ \t]*{_PLACEHOLDER}", "cannot be the delimiter of a here-document"),
}
_REASONS = {kind: reason for kind, (_, reason) in (_REFUSED | _REFUSED_IN_CODE).items()}


def _compile(refused: dict[str, tuple[str, str]], **others: str) -> re.Pattern[str]:
    patterns = {kind: pattern for kind, (pattern, _) in refused.items()} | others
    groups = [f"(?P<{kind}>{pattern})" for kind, pattern in patterns.items()]
    return re.compile("|".join([*groups, _BRACE, "."]), re.DOTALL)


# The tokens of code, and those inside double quotes and comments.
_ESCAPES = {"continuation": r"\\\n", "escape": rf"\\(?:{_BRACE}|.)"}
_CODE = _compile(
    _REFUSED | _REFUSED_IN_CODE,
    **_ESCAPES,
    placeholder=_PLACEHOLDER,
    string="<<<",
    document="<<",
    opening=r"\$?\(",
    separator=r"[ \t\n;&|<>)]",
    word=r"\w+",
)
_TOKENS = {
    '"': _compile(_REFUSED, **_ESCAPES, placeholder=_PLACEHOLDER, opening=r"\$\("),
    "#": _compile({}, placeholder=_PLACEHOLDER),
}


def get_variable(placeholder: str) -> str:
    """Return the environment variable that holds the value of a placeholder.

    >>> get_variable("item")
    'HESRPT_ITEM'
    """
    return f"HESRPT_{placeholder.upper()}"


@lru_cache(maxsize=256)
def refer_to_variables(line: str) -> str:
    """Return a line that refers to variables; only placeholders of numbers are left.

    >>> refer_to_variables("gzip -c {item} > {stem}-{index}.gz")
    'gzip -c "${{HESRPT_ITEM}}" > "${{HESRPT_STEM}}"-"{index}".gz'
    >>> refer_to_variables('echo "size of {item}: $(stat -c %s {item})"')
    'echo "size of ${{HESRPT_ITEM}}: $(stat -c %s "${{HESRPT_ITEM}}")"'
    """
    output = []
    opened = [""]  # and not yet closed: ", (, $( and # (a comment)
    position, starts_word, body = 0, True, ""
    while found := _TOKENS.get(opened[-1], _CODE).match(line, position):
        kind, token, position = found.lastgroup, found[0], found.end()
        if kind == "placeholder":
            token = _refer(token[1:-1], is_quoted=opened[-1] == '"')
        elif kind in _REASONS:
            _refuse(token, _REASONS[kind], but=frozenset() if kind == "dollar" else NUMBERS)
        elif kind == "document" and (end := line.find("\n", position)) >= 0:
            line, body = line[:end], line[end:]
            _refuse(body, _DOCUMENT_REASON)
        elif token == "case" and starts_word and "$(" in opened:
            _refuse(line[position:], _CASE_REASON)  # its patterns have ) without (
        output.append(token)
        if kind != "continuation":
            starts_word = _open_or_close(opened, kind, token, starts_word=starts_word)
    return "".join(output) + body


def _open_or_close(opened: list[str], kind: str | None, token: str, *, starts_word: bool) -> bool:
    """Note what a token opens or closes; return whether a word can start after it."""
    place = opened[-1]
    if place == "#":
        if token == "\n":
            opened.pop()
    elif token == place == '"':
        opened.pop()
    elif token == '"' or kind == "opening" or (token == "#" and starts_word and place != '"'):
        opened.append(token)
    elif token == ")" and place in ("(", "$("):
        opened.pop()
        return place == "("
    return kind in ("opening", "separator", "document", "string") or token == "\n"


def _refer(name: str, *, is_quoted: bool) -> str:
    if name in NUMBERS:  # closed and opened quotes keep "$x{index}" from becoming "$x0"
        return f'""{{{name}}}' if is_quoted else f'"{{{name}}}"'
    reference = f"${{{{{get_variable(name)}}}}}"
    return reference if is_quoted else f'"{reference}"'


def _refuse(text: str, reason: str, *, but: frozenset[str] = NUMBERS) -> None:
    """Raise an error if a text contains other placeholders than some."""
    if names := find_placeholders([text]) - but:
        raise InputError(f"{{{min(names)}}} {reason}")
