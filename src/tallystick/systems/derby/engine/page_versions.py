"""The versions of pages that changes in the log were made on, and the gaps between them.

In: records that are redone, in log order. Out: `PageGap`s.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tallystick.systems.derby.engine.forward_scan import ScanFailureError, Scanned
from tallystick.systems.derby.format import operations
from tallystick.systems.derby.format.field_types import Container, Page
from tallystick.systems.derby.format.layout import Group
from tallystick.systems.derby.format.record_body import Body

if TYPE_CHECKING:
    from tallystick.systems.derby.engine.page_files import PageFile

COUNTED = {operations.PURGE: "num_rows", operations.COPY_ROWS: "num_rows"}
"""Operations that change a page's version by a number, and its field."""

CUTTING = (operations.COMPRESS_SPACE, operations.COMPRESS_SPACE_10_2)
"""Operations that cut pages off the end of a container."""
UNDONE, CUT = 1, 2


@dataclass(frozen=True, slots=True)
class PageGap:
    """Two changes of a page with versions between them that the log does not have.

    Attributes:
        place: instant of the second change.
        page: the page.
        after_first: the page's version after the first change.
        before_second: the version that the second change was made on.
        built: the transaction that created the container was open after the first change, and may
            have filled it without log records.
    """

    place: int
    page: Page
    after_first: int
    before_second: int
    built: bool

    @property
    def file(self) -> str:
        """The container's file, below the database's folder."""
        return self.page.file

    def __str__(self) -> str:
        return (
            f"{self.page} is at version {self.after_first} after its change in the log, its next "
            f"change is of version {self.before_second}"
        )


class RedonePage(NamedTuple):
    """A page that redo meets.

    Attributes:
        page: the page.
        first: the version that its first change was made on.
        after: its version after its last change.
        last: the instant of that change.
        undone: that change took another one back, which may have raised the version by more.
        cut: a change of this page cut pages off the end of the container.
    """

    page: Page
    first: int
    after: int
    last: int
    undone: bool
    cut: bool


class RedonePages:
    """The pages of one container that redo meets, in their order."""

    def __init__(self, of: Container, pages: Sequence[RedonePage]) -> None:
        self.of, self._pages = of, pages

    def __iter__(self) -> Iterator[RedonePage]:
        return iter(self._pages)

    @property
    def numbers(self) -> list[int]:
        """Their numbers."""
        return [one.page.number for one in self]

    def others(self, than: Collection[int]) -> Iterator[RedonePage]:
        """Yield those with other numbers."""
        return (one for one in self if one.page.number not in than)

    @property
    def cut(self) -> bool:
        """Whether a change of one of them cut pages off the end of the container."""
        return any(one.cut for one in self)

    @property
    def undone(self) -> bool:
        """Whether the last change of one of them took another one back."""
        return any(one.undone for one in self)

    def plain(self, file: PageFile) -> dict[int, tuple[int, int]]:  # noqa: ARG002  # of columns
        """Return pages that are whole and at a version that the log leads to or from.

        By number: the version, and how many versions redo adds. Some such pages may be missing
        in the answer: callers look at these one by one.
        """
        return {}


class PageVersions:
    """The versions of pages after their changes in the log; notes the gaps between them.

    Only the transaction that creates a container fills it without log records.
    """

    def __init__(self, gaps: list[PageGap]) -> None:
        self.gaps = gaps
        self.versions: dict[Page, tuple[int, int, int, int]] = {}
        """Version after the last change, the instant of that change, the version before the first,
        and the bits `UNDONE`, if the last one is an undo, and `CUT`, if any cuts pages off."""
        self.changed: dict[Container, bool] = {}
        """Containers that are created or dropped by what is redone; True where that creates them
        first."""
        self.container_versions: dict[Container, int | None] = {}
        """Version of each of them after its last change; None where that removes its file."""
        self.built: dict[Container, float] = {}
        """Instant at which the transaction that created the container ended."""
        self.creators: dict[int | None, set[Container]] = {}
        self.encrypted: dict[int | None, set[Container]] = {}
        """Containers by the open transaction that encrypts them."""

    def note_early(self, scanned: Scanned) -> None:
        """Take in a record that is not redone: the engine does not decode it."""
        with suppress(ScanFailureError):
            self.note_creation(scanned.place, scanned.body())

    def note(self, place: int, body: Body) -> None:
        """Take in a record that is redone."""
        self.note_creation(place, body)
        if "containerVersion" in body.fields:
            self.note_change(body)
        page: Page | None = body.fields.get("pageId")
        if page is None:
            return
        version = body.fields["pageVersion"]
        known, before, first, bits = self.versions.get(page, (version, place, version, 0))
        if version > known:
            built = before < self.built.get(page.of, 0)
            self.gaps.append(PageGap(place, page, known, version, built))
        step = body.fields[COUNTED[body.operation]] if body.operation in COUNTED else 1
        bits &= ~UNDONE
        bits |= UNDONE if body.operation == operations.PHYSICAL_UNDO else 0
        bits |= CUT if body.operation in CUTTING else 0
        self.versions[page] = version + step, place, first, bits

    def note_change(self, body: Body) -> None:
        """Take in a record that creates or drops a container and is redone."""
        container = body.fields["containerId"]
        version, change = body.fields["containerVersion"], body.fields.get("operation")
        creates = change == operations.CONTAINER_CREATE
        self.changed.setdefault(container, creates)
        # A drop raises the version, and so does what takes it back. So it is odd after a drop, and
        # tells what an undo takes back where that is in a log file that was given up.
        undoes = body.operation == operations.CONTAINER_UNDO
        removes = change == operations.CONTAINER_REMOVE or (undoes and version % 2 == 0)
        self.container_versions[container] = None if removes else version + (not creates)

    def pages(self) -> Iterator[RedonePage]:
        """Yield the pages that were redone."""
        for page, (after, last, first, bits) in self.versions.items():
            yield RedonePage(page, first, after, last, bool(bits & UNDONE), bool(bits & CUT))

    def note_creation(self, place: int, body: Body) -> None:
        """Take in what a record says of containers that are created or encrypted."""
        if (
            body.operation == operations.CONTAINER_CHANGE
            and body.fields["operation"] == operations.CONTAINER_CREATE
        ):
            container = body.fields["containerId"]
            self.built[container] = math.inf
            self.creators.setdefault(body.transaction, set()).add(container)
        if body.operation == operations.ENCRYPT_CONTAINER:
            container = body.fields["containerId"]
            self.encrypted.setdefault(body.transaction, set()).add(container)
        if body.group & Group.LAST:
            self.note_end(place, body.transaction)

    def note_end(self, place: int, transaction: int | None) -> None:
        """Note the end of a transaction: files that it made are filled, encrypted ones stay."""
        for container in self.creators.pop(transaction, ()):
            self.built[container] = place
        self.encrypted.pop(transaction, None)
