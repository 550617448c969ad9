"""Bytes <-> structures of a circular journal: pure functions without I/O.

In: bytes or values. Out: values or bytes; `LogFormatError` where bytes are no such structure.
"""
