"""Rows as bytes: the default form of keys and values in operations.

In: mappings of columns. Out: canonical JSON, in UTF-8: the same row always gives the same bytes. A
key is a JSON object of the key's columns, a value one of the others. Columns are what
`tallystick.values` encodes: text, numbers, booleans, null, and moments, decimals, bytes and others,
which are tagged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tallystick.arguments import bytes_of
from tallystick.values import TAG, decode_value, encode_value, untagged

Row = Mapping[str, Any]

_WHITESPACE = " \t\n\r"


def encode_row(row: Row | bytes, serializer: Callable[[Any], Any] | None = None) -> bytes:
    """Return the row as canonical JSON; bytes, or another buffer, are returned as they are.

    Raises:
        TypeError: It is neither.
        TransactionUsageError: A value has no encoding.
    """
    if isinstance(row, Mapping):
        return encode_value(row, serializer).encode()
    return bytes_of(row, "a row that is no mapping of columns")


def decode_row(data: bytes) -> dict[str, Any]:
    """Return the row in ``data``. Raises `ValueError` if it is not a JSON object."""
    return row_and_text(data)[0]


def row_and_text(data: bytes) -> tuple[dict[str, Any], str]:
    """Return the row in ``data``, and its text as JSON without tags. Raises `ValueError`."""
    text = data.decode().strip(_WHITESPACE)
    row = decode_value(text)
    if not isinstance(row, dict):
        raise ValueError(f"a row is a JSON object, not {type(row).__name__}")
    return row, json.dumps(untagged(row), ensure_ascii=False) if TAG in text else text
