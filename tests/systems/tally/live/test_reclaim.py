"""Nothing that a native log needs is freed, and nothing that has ended comes back."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import tallystick
from tallystick.roles import DecisionOutcome
from tallystick.systems.tally.live.compaction import compact
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles import TallyDecisionLog
from tallystick.systems.tally.live.roles.journal import TallyJournal
from tallystick.systems.tally.live.settings import Settings

SMALL = Settings(segment_size=64 << 10, preallocate=False, idle_mark_s=None)
FILLING = bytes(50_000)
"""A segment takes one of these."""


def opened(path: Path) -> TallyLog:
    return TallyLog(str(path), settings=SMALL)


def live(journal: tallystick.Journal) -> list[tuple[int, bytes]]:
    return [(one.record_id, one.body) for one in journal.live_records()]


def test_records_after_a_checkpoint_stay_where_one_before_it_commits_later(tmp_path: Path) -> None:
    journal = TallyJournal(opened(tmp_path))
    journal.append_in(1, b"given up")
    lsns = [journal.append_durably(b"%d" % number) for number in range(5)]
    journal.commit(1).wait()
    journal.log.roll()
    journal.reclaim(lsns[2])
    kept = [(lsn, b"%d" % number) for number, lsn in enumerate(lsns)][2:]
    assert list(journal.plain_records())[-3:] == kept
    journal.close()


def test_deleted_record_stays_deleted_where_it_was_moved_before_the_commit(tmp_path: Path) -> None:
    with tallystick.Journal(tmp_path, settings=SMALL) as journal:
        journal.add(1, b"deleted")
        journal.add(2, b"kept")
        transaction = journal.transaction()
        transaction.delete(1)
        for _ in range(3):
            journal.append(FILLING)
        journal.compact(force=True)
        transaction.commit()
        journal.append(FILLING)
        journal.checkpoint()
        assert live(journal) == [(2, b"kept")]
    with tallystick.Journal(tmp_path, settings=SMALL) as journal:
        assert live(journal) == [(2, b"kept")]
        journal.append(FILLING)
        journal.compact(force=True)
        journal.checkpoint()
        assert len(list(tmp_path.glob("0*.tally"))) == 1, "the delete went with what it deletes"
    with tallystick.Journal(tmp_path, settings=SMALL) as journal:
        assert live(journal) == [(2, b"kept")]


def test_compaction_leaves_what_is_deleted_and_given_up_before_it_is_read(tmp_path: Path) -> None:
    log = opened(tmp_path)
    journal = TallyJournal(log)
    for key in range(1, 4):
        journal.add(key, FILLING).wait()
    read = log.hold

    def hold(number: int) -> AbstractContextManager[None]:
        log.hold = read  # type: ignore[method-assign]
        journal.delete(1).wait()
        log.reclaim()
        return read(number)

    log.hold = hold  # type: ignore[method-assign]
    assert compact(log)
    assert [one.record_id for one in journal.live_records()] == [2, 3]
    journal.close()


def test_updates_of_an_id_come_as_they_took_effect_and_compaction_changes_nothing(
    tmp_path: Path,
) -> None:
    expected = [(1, b"first"), (1, b"second"), (1, b"third"), (2, b"other")]
    with tallystick.Journal(tmp_path, settings=SMALL) as journal:
        journal.add(1, b"first")
        transaction = journal.transaction()
        transaction.update(1, b"third")
        journal.update(1, b"second")
        journal.add(2, b"other")
        transaction.commit()
        assert live(journal) == expected
    with tallystick.Journal(tmp_path, settings=SMALL) as journal:
        assert live(journal) == expected
        journal.append(FILLING)
        journal.append(FILLING)
        journal.compact(force=True)
        assert sorted(live(journal)) == sorted(expected)
        assert [body for key, body in live(journal) if key == 1] == [b"first", b"second", b"third"]


def test_decision_after_a_heuristic_outcome_stays_open_when_both_are_carried(
    tmp_path: Path,
) -> None:
    native = opened(tmp_path)
    log = TallyDecisionLog(native)
    log.finish(b"old", ["a"], DecisionOutcome.HEURISTIC)
    log.decide(b"old", ["a"]).wait()
    log.finish(b"new", ["a"], DecisionOutcome.HEURISTIC)
    native.roll()
    log.decide(b"new", ["a"]).wait()
    native.roll()
    before = log.open_decisions(), log.heuristics()
    assert before[0].keys() == {b"old", b"new"}
    for _ in range(2):
        native.reclaim_soon(carry_after=0)
        assert (log.open_decisions(), log.heuristics()) == before
    log.close()
    log = TallyDecisionLog(opened(tmp_path))
    assert (log.open_decisions(), log.heuristics()) == before
    log.close()
