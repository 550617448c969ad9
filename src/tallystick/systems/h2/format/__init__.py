"""Bytes <-> structures of H2's page log: pure functions without I/O.

In: bytes or values. Out: values or bytes; `LogFormatError` where bytes are no such structure.
"""
