"""Whose log a folder holds: every role of every system × every opening of another one.

Each opening meets each log where it looks for its own, and in its folder. It is right, or refused
without a byte, a name or a time stamp changed. The table of docs/guide/moving.md is what comes out.
"""

from __future__ import annotations

import ast
import shutil
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

import tallystick
from tallystick import Journal, PageStore, TransactionManager, WriteBehind
from tallystick.convert.command import convert
from tallystick.disposal.disposers import MoveDisposer
from tallystick.errors import (
    CorruptLogError,
    LogWriteError,
    TallystickError,
    UnsupportedFormatError,
)
from tallystick.reading.discovery import discover
from tallystick.records import Kind, Outcome
from tallystick.roles import Operation, OperationCode, Role
from tallystick.storage.local import LOCAL
from tallystick.systems.bitronix.live.log import DiskJournal
from tallystick.systems.bitronix.live.role import BitronixDecisionLog
from tallystick.systems.bitronix.live.sharded import ShardedJournal
from tallystick.systems.cloudtran.live.log import BlockLog
from tallystick.systems.cloudtran.live.role import CloudtranPersistLog
from tallystick.systems.cloudtran.live.settings import LogSettings
from tallystick.systems.derby.live.log import LogToFile
from tallystick.systems.folders import how_to_open
from tallystick.systems.h2.database.paged_log import H2PagedLog
from tallystick.systems.h2.live.files import PageStoreFile
from tallystick.systems.h2.live.role import H2UndoRedoLog
from tallystick.systems.jboss.live.log import CircularJournal
from tallystick.systems.jboss.live.role import JBossRecordJournal
from tallystick.systems.jboss.live.settings import JournalSettings
from tallystick.systems.registry import (
    open_decision_log,
    open_persist_log,
    open_record_journal,
    open_undo_redo_log,
    systems,
)
from tallystick.systems.tally.format.headers import ROLES as ROLES_BY_NUMBER
from tallystick.systems.tally.format.headers import doubled, encode_control
from tallystick.systems.tally.format.layout import archive_name, segment_name
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.roles.decision_log import (
    TallyDecisionLog,
    TallySharedDecisionLog,
)
from tallystick.systems.tally.live.roles.journal import TallyJournal
from tallystick.systems.tally.live.roles.persist_log import TallyPersistLog
from tallystick.systems.tally.live.roles.record_journal import TallyRecordJournal
from tallystick.systems.tally.live.roles.undo_redo_log import TallyUndoRedoLog
from tallystick.systems.tally.live.settings import Settings
from tallystick.systems.tally.live.sharded import ShardedLog
from tallystick.systems.tally.live.shared.log import SharedTallyLog
from tallystick.systems.tally.read.claim import Claim
from tallystick.systems.tally.read.files import control_in
from tests.fixtures import fixture_dir
from tests.kit import picture_of, untouched
from tests.systems.live_logs import Derby

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide" / "moving.md"
SMALL = Settings(segment_size=16 << 10)
UNSEALED = Settings(segment_size=16 << 10, recycle=False)
KEPT = b"kept"
INSERT = Operation(OperationCode.INSERT, "c", KEPT, KEPT)

# -- the logs -----------------------------------------------------------------------------------


def _small(path: Path, role: Role) -> TallyLog:
    settings = UNSEALED if role is Role.PERSIST_LOG else SMALL
    return TallyLog(str(path), settings=settings, claim=Claim(role))


def _journal(path: Path) -> None:
    with Journal(path, settings=SMALL) as log:
        log.append(KEPT)
        log.add(1, KEPT)


def _shard(path: Path) -> None:
    with ShardedLog([str(path)], settings=SMALL) as log:
        log.append(KEPT, KEPT).wait()


def _decisions(path: Path) -> None:
    with closing(TallyDecisionLog(_small(path, Role.DECISION_LOG))) as log:
        log.decide(KEPT, ["a", "b"]).wait()


def _bitronix(path: Path) -> None:
    with closing(BitronixDecisionLog(path, max_log_size=64 << 10)) as log:
        log.decide(KEPT, ["a", "b"]).wait()


def _undo_redo(path: Path) -> None:
    with closing(TallyUndoRedoLog(_small(path, Role.UNDO_REDO_LOG))) as log:
        log.commit_rows(1, {(1, 1): KEPT})


