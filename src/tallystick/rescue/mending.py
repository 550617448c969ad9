"""A copy of a log in which what is damaged is mended, as far as other bytes of the log prove it.

In: a path, and a name for the copy. Out: the copy, what was changed in it, and for each log that
was mended its answer before and after. The original is only read.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tallystick.arguments import a_path
from tallystick.convert.source import locked
from tallystick.errors import LogUnreadableError, LogWriteError, TallystickError
from tallystick.printable import counted, printable
from tallystick.reading.databases import restarted
from tallystick.reading.discovery import in_full, path_of, with_password
from tallystick.reading.results import Explanation, is_severe
from tallystick.reading.survey import NO_LOG, Survey, explain, survey
from tallystick.records import Answer, Finding, Judgement
from tallystick.rescue.copying import Copying
from tallystick.storage.local import LOCAL, naming, require_folder
from tallystick.storage.source import PACKINGS, is_remote, logical_name, packing_damage
from tallystick.systems.protocol import Patch, ReadOptions
from tallystick.systems.registry import systems

UNFINISHED = ".unfinished"
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

    ``path`` is relative to the copy, or leads out of it where a log lies elsewhere; ``left`` is
    the damage of this log in `Repair.left`.
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
class CopiedLog:
    """The log of a database that named another place for it: the copy has it in its own folder.

    ``path`` is the database, relative to the copy, ``origin`` where the log lies, ``text`` what was
    done.
    """

    path: str
    origin: str
    text: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return asdict(self)


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
    ``unmended`` is what `explain` does not call safe of an original without a copy; ``own_logs``
    are the databases that have their logs in their own folders in the copy alone.
    """

    path: str
    copy: str
    mends: list[Mend] = field(default_factory=list)
    logs: list[MendedLog] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)
    whole: bool = False
    unmended: list[Unmended] = field(default_factory=list)
    own_logs: list[CopiedLog] = field(default_factory=list)

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
            "own_logs": [one.to_dict() for one in self.own_logs],
        }


def repair(
    path: str | os.PathLike[str],
    copy: str | os.PathLike[str],
    *,
    options: ReadOptions | None = None,
) -> Repair:
    """Copy the logs at ``path`` with all that lies beside them to ``copy``, and mend them there.

    Without anything to mend, or a proof of how, nothing is written. Links are followed, so that the
    copy has files of its own; the log that a database has elsewhere is copied into its folder. If
    any file of a log is packed, all packed files are unpacked that unpack whole: packed was what
    lies beside the log, too. ``copy`` appears when it is mended.

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
    for source in found.logs if origin.is_dir() else ():
        _require_not_in(target.resolve(), Path(source.path))
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
        copying = Copying(_to_unpack(found, origin))
        with naming(target), _copied(origin, target, copying) as copied:
            for patch in patches:
                answer.mends.extend(_mend(patch, copied, copying))
            answer.own_logs = list(_own_logs(copied, copying))
            after = explain(copied, options=options)
            answer.logs = list(_compared(before, after, copied, target, copying))
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
    real = _require_not_in(target, folder)
    if real in above:
        raise LogUnreadableError("a link leads back to a folder above it", file=str(folder))
    for one in sorted(folder.iterdir()):
        if one.is_dir():
            _require_outside(target, one, (*above, real))


def _require_not_in(target: Path, folder: Path) -> Path:
    """Return the folder without links, if the copy does not lie in it."""
    real = folder.resolve()
    if real in target.parents:
        raise LogWriteError(
            "the copy would lie inside what is copied",
            file=str(target),
            advice=f"Name a place outside {folder}",
        )
    return real


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
def _copied(origin: Path, target: Path, copying: Copying) -> Iterator[Path]:
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
        copying.copy(origin, copied)
        yield copied
        copied.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    LOCAL.sync_dir(str(target.parent.absolute()))


def _mend(patch: Patch, copied: Path, copying: Copying) -> Iterator[Mend]:
    """Write a patch into the copy, wherever its file is there, and yield what that has changed."""
    name = logical_name(patch.path)
    files = [copied] if copied.is_file() else [
        one / name for one in copying.places(Path(patch.path).parent)
    ]  # fmt: skip
    if not files:
        raise LogUnreadableError(
            "what is damaged lies outside of what is copied",
            file=patch.path,
            advice="Name its folder",
        )
    for file in files:
        if (found := _written(patch, file)) is not None:
            called = name if file == copied else os.path.relpath(file, copied)
            yield replace(found, file=called)


def _written(patch: Patch, file: Path) -> Mend | None:
    """Write a patch into a file, durably, and return what that has changed."""
    file.touch()
    offset, data = patch.offset, patch.data
    with file.open("r+b") as out:
        out.seek(offset)
        before = out.read(len(data))
        if before == data:
            return None
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
    LOCAL.sync_dir(str(file.parent.absolute()))  # the file may not have been there
    return Mend(str(file), offset, before, data, patch.why)


def _unmended(found: Explanation) -> Iterator[Unmended]:
    """Yield what is not safe: each database once, and all logs together."""
    seen = set[tuple[str, str]]()
    for one in found.logs:
        path = restarted(one)
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
    before: Explanation, after: Explanation, copied: Path, target: Path, copying: Copying
) -> Iterator[MendedLog]:
    """Yield each log of the copy with both answers about it; several of a path are in one order."""
    old: dict[tuple[str, str, int], Judgement] = {}
    seen = Counter[tuple[str, str]]()
    for one in before.logs:
        for place in copying.places(one.path) or [Path(one.path)]:
            key = one.system, _below(str(place), copied)
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
    """Return a path relative to a copy; of what leads out of it the whole one.

    The log in a file that is copied is this file.
    """
    if not top.is_dir():
        return os.curdir
    relative = os.path.relpath(path, top)
    return path if relative.startswith(os.pardir + os.sep) else relative


def _own_logs(copied: Path, copying: Copying) -> Iterator[CopiedLog]:
    for folder, own in copying.own_logs:
        yield CopiedLog(_below(str(folder), copied), own.origin, own.text)


def shown_bytes(data: bytes) -> str:
    """Return bytes as hex digits for a person; of many only the first, and how many there are."""
    rest = f"... ({len(data):,} bytes)" if len(data) > _FIELD else ""
    return printable(data[:_FIELD].hex(" ") + rest) or "nothing"
