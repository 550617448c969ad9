"""Every code that a finding of H2 can have is in the table, and every difference is one."""

from __future__ import annotations

import re
from pathlib import Path

from tallystick.systems import h2
from tallystick.systems.findings import NO_CODES
from tallystick.systems.h2.codes import CODES
from tallystick.systems.h2.verdict import differences

SOURCES = Path(h2.__file__).parent


def test_findings_use_the_codes_of_the_table_and_no_other() -> None:
    text = (SOURCES / "verdict" / "findings.py").read_text()
    used = set(re.findall(r'"([a-z]+(?:-[a-z]+)+)"', text)) | {"encrypted", "uncommitted"}
    assert used == set(CODES) - set(NO_CODES)


def test_the_engine_s_words_are_about_codes_of_the_table() -> None:
    assert set(differences._ENGINE_SAYS) < set(CODES)
