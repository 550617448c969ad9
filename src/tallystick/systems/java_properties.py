"""Java properties files, as ``java.util.Properties`` loads them.

In: the bytes of a file, in ISO-8859-1. Out: its names and values. Source: the description of
``Properties.load`` in the Java platform's documentation.
"""

from __future__ import annotations

import re

_LINE_END = re.compile(r"\r\n|\r|\n")
_SPACE = " \t\f"
_ENTRY = re.compile(r"((?:[^\\ \t\f=:]|\\.)*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(data: bytes) -> dict[str, str]:
    """Return the values by name; of names that occur more than once the last value.

    Raises:
        ValueError: a backslash and ``u`` without four hexadecimal digits.
    """
    found = {}
    for line in _logical_lines(data.decode("latin-1")):
        match = _ENTRY.fullmatch(line)
        assert match is not None
        found[_unescaped(match[1])] = _unescaped(match[2])
    return found


def _logical_lines(text: str) -> list[str]:
    lines, line = list[str](), ""
    for natural in _LINE_END.split(text):
        part = natural.lstrip(_SPACE)
        if not line and (not part or part[0] in "#!"):
            continue
        backslashes = len(part) - len(part.rstrip("\\"))
        if backslashes % 2:
            line += part[:-1]
        else:
            lines.append(line + part)
            line = ""
    return [*lines, line] if line else lines


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_character, text)


def _character(match: re.Match[str]) -> str:
    escape = match[1]
    if escape == "u":
        raise ValueError(f"no character: {match.string!r}")
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _CONTROLS.get(escape, escape)
