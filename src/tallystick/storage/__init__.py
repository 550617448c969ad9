"""The only code that touches the disk; knows no log format.

In: paths, and byte ranges to write or read. Out: bytes, and promises about their durability.
`files` is the seam that tests can fake, `local` the real file system, `group` group commit,
`segments` numbered files, `source` read-only bytes wherever they lie.
"""
