"""What follows from the database's containers for a boot: their pages against the log.

In: the folder of the database, the pages that redo meets and those that the last checkpoint wrote.
Out: parts of the `Surroundings`. Of pages that the log names is read what recovery asks: a change
is redone where the page has the version that it was made on, left out where the page is newer, and
stops the boot where it is older (XSDB4). The others are looked at where the database is small; else
those of the catalogue's tables that every boot reads. Source: docs/formats/derby.md, section
"Recovery".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import groupby, islice
from typing import Final, NamedTuple

from tallystick.errors import LogUnreadableError
from tallystick.printable import counted
from tallystick.records import Answer, Part
from tallystick.storage.source import PACKINGS, list_names, logical_name, source_size
from tallystick.systems.derby.engine.flushed_pages import Written
from tallystick.systems.derby.engine.index_pages import Node, is_tree
from tallystick.systems.derby.engine.page_files import PageFile, PageHead
from tallystick.systems.derby.engine.page_versions import (
    PageVersions,
    RedonePage,
    RedonePages,
)
from tallystick.systems.derby.engine.result import Recovery
from tallystick.systems.derby.engine.rows_after import RowsAfter
from tallystick.systems.derby.format.crypto import LogCipher
from tallystick.systems.derby.format.field_types import Container, Page
from tallystick.systems.derby.format.layout import SEGMENT, split_instant
from tallystick.systems.derby.read.catalogue import CONGLOMERATES
from tallystick.systems.derby.read.containers import (
    Conglomerate,
    conglomerates,
    has_rows_of_table,
    holds,
    is_marked,
)
from tallystick.systems.derby.read.surroundings import cipher_changes, read_at_boot
from tallystick.systems.derby.verdict.damage import damage
from tallystick.systems.derby.verdict.row_counts import RowCounts
from tallystick.systems.surroundings import names_beside

BACKUP_HISTORY: Final = "BACKUP.HISTORY"
"""The file that a backup is made with."""
FOUND_BY: Final = "the log, which names the container"
_CONTAINER_NAME = re.compile(r"([cd])([0-9a-f]{1,15})\.dat(?:\.gz|\.zst)?")
"""Of a container, or of the stub that its removal leaves."""
_OTHER_TIME = "log and pages are of different times or databases."
_CATALOGUE_MAX = 1 << 20
"""Bytes of the catalogue's list of containers up to which it is read."""
_EVERY_PAGE_MAX = 1 << 24
"""Bytes of all containers up to which their pages are looked at, named by the log or not."""
_ROWS_MAX = 1 << 14
"""Pages of which rows are compared: so that memory does not grow with the database."""
_LOGGED_FROM = 4
"""What is logged of a page that is then filled without log records raises its version to less."""


class Wanted(NamedTuple):
    """What the log says of the version of a page on disk.

    Attributes:
        redo: where it is smaller, the boot stops; None for a page that is not redone.
        flushed: the last checkpoint has written this version.
        most: the log explains no larger one; None where it cannot tell.
        cut: the log cuts pages off its container: it may be one of them.
        last: the log's last change leads to it.
    """

    redo: int | None
    flushed: int
    most: int | None
    cut: bool
    last: int


class _Asked(NamedTuple):
    """What the log says of the pages of one container.

    Attributes:
        redone: those that redo meets.
        early: those that the last checkpoint has written.
        gaps: the versions that pages must have because the log leaves out what leads to them.
        built: the instant up to which it was filled without log records.
    """

    redone: RedonePages
    early: Mapping[int, RedonePage] = {}
    gaps: Mapping[Page, int] = {}
    built: float = 0

    def plain(self, file: PageFile) -> dict[int, tuple[int, int]]:
        """Return pages that fit, as `RedonePages.plain`."""
        found = self.redone.plain(file)
        for page in self.gaps:
            if page.of == self.redone.of:
                found.pop(page.number, None)
        return found

    def wanted(self, but: Collection[int] = ()) -> dict[int, Wanted]:
        """Return what is wanted of the pages, but for some."""
        cut = self.redone.cut or any(one.cut for one in self.early.values())
        found = {
            number: Wanted(None, one.after, _most(one, self.built), cut, one.after)
            for number, one in self.early.items()
            if number not in but
        }
        for one in self.redone.others(but):
            first = max(one.first, self.gaps.get(one.page, 0))
            found[one.page.number] = Wanted(first, 0, _most(one, self.built), cut, one.after)
        return found


