"""The transactions of a journal, with their Xids, states and holes.

In: an `Analysis`. Out: `Transaction`s. A transaction number is joined to its Xid through PREPARE,
in file order; COMMIT and ROLLBACK carry only the number. Heuristic outcomes are records of their
own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tallystick.records import State, Transaction, Xid
from tallystick.systems.jboss.format.bodies import HEURISTIC_TYPE, heuristic_xid, xid
from tallystick.systems.jboss.format.layout import (
    ELEMENTS,
    FILE_ID_MASK,
    SYSTEM_NAME,
    Item,
    RecordType,
)
from tallystick.systems.jboss.read.analysis import Analysis, Damage
from tallystick.systems.jboss.read.replay import EndedTransaction, OpenTransaction, PlacedRecord

NOTHING_FOUND = "none found: reclaimed, or ended before"
"""What is said of the elements of an end without any."""


def transactions(log: str, analysis: Analysis) -> Iterator[Transaction]:
    """Yield every transaction of the log of that name by its end, then the open ones."""
    seen: Counter[int] = Counter()
    for ended in analysis.ended:
        yield ended_transaction(log, analysis, ended, seen)
    yield from unended(log, analysis, seen)


def unended(log: str, analysis: Analysis, seen: Counter[int]) -> Iterator[Transaction]:
    """Yield the transactions without an end; ``seen`` counts the numbers of those with one."""
    for one in analysis.open:
        yield _still_open(log, analysis, one, key_of(seen, one.transaction))
    yield from _heuristics(log, analysis)


def key_of(seen: Counter[int], number: int) -> str:
    """Return the journal's number, with ``#2`` and so on where it was used again."""
    seen[number] += 1
    return str(number) if seen[number] == 1 else f"{number}#{seen[number]}"


def ended_transaction(
    log: str, analysis: Analysis, ended: EndedTransaction, seen: Counter[int]
) -> Transaction:
    """Return a transaction with an end; ``seen`` counts the numbers of those before it."""
    key = key_of(seen, ended.open.transaction)
    committed = ended.end.item.type is RecordType.COMMIT
    state = State.COMMITTED if committed else State.ROLLED_BACK
    holes = ended.open.holes
    if committed and not ended.complete:
        state = State.INCOMPLETE
    elif committed and ended.known:
        holes = lost_elements(analysis, ended)
    one = _transaction(log, ended.open, key, state, holes, ended.end)
    if not ended.known and not holes:
        one.attributes["elements"] = NOTHING_FOUND
    return one


def _still_open(log: str, analysis: Analysis, one: OpenTransaction, key: str) -> Transaction:
    state = State.ACTIVE if one.prepared is None else State.PREPARED
    holes = one.holes
    if one.prepared is None and damaged_ends(analysis, one):
        state = State.UNKNOWN
    elif one.invalid:
        state = State.INCOMPLETE
    elif one.prepared is not None:
        holes = missing_files(analysis, one.prepared.item)
    return _transaction(log, one, key, state, holes, one.prepared)


def _transaction(
    log: str, one: OpenTransaction, key: str, state: State, holes: str, end: PlacedRecord | None
) -> Transaction:
    placed = [*one.records, *one.deletes, *([one.prepared] if one.prepared else [])]
    if end is not None and end is not one.prepared:
        placed.append(end)
    placed.sort(key=lambda each: each.place)
    evidence = end or placed[-1]
    known = _xid_of(one)
    return Transaction(
        SYSTEM_NAME,
        log,
        key,
        state,
        transaction=one.transaction,
        format_id=known.format_id if known else None,
        gtrid=known.gtrid if known else None,
        bqual=known.bqual if known else None,
        records=len(placed),
        bytes=sum(each.item.length for each in placed),
        files=tuple(dict.fromkeys(each.path for each in placed)),
        complete=not holes,
        holes=holes,
        evidence=(evidence.path, evidence.item.offset),
        evidence_type=evidence.item.type.name,
    )