def _persisting(path: Path) -> None:
    with closing(TallyPersistLog(_small(path, Role.PERSIST_LOG))) as log:
        log.persisting(["t"], [INSERT], "kept")[1].wait()


def _artemis(path: Path) -> None:
    with closing(JBossRecordJournal(str(path), JournalSettings(file_size=64 << 10))) as log:
        log.add(1, KEPT).wait()


def _hornetq(path: Path) -> None:
    settings = JournalSettings("g2", prefix="hornetq-data", extension="hq", file_size=64 << 10)
    with closing(JBossRecordJournal(str(path), settings)) as log:
        log.add(1, KEPT).wait()


def _cloudtran(path: Path) -> None:
    with closing(open_persist_log(path, "cloudtran")) as log:
        log.persisting(["t"], [INSERT], "kept")[1].wait()


def _h2_log(path: Path) -> None:
    with closing(open_undo_redo_log(path, "h2")) as log:
        log.commit_rows(1, {(1, 1): KEPT})


def _h2_store(path: Path) -> None:
    with PageStore(path, system="h2") as store:
        store.create_table("kept")


def _derby(path: Path) -> None:
    with closing(Derby(LOCAL, str(path))) as derby:
        number = derby.log.begin()
        derby.log.log(number, derby.insert, KEPT)
        derby.log.commit(number)


LOGS: dict[str, Callable[[Path], None]] = {
    "journal": _journal,
    "shard of a journal": _shard,
    "decision log": _decisions,
    "undo/redo log": _undo_redo,
    "persist log": _persisting,
    "Bitronix": _bitronix,
    "Artemis": _artemis,
    "HornetQ": _hornetq,
    "CloudTran": _cloudtran,
    "H2, log only": _h2_log,
    "H2, with pages": _h2_store,
    "Derby": _derby,
}

# -- the openings -------------------------------------------------------------------------------

Open = Callable[[Path], Any]


def _is_persist_log(path: Path, system: str) -> bool:
    kinds = {one.kind for one in tallystick.scan(path)} if path.is_dir() else set()
    return Kind.PERSISTING in kinds and [one.system for one in discover(path).logs] == [system]


def _behind(system: str) -> Open:
    def opened(path: Path) -> Any:
        control = control_in(LOCAL, f"{path}/log")
        identity = control.identity.hex() if control is not None else str(uuid.UUID(int=1))
        if _is_persist_log(path / "log", system):
            # Whatever else its service keeps is there, too.
            (path / "identity").write_text(f"{identity}\n{system}\n")
        return WriteBehind(path, {"t": print}, system=system, on_incomplete="hold")

    return opened


SERVICES: dict[str, tuple[str, Open]] = {
    "`Journal`": ("", lambda path: Journal(path, settings=SMALL)),
    "`Journal`, shared": ("", lambda path: Journal(path, shared=True, settings=SMALL)),
    "`Journal`, jboss": ("", lambda path: Journal(path, system="jboss")),
    "`PageStore`": ("log", PageStore),
    "`PageStore`, h2": ("", lambda path: PageStore(path, system="h2")),
    "`WriteBehind`": ("log", _behind("tally")),
    "`WriteBehind`, cloudtran": ("log", _behind("cloudtran")),
    "`TransactionManager`": ("decisions", lambda path: TransactionManager(path, {})),
    "`TransactionManager`, shared": (
        "decisions",
        lambda path: TransactionManager(path, {}, shared=True),
    ),
}
"""For each service the folder in its own in which it looks for its log, and the call."""
ROLES: dict[str, tuple[str, Open]] = {
    "record journal": ("", open_record_journal),
    "decision log": ("", open_decision_log),
    "decision log, bitronix": ("", lambda path: open_decision_log(path, "bitronix")),
    "persist log": ("", open_persist_log),
    "persist log, cloudtran": ("", lambda path: open_persist_log(path, "cloudtran")),
    "undo/redo log": ("", open_undo_redo_log),
    "undo/redo log, h2": ("", lambda path: open_undo_redo_log(path, "h2")),
}
"""A log alone is looked for in the folder itself."""
CLASSES: dict[str, Open] = {
    "`TallyLog`": lambda path: TallyLog(str(path)),
    "`SharedTallyLog`": lambda path: SharedTallyLog(str(path), settings=SMALL),
    "`ShardedLog`": lambda path: ShardedLog([str(path)]),
    "`TallyRecordJournal`": lambda path: TallyRecordJournal(str(path)),
    "`TallyJournal`": lambda path: TallyJournal(str(path)),
    "`TallyDecisionLog`": lambda path: TallyDecisionLog(str(path)),
    "`TallySharedDecisionLog`": lambda path: TallySharedDecisionLog(str(path)),
    "`TallyUndoRedoLog`": lambda path: TallyUndoRedoLog(str(path)),
    "`TallyPersistLog`": lambda path: TallyPersistLog(str(path)),
    "`DiskJournal`": lambda path: DiskJournal(str(path)),
    "`ShardedJournal`": lambda path: ShardedJournal(str(path), 2),
    "`BitronixDecisionLog`": BitronixDecisionLog,
    "`CircularJournal`": lambda path: CircularJournal(str(path)),
    "`JBossRecordJournal`": lambda path: JBossRecordJournal(str(path)),
    "`BlockLog`": lambda path: BlockLog(str(path), LogSettings(on_incomplete="replay")),
    "`CloudtranPersistLog`": CloudtranPersistLog,
    "`H2UndoRedoLog`": lambda path: H2UndoRedoLog(str(path)),
    "`H2PagedLog`": lambda path: H2PagedLog(f"{path}/store.h2.db"),
    "`PageStoreFile`": lambda path: PageStoreFile(f"{path}/store.h2.db"),
    "`PageStoreFile.create`": lambda path: PageStoreFile.create(f"{path}/new.h2.db"),
    "`LogToFile`": lambda path: LogToFile(str(path)),
}
"""The live classes of all systems, opened as a program that imports them opens them."""


