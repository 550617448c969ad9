"""What touches the disk, and only here.

In: paths, and byte ranges to write or read. Out: bytes, and promises about them.
No module here knows a log format.

* `source`: read-only bytes of a file, plain or compressed, local or remote, bounded in memory
* `crc`: the fastest CRC-32 at hand
"""
