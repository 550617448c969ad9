"""Tests of tallystick.systems.tally.live.shared."""
