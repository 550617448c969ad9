"""What a log holds, asked row by row, and what of it other programs read.

In: a path and a `tallystick.reading.filters.Filter`. Out: rows of every fate, and files of them or
of tables. Nothing is written to a log.
"""