class Trial:
    """Logs to be opened: one that was opened is made again from a copy."""

    def __init__(self, folder: Path) -> None:
        self.first, self.work = folder / "first", folder / "work"
        for name, make in LOGS.items():
            (self.first / _file(name)).parent.mkdir(parents=True, exist_ok=True)
            make(self.first / _file(name))
        shutil.copytree(self.first, self.work)

    def opens(self, name: str, inner: str, opened: Open) -> bool:
        """Open with the log in this folder of a service's; return whether that was right.

        If it was refused, nothing may have changed.
        """
        log, service = self.work / _file(name), self.work / "service"
        at = service / inner if inner else service
        at.parent.mkdir(exist_ok=True)
        log.rename(at)
        before = picture_of(service)
        refused = _refused(service, opened)
        if refused:
            assert picture_of(service) == before, f"{name} in {inner!r} was changed"
            at.rename(log)
        else:
            assert KEPT in _content(at), f"{name} in {inner!r} has lost what it held"
            shutil.copytree(self.first / _file(name), log)
        shutil.rmtree(service, ignore_errors=True)
        return not refused


def _file(name: str) -> str:
    return name.replace("/", "-")


def _refused(service: Path, opened: Open) -> bool:
    try:
        opened(service).close()
    except TallystickError:
        return True
    return False


def _content(path: Path) -> bytes:
    """Return what the reader of the log finds in it, or the pages beside it."""
    if (path / "store.h2.db").exists():  # a checkpoint has emptied its log
        return (path / "store.h2.db").read_bytes()
    if (path / "log.ctrl").exists():  # what a record holds is the database's
        return (path / "log1.dat").read_bytes()
    return b"".join(
        repr((one.body, one.gtrid, one.attributes)).encode()
        for one in tallystick.scan(path)
        if one.outcome is Outcome.VALID
    )


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return Trial(tmp_path_factory.mktemp("logs"))


@pytest.fixture(scope="module")
def table(trial: Trial) -> dict[str, list[str]]:
    """For each opening the logs that it opens."""
    found: dict[str, list[str]] = {}
    for title, (looks_in, opened) in SERVICES.items():
        for name in LOGS:
            for inner in ("", "log", "decisions"):
                if trial.opens(name, inner, opened):
                    due = "" if name == "H2, with pages" else looks_in
                    assert inner == due, f"{title} begins another log beside {name}"
                    found.setdefault(title, []).append(name)
    alone = {title: opened for title, (_, opened) in ROLES.items()} | CLASSES
    for title, opened in alone.items():
        found[title] = [name for name in LOGS if trial.opens(name, "", opened)]
    return found


