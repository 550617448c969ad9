"""One folder per log system, all of the same plan; `registry` lists them.

In each folder, from bottom to top; a module imports only from packages to its left:
`format` (bytes <-> records and values; no I/O), `read` (files -> records, transactions, changes;
never writes), `engine` (what the original's own recovery does), `verdict` (differences, findings),
`columns` (compiled kernels, Arrow batches, splits), `reader` (the `LogReading` made of these),
`live` (the log that is written, and its roles). `protocol` has what every system offers.
"""
