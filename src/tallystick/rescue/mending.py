"""A copy of a log in which what is damaged is mended, as far as other bytes of the log prove it.

In: a path, and a name for the copy. Out: the copy, what was changed in it, and for each log that
was mended its answer before and after. The original is only read.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tallystick.arguments import a_path
from tallystick.convert.source import locked
from tallystick.errors import LogUnreadableError, LogWriteError, TallystickError
from tallystick.printable import counted, printable
from tallystick.reading.discovery import in_full, path_of, with_password
from tallystick.reading.results import Explanation, is_severe
from tallystick.reading.survey import NO_LOG, Survey, explain, survey
from tallystick.records import Answer, Finding, Judgement
from tallystick.storage.local import LOCAL, naming, require_folder
from tallystick.storage.source import PACKINGS, is_remote, logical_name, open_source, packing_damage
from tallystick.systems.protocol import Patch, ReadOptions
from tallystick.systems.registry import systems
from tallystick.systems.surroundings import ALONE

UNFINISHED = ".unfinished"
_PIECE = 1 << 20
_FIELD = 16
"""Most bytes of a patch that are told as they are; of a longer one only what differs is."""


@dataclass(frozen=True, slots=True)
class Mend:
    """Bytes of a file that were changed: ``before``, those after, and the proof.

    ``file`` is relative to what was copied; ``before`` is shorter where the file was.
    """

    file: str
    offset: int
    before: bytes
    after: bytes
    why: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values, bytes as hex digits."""
        return asdict(self) | {"before": self.before.hex(), "after": self.after.hex()}


