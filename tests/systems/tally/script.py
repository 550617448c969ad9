"""A scripted run over every operation of a journal, and what it must leave at each step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tallystick.services.journal import Journal
from tallystick.storage.files import FileSystem
from tallystick.systems.tally.live.settings import Settings
from tests.systems.tally.build import FOLDER, TINY

Live = dict[int, tuple[bytes, ...]]


def live_of(journal: Journal) -> Live:
    """The bodies of each live id, in order."""
    found: Live = {}
    for one in journal.live_records():
        found[one.record_id] = (*found.get(one.record_id, ()), one.body)
    return found


def recover(fs: FileSystem, settings: Settings = TINY) -> Live:
    """Open the journal, read it and close it."""
    journal = Journal(FOLDER, fs=fs, settings=settings)
    try:
        return live_of(journal)
    finally:
        journal.close()


@dataclass
class Script:
    """Steps with the model of live records after each. ``before`` and ``after`` are called
    around each step with its number."""

    journal: Journal
    before: Callable[[int], None] = lambda _: None
    after: Callable[[int], None] = lambda _: None
    models: list[Live] = field(default_factory=lambda: [{}])

    def _step(self, action: Callable[[], object], change: Callable[[Live], None]) -> None:
        number = len(self.models)
        model = dict(self.models[-1])
        change(model)
        self.models.append(model)
        self.before(number)
        action()
        self.after(number)

    def add(self, key: int, size: int = 40) -> None:
        body = b"%d:" % key + bytes([key % 256]) * size
        self._step(lambda: self.journal.add(key, body), lambda m: m.update({key: (body,)}))

    def update(self, key: int, body: bytes = b"updated") -> None:
        def change(model: Live) -> None:
            model[key] = (*model[key], body)

        self._step(lambda: self.journal.update(key, body), change)

    def delete(self, key: int) -> None:
        self._step(lambda: self.journal.delete(key), lambda m: m.__delitem__(key))

    def plain(self, size: int = 100) -> None:
        self._step(lambda: self.journal.append(bytes(size)), lambda _: None)

    def many(self, count: int, size: int) -> None:
        bodies = [bytes([number % 256]) * size for number in range(count)]
        self._step(lambda: self.journal.append_many(bodies), lambda _: None)

    def transaction(self, keys: range, size: int, *, commit: bool = True) -> None:
        """Adds of a size that makes them span segments, then the end."""
        tx = self.journal.transaction()
        bodies = {key: b"tx%d" % key + bytes(size) for key in keys}

        def run() -> None:
            for key, body in bodies.items():
                tx.add(key, body)
            if commit:
                tx.commit()
            else:
                tx.rollback()

        def change(model: Live) -> None:
            if commit:
                model.update({key: (body,) for key, body in bodies.items()})

        self._step(run, change)

    def checkpoint(self) -> None:
        self._step(self.journal.checkpoint, lambda _: None)

    def compact(self) -> None:
        self._step(lambda: self.journal.compact(force=True), lambda _: None)


def short_script(script: Script) -> None:
    """Every operation at least once."""
    for key in range(3):
        script.add(key)
    script.update(1)
    script.delete(0)
    script.plain()
    script.many(12, 900)
    script.transaction(range(10, 16), 3000)
    script.transaction(range(20, 22), 3000, commit=False)
    script.add(3)
    script.checkpoint()
    script.compact()
    script.add(4)
    script.many(6, 1500)
    script.checkpoint()
    script.update(3)
