"""An undo/redo log in memory: `Tape` survives a crash, `ModelLog` is one opening of it."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tallystick.records import State
from tallystick.roles import InDoubt, RecoveryHandler

Entry = tuple[Any, ...]


@dataclass
class Tape:
    """Records with their section; a crash loses those after ``durable``."""

    records: list[Entry] = field(default_factory=list)
    durable: int = 0
    section: int = 0

    def crash(self) -> None:
        del self.records[self.durable :]


class Wait:
    """A ticket: ``wait`` makes the tape durable."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._end = len(tape.records)

    def wait(self, timeout: float | None = None) -> int:
        assert timeout is None
        self._tape.durable = max(self._tape.durable, self._end)
        return self._end

    def done(self) -> bool:
        return self._tape.durable >= self._end

    def start_flush(self) -> None:
        self._tape.durable = max(self._tape.durable, self._end)

    def __await__(self) -> Generator[object, None, int]:
        yield from ()
        return self.wait()


class ModelLog:
    """One opening of a tape."""

    sealed = False

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self._images: set[int] = set()

    def _append(self, *record: Any) -> Wait:
        self.tape.records.append((self.tape.section, *record))
        return Wait(self.tape)

    def add_undo(self, page: int, image: bytes | None) -> None:
        if page not in self._images:
            self._images.add(page)
            self._append("undo", page, image)

    def has_undo(self, page: int) -> bool:
        return page in self._images

    def log_row(self, session: int, table: int, key: int, row: bytes | None) -> None:
        self._append("row", session, table, key, row)

    row_max = 1 << 30

    def log_rows(self, session: int, rows: Mapping[tuple[int, int], bytes | None]) -> None:
        for (table, key), row in rows.items():
            self.log_row(session, table, key, row)

    def commit_rows(self, session: int, rows: Mapping[tuple[int, int], bytes | None]) -> None:
        self.log_rows(session, rows)
        self.commit(session).wait()

    def log_truncate(self, session: int, table: int) -> None:
        self._append("truncate", session, table)

    def prepare_commit(self, session: int, name: str) -> Wait:
        return self._append("prepare", session, name)

    def commit(self, session: int) -> Wait:
        return self._append("commit", session)

    def rollback(self, session: int) -> Wait:
        return self._append("rollback", session)

    def flush(self) -> Wait:
        return Wait(self.tape)

    def checkpoint(self, mark: int = 0) -> int:
        self.tape.section += 1
        self._append("checkpoint", mark).wait()
        self._images.clear()
        return self.tape.section

    def marks(self) -> list[int]:
        found = [record for record in self.tape.records if record[1] == "checkpoint"]
        return [mark for _, _, mark, *_ in found]

    def remove_until(self, section: int) -> None:
        kept = [record for record in self.tape.records if record[0] >= section]
        gone = len(self.tape.records) - len(kept)
        assert self.tape.durable >= gone, "what was not durable is never freed"
        self.tape.records = kept
        self.tape.durable -= gone

    def recover(self, handler: RecoveryHandler) -> None:
        undone = set()
        for record in self.tape.records:
            if record[1] == "undo" and record[2] not in undone:
                undone.add(record[2])
                handler.undo_page(record[2], record[3])
        last_commit = {r[2]: i for i, r in enumerate(self.tape.records) if r[1] == "commit"}
        for index, record in enumerate(self.tape.records):
            if record[1] == "row" and index < last_commit.get(record[2], -1):
                _, _, _, table, key, row = record
                if row is None:
                    handler.redo_remove(table, key)
                else:
                    handler.redo_add(table, key, row)

    def in_doubt(self) -> Sequence[InDoubt]:
        waiting: dict[int, str] = {}
        for record in self.tape.records:
            if record[1] == "prepare":
                waiting[record[2]] = record[3]
            elif record[1] in ("commit", "rollback"):
                waiting.pop(record[2], None)
        return [InDoubt(session, name, State.PREPARED) for session, name in waiting.items()]

    def settle(self, name: str, *, commit: bool) -> Wait:
        session = next(one.session for one in self.in_doubt() if one.name == name)
        return self._append("commit" if commit else "rollback", session)

    def close(self) -> None:
        self.tape.durable = len(self.tape.records)
