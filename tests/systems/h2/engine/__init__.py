"""Tests of the engine's recovery."""
