"""Texts as columns can hold them, and as fields of CSV.

In: a name in Latin-1 as Python has it, half a pair of UTF-16 surrogates. Out: a text of UTF-8, in
which a byte of a name is an escape, as a terminal shows it, and half a pair is U+FFFD.
"""

from __future__ import annotations

import re
from typing import Any

_BYTE, _SHOWN = re.compile("[\udc80-\udcff]"), re.compile(r"\\udc([89a-f][0-9a-f])")
"""A byte of a name that is no UTF-8, as Python has it, and as it is shown."""


def whole_text(value: Any) -> Any:
    r"""Return a text, or each in a sequence, in which no surrogate is left.

    A byte of a name becomes its escape, as ``\udcff``, so that two names stay two. Any other
    value comes back as it is.
    """
    if isinstance(value, list | tuple):
        return [whole_text(one) for one in value]
    if not isinstance(value, str) or value.isascii():
        return value
    pairs = value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    shown = _BYTE.sub(lambda one: f"\\u{ord(one[0]):04x}", pairs)
    return shown.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def given_name(text: str) -> str:
    """Return the name of a file that `whole_text` made this text of."""
    return _SHOWN.sub(lambda one: chr(0xDC00 | int(one[1], 16)), text)


def csv_text(text: str) -> str:
    """Return a text as a field of a line, in quotes where it needs them.

    As in PostgreSQL's COPY an empty text does: a field of nothing is NULL.
    """
    if not text or any(one in text for one in '",\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text
