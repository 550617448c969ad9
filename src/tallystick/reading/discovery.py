"""Which logs lie below a path, found by content.

In: files, folders or trees of mixed content, local or on any file system that fsspec knows. Out: a
`Discovery`: the logs of every system, the files that are no log, and a finding for whatever could
not be read. Nothing is dropped silently.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
import stat
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote

from tallystick.callables import checked
from tallystick.errors import LogUnreadableError
from tallystick.records import Finding, Severity
from tallystick.storage.source import (
    archive_name,
    as_unreadable,
    is_remote,
    logical_name,
    remote_folder,
    slashed,
    unreadable,
)
from tallystick.systems.findings import UNREADABLE
from tallystick.systems.protocol import Entry, Folder, LogSource, ReadOptions, System
from tallystick.systems.registry import systems

ASIDE = "put-aside"
LINKED = "linked-folder"
"""Code of the finding about a log that its system never reads again."""
PATH_UNREAD = "path-unreadable"
"""Code of the finding about one of several paths that cannot be read itself."""
PATHS_MAX = 8
"""Of more paths the folder is named that they fill."""
_LISTINGS = 20
"""How often a folder is listed at most whose files vanish before they are looked at."""
_DIGITS = re.compile(r"[0-9]+")
_STEM = re.compile(r"([^0-9.]+)[0-9]")
"""What the numbered files of a log have in common with its others: `log1.dat`, `log.ctrl`."""
_UNFINISHED = re.compile(r"\.(.+)\.(?:[A-Za-z0-9]{6}|sw[a-p])")
"""What rsync writes before it has all of a file, and an editor beside it."""
_NO_FILES = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


@dataclass(slots=True)
class Discovery:
    """What was found below a path."""

    logs: list[LogSource] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """Files that are no log of any system."""
    problems: list[Finding] = field(default_factory=list)
    """Files and folders that could not be read."""


def discover(
    path: str | os.PathLike[str],
    *,
    known: Sequence[System] | None = None,
    progress: Callable[[str], None] | None = None,
    searched: MutableMapping[str, Discovery] | None = None,
) -> Discovery:
    """Return every log below ``path``.

    Raises `LogUnreadableError` if ``path`` itself cannot be read.

    A single file stands for the log that it belongs to; its siblings are looked at too.
    ``progress`` is called with each folder. What is found in the folders of single files is kept in
    ``searched``, for the next of their files.
    """
    progress = checked(progress, "progress")
    candidates = systems() if known is None else tuple(known)
    root = in_full(slashed(os.fspath(path)), candidates)
    only = _single_file(root)
    if only is None:
        found = _searched(root, candidates, progress, recurse=True)
        _put_aside(found, root, candidates)
    else:
        folders = {} if searched is None else searched
        if (folder := parent(only)) not in folders:
            folders[folder] = _searched(folder, candidates, progress, recurse=False)
        found = _narrowed(folders[folder], only)
    # A database names the place of its log in its own way.
    found.logs = once(found.logs, aliased=any(one.database for one in found.logs))
    return found


def _searched(
    root: str,
    known: Sequence[System],
    progress: Callable[[str], None] | None,
    *,
    recurse: bool,
) -> Discovery:
    found = Discovery()
    # The log of a database is moved to another disk like that.
    followed = frozenset(name for system in known for name in system.folders)
    for folder in folders_below(root, found, recurse=recurse, followed=followed):
        if progress is not None:
            progress(folder.path)
        _search_settled(folder, known, found)
    passed = (UNREADABLE.code, LINKED)
    unread = [one.file for one in found.problems if one.code in passed and one.file]
    found.logs = [_with_unread_below(log, unread) for log in found.logs]
    return found


_AROUND = " \t\n\"'"
"""What is copied along with a path."""
_FILE_URL = re.compile(r"file:(?://(?:localhost)?(?=/))?")
_JDBC = "jdbc:"


def path_of(given: str) -> str:
    """Return the path that is given; of a URL of a file or of a database the path in it.

    Raises:
        LogUnreadableError: the URL names a database in memory, on a server, or of another system.
    """
    if os.path.lexists(given):
        return given
    plain = given.strip(_AROUND)
    if plain.lower().startswith(_JDBC):
        return _path_of_database(plain)
    if start := _FILE_URL.match(plain):
        plain = plain[start.end() :]
        known = os.path.lexists(plain)
        return plain if known else unquote(plain, errors="surrogateescape")
    return plain if os.path.lexists(plain) else given


def password_in(given: str) -> str | None:
    """Return the password of its files that a URL of a database gives; None without one."""
    plain = given.strip(_AROUND)
    if os.path.lexists(given) or not plain.lower().startswith(_JDBC):
        return None
    return next((found for one in systems() if (found := one.password_in(plain))), None)


def with_password(given: Iterable[str], options: ReadOptions | None) -> ReadOptions:
    """Return options with the password that URLs of databases give, where they have none.

    Raises:
        ValueError: the URLs give several.
    """
    options = options or ReadOptions()
    found = {one for one in map(password_in, given) if one is not None}
    if options.boot_password is not None or not found:
        return options
    if len(found) > 1:  # which of them is whose, a reader would have to try
        raise ValueError("the URLs have several passwords: read them one after another")
    return replace(options, boot_password=found.pop())


def _path_of_database(url: str) -> str:
    found = next((path for one in systems() if (path := one.path_in(url)) is not None), "")
    if not found:
        raise LogUnreadableError(
            "this URL names no database in files of this machine that are read",
            file=url.partition(";")[0],  # a password may follow
            advice="Give the folder of the database, or its file, on the machine that has it",
        )
    return found


def real(path: str) -> str:
    """Return the one name of what can be named in many ways; of what is remote the given one."""
    try:
        return path if is_remote(path) else os.path.realpath(path)
    except ValueError:  # no file can have this name: reading it says so
        return path


def filled(paths: Sequence[str]) -> list[str]:
    """Return paths; in the place of very many that are all of a folder, that folder."""
    if len(paths) <= PATHS_MAX or any(map(is_remote, paths)):
        return list(paths)
    of: dict[str, dict[str, str]] = {}
    for path in paths:
        folder, name = posixpath.split(posixpath.normpath(slashed(path)))
        of.setdefault(folder or ".", {})[name] = path
    return [
        one for folder, names in of.items()
        for one in ([folder] if _shown(folder) <= names.keys() else names.values())
    ]  # fmt: skip


def _shown(folder: str) -> set[str]:
    """Return the names in a folder that a shell's ``*`` stands for."""
    try:
        return {name for name in os.listdir(folder) if not name.startswith(".")}  # noqa: PTH208
    except OSError:
        return {""}


