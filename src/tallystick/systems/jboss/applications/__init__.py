"""What known applications keep in their journals, as tables.

In: the committed changes of a journal. Out: collections with columns, and their changes.
"""
