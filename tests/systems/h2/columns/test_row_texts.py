"""The texts of rows as JSON, made from the bytes of many rows at once."""

from __future__ import annotations

from unittest.mock import Mock

import numpy as np

from tallystick.systems.h2.columns.row_texts import RowTexts
from tallystick.systems.h2.format.catalogue import TableLives, TableName
from tallystick.systems.h2.format.values.datetime import Zone
from tallystick.systems.h2.format.values.shown import Presentation

ENUM = TableName("PUBLIC.T", ("COLOUR",), ("ENUM('red','green')",))


def test_a_record_without_a_row_has_no_text_whatever_its_table_declares() -> None:
    texts = RowTexts(TableLives({9: ENUM}), Zone(), Presentation(Mock()))
    none = np.array([-1], np.int64)
    found = texts.column(
        np.full(8, 188, np.uint8), np.zeros(1, np.int64), none, np.array([9]), np.zeros(1, np.int64)
    )
    assert found.to_pylist() == [None]