class Containers:
    """Holds the files of containers against a log.

    Args:
        database: the folder of the database.
        cut: the log ends in a group that was not written whole, as a power failure leaves it: files
            may be there whose creation was not written.
        sealed: that containers are there is all that can be seen of them.
        why_sealed: why that is so; one half of a sentence.
        cipher: with which pages are encrypted.
        written: given pages with their versions, and the files of containers by number, returns the
            rows that the log writes there with the changes that lead to these; what it reads for
            that is noted.
        followed: given the files of containers by number, and which are indexes, returns what notes
            how a boot changes their rows.
    """

    def __init__(
        self,
        database: str,
        *,
        cut: bool,
        sealed: bool = False,
        why_sealed: str = "no key was given",
        cipher: LogCipher | None = None,
        written: Callable[
            [Mapping[Page, int], Callable[[int], PageFile], RowsAfter | None], Iterable[Written]
        ],
        followed: Callable[[Mapping[int, PageFile], Collection[int]], RowsAfter],
    ) -> None:
        self._written, self._followed = written, followed
        self._versions: dict[Page, int] = {}
        self._lasting: dict[Container, int | None] = {}
        """The versions of containers after their last changes in the log, as `PageVersions`."""
        self._cut, self._sealed, self._cipher = cut, sealed, cipher
        self._why_sealed = why_sealed
        self._folder = f"{database}/{SEGMENT}"
        # While a backup is taken nothing is written without log records.
        self._backup = BACKUP_HISTORY in names_beside(database)
        self._database = database
        self._names = frozenset[str]()
        self._put_back = frozenset[Container]()
        """Containers whose encryption is undone, after redo."""
        self._looked_at = [0, 0]
        self._redone: dict[int, dict[int, int]] = {}
        """The pages that redo changes, by their containers, and how many versions it adds."""

    def parts(self, recovery: Recovery, flushed: PageVersions) -> Iterator[Part]:
        """Yield what does not fit, up to what stops a boot; what fits as one part."""
        by = "the layout of a database"
        found: dict[str, Part] = {}
        try:
            self._names = list_names(self._folder)
            for one in self._problems(recovery, flushed):
                found.setdefault(one.path, one)
                if one.answer is Answer.REFUSES:
                    break
        except LogUnreadableError as error:
            answer = Answer.CANNOT_TELL
            yield Part(SEGMENT, error.file or self._folder, by, why=str(error), answer=answer)
            return
        containers, pages = self._looked_at
        of = counted(containers, "container")
        text = f"Looked at {counted(pages, 'page')} of {of} that the log names."
        if self._sealed:
            text = "That the containers are there was looked at; their pages are encrypted, and "
            text += f"{self._why_sealed}."
        if not found:
            fits = None if self._sealed else True
            yield Part(SEGMENT, self._folder, by, fits=fits, why=text)
        yield from found.values()

    def _problems(self, recovery: Recovery, flushed: PageVersions) -> Iterator[Part]:
        early = _by_container(flushed)
        built = {**flushed.built, **recovery.built}
        gaps = _least_versions(recovery)
        self._lasting = {**flushed.container_versions, **recovery.container_versions}
        removed = {one for one, version in self._lasting.items() if version is None}
        met: dict[int, RedonePages] = {}
        for pages in recovery.by_container():
            if not pages.of.segment:
                number, of = pages.of.number, pages.of
                met[number] = pages
                asked = _Asked(pages, early.pop(number, {}), gaps, built.get(of, 0))
                yield from self._container(asked, made=recovery.containers.get(of, False))
        for one, made in sorted(recovery.containers.items(), key=lambda one: one[0].number):
            if not one.segment and one.number not in met:
                yield from self._container(_Asked(RedonePages(one, ())), made=made)
        redone = {*recovery.containers, *(Container(0, one) for one in met)}
        if not cipher_changes(self._database):
            self._put_back = recovery.encrypted - redone
        yield from self._later(built)
        for one in removed:
            early.pop(one.number, None)
        for number, written in sorted(early.items()):
            none = RedonePages(Container(0, number), ())
            asked = _Asked(none, written, gaps, built.get(none.of, 0))
            yield from self._container(asked, made=None)
        listed = self._listed()
        paths = self._paths(listed)
        after = self._followed_in(listed, paths, undone=bool(recovery.undo))
        yield from self._rewritten(built, after)
        changed = {*recovery.containers, *removed}
        yield from self._unlisted(listed, changed)
        if not self._sealed:
            filled = {one for one, end in built.items() if end != math.inf}
            # What redo creates and was filled is on disk, or written anew by the log.
            changed -= {one for one in filled if recovery.containers.get(one)}
            changed |= built.keys() - filled
            yield from self._unnamed(listed, paths, after, changed, recovery, met)

    def _listed(self) -> dict[int, Conglomerate]:
        """Return the tables and indexes of the catalogue by number, if it can be read."""
        stored = self._kept(CONGLOMERATES)
        if (
            self._sealed
            or stored is None
            or source_size(f"{self._folder}/{stored}") > _CATALOGUE_MAX
        ):
            return {}
        found = sorted(conglomerates(f"{self._folder}/{stored}", self._cipher))
        return {one.number: one for one in found}

    def _paths(self, listed: Collection[int]) -> dict[int, str]:
        """Return the files of tables and indexes, and of what every boot reads, by number."""
        stored = ((one, self._kept(one)) for one in {*read_at_boot(self._database), *listed})
        return {one: f"{self._folder}/{name}" for one, name in stored if name is not None}

    def _followed_in(
        self, listed: Mapping[int, Conglomerate], paths: Mapping[int, str], *, undone: bool
    ) -> RowsAfter | None:
        """Return what notes how the boot of a small database changes rows; None if it need not."""
        tables = {listed[one].table_id for one in self._redone.keys() & listed.keys()}
        wanted = [
            one
            for number, one in listed.items()
            if number in paths and (undone or one.table_id in tables)
        ]
        if self._sealed or not wanted or sum(map(source_size, paths.values())) > _EVERY_PAGE_MAX:
            return None
        files = {one.number: self.file(one.number) for one in wanted}
        return self._followed(files, [one.number for one in wanted if not one.is_table])

    def _unnamed(
        self,
        listed: Mapping[int, Conglomerate],
        paths: Mapping[int, str],
        after: RowsAfter | None,
        changed: Collection[Container],
        recovery: Recovery,
        met: Mapping[int, RedonePages],
    ) -> Iterator[Part]:
        """Yield the containers with a damaged page that the log does not write anew."""
        looked_at = wanted = read_at_boot(self._database)
        if sum(map(source_size, paths.values())) <= _EVERY_PAGE_MAX:
            looked_at = frozenset(paths)
        for number in sorted(one for one in wanted if not self._kept(one)):
            part = f"{SEGMENT}/c{number:x}.dat"
            why = f"{part} is missing, and every boot reads it."
            path, by = f"{self._folder}/c{number:x}.dat", "service.properties"
            yield Part(part, path, by, there=False, why=why, answer=Answer.CANNOT_TELL)
        # A page of an index is split in a transaction of its own.
        splits_whole = not any(one.internal for one in recovery.undo)
        sound = True
        for number in sorted(paths):
            part = f"{SEGMENT}/{logical_name(paths[number])}"
            if Container(0, number) in changed:
                continue
            text = ""
            if not source_size(paths[number]):
                text = "is empty"
            elif number in looked_at or number in met:
                file = PageFile(paths[number], self._cipher)
                whole = number in looked_at
                pages = met.get(number, RedonePages(Container(0, number), ()))
                numbers = {*pages.numbers}
                text = damage(file, numbers, whole=whole, cut=pages.cut)
                if not text and whole and number in listed and splits_whole:
                    nodes = None if after is None else after.nodes(number)
                    text = self._of_no_tree(file, listed[number], numbers, nodes)
            if text:
                sound = False
                why = f"{part} {text}, and the log does not write it anew."
                answer = Answer.CANNOT_TELL
                yield Part(part, paths[number], "the catalogue", fits=False, why=why, answer=answer)
        if sound and looked_at == paths.keys():
            # A checkpoint may have come between a row and those of its indexes.
            half_done = any(one.first < recovery.redo_mark for one in recovery.undo)
            # What takes one change back may have added more rows than versions.
            undone = {number for number, pages in met.items() if recovery.undo or pages.undone}
            odd = {*listed} if half_done else undone
            known = RowCounts(listed, paths, self._cipher, self._redone, after)
            yield from known.different({one.number for one in changed}, odd)

    def _of_no_tree(
        self,
        file: PageFile,
        one: Conglomerate,
        met: Collection[int],
        nodes: Mapping[int, Node] | None,
    ) -> str:
        """Return how the pages of an index do not lead to each other; empty if they do.

        The pages as redo leaves them, where they are known. Else, where redo takes pages or gives
        them back, by the first page, it may lead to a tree yet.
        """
        if one.is_table or not file.page_size or file.removed:
            return ""
        if nodes is not None:
            whole = is_tree(nodes)
        else:
            changed = self._redone.get(one.number, {})
            whole = bool(changed and 0 in met) or file.is_tree(changed)
        return (
            "" if whole else "has pages of different times: not all that are in use are of one tree"
        )

    def _unlisted(
        self, listed: Mapping[int, Conglomerate], changed: Collection[Container]
    ) -> Iterator[Part]:
        """Yield the tables and indexes of the catalogue without a file, which no boot misses."""
        for number, one in listed.items():
            if Container(0, number) in changed or not (lacks := self._lacks(number)):
                continue
            part = f"{SEGMENT}/c{number:x}.dat"
            text = f"{part} {lacks}, and the log does not drop it: its "
            text += "table is gone." if one.is_table else "index is gone."
            answer = Answer.CANNOT_TELL  # many tables of the system are empty
            path = f"{self._folder}/c{number:x}.dat"
            yield Part(part, path, "the catalogue", there=False, why=text, answer=answer)

    def _stored(self, name: str) -> str | None:
        """Return a file's name as it is stored, packed or not; None if it is not there."""
        return next((name + one for one in ("", *PACKINGS) if name + one in self._names), None)

    def _kept(self, number: int) -> str | None:
        """Return the file of a container that a boot goes on with; None if there is none.

        While a database is encrypted the old file is kept under another name, which the undo of
        that puts back.
        """
        old = Container(0, number) in self._put_back and self._stored(f"o{number:x}.dat")
        return old or self._stored(f"c{number:x}.dat")

    def file(self, number: int) -> PageFile:
        """Return the file of a container that is there."""
        return PageFile(f"{self._folder}/{self._kept(number)}", self._cipher)

    def _lacks(self, number: int) -> str:
        """Return why a table or index that nothing drops cannot be read; empty if it can."""
        if self._kept(number) is None:
            return "was dropped" if self._stored(f"d{number:x}.dat") else "is missing"
        return "was dropped" if self._is_ahead(number, self.file(number)) else ""

    def _is_ahead(self, number: int, file: PageFile) -> bool:
        """Return whether the head of a container tells of a drop after the end of the log.

        The log is written before the head, and before the stub of a removal.
        """
        container = Container(0, number)
        if container not in self._lasting:
            return file.dropped
        version = self._lasting[container]
        return version is not None and (file.removed or file.version > version)

    def _later(self, created: Iterable[Container]) -> Iterator[Part]:
        """Yield a container that was created after the log ends: their numbers grow.

        The file is made before its creation is logged, so a crash may leave one as it was made. Its
        removal is logged before its stub is made.
        """
        last = max((one.number for one in created if not one.segment), default=None)
        if last is None or self._cut or self._sealed:
            return
        found = ((_CONTAINER_NAME.fullmatch(name), name) for name in self._names)
        later = sorted(name for match, name in found if match and int(match[2], 16) > last)
        changed = (
            one for one in later if one[0] == "d" or self._is_changed(f"{self._folder}/{one}")
        )
        several = later[0] if len(later) > 1 else None
        if (name := next(changed, several)) is not None:
            part, path = f"{SEGMENT}/{logical_name(name)}", f"{self._folder}/{name}"
            text = f"{part} was created after the end of the log: {_OTHER_TIME}"
            yield Part(part, path, "its number", fits=False, why=text, answer=Answer.CANNOT_TELL)

    def _is_changed(self, path: str) -> bool:
        """Return whether a change of its first pages was written, which the log had before."""
        try:
            file = PageFile(path, self._cipher)
            return any(one.version for one in file.heads([0, 1])) if file.page_size else False
        except LogUnreadableError:
            return False

    def _container(self, asked: _Asked, *, made: bool | None) -> Iterator[Part]:
        """Yield what does not fit; redo makes it, or meets it, or does not (None)."""
        number = asked.redone.of.number
        stored = self._kept(number)
        name = f"c{number:x}.dat" if stored is None else logical_name(stored)
        part, path = f"{SEGMENT}/{name}", f"{self._folder}/{name}"
        if stored is None and self._stored(f"d{number:x}.dat"):
            # What a removal leaves until the database is shut down: it is not redone any more.
            if self._lasting.get(Container(0, number), 0) is not None:
                yield _dropped(part, path)
        elif stored is None:
            wanted = asked.wanted()
            if not made or not self._backup or any(one.redo for one in wanted.values()):
                yield _missing(part, path, number, wanted, made=made)
        elif not self._sealed:
            try:
                yield from self._in_file(self.file(number), part, asked, made=made)
            except LogUnreadableError as error:
                yield Part(part, path, FOUND_BY, why=str(error), answer=Answer.CANNOT_TELL)

    def _in_file(
        self, file: PageFile, part: str, asked: _Asked, *, made: bool | None
    ) -> Iterator[Part]:
        number = asked.redone.of.number
        path = f"{self._database}/{part}"
        if not file.page_size:
            text = f"The head of {part} is damaged"
            answer = Answer.CANNOT_TELL
            if made is False:
                text, answer = f"{text}: the database does not boot (XSDB2)", Answer.REFUSES
            yield Part(part, path, FOUND_BY, fits=False, why=f"{text}.", answer=answer)
            return
        if self._is_ahead(number, file):
            yield _dropped(part, path)
            return
        if file.removed:
            return
        fitting = asked.plain(file)
        wanted = asked.wanted(but=fitting)
        self._looked_at[0] += 1
        self._looked_at[1] += len(wanted) + len(fitting)
        for head in file.heads(sorted(wanted)):
            one = wanted[head.number]
            page = Page(0, number, head.number)
            if not _fits(head, one):
                fitting = {at: of for at, of in fitting.items() if at < head.number}
                yield _unfit(part, path, page, head, one)
                break
            version = head.version or 0
            fitting[head.number] = version, max(0, one.last - version)
        if changed := {at: added for at, (_, added) in fitting.items() if added}:
            self._redone[number] = changed
        pages = ((Page(0, number, at), version) for at, (version, _) in fitting.items())
        known = (one for one in pages if one[1] >= _LOGGED_FROM or _is_logged(one[0]))
        self._versions |= islice(known, _ROWS_MAX - len(self._versions))

    def _rewritten(
        self, built: Mapping[Container, float], after: RowsAfter | None
    ) -> Iterator[Part]:
        """Yield the container of a page without what the log's last changes of it leave there.

        A page of another time or database may have the version to which a change leads, too.
        """
        found = (
            one
            for one in self._written(self._versions, self.file, after)
            # What came before the container was filled may be of an older one of that number.
            if one.leads or one.place > built.get(one.page.of, 0) or _is_logged(one.page)
        )
        written = sorted(found, key=lambda one: (one.page.container, one.page.number))
        for number, group in groupby(written, lambda one: one.page.container):
            stored = self._kept(number)
            assert stored is not None  # a page of it was looked at
            part = f"{SEGMENT}/{logical_name(stored)}"
            path, rows = f"{self._database}/{part}", [*group]
            pages = self.file(number).pages_at(one.page.number for one in rows)
            for one, (_, page) in zip(rows, pages, strict=True):
                if not _is_on(page, one):
                    does = "writes" if one.deleted is None else "marks"
                    text = f"{one.page} does not have the row that the log {does} there, at "
                    text += f"{split_instant(one.place)}: {_OTHER_TIME}"
                    answer = Answer.CANNOT_TELL
                    yield Part(part, path, FOUND_BY, fits=False, why=text, answer=answer)
                    break


