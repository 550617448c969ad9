"""Texts that columns hold."""

from __future__ import annotations

import os

import pytest

from tallystick.arrow.texts import given_name, whole_text
from tallystick.printable import printable


@pytest.mark.parametrize("name", [b"plain", b"bad\xff", b"\x80\xfe/\xc3\xa9", b"\xf0\x9f\x98\x80"])
def test_a_name_that_is_no_text_is_shown_as_at_a_terminal_and_found_again(name: bytes) -> None:
    shown = whole_text(os.fsdecode(name))
    assert shown == printable(os.fsdecode(name))
    assert os.fsencode(given_name(shown)) == name


@pytest.mark.parametrize(
    ("text", "whole"),
    [("a\ud800", "a\ufffd"), ("\ud83d\ude00", "\U0001f600"), ("\ude00\udc80", "\ufffd\\udc80")],
)
def test_half_a_pair_is_replaced(text: str, whole: str) -> None:
    assert whole_text(text) == whole
    assert whole_text([text, None]) == [whole, None]
