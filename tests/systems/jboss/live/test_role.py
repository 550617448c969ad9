"""The circular journal keeps the contract of a record journal, in each of its formats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tallystick.errors import LogWriteError
from tallystick.roles import RecordJournal, Ticket
from tallystick.services.journal import Journal
from tallystick.systems.jboss.live.role import JBossRecordJournal
from tallystick.systems.jboss.live.settings import JournalSettings
from tests.roles.contract_record_journal import Opener, RecordJournalContract

FORMATS = {
    "g3": JournalSettings(file_size=4096),
    "g1a": JournalSettings(generation="g1a", prefix="jbm-data", extension="jbm", file_size=4096),
    "hash": JournalSettings(checksum="hash", file_size=4096),
    "aligned": JournalSettings(file_size=4096, alignment=512),
}


class TestCircularJournal(RecordJournalContract):
    @pytest.fixture(params=FORMATS)
    def opener(self, request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
        settings = FORMATS[request.param]

        def open_it() -> RecordJournal:
            return JBossRecordJournal(str(tmp_path / "journal"), settings)

        return open_it


Ending = Callable[[JBossRecordJournal], Ticket]
ENDINGS: dict[str, Ending] = {
    "commit": lambda journal: journal.commit(5),
    "prepare": lambda journal: journal.prepare(5),
}


@pytest.mark.parametrize("back", [False, True], ids=["away", "moved back"])
@pytest.mark.parametrize("name", ENDINGS)
def test_a_transaction_with_a_refused_record_does_not_commit_without_it(
    name: str, back: bool, tmp_path: Path
) -> None:
    folder, away = tmp_path / "journal", tmp_path / "away"
    settings = JournalSettings(file_size=4096)
    journal = JBossRecordJournal(str(folder), settings)
    journal.add_in(5, 1, bytes(500))
    journal.add(10, b"kept").wait()
    folder.rename(away)
    journal.add_in(5, 2, bytes(3700))  # needs another file
    with pytest.raises(LogWriteError, match="was moved"):
        journal.journal.flush()
    if back:
        away.rename(folder)
    with pytest.raises(LogWriteError, match="a record of transaction 5 was refused"):
        ENDINGS[name](journal).wait()
    journal.add(11, b"kept").wait()
    journal.close()
    again = JBossRecordJournal(str(folder if back else away), settings)
    assert [one.record_id for one in again.live_records()] == [10, 11]
    assert not again.prepared()
    again.add_in(5, 3, b"")
    again.commit(5).wait()
    assert [one.record_id for one in again.live_records()] == [10, 11, 3]
    again.close()


@pytest.mark.parametrize("way", ["role", "service"])
def test_a_refused_record_takes_no_id(way: str, tmp_path: Path) -> None:
    folder, away = tmp_path / "journal", tmp_path / "away"
    settings = JournalSettings(file_size=1024)
    if way == "service":
        with Journal(folder, system="jboss", settings=settings) as service:
            service.add(1, b"kept")
            folder.rename(away)
            with pytest.raises(LogWriteError, match="was moved"):
                service.add(2, bytes(970))  # needs another file
            away.rename(folder)
            service.add(2, b"again")
            assert [one.record_id for one in service.live_records()] == [1, 2]
        return
    journal = JBossRecordJournal(str(folder), settings)
    journal.add(1, b"kept").wait()
    folder.rename(away)
    with pytest.raises(LogWriteError, match="was moved"):
        journal.add(2, bytes(970)).wait()
    with pytest.raises(LogWriteError, match="no live record has id 2"):
        journal.update(2, b"")
    with pytest.raises(LogWriteError, match="no live record has id 2"):
        journal.delete(2)
    away.rename(folder)
    journal.update(1, b"again").wait()
    assert [one.record_id for one in journal.live_records()] == [1, 1]
    journal.close()


@pytest.mark.parametrize("size", [1023, 1 << 31, 1 << 40])
def test_a_size_that_the_original_cannot_read_is_refused(size: int, tmp_path: Path) -> None:
    with pytest.raises(LogWriteError, match="impossible size"):
        JBossRecordJournal(str(tmp_path / "journal"), JournalSettings(file_size=size))
    assert not list(tmp_path.iterdir())
