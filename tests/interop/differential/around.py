"""Damage to what lies beside a log, as copies, restores and moves leave it: at random, by a seed.

In: a copy of a database or journal, what its work left, and another one's folder. Out: the name of
what was done. The bytes of the log itself are those of one time; of clocks see `clock_went_back`.
"""

from __future__ import annotations

import dataclasses
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from tallystick.systems.bitronix.format.layout import HEADER_LENGTH, FileHeader
from tallystick.systems.bitronix.format.record import TransactionLogRecord
from tallystick.systems.bitronix.read.files import DualFiles, Part
from tallystick.systems.h2.format.layout import STATIC_HEADER, is_encrypted, valid_page_size
from tallystick.systems.h2.format.secure import decrypted
from tests.interop.differential.originals import PROPERTIES, SECRET, Whole, device_of

Damage = Callable[[Path, Whole, Path, random.Random], bool]
"""Returns False where there is nothing to damage that way."""
UNDAMAGED = "none"
OLDER_LOG = "log of yesterday"
PAGE_SIZES = (4096, 8192, 16384, 32768)


def damage_beside(
    kinds: dict[str, Damage], copy: Path, whole: Whole, other: Path, place: str
) -> str:
    """Damage what lies beside the log by the first kind that finds something; return its name.

    Each kind draws by the ``place`` of the case and its own name, so a case is the same again
    whichever kinds were tried before.
    """
    drawn = ((one, random.Random(f"{place} {one}")) for one in kinds)
    return next((one for one, rng in drawn if kinds[one](copy, whole, other, rng)), UNDAMAGED)


def _put(path: Path, content: bytes) -> bool:
    changed = path.read_bytes() != content
    path.write_bytes(content)
    return changed


def _put_all(files: Sequence[Path], folder: Path, ending: str) -> bool:
    """Put files in the place of those of the folder; return whether any differs."""
    found = [one for one in folder.iterdir() if one.is_file() and one.name.endswith(ending)]
    before = {one.name: one.read_bytes() for one in found}
    after = {one.name: one.read_bytes() for one in files}
    for name in before:
        (folder / name).unlink()
    for name, content in after.items():
        (folder / name).write_bytes(content)
    return before != after


# -- Derby -----------------------------------------------------------------------------------------


def _older_seg0(whole: Whole) -> Path:
    return whole.older.with_name("older-seg0")


def _container(copy: Path, rng: random.Random) -> Path:
    return rng.choice(sorted((copy / "seg0").glob("c*.dat")))


def _changed(copy: Path, older: Path, rng: random.Random) -> Path | None:
    """A container that was there at the earlier time, and was another then."""
    found = sorted((copy / "seg0").glob("c*.dat"))
    before = [(one, older / one.name) for one in found if (older / one.name).exists()]
    differ = [one for one, was in before if one.read_bytes() != was.read_bytes()]
    return rng.choice(differ) if differ else None


def _properties_missing(copy: Path, *_: object) -> bool:
    (copy / PROPERTIES).unlink()
    return True


def _properties_emptied(copy: Path, *_: object) -> bool:
    return _put(copy / PROPERTIES, b"")


def _properties_cut(copy: Path, _: Whole, __: Path, rng: random.Random) -> bool:
    content = (copy / PROPERTIES).read_bytes()
    return _put(copy / PROPERTIES, content[: rng.randrange(len(content))])


def _container_missing(copy: Path, _: Whole, __: Path, rng: random.Random) -> bool:
    _container(copy, rng).unlink()
    return True


def _container_emptied(copy: Path, _: Whole, __: Path, rng: random.Random) -> bool:
    return _put(_container(copy, rng), b"")


def _container_cut(copy: Path, _: Whole, __: Path, rng: random.Random) -> bool:
    path = _container(copy, rng)
    content = path.read_bytes()
    at = rng.randrange(len(content))
    return _put(path, content[: at - at % rng.choice((1, 4096))])


def _container_older(copy: Path, whole: Whole, _: Path, rng: random.Random) -> bool:
    path = _changed(copy, _older_seg0(whole), rng)
    return path is not None and _put(path, (_older_seg0(whole) / path.name).read_bytes())


def _container_of_another(copy: Path, _: Whole, other: Path, rng: random.Random) -> bool:
    path = _changed(copy, other / "seg0", rng)
    return path is not None and _put(path, (other / "seg0" / path.name).read_bytes())