def test_every_opening_is_right_or_refused_and_the_page_says_which(
    table: dict[str, list[str]],
) -> None:
    for titles in ((*SERVICES, *ROLES), CLASSES):
        rows = [
            f"| {title} | {', '.join(table.get(title, [])) or 'none of these'} |"
            for title in titles
        ]
        assert "\n".join(rows) in PAGE.read_text()


def test_every_class_that_opens_a_log_is_tried() -> None:
    """Whatever has an `opens_log`, or plays a role, stands in the table."""
    named = {title.strip("`").partition(".")[0] for title in CLASSES}
    found = set()
    for path in (ROOT / "src/tallystick/systems").rglob("*.py"):
        for one in ast.walk(ast.parse(path.read_text())):
            if isinstance(one, ast.ClassDef) and "@opens_log" in ast.unparse(one):
                found.add(one.name)
    assert found <= named
    for system in systems():
        roles = map(resolve_name, (*system.roles.values(), *system.shared.values()))
        assert {made.__name__ for made in roles if isinstance(made, type)} <= named


def test_what_is_refused_is_named_with_the_line_that_opens_it(trial: Trial) -> None:
    for name, line in (
        ("journal", "Journal('{path}')"),
        (
            "decision log",
            "mv '{path}' '{path}.new' && mkdir '{path}' && mv '{path}.new' '{path}/decisions'",
        ),
        ("persist log", "WriteBehind('{path}', targets)"),
        ("Bitronix", "log=open_decision_log('{path}', 'bitronix')"),
        ("Artemis", "Journal('{path}', system='jboss')"),
        ("Derby", "tallystick explain {path}"),
    ):
        path = trial.first / _file(name)
        with untouched(path), pytest.raises(UnsupportedFormatError) as caught:
            open_undo_redo_log(path)
        assert caught.value.advice is not None
        assert line.format(path=path) in caught.value.advice


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", LOGS)
def test_no_copy_of_a_log_is_made_where_another_is(trial: Trial, tmp_path: Path, name: str) -> None:
    target = trial.first / _file(name)
    _journal(tmp_path / "closed")
    with (
        Journal(tmp_path / "journal", settings=SMALL) as journal,
        PageStore(tmp_path / "store") as store,
        PageStore(tmp_path / "h2", system="h2") as paged,
    ):
        copies: tuple[Open, ...] = (
            journal.backup,
            store.backup,
            paged.backup,
            lambda path: convert(tmp_path / "closed", path, "tally"),
            lambda path: convert(tmp_path / "closed", path, "jboss", service=True),
        )
        for copy in copies:
            with untouched(target), pytest.raises(LogWriteError, match="empty"):
                copy(target)


def test_archived_segments_are_a_log_in_the_folder_of_another_one(
    trial: Trial, tmp_path: Path
) -> None:
    _journal(tmp_path / "journal")
    control = control_in(LOCAL, str(tmp_path / "journal"))
    assert control is not None
    segment = tmp_path / "journal" / segment_name(1)
    artemis = Path(shutil.copytree(trial.first / "Artemis", tmp_path / "artemis"))
    archived = archive_name(control.identity, segment.name)
    MoveDisposer(str(artemis)).dispose_as(str(segment), archived)
    with untouched(artemis), pytest.raises(UnsupportedFormatError, match="another log"):
        JBossRecordJournal(str(artemis))
    (artemis / archived).unlink()
    JBossRecordJournal(str(artemis)).close()


def test_what_is_to_be_typed_is_quoted_for_the_shell() -> None:
    advice = how_to_open("tally", "a b;c", Role.DECISION_LOG)
    assert "mv 'a b;c' 'a b;c.new' && mkdir 'a b;c' && mv 'a b;c.new' 'a b;c/decisions'" in advice


def test_the_log_of_another_owner_is_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with PageStore(tmp_path / name) as store:
            store.create_table(name)
        with TransactionManager(tmp_path / f"{name} node", {}):
            pass
    for folder, log, opened in (
        ("one", "log", PageStore),
        ("one node", "decisions", lambda path: TransactionManager(path, {})),
    ):
        other = tmp_path / folder.replace("one", "two") / log
        shutil.rmtree(tmp_path / folder / log)
        other.rename(tmp_path / folder / log)
        with untouched(tmp_path / folder), pytest.raises(CorruptLogError, match="another owner"):
            opened(tmp_path / folder)


