"""The original systems, in Java."""

from __future__ import annotations

from tests.interop.java import be_quick

be_quick()
