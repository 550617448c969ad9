"""Files of a native log as records, transactions and changes.

In: the files of one log. Out: what is in them. No file is written.
"""
