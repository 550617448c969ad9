"""What every system offers to the packages above, and what these may ask of it besides.

In: the files of one folder (`source`). Out: which logs are in it (`system`), for each log a
`LogReading` (`reading`), what a stream asks of it (`following`), and rows by the names that
applications know (`rows`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystick.systems.protocol.following import (
    ChangesBetween,
    Missing,
    Ordered,
    Reached,
    StatesItsEnd,
    TellsGaps,
)
from tallystick.systems.protocol.reading import (
    END,
    ChoosesChanges,
    ClosedSplit,
    ClosesBySplit,
    FileByFile,
    FileLife,
    JudgedBySplit,
    LogReading,
    NotClosedInPartsError,
    ProvesDurability,
    Ranged,
    Reading,
    Separable,
    Split,
    Stretch,
    chosen_changes,
    chosen_splits,
)
from tallystick.systems.protocol.rows import (
    LOST,
    AttributeBatches,
    Catalogued,
    ChoosesRecords,
    Collection,
    Column,
    DecodesLater,
    Dialect,
    FateBatches,
    Importable,
    KnowsFates,
    KnowsRowsBefore,
    Reference,
    Typed,
)
from tallystick.systems.protocol.source import (
    HEAD_SIZE,
    Entry,
    Folder,
    LogSealedError,
    LogSource,
    ReadOptions,
    group_by,
    readable_entries,
)
from tallystick.systems.protocol.system import (
    OwnLog,
    Patch,
    ResourceTraits,
    Statements,
    StoredEntry,
    System,
)

if TYPE_CHECKING:
    from tallystick.systems.protocol.following import Longs as Longs
    from tallystick.systems.protocol.rows import Fitting as Fitting

__all__ = [
    "END",
    "HEAD_SIZE",
    "LOST",
    "AttributeBatches",
    "Catalogued",
    "ChangesBetween",
    "ChoosesChanges",
    "ChoosesRecords",
    "ClosedSplit",
    "ClosesBySplit",
    "Collection",
    "Column",
    "DecodesLater",
    "Dialect",
    "Entry",
    "FateBatches",
    "FileByFile",
    "FileLife",
    "Folder",
    "Importable",
    "JudgedBySplit",
    "KnowsFates",
    "KnowsRowsBefore",
    "LogReading",
    "LogSealedError",
    "LogSource",
    "Missing",
    "NotClosedInPartsError",
    "Ordered",
    "OwnLog",
    "Patch",
    "ProvesDurability",
    "Ranged",
    "Reached",
    "ReadOptions",
    "Reading",
    "Reference",
    "ResourceTraits",
    "Separable",
    "Split",
    "Statements",
    "StatesItsEnd",
    "StoredEntry",
    "Stretch",
    "System",
    "TellsGaps",
    "Typed",
    "chosen_changes",
    "chosen_splits",
    "group_by",
    "readable_entries",
]