def _is_on(page: memoryview, one: Written) -> bool:
    stands = not one.image or holds(page, bytes(one.image))
    return stands and (one.deleted is None or is_marked(page, one.record_id, deleted=one.deleted))


def _missing(
    part: str, path: str, number: int, wanted: Mapping[int, Wanted], *, made: bool | None
) -> Part:
    answer = Answer.REFUSES
    if made is None:
        text = "and the log does not drop it: its table or index is gone."
        answer = Answer.CANNOT_TELL
    elif not made and not wanted:  # redo of a drop makes it anew, and that of a page does not
        text = f"and redo meets a drop of Container(0, {number}) only: {_OTHER_TIME}"
        answer = Answer.CANNOT_TELL
    elif not made:
        text = f"and redo meets Container(0, {number}): the database does not boot (40XD2)."
    elif any(one.redo for one in wanted.values()):
        text = "and the log does not have all that was written to it: no boot (XSDB4)."
    else:
        text = "and redo makes it anew: what it held without log records, if anything, is lost."
        answer = Answer.CANNOT_TELL
    why = f"{part} is missing, {text}"
    return Part(part, path, FOUND_BY, there=False, why=why, answer=answer)


def _dropped(part: str, path: str) -> Part:
    why = f"{part} was dropped after the end of the log: {_OTHER_TIME}"
    return Part(part, path, FOUND_BY, fits=False, why=why, answer=Answer.CANNOT_TELL)


