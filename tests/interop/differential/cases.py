"""Damaged copies by the hundred: what we answer, what the original does, and where both part.

In: originals, a seed and a number of cases. Out: `Case`s, contradictions, and the table of
docs/verdicts.md.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import re
import shutil
import sys
import tempfile
from collections import ChainMap, Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import tallystick
from tallystick.reading.discovery import discover
from tallystick.records import Outcome
from tallystick.storage.source import ByteSource
from tallystick.systems.bitronix.format.layout import HEADER_LENGTH, FileHeader
from tallystick.systems.derby.format.operations import CONTAINER_CREATE
from tallystick.systems.derby.read.catalogue import CONGLOMERATES
from tallystick.systems.derby.read.containers import conglomerates
from tallystick.systems.h2.format.secure import decrypted
from tallystick.systems.h2.read.files import open_file
from tallystick.systems.jboss.applications.tables import queue_addresses
from tallystick.systems.jboss.format.file_names import number_of
from tallystick.systems.jboss.format.messages import PAGE_TRANSACTION, queue_id
from tallystick.systems.jboss.format.pages import contents_of
from tallystick.systems.jboss.reader import reading_of as reading_of_journal
from tallystick.systems.protocol import ReadOptions
from tests.interop.differential import around
from tests.interop.differential.around import UNDAMAGED, Damage, damage_beside
from tests.interop.differential.damage import damage, damage_head
from tests.interop.differential.originals import (
    ORIGINALS,
    OTHERS,
    Coordinator,
    Database,
    Found,
    Journal,
    Manager,
    Opener,
    Original,
    Rows,
    Server,
    Whole,
)
from tests.interop.java import be_quick
from tests.systems.derby.logs import reading_of

PER_WORKLOAD = 40
BYTES, HEADS, BESIDE = "bytes", "heads", "beside"
ANOTHER = 1_000_000
"""What is added to a seed for another database."""
SECTOR = 512
ALTERED_MAX = 200
"""Bytes within records; more than those are no values that were altered."""
COUNTED = frozenset({"ADD", "UPDATE", "ADD_TX", "UPDATE_TX"})
"""Records of a journal that say how often a compaction has copied them."""
EARLIER, ALTERED = "an earlier state", "values altered"
FIRST_START_MS = 1_000
"""How much longer than another a first start may take between the two files of a journal."""
COME_AND_GO = "come and go"
UNNAMED = "nothing names it"
SET_UP_ALIKE = "set up alike"
ADDRESS = "address.txt"
"""What names the address of the pages in a folder of a broker."""
CRASH_ALIKE = "as a crash leaves it"
REFUSES, SAFE, LOSES, CANNOT_TELL, NO_LOG = "refuses", "safe", "loses", "cannot-tell", "no log"


@dataclass(slots=True)
class Case:
    """One damaged copy.

    Attributes:
        lost: rows, messages or transactions that were there before and are not now, or differ.
        revived: those that are there now and were not before.
        said: why we answered so.
        unseen: why no reader could see this damage, if so: see `unseen_damage`.
        crash_alike: whether a crash of a sound machine can leave these bytes: see `crash_alike`.
        stake: the rows, or else the transactions, that we said are at stake.
    """

    system: str
    workload: int
    number: int
    damage: str
    answer: str
    opened: bool
    before: int
    lost: int
    revived: int
    error: str
    said: str
    unseen: str = ""
    crash_alike: bool = False
    stake: int | None = None

    @property
    def did(self) -> str:
        """What the original did, in a word."""
        if not self.opened:
            return "refused"
        return "lost rows" if self.lost or self.revived else "kept all"

    @property
    def contradicts(self) -> bool:
        """Whether the original proves our answer wrong."""
        if self.answer == SAFE:
            return self.did != "kept all" and not self.unseen
        return self.answer == REFUSES and self.opened

    @property
    def is_wrong(self) -> bool:
        """Whether the answer or its stake is not what the original shows."""
        return self.contradicts or self.too_grave or self.too_low

    @property
    def too_grave(self) -> bool:
        """Whether `loses` was said of what kept everything."""
        return self.answer == LOSES and self.did == "kept all"

    @property
    def too_low(self) -> bool:
        """Whether fewer rows were said to be at stake than are lost.

        Which are those of another broker that was set up alike, no file tells.
        """
        lost = self.lost + self.revived
        counted = self.stake is not None and self.unseen != SET_UP_ALIKE
        return self.answer == LOSES and self.opened and counted and (self.stake or 0) < lost

    def __str__(self) -> str:
        return (
            f"{self.system}:{self.workload}:{self.number} {self.damage}: {self.answer}, but it "
            f"{self.did} ({self.lost} lost, {self.revived} revived of {self.before}) "
            f"{self.error[:150]} | {self.said[:200]}"
        )


def run(
    system: Original,
    seed: int,
    count: int,
    folder: Path,
    *,
    only: tuple[int, int] | None = None,
    per_workload: int = PER_WORKLOAD,
    how: str = BYTES,
    kind: str = "",
    before: Iterable[str] = (),
) -> Iterator[Case]:
    """Yield ``count`` cases from ``seed`` on; ``only`` is one workload and one number of it.

    The first copy of each workload is not damaged. ``how`` is `BYTES` of the log at random, `HEADS`
    of its records, or `BESIDE` it: by this ``kind``, or by the one that comes next where those of
    earlier cases are ``before``; see `fewest_first`.

    The folder keeps what was judged wrongly, as ``SYSTEM-WORKLOAD-NUMBER-judged``.

    A workload after whose halt the original itself cannot read everything is left out, and told.
    """
    workloads = range(seed, seed + -(-count // per_workload))
    folder.mkdir(parents=True, exist_ok=True)
    cells = Counter(before)
    with system.opener() as opened:
        others: Rows = {}
        if how == BESIDE:
            other = system.make(folder / f"{system.name}-another", seed + ANOTHER)
            others = _rows_of(system, other, opened, folder / "reference")
        for workload in workloads if only is None else [only[0]]:
            whole = system.make(folder / f"{system.name}-{workload}", workload)
            copied = _copy(whole, folder / "reference")
            _place(system, copied)
            reference = opened(copied)
            # A halt may cost H2 itself a large object, or the database; and H2 1.3 opens none of
            # 1.2 that is in doubt, as it makes tables of its own.
            of_h2 = isinstance(system, Database) and not system.is_derby
            if reference.broken or (of_h2 and not reference.opened):
                sys.stderr.write(
                    f"{system.name}:{workload} is left out, the original left it unreadable: "
                    f"{reference.broken[:1] or reference.error}\n"
                )
                continue
            _check_reference(system, workload, whole, reference)
            own = Counter[str]()
            for number in range(per_workload) if only is None else [only[1]]:
                # An original that failed to open one copy may keep something of it by its path.
                copied = _copy(whole, folder / f"{system.name}-{workload}" / f"copy-{number}")
                rng = random.Random(f"{system.name} {workload} {number}")
                if how == HEADS:
                    done = damage_head(copied, rng)
                elif number == 0:
                    done = UNDAMAGED
                elif how == BESIDE:
                    kinds = kinds_of(system)
                    names = [kind] if kind else fewest_first(kinds, cells, own)
                    place = f"{system.name} {workload} {number}"
                    done = damage_beside(
                        {one: kinds[one] for one in names}, copied, whole, other.folder, place
                    )
                    cells[done] += 1
                    own[done] += 1
                else:
                    done = damage(system.files(copied), whole.older, rng)
                alike = crash_alike(system, whole, copied)
                judged = folder / "judged"
                shutil.rmtree(judged, ignore_errors=True)
                shutil.copytree(copied, judged)
                _place(system, copied)
                answer, said, stake = answer_of(copied, system)
                unseen = CRASH_ALIKE if alike else ""
                if how == BESIDE:
                    unseen = _unseen_beside(system, copied, judged, whole, other.folder) or unseen
                elif answer == SAFE:
                    unseen = unseen or unseen_damage(system, whole, judged)
                found = opened(copied)
                if done in around.ENDS_EARLIER:
                    timeless = isinstance(system, Database) and not system.is_derby
                    today = reference.rows if timeless else {}
                    unseen = unseen_mixture(whole.history, found.rows, today) or unseen
                held = _held(done, reference.rows, others, found.rows)
                case = _case((system.name, workload, number), done, held, found)
                case.answer, case.said, case.stake = answer, said, stake
                case.unseen = unseen if case.did != "kept all" else ""
                case.crash_alike = alike
                if case.is_wrong or only is not None:
                    judged.rename(folder / f"{system.name}-{workload}-{number}-judged")
                shutil.rmtree(copied, ignore_errors=True)
                yield case
            if only is None:
                shutil.rmtree(whole.folder.parent)


def _unseen_beside(system: Original, copy: Path, judged: Path, whole: Whole, other: Path) -> str:
    """Return why no reader can see what was done beside a log; ``judged`` has all in its place."""
    if is_earlier(system, whole, judged):
        return EARLIER
    if come_and_go(system, copy, whole, other):
        return COME_AND_GO
    if isinstance(system, Server) and set_up_alike(judged, whole.folder, other):
        return SET_UP_ALIKE
    return UNNAMED if nothing_names(system, judged, whole, other) else ""


def set_up_alike(judged: Path, whole: Path, other: Path) -> bool:
    """Return whether journal and bindings are of two brokers that gave their queues the same ids.

    Nothing but ids that both gave, and starts, tells such a pair. One may have made fewer queues.
    """
    for journal, bindings in ((other, whole), (whole, other)):
        if around.contents(judged / "journal") == around.contents(
            journal / "journal"
        ) and around.contents(judged / "bindings") == around.contents(bindings / "bindings"):
            return _queues(journal).items() <= _queues(bindings).items()
    return False


def _queues(broker: Path) -> dict[int, str]:
    (log,) = discover(broker / "bindings").logs
    return queue_addresses(reading_of_journal(log, ReadOptions()).changes())


def _copy(whole: Whole, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(whole.folder, to, ignore=shutil.ignore_patterns("*.lck", "*.lock")))


def _place(system: Original, copy: Path) -> None:
    if isinstance(system, Database):
        system.place(copy)


def _check_reference(system: Original, workload: int, whole: Whole, reference: Found) -> None:
    """What was acknowledged is there when nothing was damaged."""
    at = f"{system.name}:{workload}"
    assert reference.opened, f"{at}: {reference.error}"
    found = reference.rows
    if not any(whole.states[0].values()):  # bodies are not in the ledger
        found = {key: "" for key in found if not key.startswith("xa/")}
    if system.atomic or len(whole.states) == 1:
        assert any(_same(state, found) for state in whole.states), at


def _same(state: Rows, found: Rows) -> bool:
    return not any(_different(state, found))


def unseen_mixture(history: Iterable[Rows], found: Rows, today: Rows) -> str:
    """Return why no reader can see that a database is of two times; empty if one can.

    Its rows are those of an earlier time, within a statement that made or dropped a table, too; or
    all but some that were only updated since, in pages of ``today``, of a system whose pages do not
    tell how old they are.
    """
    altered = ""
    for before, after in itertools.pairwise(itertools.chain([{}], history)):
        # A statement that makes or drops a table is not done at once.
        tables = {key for key in before.keys() ^ after.keys() if "/" not in key}
        for state in (before, after):
            keys, values = _different(state, found)
            if not values and keys <= tables:
                return EARLIER
            if not keys and all(found[key] == today.get(key) for key in values):
                altered = ALTERED
    return altered


def _different(state: Rows, found: Rows) -> tuple[set[str], set[str]]:
    """Return the keys that only one of two states has, and those with other values."""
    keys = {key for key in state.keys() ^ found.keys() if not key.startswith(("TX/", "xa/"))}
    both = state.keys() & found.keys()
    return keys, {key for key in both if found[key].partition("+")[0] != state[key]}


def _rows_of(system: Original, another: Whole, opened: Opener, folder: Path) -> Rows:
    """Return what another broker kept; nothing of other systems."""
    return opened(_copy(another, folder)).rows if isinstance(system, Server) else {}


def _held(done: str, own: Rows, others: Rows, found: Rows) -> Rows:
    """Return what was there to lose: with a journal of another broker also what that one kept."""
    kept = all(found.get(key) == value for key, value in own.items())
    return others if done == around.JOURNAL_OF_ANOTHER and kept else own


def _case(place: tuple[str, int, int], done: str, before: Rows, found: Found) -> Case:
    lost = [key for key, value in before.items() if found.rows.get(key) != value]
    revived = [key for key in found.rows if key not in before]
    error = found.error or "; ".join(found.broken) or ", ".join((lost + revived)[:3])
    return Case(*place, done, "", found.opened, len(before), len(lost), len(revived), error, "")


def unseen_damage(system: Original, whole: Whole, copy: Path) -> str:
    """Return why no reader can see this damage in the files of the log, or nothing.

    The log as it was at an earlier time is a whole log: nothing in it tells of what came later. A
    log without checksums over its fields, with every record in its place, may hold other values;
    what differs outside of its records holds nothing.
    """
    sizes = {one.name: one.stat().st_size for one in system.files(whole.folder)}
    found = {one.name: one.stat().st_size for one in system.files(copy)}
    if _is_older(system, whole, copy) or _rewound(system, whole, copy):
        return EARLIER
    if system.summed or sizes != found or _altered(system, whole, copy) > ALTERED_MAX:
        return ""
    if _places(whole.folder) == _places(copy):
        return ALTERED
    return ""


def crash_alike(system: Original, whole: Whole, copy: Path) -> bool:
    """Return whether the damage is one that a crash of a sound machine can leave as well.

    Of H2's log the last pages are zeros, as if they had never been written: the engine writes one
    after the other, and acknowledges before it writes. The last file of a compaction of a journal
    ends earlier, or is not there, as if what is lost had not been live then.
    """
    if isinstance(system, Journal):
        return _less_was_copied(system, whole, copy)
    if not isinstance(system, Database) or system.is_derby:
        return False
    before, after = (
        b"".join(one.read_bytes() for one in system.files(folder) if one.exists())
        for folder in (whole.folder, copy)
    )
    clear = before if system.password is None else decrypted(before, system.password)
    stream = open_file(ByteSource("", memoryview(clear or b"")), ReadOptions()).stream
    if stream is None or len(before) != len(after):
        return False
    size, pages = stream.pages.page_size, stream.data_pages
    differing = {
        at
        for at in range(-(-len(before) // size))
        if _page(before, at, size) != _page(after, at, size)
    }
    zeros = all(_page(after, at, size) == bytes(size) for at in differing)
    return bool(differing) and zeros and differing == set(pages[-len(differing) :])


def _less_was_copied(system: Journal, whole: Whole, copy: Path) -> bool:
    """Return whether only copies at the end of a compaction are gone, which nothing later names.

    A file that is gone left no id behind: it was created after all that are there.
    """
    names = [one.name for one in system.files(whole.folder)]
    changed = [one for one in names if not _equal(whole.folder / one, copy / one)]
    data = {one: (whole.folder / one).read_bytes() for one in names}
    records = [one for one in tallystick.scan(whole.folder) if one.outcome is Outcome.VALID]
    places = [(Path(one.file).name, one) for one in records]
    copies = {name for name, one in places if one.type in COUNTED and data[name][one.offset + 5]}
    if len(changed) != 1 or changed[0] != next(
        (one for one in reversed(names) if one in copies), ""
    ):
        return False
    path, before = copy / changed[0], data[changed[0]]
    after = path.read_bytes() if path.exists() else b""
    own = [one for name, one in places if name == changed[0]]
    ends = [one.offset + (one.length or 0) for one in own] if path.exists() else [0]
    kept = next((end for end in ends if not after[end:].strip(b"\0")), len(before))
    ids = [max(number_of(one), int.from_bytes(data[one][8:16])) for one in names]
    created_last = number_of(changed[0]) == max(ids)
    if before[:kept] != after[:kept] or len(after) not in (0, len(before)):
        return False
    gone = {one.record_id for one in own if one.offset >= kept}
    later = {one.record_id for name, one in places if name not in copies}
    return bool(gone) and not gone & (later - {None}) and (path.exists() or created_last)


def _page(data: bytes, number: int, size: int) -> bytes:
    return data[number * size : (number + 1) * size]


def _is_older(system: Original, whole: Whole, copy: Path) -> bool:
    files = system.files(copy)
    suffixes = {one.suffix for one in system.files(whole.folder)}
    older = {one.name for one in whole.older.iterdir() if one.suffix in suffixes}
    changed = any(not _equal(one, whole.folder / one.relative_to(copy)) for one in files)
    same = all(_equal(one, whole.older / one.name) for one in files)
    return changed and same and older == {one.name for one in files}


def _rewound(system: Original, whole: Whole, copy: Path) -> bool:
    """Whether only the last file's records end earlier.

    After a record, or before the first, stands nothing but fill, or what stood there before. A
    write that was not finished ends where a sector begins.
    """
    names = [one.relative_to(whole.folder) for one in system.files(whole.folder)]
    changed = [one for one in names if not _equal(whole.folder / one, copy / one)]
    if len(changed) != 1 or not (copy / changed[0]).exists():
        return False
    before, after = (whole.folder / changed[0]).read_bytes(), (copy / changed[0]).read_bytes()
    end = len(after.rstrip(system.fill))
    differing = (
        at for at, pair in enumerate(zip(before, after, strict=False)) if len(set(pair)) > 1
    )
    same = next(differing, len(before))
    valid = [one for one in _places(whole.folder) if one[3] is Outcome.VALID]
    if not valid or valid[-1][0] != changed[0].name or len(before) != len(after):
        return False
    own = [(at, at + size) for name, at, size, *_ in valid if name == changed[0].name]
    places = [own[0][0], *(stop for _, stop in own)]
    older = whole.older / changed[0].name
    earlier = older.read_bytes() if older.exists() else b""
    if same % SECTOR == 0 and end <= same:
        return True
    return any(
        place <= same and (end <= place or after[place:] == earlier[place:]) for place in places
    )


def _altered(system: Original, whole: Whole, copy: Path) -> int:
    """Return how many bytes of records differ; the files have the same sizes.

    Of a database every byte counts: outside of the log there are tables.
    """
    records = [one for one in _places(whole.folder) if one[3] is Outcome.VALID]
    altered = 0
    for one in system.files(whole.folder):
        before, after = one.read_bytes(), (copy / one.relative_to(whole.folder)).read_bytes()
        places = [(at, at + size) for name, at, size, *_ in records if name == one.name]
        if isinstance(system, Database):
            places = [(0, len(before))]
        for begin, end in places:
            pairs = zip(before[begin:end], after[begin:end], strict=True)
            altered += sum(byte != other for byte, other in pairs)
    return altered


def _equal(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.read_bytes() == other.read_bytes()


def _places(folder: Path) -> list[tuple[str, int, int, Outcome, str]]:
    found = tallystick.scan(folder, problems=[])
    return [(Path(one.file).name, one.offset, one.length, one.outcome, one.type) for one in found]


def kinds_of(system: Original) -> dict[str, Damage]:
    """Return the damage to what lies beside the log that this system can have."""
    if isinstance(system, Manager):
        return around.BITRONIX if system.name == "bitronix" else around.BITRONIX_3
    if isinstance(system, Server):
        return around.ARTEMIS
    if isinstance(system, Coordinator):
        return around.NARAYANA
    assert isinstance(system, Database)
    if system.is_derby:
        return around.DERBY_ON_DEVICE if system.device else around.DERBY
    forms = system.name.split("-")
    more = [kinds for form, kinds in around.H2_FORMS.items() if form in forms]
    return dict(ChainMap(*more)) if more else around.H2


def fewest_first(kinds: Iterable[str], cells: Counter[str], own: Counter[str]) -> list[str]:
    """Return kinds in the order in which a workload tries them.

    First come those that did the least to this workload, then those of the fewest cases: so what
    few workloads have to damage is damaged where it is there. Answers play no part in it.
    """
    return sorted(kinds, key=lambda one: (own[one], cells[one]))


def is_earlier(system: Original, whole: Whole, copy: Path) -> bool:
    """Return whether all that a restart opens is as it was at an earlier time."""

    if isinstance(system, Server | Coordinator):
        found = [one.relative_to(copy) for one in system.files(copy)]
        before = [one.relative_to(whole.older) for one in system.files(whole.older)]
        return found == before and all(_equal(copy / one, whole.older / one) for one in found)

    equal = _alike if isinstance(system, Manager) else _equal

    def same(day: Path) -> bool:
        files = system.files(copy)
        return all(equal(one, day / one.name) for one in files) and len(files) == len(
            [one for one in day.iterdir() if one.suffix in {file.suffix for file in files}]
        )

    if isinstance(system, Manager) and _was_full(copy, [whole.folder, *around.days(whole)]):
        return True
    if (copy / "db.lobs.db").exists():  # those of that time are not kept
        return False
    if isinstance(system, Database) and system.is_derby:
        older = whole.older.with_name("older-seg0")
        containers = list((copy / "seg0").glob("*.dat"))
        if len(containers) != len(list(older.iterdir())) or not all(
            _equal(one, older / one.name) for one in containers
        ):
            return False
    return any(same(day) for day in around.days(whole))


def _was_full(copy: Path, states: Sequence[Path]) -> bool:
    """Return whether a pair of Bitronix is as it was just before its files changed.

    One file is as it was left by a change that came later, and the other one as it was while that
    file was in use.
    """
    names = ("btm1.tlog", "btm2.tlog")
    for used, other in (names, names[::-1]):
        full = [one for one in states if _alike(copy / used, one / used)]
        if any(_stamp(one / used) < _stamp(one / other) for one in full) and any(
            _stamp(copy / used) == _stamp(one / used) > _stamp(one / other)
            for one in states
            if _alike(copy / other, one / other)
        ):
            return True
    return False


def _alike(one: Path, other: Path) -> bool:
    """Return whether the first file of Bitronix has all that the other has but its state.

    Starts and closes write the state anew, and leave any two of them. One that was never used may
    also be a little older: it is filled with zeros before the other part is made.
    """
    if not (one.exists() and other.exists()):
        return False
    found, wanted = one.read_bytes(), other.read_bytes()
    same = found[HEADER_LENGTH:] == wanted[HEADER_LENGTH:]
    headers = FileHeader.decode(found), FileHeader.decode(wanted)
    if not same or headers[0] is None or headers[1] is None:
        return found == wanted
    unused = headers[1].position == HEADER_LENGTH and not any(wanted[HEADER_LENGTH:])
    older = headers[1].timestamp - headers[0].timestamp
    time = headers[1].timestamp if unused and 0 <= older < FIRST_START_MS else headers[0].timestamp
    return replace(headers[0], state=headers[1].state, timestamp=time) == headers[1]


def _stamp(path: Path) -> int:
    header = FileHeader.decode(path.read_bytes())
    return 0 if header is None else header.timestamp


def come_and_go(system: Original, copy: Path, whole: Whole, other: Path) -> bool:
    """Return whether each state in a copy is one that a coordinator wrote there, at some time.

    It is written when its transaction is decided and deleted when that ends, so any choice of them
    is a store that a coordinator leaves. Of a broker: whether only pages are gone that nothing but
    they themselves tells of.
    """
    if isinstance(system, Server):
        return _pages_come_and_go(system, copy, whole.folder)
    places = [whole.folder, whole.older, other]
    return isinstance(system, Coordinator) and all(
        any(_equal(one, place / one.relative_to(copy)) for place in places)
        for one in system.files(copy)
    )


def nothing_names(system: Original, copy: Path, whole: Whole, other: Path) -> bool:
    """Return whether all containers of Derby, or whole tables, are of another time, unseen.

    Or of another database. No record of the log names one of those that differ, also where they
    come and go, nor the creation of one that ought to be newer than they are; and such a table has
    no index that is still of this time: so might all have been before the log begins.
    """
    if not isinstance(system, Database) or not system.is_derby or system.password is not None:
        return False
    before, after = (
        {
            one.relative_to(place): one.read_bytes()
            for one in place.rglob("*")
            if one.is_file() and one.suffix != ".lck"
        }
        for place in (whole.folder, copy)
    )
    changed = {one for one in before | after if before.get(one) != after.get(one)}
    found = [container_of(one) for one in changed]
    numbers = {number for number in found if number is not None}
    if not changed or None in found:
        return False
    named = _named_in(copy)
    if named.numbers & numbers or max(numbers) > named.last_created:
        return False
    sources = (whole.older.with_name("older-seg0"), other / "seg0")
    if any(_are_all_of(copy / "seg0", one) for one in sources):
        return True
    parts = (copy, whole.folder)
    if not all(any(_is_mixed(one, *parts, source) for source in sources) for one in changed):
        return False
    tables: dict[bytes, set[int]] = {}
    for one in conglomerates(str(copy / f"seg0/c{CONGLOMERATES:x}.dat")):
        tables.setdefault(one.table_id, set()).add(one.number)
    theirs = [group for group in tables.values() if group & numbers]
    return set().union(*theirs) == numbers


def _is_mixed(container: Path, copy: Path, today: Path, source: Path) -> bool:
    """Return whether a container is that of a source, or has pages of it beside those of today."""
    paths = (copy / container, source / container.name, today / container)
    if _equal(*paths[:2]):
        return True
    if not all(one.exists() for one in paths):
        return False
    size = around.PAGE_SIZES[0]
    pages, theirs, own = (
        [content[at : at + size] for at in range(0, len(content), size)]
        for content in (one.read_bytes() for one in paths)
    )
    return len(pages) == len(own) and all(
        one in (page, other)
        for one, page, other in itertools.zip_longest(pages, own, theirs[: len(own)])
    )


def _are_all_of(containers: Path, source: Path) -> bool:
    """Return whether each container is that of the source, and there is each that the source has.

    A table that comes or goes alone is seen: the catalogue names it, or does not.
    """
    found, wanted = ({one.name for one in place.glob("*.dat")} for place in (containers, source))
    return found == wanted and all(_equal(containers / one, source / one) for one in found)


class Named(NamedTuple):
    """The containers that a log names, and the last one that it creates: their numbers grow."""

    numbers: set[int]
    last_created: float


def _named_in(database: Path) -> Named:
    numbers, created = set[int](), set[int]()
    for one in reading_of(database).scan.ranges():
        if one.body is not None:
            fields = one.body.fields
            if (page := fields.get("pageId")) is not None:
                numbers.add(page.container)
            if (container := fields.get("containerId")) is not None:
                numbers.add(container.number)
                if fields.get("operation") == CONTAINER_CREATE and not container.segment:
                    created.add(container.number)
    return Named(numbers, max(created, default=math.inf))


def container_of(path: Path) -> int | None:
    """Return the number of a container, by the name of its file; None of another file.

    The stub that a drop leaves is one as well.
    """
    match = re.fullmatch(r"[cd]([0-9a-f]+)\.dat", path.name)
    return int(match[1], 16) if match and path.parent.name == "seg0" else None


def _pages_come_and_go(system: Server, copy: Path, whole: Path) -> bool:
    """Return whether only the first pages of an address are gone, or the end of what was paged.

    A broker deletes a page whose messages were taken, and the last one ends where it was killed. Of
    messages in a transaction its journal tells once that is committed, and of a large one its file,
    where that message is durable: of others the files of what was sent last time lie there, too.
    """
    told = _paged_in(whole)
    before, after = (
        {one.relative_to(place): one.read_bytes() for one in system.files(place)}
        for place in (whole, copy)
    )
    changed = {one for one in before | after if before.get(one) != after.get(one)}
    pages = [one for one in before if one.suffix == ".page"]
    for folder in {one.parent for one in changed}:
        own = sorted(one for one in pages if one.parent == folder)
        kept = [one for one in own if one in after]
        first = own.index(kept[0]) if kept else len(own)
        gone = [before[one] for one in own if one not in after]
        if kept and before[kept[-1]] != after[kept[-1]]:
            if not before[kept[-1]].startswith(after[kept[-1]]):
                return False
            gone.append(before[kept[-1]][len(after[kept[-1]]) :])
        held = [contents_of(memoryview(one)) for one in gone]
        if (
            own[first : first + len(kept)] != kept
            or any(before[one] != after[one] for one in kept[:-1])
            or any(told & one.transactions.keys() or not one.whole for one in held)
            or any(large.file.durable for one in held for large in one.large.values())
        ):
            return False
    return bool(changed) and changed <= {*pages, *(one.with_name(ADDRESS) for one in pages)}


def _paged_in(broker: Path) -> set[int | None]:
    """Return the transactions that have messages in pages, as the journal of a broker tells."""
    records = tallystick.scan(broker / "journal", problems=[])
    paged = (one for one in records if one.attributes.get("user_type") == PAGE_TRANSACTION)
    return {queue_id(one.body or b"") for one in paged}


def answer_of(folder: Path, system: Original) -> tuple[str, str, int | None]:
    """Return our answer about the log in a folder, why, and the stake; or `NO_LOG`."""
    password = system.password if isinstance(system, Database) else None
    options = ReadOptions(boot_password=password)
    explained = tallystick.explain(folder, options=options).to_dict()
    if not explained["logs"]:
        return NO_LOG, "; ".join(one["message"] for one in explained["problems"]), None
    order = (REFUSES, LOSES, CANNOT_TELL, SAFE)
    log = min(explained["logs"], key=lambda one: order.index(one["answer"]))
    reason, stake = log["reason"], log["at_stake"]
    number = stake["transactions"] if stake["rows"] is None else stake["rows"]
    said = f"{reason['code']}: {reason['text']} {log['strict']['findings']}"
    return log["answer"], said, number


def table(cases: Iterable[Case]) -> str:
    """Return the table system x damage x answer x what the original did, in Markdown."""
    columns = [(a, d) for a in (SAFE, LOSES, REFUSES, CANNOT_TELL, NO_LOG)
               for d in ("kept all", "lost rows", "refused")]  # fmt: skip
    counts: dict[tuple[str, str], Counter[tuple[str, str]]] = {}
    for case in cases:
        done = f"{case.damage} ({case.unseen})" if case.unseen else case.damage
        counts.setdefault((case.system, done), Counter())[case.answer, case.did] += 1
    used = [one for one in columns if any(row[one] for row in counts.values())]
    lines = [
        "| system | damage | " + " | ".join(f"`{a}`, {d}" for a, d in used) + " |",
        "|---|---|" + "---:|" * len(used),
    ]
    for (system, done), row in sorted(counts.items()):
        cells = " | ".join(str(row[one] or "") for one in used)
        lines.append(f"| {system} | {done} | {cells} |")
    return "\n".join(lines)


def calm(cases: Iterable[Case]) -> dict[str, Counter[str]]:
    """Return per system the answers over copies that were not damaged, with reasons of doubt."""
    found: dict[str, Counter[str]] = {}
    for case in cases:
        if case.damage == UNDAMAGED:
            reason = "" if case.answer == SAFE else f" ({case.said.partition(':')[0]})"
            found.setdefault(case.system, Counter())[f"{case.answer}{reason}"] += 1
    return found


def doubts(cases: Iterable[Case]) -> Counter[tuple[str, str]]:
    """Return how often, per system and reason, we could not tell although nothing was lost."""
    return Counter(
        (case.system, f"{case.said.partition(':')[0]} ({case.damage})")
        for case in cases
        if case.answer == CANNOT_TELL and case.did == "kept all"
    )


def main() -> None:
    """Run cases and print the table and every contradiction."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--cases", type=int, default=400, help="cases of each system")
    parser.add_argument("--seed", type=int, default=1, help="the first workload's number")
    parser.add_argument("--systems", default=",".join(ORIGINALS))
    parser.add_argument("--only", help="SYSTEM:WORKLOAD:NUMBER, as a contradiction names it")
    parser.add_argument("--kind", default="", help="what is done beside the log, with --only")
    parser.add_argument("--heads", dest="how", action="store_const", const=HEADS, default=BYTES,
                        help="damage the heads of records only")  # fmt: skip
    parser.add_argument("--beside", dest="how", action="store_const", const=BESIDE,
                        help="damage what lies beside the log")  # fmt: skip
    parser.add_argument("--per-workload", type=int, default=PER_WORKLOAD)
    parser.add_argument("--folder", type=Path, help="where to work; kept")
    arguments = parser.parse_args()
    be_quick()
    if arguments.folder:
        shutil.rmtree(arguments.folder, ignore_errors=True)
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="tallystick-cases-"))
    only, names = None, arguments.systems.split(",")
    if arguments.only:
        name, workload, number = arguments.only.split(":")
        only, names = (int(workload), int(number)), [name]
        if arguments.how == BESIDE and only[1] and not arguments.kind:
            parser.error("which --kind of damage it was, no number tells")
    cases = []
    for name in names:
        found = run(
            (ORIGINALS | OTHERS)[name], arguments.seed, arguments.cases, folder,
            only=only, how=arguments.how, per_workload=arguments.per_workload, kind=arguments.kind,
        )  # fmt: skip
        for case in found:
            cases.append(case)
            if case.is_wrong or only:
                _say(f"{case} | at stake {case.stake}")
    _say(table(cases))
    for (name, reason), number in sorted(doubts(cases).items()):
        _say(f"{name}: {number} x {reason} although all was kept")
    for name, answers in calm(cases).items():
        counts = ", ".join(f"{number} {answer}" for answer, number in answers.most_common())
        _say(f"{name}: of {answers.total()} undamaged copies {counts}")
    alike = sum(case.crash_alike for case in cases)
    _say(f"{alike} of {len(cases)} copies are as a crash leaves them")
    wrong = sum(case.contradicts for case in cases)
    _say(
        f"{len(cases)} cases, seed {arguments.seed}; {wrong} answers proved wrong, "
        f"{sum(case.too_grave for case in cases)} too grave, "
        f"{sum(case.too_low for case in cases)} with too little at stake"
    )
    if not arguments.folder:
        shutil.rmtree(folder)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
