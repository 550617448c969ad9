"""What a live log remembers between records: sections, undo pages, sessions.

In: what was logged. Out: whether this section has an image of a page, which is the oldest section
still needed, what is in doubt. It has no lock of its own.
Source: docs/formats/h2.md, "What recovery does".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tallystick.systems.h2.format.entries import Entry, Type


@dataclass(slots=True)
class Prepared:
    """A prepared transaction that is not decided: its name and the page that holds its record."""

    name: str
    page: int = 0
    earlier: Prepared | None = None
    """What the session had prepared before, which is in doubt again if this is rolled back."""


@dataclass(slots=True)
class LiveState:
    """The state of one log since it was opened for writing."""

    section: int = 0
    """Section being written."""
    first_section: int = 0
    """Oldest section kept."""
    position: int = 0
    """Row and truncate records in the current section."""
    starts: dict[int, int] = field(default_factory=dict)
    """Section to the data page at which it begins."""
    undo: set[int] = field(default_factory=set)
    """Pages whose old image is in this section."""
    undo_all: set[int] = field(default_factory=set)
    """Pages with an image in any section: never used for log pages."""
    uncommitted: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Session to the section and position of its first change, or prepare record, that is not
    committed."""
    prepared: dict[int, Prepared] = field(default_factory=dict)

    def add_entry(self, entry: Entry) -> None:
        """Add a record read from an older log, as if it had just been logged."""
        if entry.session_bound:
            self.add_row(entry.session)
        elif entry.code == Type.UNDO:
            self.add_image(entry.page)
        elif entry.code == Type.CHECKPOINT:
            self.next_section()
        elif entry.code == Type.PREPARE_COMMIT:
            self.prepare(entry.session, entry.name)
        elif entry.code == Type.COMMIT:
            self.end_session(entry.session)
        elif entry.code == Type.ROLLBACK and entry.session not in self.prepared:
            # It was written over a prepare record. To recovery it is nothing: one before it counts.
            self.end_session(entry.session)

    def add_row(self, session: int) -> None:
        """Add a change of a session."""
        self.uncommitted.setdefault(session, (self.section, self.position))
        self.position += 1

    def add_image(self, page: int) -> None:
        """Add an undo image."""
        self.undo.add(page)
        self.undo_all.add(page)

    def prepare(self, session: int, name: str) -> None:
        """Add a prepare record of a session."""
        self.uncommitted.setdefault(session, (self.section, self.position))
        self.prepared[session] = Prepared(name, earlier=self.prepared.get(session))

    def roll_back_prepared(self, session: int) -> None:
        """Remove the last prepare record of a session, and with its only one the session."""
        earlier = self.prepared[session].earlier
        if earlier is None:
            self.end_session(session)
        else:
            self.prepared[session] = earlier

    def end_session(self, session: int) -> None:
        """Remove a session that has committed, or will never commit."""
        self.uncommitted.pop(session, None)
        self.prepared.pop(session, None)

    def next_section(self) -> int:
        """Begin a section at a checkpoint; return its id."""
        self.undo.clear()
        self.section += 1
        self.position = 0
        return self.section

    def needed_section(self) -> int:
        """Return the oldest section with a change that is not committed, else the current one."""
        return min([self.section, *(section for section, _ in self.uncommitted.values())])

    def drop_before(self, section: int) -> None:
        """Forget the sections below."""
        self.first_section = section
        for one in [one for one in self.starts if one < section]:
            del self.starts[one]
