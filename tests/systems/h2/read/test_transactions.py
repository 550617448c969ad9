"""Transactions that were ended by hand over their prepare record: the name is gone."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tallystick.records import State
from tallystick.systems.h2.engine.recovery import UNDO_STAGE
from tallystick.systems.h2.format.values.encode import encode_row
from tallystick.systems.h2.live.files import PageStoreFile
from tallystick.systems.h2.live.log import PageLog
from tests.fixtures import fixture_dir
from tests.systems.h2.kit import reading_of

ROW = encode_row([1, "one"])


def by_hand(path: Path) -> list[tuple[int | None, State]]:
    return [
        (one.transaction, one.state)
        for one in reading_of(path).transactions()
        if one.attributes.get("ended_by_hand")
    ]


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("indoubt-one-committed-2048", [(4, State.COMMITTED)]),
        ("indoubt-checkpoint-committed-2048", [(4, State.COMMITTED)]),
        ("indoubt-one-rolledback-2048", [(4, State.ROLLED_BACK)]),
        ("indoubt-many-partly-512", [(4, State.COMMITTED), (6, State.ROLLED_BACK)]),
        ("indoubt-one-2048", []),
        ("indoubt-commit-unflushed-2048", []),
        ("prepared-twice-2048", []),
        ("sections-2048", []),
    ],
)
def test_what_the_engine_wrote_over_a_prepare_record_is_read_as_that(
    case: str, expected: list[tuple[int, State]]
) -> None:
    (path,) = (fixture_dir("h2") / case).glob("*.h2.db*")
    assert by_hand(path) == expected


@pytest.mark.parametrize("seed", range(30))
def test_fills_of_our_own_log_prove_nothing(tmp_path: Path, seed: int) -> None:
    """It fills a page after every forced write, so only a rollback over a prepare record shows."""
    rng = random.Random(seed)
    path = tmp_path / "db.h2.db"
    PageStoreFile.create(str(path), page_size=512).close()
    with PageStoreFile(str(path)) as store:
        log = PageLog(store)
        log.open_for_writing()
        prepared: set[int] = set()
        for number in range(60):
            session = rng.randrange(3, 9)
            how = rng.randrange(5)
            if session not in prepared and how < 2:
                log.log_add_or_remove_row(session, 16, number, ROW)
            elif how == 2 and session not in prepared:
                log.prepare_commit(session, f"XA{number}").wait()
                prepared.add(session)
            elif how == 3:
                log.commit(session).wait()
                prepared.discard(session)
        log.close()
    assert by_hand(path) == []
    settled = settle(path, rng)
    assert set(by_hand(path)) <= {one for one in settled if one[1] is State.ROLLED_BACK}


def settle(path: Path, rng: random.Random) -> set[tuple[int | None, State]]:
    """Decide each branch in doubt by hand."""
    settled: set[tuple[int | None, State]] = set()
    with PageStoreFile(str(path)) as store:
        log = PageLog(store)
        log.recover(UNDO_STAGE)
        for one in log.get_in_doubt_transactions():
            commit = rng.random() < 0.5
            log.set_in_doubt_transaction_state(one.session, one.page, commit=commit)
            settled.add((one.session, State.COMMITTED if commit else State.ROLLED_BACK))
        log.close()
    return settled
