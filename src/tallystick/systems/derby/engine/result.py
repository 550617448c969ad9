"""What a boot of the engine would do with the log, as `recovery` finds it.

In: nothing. Out: `Recovery`, which is filled while the log is scanned and redone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tallystick.records import Xid
from tallystick.systems.derby.engine.page_versions import PageGap, RedonePages
from tallystick.systems.derby.format.field_types import Container


@dataclass(slots=True)
class OpenTransaction:
    """A transaction in the table while recovery redoes the log, or of a log that is open.

    Attributes:
        first: the instant of its first record.
        last: that of its last one; of a boot, of the last one that redo looks at.
        records: their number, the first one and a prepare record among them; of a boot likewise.
    """

    number: int
    first: int
    last: int
    internal: bool
    xid: Xid | None
    prepared: bool = False
    records: int = 0


@dataclass(slots=True)
class Recovery:
    """What a boot of the engine would do. Places are instants, 0 for none.

    Attributes:
        boots: None if the log is encrypted and the key is missing, or if something besides the log
            decides: see ``depends``.
        reason: why it does not boot, or what it warns of.
        depends: what decides whether it boots, if the log does not.
        control: name of the control file that it uses.
        checkpointing: number of the transaction that made the checkpoint, if its record can be read
            as the engine reads it.
        start: where redo begins.
        log_end, stop, covered, fuzzy, end_reason: as `ForwardScan` found them from there.
        new_log: it creates an empty log: every change that is not in the data pages yet is gone.
        past_end: the checkpoint is after the end that redo reached, so undo would work against
            newer pages.
        marked: the file in which the scan stopped ends with four zeros that may be an end marker.
        lost_file: number of a missing log file that an end marker proves to have existed, or 0.
        redone: number of records redone.
        highest: largest number of a transaction that begins in what was scanned.
        table: transactions that are open at the end of the log, by number.
        trailing_wrong: instants of the ends of records whose trailing length is too large.
        gaps: pages of which the log does not have every version.
        gaps_decide: it boots or not by the pages of ``gaps`` alone.
        by_container: returns the pages that are redone, by segment and container.
        containers: those that are created or dropped by what is redone; True where redo creates
            them first.
        container_versions: the version of each of them after its last change; None where that
            removes its file.
        built: containers that the log creates, and the instant until which they may have been
            filled without log records.
        encrypted: containers that an open transaction encrypts, which its undo takes back.
        newer_than_judged: why an engine whose recovery was compared with ours refuses the log, if
            no setting names a newer one.
        followed: what the engine does is known to the end, but for what pages on disk decide.
    """

    boots: bool | None = True
    reason: str = ""
    depends: str = ""
    place: int | None = None
    control: str | None = None
    checkpoint: int = 0
    redo_mark: int = 0
    undo_mark: int = 0
    checkpointing: int | None = None
    start: int = 0
    log_end: int = 0
    stop: int = 0
    covered: int = 0
    fuzzy: bool = False
    end_reason: str = ""
    new_log: bool = False
    past_end: bool = False
    marked: bool = False
    lost_file: int = 0
    redone: int = 0
    highest: int = 0
    table: dict[int, OpenTransaction] = field(default_factory=dict)
    trailing_wrong: list[int] = field(default_factory=list)
    gaps: list[PageGap] = field(default_factory=list)
    gaps_decide: bool = False
    by_container: Callable[[], Iterable[RedonePages]] = field(
        default=tuple, repr=False, compare=False
    )
    containers: Mapping[Container, bool] = field(default_factory=dict)
    container_versions: Mapping[Container, int | None] = field(default_factory=dict)
    built: Mapping[Container, float] = field(default_factory=dict)
    encrypted: frozenset[Container] = frozenset()
    followed: bool = True
    newer_than_judged: str = ""

    @property
    def finds_checkpoint(self) -> bool:
        """Whether the control file names a checkpoint's record, with marks that it can have.

        Each mark is written before the record, and undo begins before redo, or where that does.
        """
        return 0 < self.undo_mark <= self.redo_mark <= self.checkpoint

    @property
    def may_boot(self) -> bool:
        """Whether it boots, or something besides the log decides."""
        return self.boots is True or bool(self.depends)

    @property
    def undo(self) -> list[OpenTransaction]:
        """Transactions that it rolls back: internal ones first, then the most recent."""
        losers = [one for one in self.table.values() if not one.prepared]
        return sorted(losers, key=lambda one: (not one.internal, -one.first))

    @property
    def in_doubt(self) -> list[OpenTransaction]:
        """Transactions that stay prepared."""
        return [one for one in self.table.values() if one.prepared]