def once(logs: Iterable[LogSource], *, aliased: bool = False) -> list[LogSource]:
    """Return each log once: one that a database names, too, with that database.

    A log whose files lie in folders below its own was found once per folder, each with its files.
    Where they may be ``aliased``, a folder is the same one however it is named: it is called by its
    own name rather than by one that leads there through links, which come and go.
    """
    found: dict[tuple[str, str, str], LogSource] = {}
    for one in logs:
        key = one.system, _place(one) if aliased else one.path, one.name
        known = found.setdefault(key, one)
        if known.path == one.path and {parent(file) for file in one.files} - {one.path}:
            found[key] = replace(known, files=tuple(dict.fromkeys(known.files + one.files)))
        elif one.database or (known.path != one.path and _is_own(one) and not _is_own(known)):
            found[key] = one
    every = list(found.values())
    if moved := {real(one.path) for one in every if _is_moved(one)}:
        every = [one for one in every if _has_usual_name(one) or real(one.path) not in moved]
    return list(_without_parts(every))


def _without_parts(logs: Sequence[LogSource]) -> Iterator[LogSource]:
    """Yield logs but those whose files are some of another one's, which has links to them."""
    linked = {
        real(file): one for one in logs if not is_remote(one.path)
        for file in one.files if Path(file).is_symlink()
    }  # fmt: skip
    for one in logs:
        files = set(map(real, one.files)) if linked else set[str]()
        others = [linked[file] for file in files & linked.keys()]
        if not any(files < set(map(real, other.files)) for other in others):
            yield one


