"""Identify the code that wrote a journal from its bytes.

In: the first bytes and the records of all files of one journal. Out: a `Generation`: the shape of
the records and the behaviour of the loader that goes with it. File names decide only where
the content fits several generations alike. Source: docs/formats/jboss.md, "Generations".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tallystick.systems.jboss.format.layout import (
    FILE_ID_MASK,
    FILL_J,
    FORMAT_HEADER,
    HASH_FORMAT,
    I4,
    SHAPES,
    Shape,
)
from tallystick.systems.jboss.read.scan import OTHER, ROW, SECOND_SHAPE, VALID, pieces

FILE_ID_MAX = 1 << 48
"""Upper bound of plausible file ids; a header that claims more is none."""


@dataclass(frozen=True, slots=True)
class Generation:
    """A version of the original code: the shape of its records, and how its loader differs.

    Attributes:
        name: the key in `GENERATIONS`.
        title: the name and versions of the product.
        shape: the shape of its records.
        accepts: format versions that its loader reads; empty before there were any.
        skips_short_files: the loader ignores a file shorter than a header instead of refusing it.
        knows_events: the loader knows EVENT records.
        flushes_deletes: the loader applies its list of deletes whenever the list is full.
        ends_placed_only: the loader throws where a transaction ends of which it found no more than
            a prepare with a wrong count.
        discards_placed_only: it throws where it discards such a transaction, too.
        wrong_version: the exception for another format version.
        other_user: the exception for another user version.
    """

    name: str
    title: str
    shape: Shape
    accepts: tuple[int, ...] = ()
    skips_short_files: bool = False
    knows_events: bool = False
    flushes_deletes: bool = False
    ends_placed_only: bool = False
    discards_placed_only: bool = False
    wrong_version: str = ""
    other_user: str = ""

    @property
    def reports_failures(self) -> bool:
        """True from g1d on: discarded transactions go to a failure callback."""
        return not self.shape.pairs

    @property
    def has_own_scan(self) -> bool:
        """True before HornetQ 2.1: the loader's scan differs from that of all later ones."""
        return self.shape.header_size == I4.size

    @property
    def counts_compactions(self) -> bool:
        """True from g3 on: records carry a compact count."""
        return self.shape.compact == 1


_HORNETQ_21 = "org.hornetq.api.core.HornetQException: "
_HORNETQ_24 = "org.hornetq.api.core.HornetQIOErrorException: "
_ARTEMIS = "org.apache.activemq.artemis.api.core.ActiveMQIOErrorException: AMQ"
_DIFFERENT = "Journal data belong to a different version"
_MISMATCH = (
    "Journal files version mismatch. You should export the data from the previous version and "
    "import it as explained on the user's manual"
)

GENERATIONS: dict[str, Generation] = {
    one.name: one
    for one in (
        Generation("g1a", "JBoss Messaging 2.0, August 2008", SHAPES["g1a"]),
        Generation("g1b", "JBoss Messaging 2.0, early September 2008", SHAPES["g1b"]),
        Generation("g1c", "JBoss Messaging 2.0 beta 1 and 2", SHAPES["g1c"]),
        Generation(
            "g1d",
            "HornetQ 2.0",
            SHAPES["g1d"],
            flushes_deletes=True,
            ends_placed_only=True,
            discards_placed_only=True,
        ),
        Generation(
            "g2",
            "HornetQ 2.1",
            SHAPES["g2"],
            accepts=(1,),
            flushes_deletes=True,
            ends_placed_only=True,
            discards_placed_only=True,
            wrong_version=_HORNETQ_21 + "Journal files version mismatch",
            other_user=_HORNETQ_21 + _DIFFERENT,
        ),
        Generation(
            "g3-hornetq",
            "HornetQ 2.2 to 2.4",
            SHAPES["g3"],
            accepts=(1, 2),
            ends_placed_only=True,
            discards_placed_only=True,
            wrong_version=f"{_HORNETQ_24}149002 {_MISMATCH}",
            other_user=f"{_HORNETQ_24}149001 {_DIFFERENT}",
        ),
        Generation(
            "g3-artemis",
            "Apache ActiveMQ Artemis",
            SHAPES["g3"],
            accepts=(1, 2),
            skips_short_files=True,
            knows_events=True,
            ends_placed_only=True,
            wrong_version=f"{_ARTEMIS}149002: {_MISMATCH}",
            other_user=f"{_ARTEMIS}149001: {_DIFFERENT}",
        ),
        Generation(
            "hash",
            "Tallystick's journal with a calculated hash",
            SHAPES["hash"],
            accepts=(HASH_FORMAT,),
            skips_short_files=True,
            knows_events=True,
            wrong_version="the files carry another format version",
            other_user="the files carry another user version",
        ),
    )
}


