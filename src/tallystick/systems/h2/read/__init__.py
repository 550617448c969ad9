"""Files of H2's page log as records, transactions and changes.

In: the bytes of one page store file. Out: its pages, log stream, records, transactions, changes.
Nothing here writes a file.
"""
