"""What the journals of a broker prove about each other, and about what lies beside them.

In: the records, changes and evidence of a journal, read when they are asked for. Out: facts for the
judgement of bindings, pages and large messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from functools import cached_property
from itertools import chain

from tallystick.records import Change, Kind, Outcome, Record
from tallystick.systems.jboss.applications.addresses import other_address
from tallystick.systems.jboss.applications.tables import queue_addresses
from tallystick.systems.jboss.format.file_names import NEWER
from tallystick.systems.jboss.format.layout import LONG_MAX
from tallystick.systems.jboss.format.messages import (
    ALL_TAKEN,
    IDS_GIVEN,
    PAGE_TAKEN,
    UNFINISHED_LARGE,
    Notes,
    noted_starts,
    queue_id,
    taken,
)
from tallystick.systems.jboss.verdict.answer import begun
from tallystick.systems.jboss.verdict.differences import Evidence
from tallystick.systems.jboss.verdict.file_ids import started_since, whole_since
from tallystick.systems.jboss.verdict.given_ids import Bound, foreign_id


class BrokerJournal:
    """A journal of a broker: that of its messages, or that of its bindings.

    Args:
        extension: the extension of its files.
        is_there: whether it has any file.
        records: gives its records.
        changes: gives its changes.
        evidence: gives what its analysis has found.
        bindings: gives the journal of the bindings in a folder.
    """

    def __init__(
        self,
        extension: str,
        *,
        is_there: bool,
        records: Callable[[], Iterable[Record]],
        changes: Callable[[], Iterable[Change]],
        evidence: Callable[[], Evidence],
        bindings: Callable[[str], BrokerJournal],
    ) -> None:
        self._extension = extension
        self._is_there = is_there
        self._records = records
        self._changes = changes
        self._evidence = evidence
        self._bindings = bindings

    def queues(self, folder: str) -> dict[int, str]:
        """Return the addresses of the queues in the bindings of a folder, by the queue's id."""
        found = self._bindings(folder)
        return queue_addresses(found._changes()) if found._is_there else {}

    def dropped(self, folder: str) -> set[int]:
        """Return what the bindings in a folder have deleted, by id."""
        found = self._bindings(folder)
        changes = found._changes() if found._is_there else ()
        return {int(one.key) for one in changes if one.kind is Kind.DELETE}

    def foreign(self, folder: str, queues: Mapping[int, str]) -> str:
        """Return what ids and messages of this journal tell against the bindings in a folder."""
        bindings = self._bindings(folder)
        each_once = self._extension == NEWER
        files = begun(self._evidence())
        found = foreign_id(files, bindings.bound_ids, each_once=each_once)
        return found or other_address(self._records(), queues)

    def is_older(self, folder: str) -> bool:
        """Return whether the bindings in a folder note a start that is not one of this journal."""
        bindings = self._bindings(folder)
        files = begun(bindings._evidence()) if bindings._is_there else []
        last = max((one.effective_id for one in files if one.has_records), default=0)
        # Bindings change files next to never: since then each start has taken one id.
        started = files[-1].effective_id - last if last else 0
        return started_since(begun(self._evidence()), noted_starts(bindings.id_notes), started)

    def never_took(self) -> bool:
        """Return whether every record that the journal ever had is there, and none took a page."""
        types = (one.attributes.get("user_type") for one in self._records())
        return self._whole_since == 0 and not any(one in PAGE_TAKEN for one in types)

    @property
    def _whole_since(self) -> int | None:
        """The record id from which on every record is there; None if there is no such id."""
        evidence = self._evidence()
        unknown = bool(evidence.analysis.unknown_deleted)
        return whole_since(begun(evidence), unknown_deleted=unknown)

    def never_added(self, numbers: Set[int]) -> Set[int]:
        """Return the large messages among these of which the journal surely never had a record.

        Return none of them if any message was taken from a page: the file of a large message may
        be deleted after that.
        """
        since = self._whole_since
        left = set() if since is None else {one for one in numbers if one >= since}
        # One by one, as user types are in no column: until each has a record, as a rule.
        for one in self._records() if left else ():
            user_type = one.attributes.get("user_type")
            if user_type in PAGE_TAKEN:
                return set()
            unfinished = user_type == UNFINISHED_LARGE
            left.discard(queue_id(one.body or b"") if unfinished else one.record_id)
            if not left:
                break
        return left

    @cached_property
    def finished(self) -> dict[tuple[int, int], int]:
        """By queue and page: the last record by which all of the page was taken, deleted or not."""
        found: dict[tuple[int, int], int] = {}
        for one in self._changes():
            if one.after and one.values and one.values.get("user_type") == ALL_TAKEN:
                place = (queue_id(one.after) or 0, taken(one.after)[0])
                found[place] = max(int(one.key), found.get(place, 0))
        return found

    @cached_property
    def bound_ids(self) -> Bound:
        """The ids that these bindings have given, and their notes of ids."""
        files = begun(self._evidence()) if self._is_there else []
        added = frozenset(chain.from_iterable(one.adds() for one in files))
        notes, every = self.id_notes, (one.transactions_between(0, LONG_MAX) for one in files)
        ids = added.difference(number for number, _ in notes).union(*every)
        return Bound(ids, notes)

    @cached_property
    def id_notes(self) -> Notes:
        """The notes of these bindings about ids, deleted ones included."""
        return [
            (one.record_id or 0, one.body or b"")
            for one in self._records()
            if one.outcome is Outcome.VALID and one.attributes.get("user_type") == IDS_GIVEN
        ]
