"""Bytes of a Bitronix journal <-> headers, records, statuses and gtrids; pure functions, no I/O.

In: bytes or values. Out: values or bytes; None where bytes are no record.
"""
