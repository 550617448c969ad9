"""Rows as bytes: what keys and values of operations are unless the application says otherwise.

A key is a JSON object of the key's columns, a value one of the others; the same row always
gives the same bytes. Values are what JSON holds: text, numbers, booleans, null.
"""

from __future__ import annotations

import json
import json.encoder
from collections.abc import Callable, Mapping
from typing import Any

Row = Mapping[str, Any]

_WHITESPACE = " \t\n\r"
_DECODER = json.JSONDecoder()


def _encoder() -> Callable[[Row], str]:
    """A row as canonical JSON. The encoder of the library makes itself anew for each call, which
    takes longer than a small row: so one that is made beforehand is used where there is any."""
    made = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    compiled = getattr(json.encoder, "c_make_encoder", None)
    if compiled is None:
        return made.encode
    pieces = compiled(
        None, made.default, json.encoder.encode_basestring, None, ":", ",", True, False, True
    )
    return lambda row: "".join(pieces(row, 0))


_encode = _encoder()


def encode_row(row: Row | bytes) -> bytes:
    """The row as canonical JSON; bytes are taken as they are."""
    if isinstance(row, bytes):
        return row
    return _encode(row).encode()


def decode_row(data: bytes) -> dict[str, Any]:
    """The row. Raises `ValueError` for bytes that are none."""
    return row_and_text(data)[0]


def row_and_text(data: bytes) -> tuple[dict[str, Any], str]:
    """The row, and its JSON object as text. Raises `ValueError` for bytes that are none."""
    text = data.decode().strip(_WHITESPACE)
    row, end = _DECODER.raw_decode(text)
    if end != len(text):
        raise ValueError(f"a row ends after {end} characters, and {len(text) - end} follow")
    if not isinstance(row, dict):
        raise ValueError(f"a row is a JSON object, not {type(row).__name__}")
    return row, text
