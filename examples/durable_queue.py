"""A durable queue: messages stay until every consumer has had them, each at its own pace.

A message is a plain record, the offset of a consumer a live one; both are durable at once.
``python examples/durable_queue.py FOLDER``
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

from tallystick import Journal


class Queue:
    """Messages in order, and how far each consumer is."""

    def __init__(self, folder: Path, consumers: list[str]) -> None:
        self.log = Journal(folder, settings={"segment_size": 64 << 10})
        self._ids = {name: zlib.crc32(name.encode()) for name in consumers}
        self._offsets = {one.record_id: int(one.body) for one in self.log.live_records()}
        for number in self._ids.values():
            if number not in self._offsets:
                self.log.add(number, b"0")
                self._offsets[number] = 0

    def put(self, message: bytes) -> int:
        """Append a message; returns its offset."""
        return self.log.append(message)

    def waiting(self, consumer: str) -> Iterator[tuple[int, bytes]]:
        """Yield what a consumer has not had: a message comes again until `done` has returned."""
        for record in self.log.replay(from_lsn=self._offsets[self._ids[consumer]] + 1):
            if record.type == "append":
                yield record.lsn, record.body

    def done(self, consumer: str, offset: int) -> None:
        """Note that a consumer has had everything up to an offset."""
        number = self._ids[consumer]
        with self.log.transaction() as tx:  # one place of the consumer, before and after a crash
            tx.delete(number)
            tx.add(number, b"%d" % offset)
        self._offsets[number] = offset
        self.log.checkpoint(min(self._offsets.values()) + 1)


if __name__ == "__main__":
    queue = Queue(Path(sys.argv[1] if sys.argv[1:] else sys.exit(__doc__)), ["mail", "index"])
    for order in range(3):
        queue.put(b"order %d" % order)
    for place, body in queue.waiting("mail"):
        print("mail:", body.decode())
        queue.done("mail", place)
    print("index waits for", len(list(queue.waiting("index"))))
    queue.log.close()
