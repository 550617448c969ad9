"""Bytes <-> headers, records and bodies of a circular journal: pure functions without I/O.

In: bytes or values. Out: values or bytes; None where bytes hold no such structure.
"""