def _xid_of(one: OpenTransaction) -> Xid | None:
    extra = one.prepared.item.extra if one.prepared is not None else None
    return xid(extra) if extra else None


def _heuristics(log: str, analysis: Analysis) -> Iterator[Transaction]:
    if not (known := analysis.heuristics):
        return
    for placed in (each for number in analysis.live for each in known.get(number, ())):
        found = _heuristic(placed.item)
        if found is None:
            continue
        branch, committed = found
        yield Transaction(
            SYSTEM_NAME,
            log,
            f"heuristic-{placed.item.record_id}",
            State.HEURISTIC,
            format_id=branch.format_id,
            gtrid=branch.gtrid,
            bqual=branch.bqual,
            records=1,
            bytes=placed.item.length,
            files=(placed.path,),
            evidence=(placed.path, placed.item.offset),
            evidence_type=placed.item.type.name,
            attributes={"outcome": "committed" if committed else "rolled_back"},
        )


def _heuristic(item: Item) -> tuple[Xid, bool] | None:
    if item.type is not RecordType.ADD or item.user_type != HEURISTIC_TYPE:
        return None
    return heuristic_xid(item.body or b"")


def damaged_elements(analysis: Analysis, ended: EndedTransaction) -> str:
    """Return the damaged elements of a committed transaction that the loader does not miss.

    It counts those in the file of the end, so if none is missing, what is damaged there is another
    record's; and so is what has the type and the id of one that is whole: a copy of its beginning.
    """
    number, end = ended.open.transaction, ended.end
    whole = {
        (one.item.type, one.item.record_id) for one in [*ended.open.records, *ended.open.deletes]
    }
    damaged = [
        damage
        for damage in analysis.damage
        if damage.transaction == number
        and (damage.order, damage.offset) < end.place
        and not (ended.complete and damage.order == end.where.order)
        and (damage.type is None or damage.type in ELEMENTS)
        and (damage.type, damage.record_id) not in whole
    ]
    if damaged:
        places = ", ".join(f"{damage.path} at {damage.offset}" for damage in damaged)
        return f"{len(damaged)} of its elements {_is(damaged)} damaged: {places}"
    return ""


def damaged_ends(analysis: Analysis, one: OpenTransaction) -> list[Damage]:
    """Return the damaged records that may have ended an open transaction.

    They stand after its last record and have its number, or none that can be read.
    """
    placed = [*one.records, *one.deletes, *([one.prepared] if one.prepared else [])]
    last = max(each.place for each in placed)
    return [
        damage
        for damage in analysis.damage
        if damage.transaction in (one.transaction, None) and (damage.order, damage.offset) > last
    ]


def lost_elements(analysis: Analysis, ended: EndedTransaction) -> str:
    """Return what the loader does not miss of a committed transaction; empty if nothing.

    Elements in a missing file are lost unless they were deletes, or the file was reclaimed
    because each of them was deleted; then deletes of unknown ids are found.
    """
    if holes := damaged_elements(analysis, ended):
        return holes
    gone = sum(count for _, count in _gone(analysis, ended.end.item))
    return missing_files(analysis, ended.end.item) if len(analysis.unknown_deleted) < gone else ""


def missing_files(analysis: Analysis, end: Item) -> str:
    """Return the missing files in the pairs of a commit or prepare, in words."""
    gone = _gone(analysis, end)
    listed = ", ".join(f"{count} in file id {stamp}" for stamp, count in gone)
    return f"elements are missing: {listed}, which is not there" if gone else ""


def _gone(analysis: Analysis, end: Item) -> list[tuple[int, int]]:
    if not end.pairs:
        return []
    there = {one.effective_id & FILE_ID_MASK for one in analysis.readings}
    return [(stamp, count) for stamp, count in end.pairs if stamp not in there]


def _is(several: list[Damage]) -> str:
    return "is" if len(several) == 1 else "are"
