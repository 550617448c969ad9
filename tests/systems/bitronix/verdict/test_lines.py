"""Where the 2.1 and the 3.0 line differ, the answer holds for each that may start the journal."""

from __future__ import annotations

from pathlib import Path

from tallystick.records import Answer, Judgement
from tallystick.systems.bitronix.format.layout import COMMITTING, HEADER_LENGTH
from tests.systems.bitronix.logs import file_bytes, reading_of, record, write_pair

NAMES_FOR_2_1 = [f"resource-{number}-{'x' * 200}" for number in range(50)]
"""Names of a record that does not fit a page of the 3.0 line."""
SINCE_1970 = 1_700_000_000_000
SINCE_BOOT = 10_000_000


def judged(folder: Path, content: bytes, clock: int) -> Judgement:
    write_pair(folder, content, file_bytes([], clock - 1, size=len(content)))
    return reading_of(folder).judgement


def with_a_length_of_two_records(clock: int) -> bytes:
    """A pair of records, the first with the length that leads to the end marker of the second.

    2.1.4 takes its CRC over that length, 3.0 over the length of what it has read.
    """
    records = [record(COMMITTING, one, "a", time=clock) for one in (1, 2)]
    content = bytearray(file_bytes(records, clock))
    length = int.from_bytes(content[HEADER_LENGTH + 4 : HEADER_LENGTH + 8], "big")
    content[HEADER_LENGTH + 4 : HEADER_LENGTH + 8] = (length + records[1].size).to_bytes(4, "big")
    return bytes(content)


def test_of_a_long_record_only_2_1_makes_something(tmp_path: Path) -> None:
    long = [record(COMMITTING, 1, *NAMES_FOR_2_1, time=SINCE_1970)]
    judgement = judged(tmp_path, file_bytes(long, SINCE_1970, size=1 << 20), SINCE_1970)
    assert (judgement.answer, judgement.reason) == (Answer.CANNOT_TELL, "lines-differ")
    assert judgement.text.startswith("2.1.4 starts with this journal, the 3.0 line does not: newP")
    assert judgement.at_stake.transactions == 1


def test_a_wrong_length_that_leads_to_a_marker_stops_only_2_1(tmp_path: Path) -> None:
    judgement = judged(tmp_path, with_a_length_of_two_records(SINCE_1970), SINCE_1970)
    assert (judgement.answer, judgement.reason) == (Answer.CANNOT_TELL, "lines-differ")
    assert judgement.text.startswith("The 3.0 line starts with this journal, 2.1.4 does not: corr")


def test_what_both_lines_refuse_is_refused(tmp_path: Path) -> None:
    content = bytearray(file_bytes([record(COMMITTING, 1, "a", time=SINCE_1970)], SINCE_1970))
    content[HEADER_LENGTH + 24] ^= 1
    judgement = judged(tmp_path, bytes(content), SINCE_1970)
    assert (judgement.answer, judgement.reason) == (Answer.REFUSES, "start-refused")


def test_a_journal_that_counts_since_boot_is_judged_by_2_1_4(tmp_path: Path) -> None:
    """Only 2.1.3 and 2.1.4 count so."""
    long = [record(COMMITTING, 1, *NAMES_FOR_2_1, time=SINCE_BOOT)]
    content = file_bytes(long, SINCE_BOOT, size=1 << 20)
    assert judged(tmp_path, content, SINCE_BOOT).answer is Answer.SAFE
    content = with_a_length_of_two_records(SINCE_BOOT)
    assert judged(tmp_path, content, SINCE_BOOT).answer is Answer.REFUSES
