"""The tasks of a bundle of logs: one, or for a log too large for it one per part and a fold.

In: a `Bundle`. Out: tasks that write its rows of every table. A part writes the records of its
splits and, where the log's system can tell (`ClosesBySplit`), the transactions and changes that
begin and end there; the fold joins what the parts left open and writes the rest. If that shows that
only the whole log can be judged, the fold reads it, and what the parts closed counts no more: it is
not in the tables before the fold puts it there.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tallystick.errors import TallystickError
from tallystick.pipeline.options import SourceOptions
from tallystick.pipeline.planning import Bundle, Task
from tallystick.pipeline.tables.write_task import (
    SUFFIX,
    Profiles,
    TableWrite,
    WriteTask,
    link_file,
    write_profile,
    write_tables,
)
from tallystick.pipeline.task import SplitClosing, rest_batches, tables_of
from tallystick.reading.tables import TABLES

PARTS = "_parts"
"""The folder of what the parts of bundles hand on to `BundleFold`, and of what they closed."""

_RECORDS = ("records",)
_OTHERS = tuple(table for table in TABLES if table not in _RECORDS)


@dataclass(frozen=True, slots=True)
class BundleTasks:
    """The tasks that write a bundle below ``root`` into files called ``name``.

    With ``profile`` they write its profile, too.
    """

    bundle: Bundle
    name: str
    root: str
    options: SourceOptions
    codec: str
    profile: bool

    @property
    def writes(self) -> Iterator[WriteTask]:
        """The tasks that can run at the same time."""
        bundle = self.bundle
        if not bundle.parts:
            yield TableWrite(
                self.root, self.name, bundle.whole, tuple(TABLES), self.options, self.codec,
                self.profile,
            )  # fmt: skip
            return
        if self._whole:
            yield self._part(self.name, bundle.whole, self._whole, closing=False)
        for name, part in zip(self._parts, bundle.parts, strict=True):
            yield self._part(name, part, _RECORDS, closing=bool(bundle.closes))

    @property
    def folds(self) -> Iterator[WriteTask]:
        """The tasks that come after them."""
        if self.bundle.parts and (self.profile or self.bundle.closes):
            notes = (self.name,) if self._whole else ()
            yield BundleFold(
                self.root, self.name, notes, self._parts, self.bundle.whole, self.options,
                self.codec, self.profile, self.bundle.closes,
            )  # fmt: skip

    @property
    def _whole(self) -> tuple[str, ...]:
        """The tables that one task makes of the whole log, beside the parts."""
        return tuple(one for one in _OTHERS if one not in self.bundle.closes)

    @property
    def _parts(self) -> tuple[str, ...]:
        return tuple(f"{self.name}-{number:05d}" for number in range(len(self.bundle.parts)))

    def _part(self, name: str, task: Task, tables: tuple[str, ...], *, closing: bool) -> PartWrite:
        judged = closing and "findings" in self.bundle.closes
        return PartWrite(
            self.root, name, task, tables, self.options, self.codec, self.profile, closing, judged
        )


@dataclass(slots=True)
class _Note:
    """What a part hands on.

    Attributes:
        profiles: of the tables that it wrote.
        closed: of the transactions that it closed.
        rests: what each of its splits left open; None if the whole log has to be read.
    """

    profiles: Profiles
    closed: Profiles = field(default_factory=Profiles)
    rests: list[bytes | None] = field(default_factory=list)

    def packed(self) -> str:
        """Return the note as JSON, for `unpacked`."""
        rests = [None if one is None else base64.b64encode(one).decode() for one in self.rests]
        sums = {"profiles": self.profiles.sums(), "closed": self.closed.sums()}
        return json.dumps(sums | {"rests": rests})

    @classmethod
    def unpacked(cls, note: str) -> Self:
        """Return what a note says."""
        values = json.loads(note)
        profiles, closed = (Profiles.of_sums(values[name]) for name in ("profiles", "closed"))
        rests = [None if one is None else base64.b64decode(one) for one in values["rests"]]
        return cls(profiles, closed, rests)


@dataclass(frozen=True, slots=True)
class PartWrite:
    """Writes ``tables`` of the pieces of ``task``; with ``closing`` closes its splits, too.

    With ``judged`` the fold looks whether the log has lost something.
    """

    root: str
    name: str
    task: Task
    tables: tuple[str, ...]
    options: SourceOptions
    codec: str
    profile: bool
    closing: bool
    judged: bool

    def __call__(self) -> None:
        """Write one file per table that has rows, and a note for the fold."""
        batches = tables_of(self.task.pieces, self.options, self.tables, judged=self.judged)
        note = _Note(write_tables(batches, self.root, self.name, self.codec, count=self.profile))
        if self.closing:
            self._close(note)
        folder = Path(self.root, PARTS)
        folder.mkdir(exist_ok=True)
        partial = folder / f".{self.name}.{uuid.uuid4().hex}"
        partial.write_text(note.packed())
        partial.replace(folder / self.name)

    def _close(self, note: _Note) -> None:
        closing = SplitClosing(self.task.pieces, self.options)
        folder = f"{self.root}/{PARTS}"
        try:
            note.closed = write_tables(
                closing.batches(), folder, self.name, self.codec, count=self.profile
            )
            note.rests = closing.rests
        except (TallystickError, OSError):
            note.rests = [None]  # the reading of the whole log will say why


@dataclass(frozen=True, slots=True)
class BundleFold:
    """Joins what the parts of a bundle handed on.

    Attributes:
        root: the folder of the tables.
        name: the name of the bundle's files.
        beside: the name of the files of the task beside the parts, if there was one.
        parts: the names of the files of the parts, in the order of the log.
        whole: the whole log.
        options: how the log is read.
        codec: the compression of the files.
        profile: whether the profile is written.
        tables: the tables that are made of what the parts handed on.
    """

    root: str
    name: str
    beside: tuple[str, ...]
    parts: tuple[str, ...]
    whole: Task
    options: SourceOptions
    codec: str
    profile: bool
    tables: tuple[str, ...]

    def __call__(self) -> None:
        """Write what the parts did not; doing it again gives the same files."""
        notes = [self._note(name) for name in (*self.beside, *self.parts)]
        profiles = Profiles()
        for note in notes:
            profiles.merge(note.profiles)
        if self.tables:
            profiles.merge(self._closed(notes[len(self.beside) :]))
        if self.profile:
            write_profile(profiles, self.root, self.name, self.codec)

    def _note(self, name: str) -> _Note:
        return _Note.unpacked(Path(self.root, PARTS, name).read_text())

    def _closed(self, notes: list[_Note]) -> Profiles:
        """Write the rows of the tables; return the profile of their transactions."""
        rests = [rest for note in notes for rest in note.rests]
        known = [rest for rest in rests if rest is not None]
        if len(known) == len(rests):
            try:
                return self._joined(notes, known)
            except (TallystickError, OSError):
                pass  # the reading of the whole log will say why
        return self._read_whole()

    def _joined(self, notes: list[_Note], rests: list[bytes]) -> Profiles:
        self._remove(self.name, *self.parts)
        batches = rest_batches(self.whole.pieces[0].source, self.options, rests)
        profiles = write_tables(batches, self.root, self.name, self.codec, count=self.profile)
        for name in self.parts:
            self._publish(name)
        for note in notes:
            profiles.merge(note.closed)
        return profiles

    def _publish(self, part: str) -> None:
        """Bring what a part closed into the tables; it stays where it is for another attempt."""
        for table in self.tables:
            file = Path(self.root, PARTS, table, part + SUFFIX)
            if file.exists():
                Path(self.root, table).mkdir(exist_ok=True)
                link_file(file, Path(self.root, table, file.name))

    def _read_whole(self) -> Profiles:
        self._remove(*self.parts)
        batches = tables_of(self.whole.pieces, self.options, self.tables)
        return write_tables(batches, self.root, self.name, self.codec, count=self.profile)

    def _remove(self, *names: str) -> None:
        """Remove what an earlier attempt put into the tables."""
        for table in self.tables:
            for name in names:
                Path(self.root, table, name + SUFFIX).unlink(missing_ok=True)
