"""Bytes of a block log <-> blocks, entries and file names: pure functions, no I/O.

In: bytes or values. Out: values or bytes; `LogFormatError` where bytes are no such structure.
"""
