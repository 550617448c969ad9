"""The real H2 1.4.200 opens what we wrote, we read what it wrote, and both in turns."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from tallystick.records import Kind, State, Xid
from tallystick.systems.h2.engine.opening import EngineResult
from tallystick.systems.h2.engine.tables import Tables, UndonePages
from tallystick.systems.h2.format import layout
from tallystick.systems.h2.format.catalogue import table_names
from tallystick.systems.h2.format.entries import Type
from tallystick.systems.h2.format.values.encode import encode_row
from tallystick.systems.h2.live.files import PageStoreFile
from tallystick.systems.h2.live.log import PageLog
from tallystick.systems.h2.read.scan import whole_entries
from tallystick.systems.h2.read.stream import LogStream, open_stream
from tallystick.testing import RecordingFileSystem
from tests.interop.java import classpath, compile_java, run_java
from tests.systems.h2.kit import reading_of, xid_name

pytestmark = pytest.mark.interop
SESSION = 9
XID = Xid(1114926712, gtrid=b"bank-1\0\0\1", bqual=b"bank-1\0\0\2")
Rows = dict[int, str]


@dataclass
class Answer:
    """What the real engine says of one database."""

    rows: Rows = field(default_factory=dict)
    doubt: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    opened: bool = field(default=False, compare=False)


@cache
def _classpath() -> str:
    jars = classpath(["com.h2database:h2:1.4.200"])
    return f"{compile_java(Path(__file__).parent, jars)}:{jars}"


def h2(*arguments: object) -> list[Answer]:
    """Run the program; an answer per database."""
    answers = [Answer()]
    for line in run_java("RealH2", *arguments, classpath=_classpath()).splitlines():
        what, *rest = line.split("\t")
        if what == "path":
            answers.append(Answer())
        elif what == "row":
            answers[-1].rows[int(rest[0])] = _text(rest[1])
        elif what == "opened":
            answers[-1].opened = True
        elif what == "doubt":
            answers[-1].doubt[_text(rest[0])] = rest[1]
        else:
            answers[-1].errors.append(line)
    return answers[1:] or answers


def _text(units: str) -> str:
    return bytes.fromhex(units).decode("utf-16-be", "surrogatepass")


@pytest.fixture(scope="module", params=[512, 2048, 4096])
def fresh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with 20 rows, closed in order."""
    path: Path = tmp_path_factory.mktemp("fresh") / "db.h2.db"
    h2("create", path, request.param)
    return path


@pytest.fixture
def database(fresh: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(fresh, tmp_path / "db.h2.db"))


def started() -> Rows:
    return {number: f"row {number}" for number in range(1, 21)}


def table_of(path: Path) -> int:
    result = reading_of(path)._result
    assert isinstance(result, EngineResult)
    names = table_names(result.opening.catalog.values())
    return next(number for number, name in names.items() if name.name == "PUBLIC.T")


class Ours:
    """Our log on a database of the real engine."""

    def __init__(self, path: Path, *, carry: bool = False) -> None:
        self.table = table_of(path)
        self.store = PageStoreFile(str(path))
        self.log = PageLog(self.store)
        self.log.open_for_writing(carry=carry)

    def put(self, number: int, text: str, *, session: int = SESSION, old: bool = False) -> None:
        if old:
            self.log.log_add_or_remove_row(session, self.table, number, None)
        self.log.log_add_or_remove_row(session, self.table, number, encode_row([number, text]))

    def die(self) -> None:
        self.log.close()
        self.store.close()


def test_rows_that_we_log_are_there_after_recovery(database: Path) -> None:
    ours = Ours(database)
    ours.put(100, "ours é € 😀")
    ours.put(7, "changed", old=True)
    ours.log.log_add_or_remove_row(SESSION, ours.table, 3, None)
    ours.log.commit(SESSION).wait()
    ours.put(101, "never committed")
    ours.log.flush().wait()
    ours.die()
    (answer,) = h2("report", database)
    expected = started() | {7: "changed", 100: "ours é € 😀"}
    del expected[3]
    assert answer == Answer(expected)


