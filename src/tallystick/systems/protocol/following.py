"""What a stream asks of a log: what is missing after its position, and what was committed since.

In: how far a log is known. Out: what is gone of it, and its changes from there on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from tallystick.records import Change

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Longs = npt.NDArray[np.int64]


class Reached(NamedTuple):
    """How far the records of a log are known.

    Attributes:
        number: of the last file whose records are known, or of a later one: those up to it are.
        place: of the last record known, as `ChangesBetween.places` has it; None: not known.
        there: True if the file of that record is still there, so that what it held is known.
        since: of the newest file at the first look: what is missing up to it went before.
    """

    number: int
    place: int | None
    there: bool = True
    since: int = -1


class Missing(NamedTuple):
    """What a log has no more, as its own numbers tell.

    Attributes:
        expected: what should come next, in words.
        found: what is there, in words.
        certain: False if nothing tells whether it held records.
        usual: True if the log itself leaves the same at a restart: it does not count as a loss.
        ends_log: True if a reading of the whole log ends there.
    """

    expected: str
    found: str
    certain: bool = True
    usual: bool = False
    ends_log: bool = False


@runtime_checkable
class Ordered(Protocol):
    """A `LogReading` of which each file continues the one before: it can be followed."""

    @property
    def log_identity(self) -> int | None:
        """What tells the log from another one at its path; None if nothing does."""
        ...

    @property
    def damage_ends_log(self) -> bool:
        """True if a reading of the whole log gives no record that lies after damage."""
        ...

    def number(self, path: str) -> int | None:
        """Return what orders a file in its log; None if it can hold no records.

        Later files have higher numbers. Only the head of the file is read.
        """
        ...

    def missing(self, path: str, reached: Reached | None) -> Missing | None:
        """Return what is missing between the records that are known and those of a file.

        With ``reached`` None no record is known, and the file is the first one. None if the file
        continues what is known.

        Raises:
            LogUnreadableError: a file that would tell cannot be read.
        """
        ...


@runtime_checkable
class StatesItsEnd(Protocol):
    """An `Ordered` log that notes, beside its records, up to where they have to be there."""

    def stated_end(self) -> int:
        """Return the place up to which the log calls its records durable; 0 if it does not say.

        Asked before records are read, as the log may grow meanwhile.
        """
        ...

    def missing_at_end(self, stated: int, place: int | None) -> Missing | None:
        """Return what is missing up to a stated end, after the last record, whose place is given.

        With ``place`` None no record is known. None if nothing is missing.

        Raises:
            LogUnreadableError: a file that would tell cannot be read.
        """
        ...


@runtime_checkable
class TellsGaps(Protocol):
    """An `Ordered` log whose damage may leave no damaged record: its numbers tell of it."""

    def damage_between(self, path: str, begin: int, sequences: Longs) -> int | None:
        """Return where damage begins between valid records of a file; None if there is none.

        Args:
            path: the path of the file.
            begin: damage before this offset does not count.
            sequences: `Record.sequence` of the records, ascending.

        Raises:
            LogUnreadableError: the file cannot be read.
        """
        ...


@runtime_checkable
class ChangesBetween(Protocol):
    """A `LogReading` whose commits can be followed: `Change.commit_sequence` grows and stays.

    A record's place is a number that grows along the log and is never used again.
    """

    def places(self, file: str, ends: Longs, sequences: Longs) -> Longs:
        """Return the places of valid records of a file.

        Args:
            file: the path of the file.
            ends: where the records end in the file, in bytes.
            sequences: their `Record.sequence`; 0 where they have none.
        """
        ...

    def changes_between(self, after: int | None, until: int) -> Iterator[Change]:
        """Yield the changes that records at places above ``after`` commit, up to ``until``.

        They come in commit order. Everything up to ``after`` is known to the caller; with None
        nothing is, and the log begins with the first record that is there.

        Raises:
            TallystickError: some of these records are damaged, or may be gone, and what is lost is
                not to be skipped (`ReadOptions.skip_lost`).
        """
        ...