@dataclass(frozen=True, slots=True)
class MendedLog:
    """A log of the copy, and the answers about it; ``before`` is None if it was not found.

    ``path`` is relative to the copy, ``left`` the damage of this log in `Repair.left`.
    """

    system: str
    path: str
    before: Judgement | None
    after: Judgement
    left: tuple[Finding, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        before = None if self.before is None else self.before.to_dict()
        return {
            "system": self.system, "path": self.path, "before": before,
            "after": self.after.to_dict(),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Unmended:
    """What is not safe, and nothing mends: a database, a log, or all logs together (no system)."""

    system: str
    path: str
    judgement: Judgement

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {"system": self.system, "path": self.path, **self.judgement.to_dict()}


@dataclass(slots=True)
class Repair:
    """What was mended on a copy; without ``mends`` there is no copy.

    ``left`` is damage of the copy, or of the original without one, that nothing proves a mend for;
    ``unmended`` is what `explain` does not call safe of an original without a copy.
    """

    path: str
    copy: str
    mends: list[Mend] = field(default_factory=list)
    logs: list[MendedLog] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)
    whole: bool = False
    unmended: list[Unmended] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 mended, and every log of the copy is safe and without damage; 1 anything else."""
        return int(not (self.mends and self.whole))

    def __str__(self) -> str:
        left = f"; {counted(len(self.left), 'piece')} of damage left" if self.left else ""
        if self.mends:
            return (
                f"{self.path}: mended in {counted(len(self.mends), 'place')} of {self.copy}{left}"
            )
        return f"{self.path}: nothing was mended{left}"

    def to_dict(self) -> dict[str, Any]:
        """Return what ``tallystick repair --json`` prints."""
        return {
            "path": self.path,
            "copy": self.copy if self.mends else None,
            "mends": [one.to_dict() for one in self.mends],
            "logs": [one.to_dict() for one in self.logs],
            "left": [one.to_dict() for one in self.left],
            "unmended": [one.to_dict() for one in self.unmended],
        }


def repair(
    path: str | os.PathLike[str],
    copy: str | os.PathLike[str],
    *,
    options: ReadOptions | None = None,
) -> Repair:
    """Copy the logs at ``path`` with all that lies beside them to ``copy``, and mend them there.

    Without anything to mend, or a proof of how, nothing is written. Links are followed, so that the
    copy has files of its own. If any file of a log is packed, all packed files are unpacked that
    unpack whole: packed was what lies beside the log, too. ``copy`` appears when it is mended.

    Raises:
        LogLockedError: somebody has a log open.
        LogUnreadableError: there is no log, or a file cannot be read or unpacked whole.
        LogWriteError: ``copy`` exists or lies inside ``path``, or cannot be written.
    """
    options = with_password([os.fspath(a_path(path))], options)
    origin = _local(in_full(path_of(a_path(path)), systems()))
    target = _local(copy)
    require_free(target, "copy")
    if origin.is_dir():
        _require_outside(target.resolve(), origin, ())
    found = survey(origin, options=options).refuse_unknown_settings()
    _require_logs(found, origin)
    with ExitStack() as held:
        for folder in dict.fromkeys(source.path for source in found.logs):
            if Path(folder).is_dir():
                held.enter_context(locked(folder))
        patches = found.mends()  # `explain` says what cannot be read
        before, answer = explain(origin, options=options), Repair(str(origin), str(target))
        answer.left = [one for of_log in before.findings for one in _damage(of_log)]
        answer.left += _damage(before.problems)
        if not patches:
            answer.unmended = list(_unmended(before))
            return answer
        with naming(target), _copied(origin, target, _to_unpack(found, origin)) as copied:
            for patch in patches:
                answer.mends.extend(_mend(patch, origin, copied))
            after = explain(copied, options=options)
            answer.logs = list(_compared(before, origin, after, copied, target))
            answer.left = [one for log in answer.logs for one in log.left]
            answer.left += [_moved(one, copied, target) for one in _damage(after.problems)]
            safe = all(one.judgement.answer is Answer.SAFE for one in after.logs)
            answer.whole = safe and not answer.left
    return answer


def _local(path: str | os.PathLike[str]) -> Path:
    if is_remote(os.fspath(a_path(path))):
        raise LogWriteError("a repair copies files on a local disk", file=os.fspath(path))
    return Path(path)


def require_free(target: Path, what: str) -> None:
    """Refuse a target that exists, whatever it is, or whose folder does not."""
    if os.path.lexists(target):
        advice = "Name one that does not exist: nothing is written over"
        raise LogWriteError(f"the {what} exists already", file=str(target), advice=advice)
    require_folder(target, what)


def _require_outside(target: Path, folder: Path, above: tuple[Path, ...]) -> None:
    real = folder.resolve()
    if real in target.parents:
        raise LogWriteError(
            "the copy would lie inside what is copied",
            file=str(target),
            advice=f"Name a place outside {folder}",
        )
    if real in above:
        raise LogUnreadableError("a link leads back to a folder above it", file=str(folder))
    for one in sorted(folder.iterdir()):
        if one.is_dir():
            _require_outside(target, one, (*above, real))


def _require_logs(found: Survey, origin: Path) -> None:
    for one in found.problems:
        if one.code == NO_LOG:
            raise LogUnreadableError(one.message, file=one.file, advice=one.advice)
    files = [os.path.realpath(file) for source in found.logs for file in source.files]
    if not origin.is_dir() and files != [os.path.realpath(origin)]:
        raise LogUnreadableError(
            "the log is more than this file", file=str(origin), advice="Name its folder"
        )


def _to_unpack(found: Survey, origin: Path) -> set[str]:
    """Return the packed files that the copy has unpacked; those of logs have to be."""
    every = (os.path.normpath(file) for one in found.logs for file in one.files)
    packed = {file for file in every if file.endswith(PACKINGS)}
    for file in sorted(packed):
        if damage := packing_damage(file):  # unpacked, nothing would tell that bytes are missing
            raise LogUnreadableError(
                damage, file=file, advice="Get the file again: not all is in it"
            )
    for folder, _, names in os.walk(origin, followlinks=True) if packed else ():
        for name in names:
            path = Path(folder, name)
            alone = logical_name(name) not in names and path.is_file()
            if name.endswith(PACKINGS) and alone and _is_whole(str(path)):
                packed.add(str(path))
    return packed


def _is_whole(packed: str) -> bool:
    try:
        return not packing_damage(packed)
    except TallystickError:  # it is copied as it is
        return False


@contextmanager
def _copied(origin: Path, target: Path, packed: Container[str]) -> Iterator[Path]:
    """Give a copy for the block to mend; it gets its name at the end, or is removed."""
    unfinished = target.with_name(target.name + UNFINISHED)
    try:
        unfinished.mkdir(0o700)
    except FileExistsError:
        raise LogWriteError(
            "another repair to this copy was cut short, or still runs",
            file=str(unfinished),
            advice="If none runs, remove this folder and repair again",
        ) from None
    try:
        copied = unfinished / (logical_name(str(origin.resolve())) or "copy")
        _copy(origin, copied, packed)
        yield copied
        copied.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    LOCAL.sync_dir(str(target.parent.absolute()))


def _copy(origin: Path, copied: Path, packed: Container[str]) -> None:
    """Copy a file or a folder durably, what links lead to in their place; no pipe and no device.

    ``packed`` are unpacked.
    """
    try:
        status = origin.stat()
    except FileNotFoundError:  # a link that leads nowhere
        return
    if stat.S_ISREG(status.st_mode):
        with copied.open("xb") as out, ExitStack() as opened:
            if str(origin) in packed:
                out.write(opened.enter_context(open_source(str(origin))).data)
            else:
                shutil.copyfileobj(opened.enter_context(origin.open("rb")), out, _PIECE)
            out.flush()
            os.fsync(out.fileno())
            os.fchmod(out.fileno(), stat.S_IMODE(status.st_mode) | stat.S_IRUSR | stat.S_IWUSR)
        os.utime(copied, ns=(status.st_atime_ns, status.st_mtime_ns))
    elif stat.S_ISDIR(status.st_mode):
        copied.mkdir(0o700)
        for one in sorted(origin.iterdir()):
            name = logical_name(str(one)) if str(one) in packed else one.name
            _copy(one, copied / name, packed)
        LOCAL.sync_dir(str(copied.absolute()))
        copied.chmod(stat.S_IMODE(status.st_mode) | stat.S_IRWXU)


def _mend(patch: Patch, origin: Path, copied: Path) -> Iterator[Mend]:
    """Write a patch into the copy, durably, and yield what that has changed."""
    unpacked = Path(patch.path).with_name(logical_name(patch.path))
    relative = os.path.relpath(unpacked, origin) if origin.is_dir() else os.curdir
    file = copied if relative == os.curdir else copied / relative
    file.touch()
    offset, data = patch.offset, patch.data
    with file.open("r+b") as out:
        out.seek(offset)
        before = out.read(len(data))
        if before == data:
            return
        if len(data) > _FIELD and len(before) == len(data):
            differing = [
                at for at, pair in enumerate(zip(before, data, strict=True)) if len(set(pair)) > 1
            ]
            begin, end = differing[0], differing[-1] + 1
            offset, before, data = offset + begin, before[begin:end], data[begin:end]
        out.seek(offset)
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    name = logical_name(str(origin)) if relative == os.curdir else relative
    yield Mend(name, offset, before, data, patch.why)


def _unmended(found: Explanation) -> Iterator[Unmended]:
    """Yield what is not safe: each database once, and all logs together."""
    seen = set[tuple[str, str]]()
    for one in found.logs:
        around = one.surroundings
        path = one.place if around is None or around.kind == ALONE else around.path
        if one.judgement.answer is not Answer.SAFE and (one.system, path) not in seen:
            seen.add((one.system, path))
            yield Unmended(one.system, path, one.judgement)
    if found.estate is not None and found.estate.judgement.answer is not Answer.SAFE:
        yield Unmended("", found.path, found.estate.judgement)


def _damage(findings: Iterable[Finding]) -> list[Finding]:
    return [one for one in findings if is_severe(one)]


def _moved(finding: Finding, copied: Path, target: Path) -> Finding:
    """Return a finding about the copy with the path that it gets."""
    before, after = str(copied), str(target)
    file = finding.file and finding.file.replace(before, after, 1)
    return replace(finding, log=finding.log.replace(before, after, 1), file=file)


def _compared(
    before: Explanation, origin: Path, after: Explanation, copied: Path, target: Path
) -> Iterator[MendedLog]:
    """Yield each log of the copy with both answers about it; several of a path are in one order."""
    old: dict[tuple[str, str, int], Judgement] = {}
    seen = Counter[tuple[str, str]]()
    for one in before.logs:
        key = one.system, _below(one.path, origin)
        old[*key, seen[key]] = one.judgement
        seen[key] += 1
    seen.clear()
    for one, found in zip(after.logs, after.findings, strict=True):
        key = one.system, _below(one.path, copied)
        left = tuple(_moved(each, copied, target) for each in _damage(found))
        yield MendedLog(
            one.system, _below(one.place, copied), old.get((*key, seen[key])), one.judgement, left
        )
        seen[key] += 1


def _below(path: str, top: Path) -> str:
    """Return a path relative to what is copied; the log in a file that is copied is this file."""
    return os.path.relpath(path, top) if top.is_dir() else os.curdir


def shown_bytes(data: bytes, most: int = _FIELD) -> str:
    """Return bytes as hex digits for a person; of many only the first, and how many there are."""
    rest = f"... ({len(data):,} bytes)" if len(data) > most else ""
    return printable(data[:most].hex(" ") + rest) or "nothing"
