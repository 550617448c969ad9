"""A key-value store of one's own on a `Journal`, tested with every crash that it may meet.

``python examples/key_value_store.py`` recovers from each state that a crash could leave.
"""

from __future__ import annotations

import json

from tallystick import Journal
from tallystick.storage.files import FileSystem, read_file, write_whole
from tallystick.storage.local import LOCAL
from tallystick.testing import RecordingFileSystem, check_recovery


class Store:
    """Keys and values in memory; each change is durable when `put` returns."""

    def __init__(self, folder: str, fs: FileSystem = LOCAL) -> None:
        self._fs, self._snapshot = fs, f"{folder}/snapshot"
        self.log = Journal(f"{folder}/log", fs=fs, settings={"segment_size": 16 << 10})
        self.items: dict[str, str] = {}
        after = 0
        if fs.exists(self._snapshot):
            after, self.items = json.loads(read_file(fs, self._snapshot))
        for record in self.log.replay(from_lsn=after):
            key, value = json.loads(record.body)
            self.items[key] = value

    def put(self, key: str, value: str) -> None:
        """Change a key: first in the log, then in memory."""
        self.log.append(json.dumps([key, value]).encode())
        self.items[key] = value

    def checkpoint(self) -> None:
        """Write everything to a snapshot, and give up what the log needs no more."""
        after = self.log.next_lsn
        write_whole(self._fs, self._snapshot, [json.dumps([after, self.items]).encode()])
        self.log.checkpoint(after)


def recover(fs: FileSystem) -> list[tuple[str, str]]:
    """Open the store as after a restart, and return what is in it."""
    store = Store("/store", fs)
    store.log.close()
    return list(store.items.items())


if __name__ == "__main__":
    disk = RecordingFileSystem()
    store = Store("/store", disk)
    for number in range(12):
        item = (f"key {number}", "v" * 3000)
        disk.submitted(item)
        store.put(*item)
        disk.acknowledged(item)
        if number % 4 == 3:
            store.checkpoint()
    print(check_recovery(disk, recover, limit=20))
