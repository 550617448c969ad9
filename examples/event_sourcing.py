"""Event sourcing with snapshots: the state of an account is what its events have made of it.

Events are plain records. A snapshot is a live record, which takes the place of the one before it in
one transaction; the events below it are then given up. ``python examples/event_sourcing.py FOLDER``
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tallystick import Journal

SNAPSHOT = 1
"""The id of the live record with the latest snapshot."""


class Accounts:
    """Balances by name; every change is an event."""

    def __init__(self, folder: Path) -> None:
        self.log = Journal(folder, settings={"segment_size": 64 << 10})
        self.balances: dict[str, int] = {}
        self.replayed = applied = 0
        for record in self.log.live_records():
            applied, self.balances = json.loads(record.body)
        for event in self.log.replay(from_lsn=applied + 1):
            if event.type == "append":
                self._apply(**json.loads(event.body))
                self.replayed += 1

    def _apply(self, account: str, amount: int) -> None:
        self.balances[account] = self.balances.get(account, 0) + amount

    def deposit(self, account: str, amount: int) -> None:
        """Add to a balance: the event is durable before it counts."""
        self.log.append(json.dumps({"account": account, "amount": amount}).encode())
        self._apply(account, amount)

    def snapshot(self) -> int:
        """Keep the balances as they are, and free what came before; returns freed segments."""
        last = self.log.next_lsn - 1
        state = json.dumps([last, self.balances]).encode()
        with self.log.transaction() as tx:
            if any(True for _ in self.log.live_records()):
                tx.delete(SNAPSHOT)
            tx.add(SNAPSHOT, state)
        return self.log.checkpoint(last + 1)


if __name__ == "__main__":
    accounts = Accounts(Path(sys.argv[1] if sys.argv[1:] else sys.exit(__doc__)))
    print(f"{accounts.replayed} events since the snapshot: {accounts.balances}")
    accounts.deposit("ann", 10)
    accounts.snapshot()
    accounts.deposit("bob", 5)
    accounts.log.close()
