"""Tests of the simulator, and our own services under it."""
