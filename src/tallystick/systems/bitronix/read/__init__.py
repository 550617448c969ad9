"""The two files of a Bitronix journal as spans, records and transactions. Writes nothing.

In: the files of one log. Out: what the bytes prove; what the original makes of them is in `engine`.
"""