def _place(log: LogSource) -> str:
    """Return the one name of the folder of a log, however that is named."""
    if not _is_moved(log):
        return real(log.path)
    # Two databases may have a link to the same log: it is that of both.
    return f"{real(parent(log.path))}/{log.path.rpartition('/')[2]}"


def _is_moved(log: LogSource) -> bool:
    """Return whether a log is named by the link that its database has in the log's usual place."""
    return _has_usual_name(log) and not is_remote(log.path) and Path(log.path).is_symlink()


def _has_usual_name(log: LogSource) -> bool:
    folders = next((one.folders for one in systems() if one.name == log.system), frozenset())
    return log.path.rpartition("/")[2] in folders


def _is_own(log: LogSource) -> bool:
    """Return whether a log on this machine is named without links."""
    return not is_remote(log.path) and real(log.path) == os.path.abspath(log.path)  # noqa: PTH100


def not_followed(problems: Iterable[Finding], paths: Iterable[str]) -> list[Finding]:
    """Return problems without links that lead to what is searched all the same."""
    searched = tuple(f"{real(one).rstrip('/')}/" for one in paths)
    return [
        one for one in problems if one.code != LINKED or not f"{one.found}/".startswith(searched)
    ]


def _put_aside(found: Discovery, root: str, known: Sequence[System]) -> None:
    """Take out the logs that their systems never read again, unless they alone were asked for."""
    systems_ = {one.name: one for one in known}
    logs = [(log, systems_[log.system].aside(log)) for log in found.logs]
    alone = not any(_is_at(log, root) and not why for log, why in logs)
    kept = []
    for log, why in logs:
        if not why or (alone and _is_at(log, root)):
            kept.append(log)
            continue
        found.problems.append(
            Finding(ASIDE, Severity.INFO, log.system, log.path, f"{log.path}: {why}", file=log.path)
        )
    found.logs = kept


def _is_at(log: LogSource, root: str) -> bool:
    return log.path.rstrip("/") == root.rstrip("/")


def in_full(path: str, known: Sequence[System]) -> str:
    """Return a path with the ending that a system's addresses leave out, where such a file is."""
    if is_remote(path) or os.path.lexists(path):
        return path
    names = (path + end for system in known for end in system.named_without)
    return next((name for name in names if Path(name).is_file()), path)


def other_text(path: str, head: bytes) -> str:
    """Return what a file that is no log is to one of the systems; empty where it is nothing."""
    name = logical_name(path)
    return next((text for one in systems() if (text := one.is_to(name, head))), "")


def search(path: str, known: Sequence[System]) -> Discovery:
    """Return what a folder itself holds now; one that cannot be read is a problem."""
    found = Discovery()
    try:
        for folder in folders_below(path, found, recurse=False):
            _search_settled(folder, known, found)
    except LogUnreadableError as error:
        found.problems.append(unread_finding(error, path))
    return found


def parent(path: str) -> str:
    """Return the folder of a file, for local paths and URLs alike."""
    return path.rpartition("/")[0] if is_remote(path) else Path(path).parent.as_posix()


def _single_file(path: str) -> str | None:
    """Return the path in the form of `folders_below` if it names a file, None for a folder."""
    if is_remote(path):
        with as_unreadable(path):
            system, start = remote_folder(path)
            try:
                kind = system.info(start)["type"]
            except FileNotFoundError:
                # A prefix without objects is an empty folder, but a bucket has to be there.
                if not system.exists(start.strip("/").partition("/")[0]):
                    raise
                kind = "directory"
        return system.unstrip_protocol(start) if kind == "file" else None
    try:
        mode = Path(path).stat().st_mode
    except OSError as error:
        if Path(path).is_symlink():
            where = "leads in a circle" if error.errno == errno.ELOOP else "is not there"
            raise LogUnreadableError(
                f"this is a link to {Path(path).readlink()}, which {where}",
                file=path,
                advice="Name the folder that it should lead to, or mend the link",
            ) from error
        raise unreadable(path, error) from error
    kind = next((text for is_kind, text in _NO_FILES if is_kind(mode)), None)
    if kind is not None:  # reading it might wait for ever, or change what is there
        advice = "Give a file or a folder; of a device its contents, copied to a file"
        raise LogUnreadableError(f"this is {kind}, and not read", file=path, advice=advice)
    return None if stat.S_ISDIR(mode) else posixpath.join(parent(path), Path(path).name)


