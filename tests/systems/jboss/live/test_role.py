"""The circular journal keeps the contract of a record journal, in each of its formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.roles import RecordJournal
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
