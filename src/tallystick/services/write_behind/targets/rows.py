"""Rows as bytes: what keys and values of operations are unless the application says otherwise.

A key is a JSON object of the key's columns, a value one of the others; the same row always
gives the same bytes. Values are what JSON holds: text, numbers, booleans, null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
_WHITESPACE = " \t\n\r"
_DECODER = json.JSONDecoder()


def encode_row(row: Row | bytes) -> bytes:
    """The row as canonical JSON; bytes are taken as they are."""
    if isinstance(row, bytes):
        return row
    return _ENCODER.encode(row).encode()


def decode_row(data: bytes) -> dict[str, Any]:
    """The row. Raises `ValueError` for bytes that are none."""
    return row_and_text(data)[0]


def row_and_text(data: bytes) -> tuple[dict[str, Any], str]:
    """The row, and its JSON object as text. Raises `ValueError` for bytes that are none."""
    text = data.decode().strip(_WHITESPACE)
    row = _DECODER.decode(text)
    if not isinstance(row, dict):
        raise ValueError(f"a row is a JSON object, not {type(row).__name__}")
    return row, text
