"""An outbox to a broker: a message leaves if, and only if, its transaction has committed.

The broker is a list here; it gets a message again where an answer was lost, so it keeps offsets.
``python examples/outbox_to_broker.py FOLDER``
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from tallystick import Outbox, Relay, TransactionManager
from tallystick.services.transactions import Message


class Broker:
    """Takes each message once, however often it is delivered; the second answer gets lost."""

    def __init__(self) -> None:
        self.messages: dict[int, str] = {}
        self.deliveries = 0

    def deliver(self, message: Message) -> None:
        """Take a message. Raises `ConnectionError` where the answer is lost."""
        self.deliveries += 1
        self.messages.setdefault(message.offset, message.body.decode())
        if self.deliveries == 2:
            raise ConnectionError("the answer is lost")


def main(folder: Path) -> Broker:
    """Take three orders, one of which fails, and tell the broker of the others."""
    with closing(sqlite3.connect(folder / "shop.db")) as shop:
        shop.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY)")
    broker = Broker()
    with TransactionManager(folder / "tm", {"shop": f"sqlite:///{folder}/shop.db"}) as tm:
        tm.recover()
        outbox = Outbox(tm, "shop")
        for number in (1, 2, 1):
            try:
                with tm.begin() as tx:
                    outbox.add(tx, "orders", b"order %d" % number)
                    tx["shop"].execute("INSERT INTO orders VALUES (?)", (number,))
            except sqlite3.IntegrityError as error:
                print(f"no order, and no message: {error}")
        relay = Relay(outbox, broker.deliver, first=0.0)
        while outbox.pending().messages:
            relay.run_once()
        print(f"{broker.deliveries} deliveries of {list(broker.messages.values())}")
    return broker


if __name__ == "__main__":
    main(Path(sys.argv[1] if sys.argv[1:] else sys.exit(__doc__)))