def test_truncate_and_long_rows_over_many_pages(database: Path) -> None:
    ours = Ours(database)
    ours.log.log_truncate(SESSION, ours.table)
    for number in range(40):
        ours.put(number, f"{number} " * 900)
    ours.log.commit(SESSION).wait()
    ours.die()
    (answer,) = h2("report", database)
    assert answer == Answer({number: f"{number} " * 900 for number in range(40)})


def test_sections_that_we_dropped_stay_dropped(database: Path) -> None:
    ours = Ours(database)
    for round_ in range(6):
        ours.put(200 + round_, "x" * 3000)
        ours.log.commit(SESSION).wait()
        ours.log.checkpoint().wait()
    ours.log.remove_until(ours.log.log_section_id)
    ours.put(300, "after")
    ours.log.commit(SESSION).wait()
    ours.die()
    (answer,) = h2("report", database)
    kept = {number: text for number, text in answer.rows.items() if number < 200}
    assert not answer.errors
    assert kept == started()
    assert answer.rows[300] == "after"


def test_undo_image_restores_a_page_that_we_wiped(database: Path) -> None:
    ours = Ours(database)
    victim = next(
        page
        for page in range(4, ours.store.page_count)
        if ours.store.is_used(page) and ours.store.read_page(page)[0] in (17, 20)
    )
    ours.log.add_undo(victim, ours.store.read_page(victim))
    ours.log.flush().wait()
    ours.store.write_page(victim, bytes(ours.store.page_size))
    ours.put(50, "after undo")
    ours.log.commit(SESSION).wait()
    ours.die()
    (answer,) = h2("report", database)
    assert answer == Answer(started() | {50: "after undo"})


@pytest.mark.sampled(4)
@pytest.mark.parametrize("commit", [None, True, False])
def test_in_doubt_transactions_are_listed_and_decided(database: Path, commit: bool | None) -> None:
    ours = Ours(database)
    ours.put(60, "branch")
    ours.log.prepare_commit(SESSION, xid_name(XID)).wait()
    ours.put(61, "other", session=SESSION + 1)
    ours.log.commit(SESSION + 1).wait()
    if commit is not None:
        (one,) = ours.log.get_in_doubt_transactions()
        ours.log.set_in_doubt_transaction_state(SESSION, one.page, commit=commit)
    ours.die()
    (answer,) = h2("report", database)
    assert answer.doubt == ({xid_name(XID): "IN_DOUBT"} if commit is None else {})
    assert answer.rows == started() | {61: "other"} | ({60: "branch"} if commit else {})


def test_real_decision_on_our_branch_is_what_we_read(database: Path) -> None:
    ours = Ours(database)
    ours.put(60, "branch")
    ours.log.prepare_commit(SESSION, xid_name(XID)).wait()
    ours.die()
    (one,) = [one for one in reading_of(database).transactions() if one.state is State.PREPARED]
    assert (one.format_id, one.gtrid, one.bqual) == (XID.format_id, XID.gtrid, XID.bqual)
    h2("decide", database, f"COMMIT TRANSACTION {xid_name(XID)}")
    (answer,) = h2("report", database)
    assert answer == Answer(started() | {60: "branch"})


def test_real_engine_opens_our_log_after_a_crash_at_any_point(
    database: Path, tmp_path: Path
) -> None:
    table = table_of(database)
    fs = RecordingFileSystem({"/db.h2.db": database.read_bytes()})
    store = PageStoreFile("/db.h2.db", fs=fs)
    log = PageLog(store, batch=4)
    log.open_for_writing()
    for number in range(30, 36):
        row = encode_row([number, "x" * 200])
        log.log_add_or_remove_row(SESSION, table, number, row)
        fs.submitted(number)
        log.commit(SESSION).wait()
        fs.acknowledged(number)
    states = list(fs.crash_states(limit=24, seed=5))
    paths = []
    for number, state in enumerate(states):
        folder = tmp_path / str(number)
        state.fs().write_to(folder)
        paths.append(next(folder.rglob("db.h2.db")))
    for state, answer in zip(states, h2("report", *paths), strict=True):
        found = set(answer.rows) - set(started())
        assert not answer.errors, state.describe()
        assert set(state.acknowledged) <= found <= set(state.submitted), state.describe()


