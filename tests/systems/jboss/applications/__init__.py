"""Tests of what applications keep in their journals."""
