"""Java properties files, as ``java.util.Properties`` loads them.

In: the bytes of a file, in ISO-8859-1. Out: its names and values. Source: the description of
``Properties.load`` in the Java platform's documentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_NATURAL = re.compile(r"([^\r\n]*)(?:\r\n|\r|\n|\Z)")
_SPACE = " \t\f"
_ENTRY = re.compile(r"((?:[^\\ \t\f=:]|\\.)*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(data: bytes) -> dict[str, str]:
    """Return the values by name; of names that occur more than once the last value.

    Raises:
        ValueError: a backslash and ``u`` without four hexadecimal digits.
    """
    return dict(_entry(line) for line, _ in _logical_lines(data.decode("latin-1")))


def without_property(data: bytes, name: str) -> bytes:
    """Return the bytes of a file without every line that gives a property; all others stay.

    Raises:
        ValueError: as `parse_properties` does.
    """
    kept, at = list[bytes](), 0
    for line, place in _logical_lines(data.decode("latin-1")):
        if _entry(line)[0] == name:
            kept.append(data[at : place.start])
            at = place.stop
    return b"".join([*kept, data[at:]])


def _entry(line: str) -> tuple[str, str]:
    match = _ENTRY.fullmatch(line)
    assert match is not None
    return _unescaped(match[1]), _unescaped(match[2])


def _logical_lines(text: str) -> Iterator[tuple[str, range]]:
    """Yield each line, those that go on after a backslash joined, and where it stands."""
    line, begin = "", 0
    for natural in _NATURAL.finditer(text):
        part = natural[1].lstrip(_SPACE)
        if not line:
            begin = natural.start()
            if not part or part[0] in "#!":
                continue
        backslashes = len(part) - len(part.rstrip("\\"))
        if backslashes % 2:
            line += part[:-1]
        else:
            yield line + part, range(begin, natural.end())
            line = ""
    if line:
        yield line, range(begin, len(text))


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_character, text)


def _character(match: re.Match[str]) -> str:
    escape = match[1]
    if escape == "u":
        raise ValueError(f"no character: {match.string!r}")
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _CONTROLS.get(escape, escape)
