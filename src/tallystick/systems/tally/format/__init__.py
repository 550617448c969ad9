"""Bytes and structures of a native log: pure functions without I/O.

In: bytes or values. Out: values or bytes; `CorruptLogError` or None where bytes are no such
structure.
"""
