"""What the journal says of each transaction, with its Xid, its state and its holes.

In: a `Judgement`. Out: `Transaction`s. A journal number is joined to its Xid through PREPARE, in
file order; COMMIT and ROLLBACK carry the number alone. Heuristic outcomes are records of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tallystick.records import State, Transaction, Xid
from tallystick.systems.jboss.engine.loader import EngineLoad
from tallystick.systems.jboss.format.layout import FILE_ID_MASK, SYSTEM_NAME, Item, Name
from tallystick.systems.jboss.format.narayana import HEURISTIC_TYPE, heuristic_xid, xid
from tallystick.systems.jboss.read.analysis import Analysis, Damage
from tallystick.systems.jboss.read.files import JournalFiles
from tallystick.systems.jboss.read.replay import Ended, Open, Placed


@dataclass(slots=True)
class Judgement:
    """Everything that is known of one journal."""

    path: str
    journal: JournalFiles
    analysis: Analysis
    engine: EngineLoad

    def lost_ids(self) -> list[int]:
        """Ids that are live by the bytes and not in the loader's list, in log order."""
        kept = {item.record_id for item in self.engine.live}
        return [number for number in self.analysis.live if number not in kept]

    def revived_ids(self) -> list[int]:
        """Ids in the loader's list that are not live by the bytes."""
        ids = dict.fromkeys(item.record_id for item in self.engine.live)
        return [number for number in ids if number is not None and number not in self.analysis.live]


def transactions(judgement: Judgement) -> Iterator[Transaction]:
    """Every transaction of the journal by order of its end, then the open ones."""
    seen: Counter[int] = Counter()
    replay = judgement.analysis.replay
    for ended in judgement.analysis.ended:
        yield _ended(judgement, ended, _key(seen, ended.open.transaction))
    for one in replay.open.values() if replay is not None else ():
        yield _still_open(judgement, one, _key(seen, one.transaction))
    yield from _heuristics(judgement)


def _key(seen: Counter[int], number: int) -> str:
    """The journal's number, with ``#2`` and so on where it was used again."""
    seen[number] += 1
    return str(number) if seen[number] == 1 else f"{number}#{seen[number]}"


def _ended(judgement: Judgement, ended: Ended, key: str) -> Transaction:
    committed = ended.end.item.name is Name.COMMIT
    state = State.COMMITTED if committed else State.ROLLED_BACK
    holes = ended.open.holes
    if committed and not ended.complete:
        state = State.INCOMPLETE
    elif committed and ended.known:
        holes = lost_elements(judgement, ended)
    one = _transaction(judgement, ended.open, key, state, holes, ended.end)
    if not ended.known:
        one.attributes["elements"] = "none found: reclaimed, or ended before"
    return one


def _still_open(judgement: Judgement, one: Open, key: str) -> Transaction:
    state = State.ACTIVE if one.prepared is None else State.PREPARED
    holes = one.holes
    if one.invalid:
        state = State.INCOMPLETE
    elif one.prepared is not None:
        holes = missing_files(judgement, one.prepared.item)
    return _transaction(judgement, one, key, state, holes, one.prepared)


def _transaction(
    judgement: Judgement, one: Open, key: str, state: State, holes: str, end: Placed | None
) -> Transaction:
    placed = [*one.records, *one.deletes, *([one.prepared] if one.prepared else [])]
    if end is not None and end is not one.prepared:
        placed.append(end)
    placed.sort(key=lambda each: (each.order, each.item.offset))
    evidence = end or placed[-1]
    known = _xid_of(one)
    return Transaction(
        SYSTEM_NAME,
        judgement.path,
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
        evidence_type=evidence.item.name.name,
    )


def _xid_of(one: Open) -> Xid | None:
    extra = one.prepared.item.extra if one.prepared is not None else None
    return xid(extra) if extra else None


def _heuristics(judgement: Judgement) -> Iterator[Transaction]:
    for placed in (each for records in judgement.analysis.live.values() for each in records):
        found = _heuristic(placed.item)
        if found is None:
            continue
        known, committed = found
        yield Transaction(
            SYSTEM_NAME,
            judgement.path,
            f"heuristic-{placed.item.record_id}",
            State.HEURISTIC,
            format_id=known.format_id,
            gtrid=known.gtrid,
            bqual=known.bqual,
            records=1,
            bytes=placed.item.length,
            files=(placed.path,),
            evidence=(placed.path, placed.item.offset),
            evidence_type=placed.item.name.name,
            attributes={"outcome": "committed" if committed else "rolled_back"},
        )


def _heuristic(item: Item) -> tuple[Xid, bool] | None:
    if item.name is not Name.ADD or item.user_type != HEURISTIC_TYPE:
        return None
    return heuristic_xid(item.body or b"")


def damaged_elements(judgement: Judgement, ended: Ended) -> str:
    """The elements of a committed transaction that are damaged and not missed by the loader."""
    number, end = ended.open.transaction, ended.end
    damaged = [
        hurt
        for hurt in judgement.analysis.damage
        if hurt.transaction == number and (hurt.order, hurt.offset) < (end.order, end.item.offset)
    ]
    if damaged:
        places = ", ".join(f"{hurt.path} at {hurt.offset}" for hurt in damaged)
        return f"{len(damaged)} of its elements {_is(damaged)} damaged: {places}"
    return ""


def lost_elements(judgement: Judgement, ended: Ended) -> str:
    """What the loader does not notice of a committed transaction, empty if it lacks nothing.

    Elements in a file that is not there are lost unless they were deletes, or the file was
    reclaimed because each of them was deleted; then deletes of unknown ids are found.
    """
    if holes := damaged_elements(judgement, ended):
        return holes
    gone = sum(count for _, count in _gone(judgement, ended.end.item))
    unknown = judgement.analysis.unknown_deletes
    return missing_files(judgement, ended.end.item) if unknown < gone else ""


def missing_files(judgement: Judgement, end: Item) -> str:
    """The files that a list of pairs names and that are not there."""
    gone = _gone(judgement, end)
    listed = ", ".join(f"{count} in file id {stamp}" for stamp, count in gone)
    return f"elements are missing: {listed}, which is not there" if gone else ""


def _gone(judgement: Judgement, end: Item) -> list[tuple[int, int]]:
    there = {one.effective_id & FILE_ID_MASK for one in judgement.analysis.readings}
    return [(stamp, count) for stamp, count in end.pairs or () if stamp not in there]


def _is(several: list[Damage]) -> str:
    return "is" if len(several) == 1 else "are"
