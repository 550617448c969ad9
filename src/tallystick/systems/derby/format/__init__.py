"""Derby's log as bytes and as structures: pure functions without I/O.

In: bytes or values. Out: values or bytes; `LogFormatError` if bytes are no such structure.
"""