def _narrowed(found: Discovery, path: str) -> Discovery:
    return Discovery(
        [log for log in found.logs if path in log.files],
        [other for other in found.others if other == path],
        [problem for problem in found.problems if problem.file == path],
    )


def _search_settled(folder: Folder, known: Sequence[System], found: Discovery) -> None:
    """Search a folder; again where a file vanished meanwhile, as while a log is being written."""
    for _ in range(_LISTINGS):
        part = Discovery()
        _search_folder(folder, known, part)
        present = [one for one in part.problems if not _vanished(one.file)]
        if len(present) == len(part.problems):
            break
        part.problems = present
        try:
            folder = next(folders_below(folder.path, Discovery(), recurse=False), folder)
        except LogUnreadableError:  # the folder vanished
            break
    found.logs += _named_apart(part.logs)
    found.others += part.others
    found.problems += part.problems


def _named_apart(logs: list[LogSource]) -> list[LogSource]:
    """Return logs; those of several systems in one folder each with a name.

    By the name of their folder alone one would be taken for the other.
    """
    count = Counter(path for path, _ in {(one.path, one.system) for one in logs})
    return [
        replace(one, name=one.system) if count[one.path] > 1 and not one.name else one
        for one in logs
    ]


def _vanished(path: str | None) -> bool:
    if path is None or is_remote(path):
        return False
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # a path that is too long leads to something
        return False
    return False


def _search_folder(folder: Folder, known: Sequence[System], found: Discovery) -> None:
    rest = _readable(folder, found)
    unread = [one.file for one in found.problems if one.file is not None]
    for system in known:
        if folder.entries and not rest.entries:
            return
        try:
            logs = system.detect(rest)
        except LogUnreadableError as error:
            found.problems.append(unread_finding(error, folder.path))
            continue
        found.logs.extend(_with_unread(log, unread) if system.numbered else log for log in logs)
        # A file belongs to the first system that claims it; the others do not see it.
        claimed = {file for log in logs for file in log.files}
        remaining = tuple(entry for entry in rest.entries if entry.path not in claimed)
        rest = Folder(rest.path, remaining)
    found.others.extend(entry.path for entry in rest.entries)


def _with_unread(log: LogSource, unread: Iterable[str]) -> LogSource:
    """Return a log with the files beside it that cannot be read and are named as its own are.

    Its reader then says so. Left out, such a file would be one that is gone.
    """
    own = {_DIGITS.sub("0", logical_name(path)) for path in log.files}
    stems = {name.partition(".")[0] for name in own}
    more = []
    for path in unread:
        name = logical_name(path)
        stem = _STEM.match(name)
        if _DIGITS.sub("0", name) in own or (stem is not None and stem[1] in stems):
            more.append(path)
    return replace(log, files=tuple(sorted((*log.files, *more)))) if more else log


def _with_unread_below(log: LogSource, unread: Iterable[str]) -> LogSource:
    """Return a log whose files lie in folders below its own with what is not read there.

    Its reader tells what of it may hold a part of the log.
    """
    start = f"{log.path.rstrip('/')}/"
    more = [one for one in unread if one.startswith(start) and one not in log.files]
    if not more or log.path in map(parent, log.files):
        return log
    return replace(log, files=(*log.files, *more))


def _readable(folder: Folder, found: Discovery) -> Folder:
    readable, names = [], {entry.name for entry in folder.entries}
    for entry in folder.entries:
        if (copy := _UNFINISHED.fullmatch(entry.name)) and copy[1] in names:
            found.others.append(entry.path)  # its system opens none of this name
            continue
        try:
            archive = archive_name(entry.head)
        except LogUnreadableError as error:
            found.problems.append(unread_finding(error, folder.path))
            continue
        if archive:  # a log inside would be taken for a damaged one
            found.others.append(entry.path)
        else:
            readable.append(entry)
    return Folder(folder.path, tuple(readable))


