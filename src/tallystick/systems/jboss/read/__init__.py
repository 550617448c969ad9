"""Files of a circular journal -> records, spans, transactions, changes; nothing is written.

In: the paths of one log. Out: what its bytes prove (`analysis`), and its files, records,
transactions and changes in Tallystick's terms.
"""
