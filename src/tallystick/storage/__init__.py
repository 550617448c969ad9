"""What touches the disk, and only here.

In: paths, and byte ranges to write or read. Out: bytes, and promises about them.
No module here knows a log format.

* `files`: the seam: `File`, `FileSystem`, `Lock` as protocols; `local`: the real ones (`LOCAL`)
* `group`: group commit for threads and tasks; its parts are `buffers`, `tickets`, `waiters`,
  `turns`, `company`, `flusher`, `interrupts` and `counters`
* `forks`: what a forked child must not go on with
* `segments`: numbered files, made ahead of need, rolled and recycled
* `source`: read-only bytes of a file, plain or compressed, local or remote, bounded in memory
* `crc`: the fastest CRC-32 at hand
"""
