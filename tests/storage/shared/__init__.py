"""Tests of tallystick.storage.shared."""