def _page(content: bytes, rng: random.Random) -> tuple[int, int]:
    size = rng.choice([one for one in PAGE_SIZES if one <= len(content)] or [len(content)])
    return rng.randrange(max(1, len(content) // size)) * size, size


def _page_zeroed(copy: Path, _: Whole, __: Path, rng: random.Random) -> bool:
    path = _container(copy, rng)
    content = path.read_bytes()
    at, size = _page(content, rng)
    return _put(path, content[:at] + bytes(size) + content[at + size :])


def _page_bit(copy: Path, _: Whole, __: Path, rng: random.Random) -> bool:
    path = _container(copy, rng)
    content = bytearray(path.read_bytes())
    at, size = _page(bytes(content), rng)
    content[at + rng.randrange(size)] ^= 1 << rng.randrange(8)
    return _put(path, bytes(content))


def _page_older(copy: Path, whole: Whole, _: Path, rng: random.Random) -> bool:
    path = _changed(copy, _older_seg0(whole), rng)
    if path is None:
        return False
    content, older = path.read_bytes(), (_older_seg0(whole) / path.name).read_bytes()
    places = range(0, min(len(content), len(older)), PAGE_SIZES[0])
    size = PAGE_SIZES[0]
    differ = [at for at in places if content[at : at + size] != older[at : at + size]]
    if not differ:
        return False
    at = rng.choice(differ)
    return _put(path, content[:at] + older[at : at + size] + content[at + size :])


def _data_of_yesterday(copy: Path, whole: Whole, *_: object) -> bool:
    return _put_all(list(_older_seg0(whole).iterdir()), copy / "seg0", ".dat")


def _log_of_yesterday(copy: Path, whole: Whole, *_: object) -> bool:
    files = [one for one in whole.older.iterdir() if one.suffix in (".dat", ".ctrl")]
    changed = _put_all(files, copy / "log", ".dat")
    for one in files:
        if one.suffix == ".dat" or (copy / "log" / one.name).exists():
            (copy / "log" / one.name).write_bytes(one.read_bytes())
    return changed


def _log_of_another(copy: Path, _: Whole, other: Path, *__: object) -> bool:
    shutil.rmtree(copy / "log")
    shutil.copytree(other / "log", copy / "log", ignore=shutil.ignore_patterns("*.lck"))
    return True


def _data_of_another(copy: Path, _: Whole, other: Path, *__: object) -> bool:
    return _put_all(list((other / "seg0").glob("*.dat")), copy / "seg0", ".dat")


def _torn_copy(copy: Path, whole: Whole, _: Path, rng: random.Random) -> bool:
    """Some containers as they were earlier: a copy that took long, the log last."""
    older, changed = _older_seg0(whole), False
    for one in sorted((copy / "seg0").glob("c*.dat")):
        if rng.random() < 0.5 and (older / one.name).exists():
            changed |= _put(one, (older / one.name).read_bytes())
    return changed


def _device(copy: Path, where: str, *, there: bool) -> bool:
    device = device_of(copy)
    shutil.rmtree(device, ignore_errors=True)
    device.mkdir()
    if there:
        (copy / "log").rename(device / "log")
    else:
        shutil.rmtree(copy / "log")
    with (copy / PROPERTIES).open("a") as properties:
        properties.write(f"logDevice={where}\n")
    return True


def _log_on_device(copy: Path, *_: object) -> bool:
    return _device(copy, str(device_of(copy)), there=True)


def _device_missing(copy: Path, *_: object) -> bool:
    return _device(copy, str(device_of(copy)), there=False)


DERBY: dict[str, Damage] = {
    "service.properties missing": _properties_missing,
    "service.properties emptied": _properties_emptied,
    "service.properties cut": _properties_cut,
    "container missing": _container_missing,
    "container emptied": _container_emptied,
    "container cut": _container_cut,
    "container of yesterday": _container_older,
    "container of another database": _container_of_another,
    "page zeroed": _page_zeroed,
    "bit of a page": _page_bit,
    "page of yesterday": _page_older,
    "data of yesterday": _data_of_yesterday,
    OLDER_LOG: _log_of_yesterday,
    "log of another database": _log_of_another,
    "data of another database": _data_of_another,
    "torn copy": _torn_copy,
    "log on a device": _log_on_device,
    "device missing": _device_missing,
}
_TO_A_DEVICE = ("log on a device", "device missing")
DERBY_ON_DEVICE = {name: kind for name, kind in DERBY.items() if name not in _TO_A_DEVICE}


# -- H2 --------------------------------------------------------------------------------------------


def _pages(path: Path) -> tuple[bytes, int]:
    content = path.read_bytes()
    clear = decrypted(content, SECRET) if is_encrypted(content[: STATIC_HEADER.size]) else content
    size = int.from_bytes((clear or b"")[48:52], "big")
    return content, size if valid_page_size(size) else 4096


def _first(copy: Path) -> Path:
    return copy / "db.h2.db"


def _header_copy(number: int, change: Callable[[bytes, bytes, random.Random], bytes]) -> Damage:
    def changed(copy: Path, whole: Whole, _: Path, rng: random.Random) -> bool:
        content, size = _pages(_first(copy))
        older = (whole.older / "db.h2.db").read_bytes()
        at = number * size
        page = change(content[at : at + size], older[at : at + size], rng)
        return _put(_first(copy), content[:at] + page + content[at + size :])

    return changed


def _pages_of_yesterday(copy: Path, whole: Whole, _: Path, rng: random.Random) -> bool:
    """Some pages as they were earlier: a copy that was taken while H2 wrote."""
    content, size = _pages(_first(copy))
    older = (whole.older / "db.h2.db").read_bytes()
    at = rng.randrange(1, len(content) // size) * size
    first = rng.random() < 0.5
    mixed = older[:at] + content[at:] if first else content[:at] + older[at : len(content)]
    mixed += content[len(mixed) :]
    return _put(_first(copy), mixed)


def _pages_of_another(copy: Path, _: Whole, other: Path, rng: random.Random) -> bool:
    content, size = _pages(_first(copy))
    foreign = _first(other).read_bytes()
    at = rng.randrange(3, max(4, len(content) // size)) * size
    return _put(_first(copy), content[:at] + foreign[at : len(content)] + content[len(foreign) :])


def _cut_at_a_page(copy: Path, _: Whole, __: Path, rng: random.Random) -> bool:
    content, size = _pages(_first(copy))
    return _put(_first(copy), content[: rng.randrange(len(content) // size) * size])


def _grown(copy: Path, _: Whole, __: Path, rng: random.Random) -> bool:
    content, size = _pages(_first(copy))
    return _put(_first(copy), content + bytes(rng.randrange(1, 9) * size))


def _beside_the_other_store(copy: Path, *_: object) -> bool:
    _first(copy).with_name("db.1234.temp.db").write_bytes(_first(copy).read_bytes()[:4096])
    return True


def _linked(copy: Path, *_: object) -> bool:
    """Put a link in its place, to a name that H2 makes another one of."""
    _first(copy).rename(copy / "data.bin")
    _first(copy).symlink_to("data.bin")
    return True


def _file_of_yesterday(copy: Path, whole: Whole, *_: object) -> bool:
    return _put_all(list(whole.older.iterdir()), copy, "")


WHOLE_OLDER = "file of yesterday"
TORN, FOREIGN = "torn copy of the file", "pages of another database"
PART_OLDER, PART_FOREIGN = "part of yesterday", "part of another database"
H2: dict[str, Damage] = {
    "first header of yesterday": _header_copy(1, lambda _, older, __: older),
    "second header of yesterday": _header_copy(2, lambda _, older, __: older),
    "first header zeroed": _header_copy(1, lambda page, _, __: bytes(len(page))),
    "second header zeroed": _header_copy(2, lambda page, _, __: bytes(len(page))),
    TORN: _pages_of_yesterday,
    FOREIGN: _pages_of_another,
    "cut at a page": _cut_at_a_page,
    "empty pages after the end": _grown,
    "temporary file beside": _beside_the_other_store,
    "a link to another name": _linked,
    WHOLE_OLDER: _file_of_yesterday,
}

ENDS_EARLIER = (TORN, FOREIGN, OLDER_LOG, WHOLE_OLDER, PART_OLDER, PART_FOREIGN)
"""After these the log may end earlier, and no page be later than its end, as after a crash then."""


def _part(copy: Path, rng: random.Random) -> Path:
    """One of two is a part with contents: most are room for pages to come."""
    parts = sorted(copy.glob("db.h2.db*"))
    used = [one for one in parts if any(one.read_bytes())]
    return rng.choice(used if used and rng.random() < 0.5 else parts)


def _part_missing(copy: Path, _: Whole, __: Path, rng: random.Random) -> bool:
    _part(copy, rng).unlink()
    return True


def _part_emptied(copy: Path, _: Whole, __: Path, rng: random.Random) -> bool:
    return _put(_part(copy, rng), b"")


def _part_cut(copy: Path, _: Whole, __: Path, rng: random.Random) -> bool:
    path = _part(copy, rng)
    content = path.read_bytes()
    return _put(path, content[: rng.randrange(len(content))]) if content else False


def _part_from(folder: Path, copy: Path, rng: random.Random) -> bool:
    """Put a part from there in the place of one that differs."""
    pairs = [(one, folder / one.name) for one in sorted(copy.glob("db.h2.db*"))]
    there = [(one, other) for one, other in pairs if other.exists()]
    differ = [(one, other) for one, other in there if one.read_bytes() != other.read_bytes()]
    if not differ:
        return False
    path, other = rng.choice(differ)
    return _put(path, other.read_bytes())


def _part_far_behind(copy: Path, *_: object) -> bool:
    count = len(list(copy.glob("db.h2.db*")))
    shutil.copyfile(_first(copy), copy / f"db.h2.db.{count + 5}.part")
    return True


def _part_older(copy: Path, whole: Whole, _: Path, rng: random.Random) -> bool:
    return _part_from(whole.older, copy, rng)


def _part_of_another(copy: Path, _: Whole, other: Path, rng: random.Random) -> bool:
    return _part_from(other, copy, rng)


SPLIT: dict[str, Damage] = {
    "part missing": _part_missing,
    "part emptied": _part_emptied,
    "part cut": _part_cut,
    "part far behind the last": _part_far_behind,
    PART_OLDER: _part_older,
    PART_FOREIGN: _part_of_another,
}


def _lob(copy: Path, rng: random.Random) -> Path | None:
    found = sorted(copy.rglob("*.lob.db"))
    return rng.choice(found) if found else None


def _lob_missing(copy: Path, _: Whole, __: Path, rng: random.Random) -> bool:
    path = _lob(copy, rng)
    if path is not None:
        path.unlink()
    return path is not None


def _lob_emptied(copy: Path, _: Whole, __: Path, rng: random.Random) -> bool:
    path = _lob(copy, rng)
    return path is not None and _put(path, b"")


def _lob_cut(copy: Path, _: Whole, __: Path, rng: random.Random) -> bool:
    path = _lob(copy, rng)
    content = b"" if path is None else path.read_bytes()
    return path is not None and _put(path, content[: rng.randrange(len(content))])


def _lob_over_another(copy: Path, _: Whole, __: Path, rng: random.Random) -> bool:
    """One of another length: nothing tells of a value, or of a part, that has the same."""
    one, other = _lob(copy, rng), _lob(copy, rng)
    if one is None or other is None or one.stat().st_size == other.stat().st_size:
        return False
    return _put(one, other.read_bytes())


def _lobs_missing(copy: Path, *_: object) -> bool:
    if (copy / "db.lobs.db").exists():
        shutil.rmtree(copy / "db.lobs.db")
        return True
    return False


LOBS: dict[str, Damage] = {
    WHOLE_OLDER: _file_of_yesterday,
    "large object missing": _lob_missing,
    "large object emptied": _lob_emptied,
    "large object cut": _lob_cut,
    "large object over another": _lob_over_another,
    "all large objects missing": _lobs_missing,
}
H2_FORMS = {"split": SPLIT | H2, "lobs": LOBS, "aes": H2, "xtea": H2}
"""By parts of an original's name; a form without an entry has all of `H2`."""


# -- Bitronix --------------------------------------------------------------------------------------


def days(whole: Whole) -> list[Path]:
    """Return the folders of earlier states, in their order."""
    return [whole.older, *sorted(whole.older.parent.glob("day-*"))]


def _one_of_yesterday(copy: Path, whole: Whole, _: Path, rng: random.Random) -> bool:
    day, name = rng.choice(days(whole)), rng.choice(("btm1.tlog", "btm2.tlog"))
    return _put(copy / name, (day / name).read_bytes())


def _parts_of_different_days(copy: Path, whole: Whole, _: Path, rng: random.Random) -> bool:
    chosen = [rng.choice(days(whole)) for _ in range(2)]
    names = ("btm1.tlog", "btm2.tlog")
    changed = [
        _put(copy / name, (day / name).read_bytes())
        for name, day in zip(names, chosen, strict=True)
    ]
    return any(changed)


def _one_of_another(copy: Path, _: Whole, other: Path, rng: random.Random) -> bool:
    name = rng.choice(("btm1.tlog", "btm2.tlog"))
    return _put(copy / name, (other / name).read_bytes())


def _exchanged(copy: Path, *_: object) -> bool:
    one, two = (copy / name for name in ("btm1.tlog", "btm2.tlog"))
    content = one.read_bytes()
    one.write_bytes(two.read_bytes())
    return _put(two, content)


def clock_went_back(copy: Path, _: Whole, __: Path, rng: random.Random) -> bool:
    """Give the file in use the times that a clock has which went back at the change of files."""
    paths = [copy / name for name in ("btm1.tlog", "btm2.tlog")]
    parts = [
        Part(number, str(path), memoryview(path.read_bytes()))
        for number, path in enumerate(paths, 1)
    ]
    earlier, later = DualFiles((parts[0], parts[1])).order()
    if earlier.header is None or later.header is None or earlier.last is None:
        return False
    back = later.header.timestamp - earlier.header.timestamp + rng.randrange(1, 3_600_000)
    content = bytearray(later.data or b"")
    for span in later.counted_spans():
        one = span.record
        if one is not None and one.time >= later.header.timestamp:
            time, number = one.time - back, one.sequence_number
            moved = TransactionLogRecord.create(
                one.status, one.gtrid, one.unique_names, time, number
            ).encode()
            content[span.offset : span.offset + len(moved)] = moved
    header = dataclasses.replace(later.header, timestamp=later.header.timestamp - back)
    content[:HEADER_LENGTH] = header.encode()
    assert FileHeader.decode(bytes(content)) == header
    return _put(paths[later.number - 1], bytes(content))


BITRONIX: dict[str, Damage] = {
    "one file of yesterday": _one_of_yesterday,
    "files of different days": _parts_of_different_days,
    "one file of another journal": _one_of_another,
    "files exchanged": _exchanged,
}
BITRONIX_3 = BITRONIX | {"clock went back": clock_went_back}


# -- Artemis ---------------------------------------------------------------------------------------


def _in(folder: str, pattern: str) -> Callable[[Path, random.Random], Path | None]:
    def chosen(copy: Path, rng: random.Random) -> Path | None:
        found = sorted((copy / folder).rglob(pattern))
        return rng.choice(found) if found else None

    return chosen


JOURNAL_OF_ANOTHER = "journal of another broker"
"""After this a start may drop what the other broker kept, too."""
Choice = Callable[[Path, random.Random], Path | None]


def _one_missing(choice: Choice) -> Damage:
    def missing(copy: Path, _: Whole, __: Path, rng: random.Random) -> bool:
        path = choice(copy, rng)
        if path is not None:
            path.unlink()
        return path is not None

    return missing


def _one_cut(choice: Choice) -> Damage:
    def cut(copy: Path, _: Whole, __: Path, rng: random.Random) -> bool:
        path = choice(copy, rng)
        content = b"" if path is None else path.read_bytes()
        return path is not None and _put(path, content[: rng.randrange(len(content) or 1)])

    return cut


def _one_over_another(choice: Choice) -> Damage:
    def swapped(copy: Path, _: Whole, __: Path, rng: random.Random) -> bool:
        one, other = choice(copy, rng), choice(copy, rng)
        return one is not None and other is not None and _put(one, other.read_bytes())

    return swapped


def _folder_missing(folder: str) -> Damage:
    def missing(copy: Path, *_: object) -> bool:
        if not {one.name for one in copy.iterdir()} - {"journal", folder}:
            return False  # a journal alone is judged as one
        there = any(one.is_file() for one in (copy / folder).rglob("*"))
        shutil.rmtree(copy / folder, ignore_errors=True)
        return there

    return missing


def _folder_of(folder: str, *, another: bool) -> Damage:
    """Put the folder of yesterday, or of another broker, in the place of this one."""

    def put(copy: Path, whole: Whole, other: Path, _: random.Random) -> bool:
        source = (other if another else whole.older) / folder
        if not source.is_dir():
            return False
        before = contents(copy / folder)
        shutil.rmtree(copy / folder, ignore_errors=True)
        shutil.copytree(source, copy / folder, ignore=shutil.ignore_patterns("*.lock"))
        return before != contents(copy / folder)

    return put


def contents(folder: Path) -> dict[str, bytes]:
    """Return what the files below a folder hold, without locks."""
    files = (one for one in folder.rglob("*") if one.is_file() and one.suffix != ".lock")
    return {str(one.relative_to(folder)): one.read_bytes() for one in files}


_BINDINGS = _in("bindings", "*.bindings")
_LARGE, _PAGE = _in("large", "*.msg"), _in("paging", "*.page")
ARTEMIS: dict[str, Damage] = {
    "bindings missing": _folder_missing("bindings"),
    "file of bindings missing": _one_missing(_BINDINGS),
    "bindings of yesterday": _folder_of("bindings", another=False),
    "bindings of another broker": _folder_of("bindings", another=True),
    "large message missing": _one_missing(_LARGE),
    "large message cut": _one_cut(_LARGE),
    "large message over another": _one_over_another(_LARGE),
    "large messages missing": _folder_missing("large"),
    "large messages of yesterday": _folder_of("large", another=False),
    "pages missing": _folder_missing("paging"),
    "page missing": _one_missing(_PAGE),
    "page cut": _one_cut(_PAGE),
    "pages of yesterday": _folder_of("paging", another=False),
    "journal of yesterday": _folder_of("journal", another=False),
    JOURNAL_OF_ANOTHER: _folder_of("journal", another=True),
}


# -- Narayana --------------------------------------------------------------------------------------

STORE = "store"
_STATE = _in(STORE, "BasicAction/**/*_*[0-9a-f]")
"""Not what locks it, whose name ends in another letter."""


def _renamed(end: str) -> Damage:
    def renamed(copy: Path, _: Whole, __: Path, rng: random.Random) -> bool:
        path = _STATE(copy, rng)
        if path is not None:
            path.rename(path.with_name(path.name + end))
        return path is not None

    return renamed


def _emptied(copy: Path, _: Whole, __: Path, rng: random.Random) -> bool:
    path = _STATE(copy, rng)
    return path is not None and _put(path, b"")


def _given_up(copy: Path, _: Whole, __: Path, rng: random.Random) -> bool:
    path = _STATE(copy, rng)
    if path is None:
        return False
    type_folder = path.parent.parent if path.parent.name.startswith("#") else path.parent
    to = type_folder / "Expired" / path.relative_to(type_folder)
    to.parent.mkdir(parents=True, exist_ok=True)
    path.rename(to)
    return True


def _in_another_folder(name: str) -> Damage:
    """Move a state to a folder of another name, beside that of its type or below it."""

    def moved(copy: Path, _: Whole, __: Path, rng: random.Random) -> bool:
        path = _STATE(copy, rng)
        if path is not None:
            to = path.parent / name / path.name
            to.parent.mkdir(parents=True, exist_ok=True)
            path.rename(to)
        return path is not None

    return moved


def _made_longer(copy: Path, _: Whole, __: Path, rng: random.Random) -> bool:
    path = _STATE(copy, rng)
    return path is not None and _put(path, path.read_bytes() + bytes(rng.randrange(1, 5000)))


def _state_of(*, another: bool) -> Damage:
    """Put a state of yesterday, or of another node, in its place, whether one is there or not."""

    def put(copy: Path, whole: Whole, other: Path, rng: random.Random) -> bool:
        source = other if another else whole.older
        path = _STATE(source, rng)
        if path is None:
            return False
        to = copy / path.relative_to(source)
        to.parent.mkdir(parents=True, exist_ok=True)
        there = to.exists() and to.read_bytes() == path.read_bytes()
        shutil.copyfile(path, to)
        return not there

    return put


def _states_missing(copy: Path, *_: object) -> bool:
    folders = sorted((copy / STORE).rglob("BasicAction"))
    for one in folders:
        shutil.rmtree(one)
    return bool(folders)


NARAYANA: dict[str, Damage] = {
    "state missing": _one_missing(_STATE),
    "state emptied": _emptied,
    "state cut": _one_cut(_STATE),
    "state over another": _one_over_another(_STATE),
    "state hidden": _renamed("#"),
    "state a shadow": _renamed("!"),
    "state given up": _given_up,
    "state in a folder below": _in_another_folder("old"),
    "state in a folder beside": _in_another_folder("../#999#"),
    "zeros after a state": _made_longer,
    "state of yesterday": _state_of(another=False),
    "state of another node": _state_of(another=True),
    "store of yesterday": _folder_of(STORE, another=False),
    "store of another node": _folder_of(STORE, another=True),
    "states missing": _states_missing,
}
