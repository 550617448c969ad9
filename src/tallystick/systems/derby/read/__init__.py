"""Files of Derby's log as records, transactions and changes.

In: the files of one log. Out: what is in them. Nothing here writes a file.
"""