def _fits(head: PageHead, wanted: Wanted) -> bool:
    """Return whether a page is as the log says, or is missing where redo makes it anew."""
    version, (redo, flushed, most, cut, _) = head.version, wanted
    if version is None:
        return head.unwritten and (redo == 0 or cut)
    least = flushed if redo is None else redo
    return version >= least and (most is None or version <= most)


def _unfit(part: str, path: str, page: Page, head: PageHead, wanted: Wanted) -> Part:
    version, redo = head.version, wanted.redo
    answer = Answer.CANNOT_TELL
    if version is None:
        # Redo makes a new page over what is left of it, with no more than the log has.
        anew = redo == 0 and head.cut
        answer = Answer.CANNOT_TELL if redo is None or anew else Answer.REFUSES
        text = f"{page} cannot be read: {head.problem}"
    elif redo is not None and version < redo:
        answer = Answer.REFUSES
        text = f"{page} is at version {version}, the log changes version {redo} (XSDB4)"
    elif redo is None and version < wanted.flushed:
        text = f"{page} is at version {version}, and the last checkpoint wrote {wanted.flushed}"
    else:
        text = f"{page} is at version {version}, and the log ends with version {wanted.most}"
    follows = "the database does not boot." if answer is Answer.REFUSES else _OTHER_TIME
    return Part(part, path, FOUND_BY, fits=False, why=f"{text}: {follows}", answer=answer)


def _least_versions(recovery: Recovery) -> dict[Page, int]:
    """Return the versions that pages must have because the log leaves out what leads to them."""
    found: dict[Page, int] = {}
    for gap in recovery.gaps:
        found[gap.page] = max(gap.before_second, found.get(gap.page, 0))
    return found


def _by_container(flushed: PageVersions) -> dict[int, dict[int, RedonePage]]:
    found: dict[int, dict[int, RedonePage]] = {}
    for one in flushed.pages():
        if not one.page.segment:
            found.setdefault(one.page.container, {})[one.page.number] = one
    return found


def _is_logged(page: Page) -> bool:
    """Return whether all changes of a page are logged, also while its container is filled.

    What is filled without log records are new pages; a table's first one is made with it.
    """
    return page.number == 1 and has_rows_of_table(page.container)


def _most(one: RedonePage, built: float) -> int | None:
    whole = one.first == 0 and _is_logged(one.page)
    known = not one.undone and (whole or (one.last > built and one.after >= _LOGGED_FROM))
    return one.after if known else None