def _predicted(path: Path) -> Rows:
    """Rows as recovery would leave them: those of the undone pages, then committed changes."""
    result = reading_of(path)._result
    assert isinstance(result, EngineResult)
    file = result.file
    assert file.pages is not None
    tables = Tables(UndonePages(file.pages, file.stream, result.recovery), file.zone)
    tables.open_meta()
    rows: Rows = {}
    for key, (_, name) in tables.rows(tables.meta[table_of(path)].root):
        rows[key] = str(name.text) if name is not None else ""
    for change in reading_of(path).changes():
        if change.collection != "PUBLIC.T":
            continue
        if change.kind is Kind.ADD:
            rows[int(change.key)] = str((change.values or {})["NAME"])
        else:
            rows.pop(int(change.key), None)
    return rows


def test_we_read_what_it_wrote_and_left_by_dying(database: Path) -> None:
    (died,) = h2("work", database, 4, 60, "")
    assert _predicted(database) == died.rows
    engine = reading_of(database).verdict().engine
    assert engine["recovery"] == {"opened": True, "read_only": False, "in_doubt": []}
    (answer,) = h2("report", database)
    assert answer.rows == died.rows


def leaked(path: Path) -> list[int]:
    """Pages that the free list marks as used though they are empty: nothing will free them."""
    with PageStoreFile(str(path)) as store:
        kinds = store.view().types()
        empty = [page for page, kind in enumerate(kinds) if kind == layout.EMPTY]
        return store.listed(empty, {})


def test_the_real_engine_frees_the_pages_that_our_free_log_names(database: Path) -> None:
    """Its own log's pages are marked in its free list; ours replaced that log, and crashed."""
    (died,) = h2("work", database, 4, 200, "")
    ours = Ours(database, carry=True)
    ours.die()
    freed = [
        entry.pages
        for entry in whole_entries(reading_stream(database))
        if entry.code == Type.FREE_LOG
    ]
    assert freed
    assert freed[-1]
    h2("decide", database, "CHECKPOINT")
    assert leaked(database) == []
    (answer,) = h2("report", database)
    assert answer == Answer(died.rows)


def reading_stream(path: Path) -> LogStream:
    with PageStoreFile(str(path)) as store:
        return open_stream(store.view(), store.header)


def test_we_read_its_transaction_in_doubt(database: Path) -> None:
    (died,) = h2("work", database, 4, 10, "BRANCH")
    engine = reading_of(database).verdict().engine
    doubtful = [{"transaction": "BRANCH", "state": "IN_DOUBT"}]
    assert engine["recovery"] == {"opened": True, "read_only": True, "in_doubt": doubtful}
    (answer,) = h2("report", database)
    assert answer == Answer(died.rows, {"BRANCH": "IN_DOUBT"})


def test_in_turns_nothing_is_lost(database: Path) -> None:
    chance = random.Random(11)
    for round_ in range(6):
        (died,) = h2("work", database, round_, 40, "")
        assert _predicted(database) == died.rows
        rows = died.rows
        ours = Ours(database, carry=True)
        for _ in range(15):
            number = chance.randrange(400)
            ours.put(number, f"ours {round_}", old=number in rows)
            ours.log.commit(SESSION).wait()
            rows[number] = f"ours {round_}"
        ours.die()
        assert _predicted(database) == rows
    (answer,) = h2("report", database)
    assert answer == Answer(rows)
