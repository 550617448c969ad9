"""Rows as bytes: the default form of keys and values in operations.

In: mappings of columns. Out: canonical JSON, in UTF-8: the same row always gives the same bytes. A
key is a JSON object of the key's columns, a value one of the others. Columns are text, numbers,
booleans or null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
_make_pieces: Any = getattr(json.encoder, "c_make_encoder", None)
_pieces = _make_pieces and _make_pieces(
    None, _ENCODER.default, json.encoder.encode_basestring, None, ":", ",", True, False, True
)
"""What `_ENCODER` makes anew for each row, where the interpreter has it; without its check for
objects that hold themselves, which end in `RecursionError`."""
_WHITESPACE = " \t\n\r"
_DECODER = json.JSONDecoder()


def encode_row(row: Row | bytes) -> bytes:
    """Return the row as canonical JSON; bytes are returned as they are."""
    if isinstance(row, bytes):
        return row
    return ("".join(_pieces(row, 0)) if _pieces else _ENCODER.encode(row)).encode()


def decode_row(data: bytes) -> dict[str, Any]:
    """Return the row in ``data``. Raises `ValueError` if it is not a JSON object."""
    return row_and_text(data)[0]


def row_and_text(data: bytes) -> tuple[dict[str, Any], str]:
    """Return the row in ``data``, and its JSON text. Raises `ValueError`."""
    text = data.decode().strip(_WHITESPACE)
    row = _DECODER.decode(text)
    if not isinstance(row, dict):
        raise ValueError(f"a row is a JSON object, not {type(row).__name__}")
    return row, text