@pytest.mark.parametrize(
    ("file", "opened"),
    [
        ("store.h2.db", lambda path: PageStore(path, system="h2")),
        ("activemq-data-1.amq", lambda path: Journal(path, system="jboss")),
        ("btm1.tlog", lambda path: open_decision_log(path, "bitronix")),
    ],
)
def test_a_log_whose_making_was_cut_short_is_made_again(
    trial: Trial, tmp_path: Path, file: str, opened: Open
) -> None:
    (log,) = [path for path in trial.first.rglob(file) if path.parent.name != "HornetQ"]
    suffix = ".tmp" if file.endswith(".amq") else ".new"
    shutil.copy(log, tmp_path / (file + suffix))
    opened(tmp_path).close()


def test_shards_are_opened_in_their_order_only(tmp_path: Path) -> None:
    folders = [str(tmp_path / name) for name in "ab"]
    ShardedLog(folders, settings=SMALL).close()
    with untouched(tmp_path), pytest.raises(UnsupportedFormatError, match="shard"):
        ShardedLog(folders[::-1], settings=SMALL)
    with untouched(tmp_path), pytest.raises(UnsupportedFormatError, match="shard"):
        ShardedLog(folders[:1], settings=SMALL)
    ShardedLog(folders, settings=SMALL).close()


# -- logs of earlier releases ---------------------------------------------------------------------


@pytest.fixture
def older(tmp_path: Path) -> Path:
    return Path(shutil.copytree(fixture_dir("older"), tmp_path / "older"))


def test_a_log_that_does_not_say_whose_it_is_opens_and_says_it_from_then_on(
    older: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(segment_size=32 << 10)
    opened: dict[str, tuple[str, Open, Role]] = {
        "journal": ("", Journal, Role.JOURNAL),
        "shared": (
            "",
            lambda path: Journal(path, shared=True, settings=settings),
            Role.JOURNAL,
        ),
        "sealed": ("", lambda path: Journal(path, key=lambda: b"k" * 32), Role.JOURNAL),
        "records": ("", open_record_journal, Role.JOURNAL),
        "store": ("log", PageStore, Role.UNDO_REDO_LOG),
        "behind": ("log", _behind("tally"), Role.PERSIST_LOG),
        "coordinator": ("decisions", lambda path: TransactionManager(path, {}), Role.DECISION_LOG),
    }
    for name, (inner, open_, role) in opened.items():
        folder = older / name / inner if inner else older / name
        before = control_in(LOCAL, str(folder))
        assert before is not None
        assert (before.role, before.owner) == (0, b"")
        for times in (1, 0):
            caplog.clear()
            open_(older / name).close()
            assert caplog.text.count("from now on it is a") == times, name
        after = control_in(LOCAL, str(folder))
        assert after is not None
        assert ROLES_BY_NUMBER[after.role] is role
    with PageStore(older / "store") as store, store.begin(read_only=True) as tx:
        assert len(list(tx.table("a").range())) == 50
    with closing(open_decision_log(older / "coordinator" / "decisions")) as log:
        assert len(log.open_decisions()) == 1


@pytest.mark.parametrize("name", ["store/log", "behind/log", "coordinator/decisions"])
def test_the_records_of_a_log_of_an_earlier_release_tell_what_it_is_used_for(
    older: Path, name: str
) -> None:
    with untouched(older), pytest.raises(UnsupportedFormatError, match="used for something else"):
        Journal(older / name)


def test_a_role_of_a_later_release_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path / "log", settings=SMALL).close()
    path = tmp_path / "log" / "control.tally"
    control = control_in(LOCAL, str(path.parent))
    assert control is not None
    path.write_bytes(doubled(encode_control(replace(control, role=77))))
    with untouched(path.parent), pytest.raises(UnsupportedFormatError, match="later release"):
        Journal(tmp_path / "log")


def test_a_page_store_in_the_folder_of_another_service_misses_no_pages(tmp_path: Path) -> None:
    """It says whose the log is, and not that a backup of pages should be restored."""
    WriteBehind(tmp_path, {"one": lambda _: None}).close()
    with pytest.raises(UnsupportedFormatError, match=r"Open it with: WriteBehind") as caught:
        PageStore(tmp_path)
    assert "pages" not in str(caught.value)
