"""The records of one plain file as a step of a stream needs them, in columns.

In: a file. Out: `FileRecords` that agree with those of `read_records`, without an object per
record; a file that is not plain is read record by record.
"""

from __future__ import annotations

from array import array

from tallystick.systems.jboss.read.changes import FileRecords, RecordsOf, read_records
from tallystick.systems.jboss.read.files import JournalFile, JournalFiles
from tallystick.systems.jboss.read.scan import OFFSET, SIZE
from tallystick.systems.jboss.runs.chunk import chunk_of
from tallystick.systems.jboss.runs.pieces import file_rows, is_plain, valid_rows


def plain_records(
    journal: JournalFiles, file: JournalFile, one_by_one: RecordsOf = read_records
) -> FileRecords:
    """Read the records of a file. Raises what ``one_by_one`` does, which reads damaged ones."""
    shape, data = journal.shape(file), file.data()
    rows = file_rows(file, shape)
    if not is_plain(rows, data, shape, file.stamp):
        return one_by_one(journal, file)
    records = chunk_of(shape, data, valid_rows(rows))
    ends = records.rows[:, OFFSET] + records.rows[:, SIZE]
    columns = records.rows[:, OFFSET], ends, records.transactions
    # Read number by number later on: arrays of Python give its own integers.
    return FileRecords(records.kinds.tobytes(), *(array("q", one.tobytes()) for one in columns))