def unread_finding(error: LogUnreadableError, log: str) -> Finding:
    """Return the finding for a file or a folder that cannot be read."""
    return Finding(
        UNREADABLE.code,
        Severity.DAMAGE,
        "",
        log,
        str(error),
        file=error.file,
        advice=error.advice,
    )


def folders_below(
    root: str, found: Discovery, *, recurse: bool, followed: Container[str] = ()
) -> Iterator[Folder]:
    """Yield the folder ``root``, and those below it; what cannot be listed is a problem.

    Links with a name that is ``followed`` are, and what lies below them under such a name.
    """
    if is_remote(root):
        yield from _remote_folders(root, recurse=recurse)
        return
    _require_folder(root)

    def refuse(error: OSError) -> None:
        where = str(error.filename or root)
        if _vanished(where):
            return
        found.problems.append(unread_finding(unreadable(where, error), where))

    waiting = [root]
    while waiting:  # `os.walk` calls itself in Python 3.11, and so ends in a deep tree
        path = waiting.pop()
        try:
            with os.scandir(path) as found_here:
                here = sorted(found_here, key=lambda one: one.name)
        except OSError as error:
            refuse(error)
            continue
        files = [one for one in here if not _is_folder(one)]
        entries = (_entry(slashed(one.path)) for one in files)
        yield Folder(slashed(path), tuple(entry for entry in entries if entry is not None))
        if not recurse:
            return
        # In reverse, as the last one is taken first. No links: they may lead back to a folder
        # above.
        folders = [one for one in reversed(here) if _is_folder(one)]
        waiting.extend(one.path for one in folders if not one.is_symlink())
        links = [slashed(one.path) for one in folders if one.is_symlink()]
        elsewhere = [one for one in links if not f"{real(root)}/".startswith(f"{real(one)}/")]
        for one in [one for one in elsewhere if one.rpartition("/")[2] in followed]:
            elsewhere.remove(one)
            yield from _linked_folders(one, found, followed)
        found.problems += not_followed(map(_linked, elsewhere), [root])


def _linked_folders(root: str, found: Discovery, followed: Container[str]) -> Iterator[Folder]:
    """Yield the folder that a link leads to, and those of such names below it that are no links."""
    waiting = [root]
    while waiting:
        path = waiting.pop()
        try:
            yield from folders_below(path, found, recurse=False)
            with os.scandir(path) as here:
                below = [one for one in here if one.name in followed and _is_folder(one)]
        except LogUnreadableError as error:
            found.problems.append(unread_finding(error, path))
        except OSError as error:
            found.problems.append(unread_finding(unreadable(path, error), path))
        else:
            waiting += sorted(slashed(one.path) for one in below if not one.is_symlink())
            found.problems += [_linked(slashed(one.path)) for one in below if one.is_symlink()]


def _linked(path: str) -> Finding:
    """Return the note that a linked folder is not searched."""
    leads = real(path)
    said = f"{path}: links below a path are not followed, and this one leads to the folder {leads}"
    advice = "Name that folder, too, if it holds logs"
    return Finding(LINKED, Severity.INFO, "", path, said, file=path, found=leads, advice=advice)


def _is_folder(one: os.DirEntry[str]) -> bool:
    try:
        return one.is_dir()
    except OSError:
        return False


def _require_folder(root: str) -> None:
    try:
        with os.scandir(root):
            pass
    except OSError as error:
        raise unreadable(root, error) from error


def _entry(path: str) -> Entry | None:
    try:
        status = Path(path).stat()
    except OSError:
        return Entry(path, 0)  # reading its head will say why
    return Entry(path, status.st_size) if stat.S_ISREG(status.st_mode) else None


def _remote_folders(root: str, *, recurse: bool) -> Iterator[Folder]:
    with as_unreadable(root):
        system, start = remote_folder(root)
        for path, _, files in system.walk(start, detail=True, maxdepth=None if recurse else 1):
            entries = [
                Entry(system.unstrip_protocol(info["name"]), int(info["size"] or 0))
                for _, info in sorted(files.items())
            ]
            yield Folder(system.unstrip_protocol(path), tuple(entries))