class Sample(Protocol):
    """A file of a journal, as far as the generation depends on it."""

    name: str
    head: bytes

    @property
    def size(self) -> int:
        """Return its size in bytes."""
        ...

    def data(self) -> memoryview:
        """Return all of its bytes."""
        ...


def format_version(head: bytes) -> int | None:
    """Return the format version of a plausible 16-byte header; None if it is none."""
    if len(head) < FORMAT_HEADER.size:
        return None
    version, _, file_id = FORMAT_HEADER.unpack_from(head)
    known = version in (1, 2, HASH_FORMAT)
    return version if known and 0 < file_id < FILE_ID_MAX else None


def shape_of_file(generation: Generation, head: bytes) -> Shape:
    """Return the shape of the records of this file: format 1 files stay format 1."""
    if generation.shape.compact and format_version(head) == 1:
        return SHAPES["g2"]
    return generation.shape


def identify(samples: Sequence[Sample]) -> Generation:
    """Return the generation of a journal.

    A journal whose files hold nothing is g3-artemis unless their names are those of an older
    system.
    """
    versions = {version for sample in samples if (version := format_version(sample.head))}
    if HASH_FORMAT in versions:
        return GENERATIONS["hash"]
    if versions:
        return _formatted(samples, versions)
    if _has_unknown_format(samples):
        return _by_fill(samples)
    return _g1(samples) if any(s.size >= I4.size for s in samples) else _by_name(samples)


def _formatted(samples: Sequence[Sample], versions: set[int]) -> Generation:
    if 2 not in versions and not any(_has_compact_records(sample) for sample in samples):
        return GENERATIONS["g2"]
    return _by_fill(samples)


def _has_compact_records(sample: Sample) -> bool:
    """Return whether a format 1 file holds records of format 2."""
    if format_version(sample.head) != 1:
        return False
    shape = SHAPES["g2"]
    rows = pieces(sample.data(), shape, _stamp(shape, sample.head), second=SECOND_SHAPE["g2"])
    return any(OTHER in piece[2::ROW] for piece in rows)


def _has_unknown_format(samples: Sequence[Sample]) -> bool:
    """Return whether a file has a small unknown format version and records of format 2."""
    return any(
        len(sample.head) >= FORMAT_HEADER.size
        and 0 <= FORMAT_HEADER.unpack_from(sample.head)[0] < 256
        and 0 < FORMAT_HEADER.unpack_from(sample.head)[2] < FILE_ID_MAX
        and _covered(sample, SHAPES["g3"]) > max(_covered(sample, SHAPES[n]) for n in _G1)
        for sample in samples
    )


_G1 = ("g1a", "g1b", "g1c", "g1d")


def _g1(samples: Sequence[Sample]) -> Generation:
    """Return the g1 generation whose valid records cover most bytes."""
    covered = {
        name: sum(_covered(sample, SHAPES[name]) for sample in samples if sample.size >= I4.size)
        for name in _G1
    }
    best = max(covered.values())
    fitting = [name for name in _G1 if covered[name] == best]
    if best == 0:
        return _by_name(samples)
    # Several may cover as much. Then the names of files decide: those of JBoss Messaging, or the
    # last one, HornetQ 2.0.
    return GENERATIONS[fitting[0] if _named(samples, "jbm", "jbm-") else fitting[-1]]


def _covered(sample: Sample, shape: Shape) -> int:
    if sample.size < shape.header_size:
        return 0
    total = 0
    for piece in pieces(sample.data(), shape, _stamp(shape, sample.head)):
        rows = zip(piece[1::ROW], piece[2::ROW], strict=True)
        total += sum(size for size, status in rows if status == VALID)
    return total


def _stamp(shape: Shape, head: bytes) -> int:
    if shape.header_size == I4.size:
        return int(I4.unpack_from(head)[0])
    return int(FORMAT_HEADER.unpack_from(head)[2]) & FILE_ID_MASK


def _by_fill(samples: Sequence[Sample]) -> Generation:
    """Return HornetQ or Artemis, whose records are alike: by name, else by fill.

    HornetQ fills new files with J, Artemis with zeros.
    """
    if _named(samples, "amq", "activemq"):
        return GENERATIONS["g3-artemis"]
    if _named(samples, "hq", "hornetq") or any(_ends_with_j(s.data()) for s in samples if s.size):
        return GENERATIONS["g3-hornetq"]
    return GENERATIONS["g3-artemis"]


def _ends_with_j(data: memoryview) -> bool:
    return bytes(data[-8:]) == bytes([FILL_J] * 8)


def _by_name(samples: Sequence[Sample]) -> Generation:
    if _named(samples, "jbm", "jbm-"):
        return GENERATIONS["g1a"]
    return GENERATIONS["g1d" if _named(samples, "hq", "hornetq") else "g3-artemis"]


def _named(samples: Iterable[Sample], extension: str, prefix: str) -> bool:
    return any(s.name.endswith("." + extension) or s.name.startswith(prefix) for s in samples)
