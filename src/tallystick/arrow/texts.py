"""Texts as columns can hold them, and as fields of CSV.

In: a name in Latin-1 as Python has it, half a pair of UTF-16 surrogates. Out: the same with U+FFFD.
"""

from __future__ import annotations

from typing import Any


def whole_text(value: Any) -> Any:
    """Return a text, or each in a sequence, with U+FFFD for each lone surrogate.

    Any other value comes back as it is.
    """
    if isinstance(value, list | tuple):
        return [whole_text(one) for one in value]
    if not isinstance(value, str) or value.isascii():
        return value
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def csv_text(text: str) -> str:
    """Return a text as a field of a line, in quotes where it needs them.

    As in PostgreSQL's COPY an empty text does: a field of nothing is NULL.
    """
    if not text or any(one in text for one in '",\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text
