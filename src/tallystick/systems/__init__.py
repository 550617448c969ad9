"""One folder per log system, all of the same plan; `registry` lists them.

In each folder, from bottom to top; a module imports only from packages that stand before its own:
`format` (bytes <-> records and values; no I/O), `codes` (the table of findings), `read` (files ->
records, transactions, changes; never writes), `runs` (the walk over plain records, and the folds
over its chunks), `engine` (what the original's own recovery does), `verdict` (differences,
findings, the answer), `columns` (Arrow batches, splits), `reader` (the `LogReading` made of these),
`live` (the log that is written, and its roles). `protocol` has what every system offers.
"""
