"""The runner: same tables however often it runs, and the last good ones when it fails."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from tallystick.cli.build.pipeline import _build, command
from tallystick.errors import LogUnreadableError
from tallystick.pipeline.options import OptionError
from tallystick.pipeline.planning import Plan, find
from tallystick.pipeline.runner import OUTPUT, Run
from tallystick.pipeline.summary import RunSummary
from tallystick.pipeline.tables import run_state as state
from tallystick.pipeline.tables.incremental import STEPS
from tallystick.pipeline.tables.output_dir import STATE, TableSpace, literal
from tallystick.pipeline.tables.run_state import RunState, state_of
from tallystick.services.journal import Journal
from tallystick.systems.protocol import LogSource
from tests.fixtures import fixture_dir
from tests.kit import untouched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def estate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two Bitronix journals."""
    root = tmp_path_factory.mktemp("estate")
    for case in ("crash-mid-commit", "committed-2pc"):
        shutil.copytree(fixture_dir("bitronix") / case, root / case)
        (root / case / "manifest.json").unlink()
    return root


def _tables(folder: Path) -> dict[str, list[str]]:
    """Every table's rows as text, sorted: the order of rows means nothing."""
    from pyarrow import dataset

    found = {}
    for table in OUTPUT:
        rows: list[dict[str, Any]] = dataset.dataset(folder / table).to_table().to_pylist()
        found[table] = sorted(json.dumps(row, default=repr, sort_keys=True) for row in rows)
    return found


def test_logs_whose_names_are_in_another_encoding_are_exchanged(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Rows of the last run are told by the name that they have: two logs may have it."""
    logs, names = tmp_path / "logs", ("\udce4", "\udce5", "plain")
    for name in (*names, names[0]):
        with Journal(str(logs / name)) as journal:
            journal.append(b"of a second run")
        run = Run([str(logs)], str(tmp_path / "out"), resources={"r": f"{logs}/{names[0]}"})
        run.advance(spark)
    shutil.rmtree(logs / names[1])
    run.advance(spark)
    Run([str(logs)], str(tmp_path / "anew"), resources=run.resources).advance(spark)
    assert _tables(tmp_path / "out") == _tables(tmp_path / "anew")
    assert len(_tables(tmp_path / "out")["records"]) == 3


def test_a_resource_that_is_in_no_log_is_refused(
    spark: SparkSession, estate: Path, tmp_path: Path
) -> None:
    run = Run([str(estate)], str(tmp_path / "tables"), resources={"jdbc/a": str(tmp_path)})
    with pytest.raises(OptionError, match=f"jdbc/a is in no log.*found {tmp_path}"):
        run.advance(spark)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("when", ["as Spark starts", "in the first round"])
def test_a_stream_that_is_asked_to_end_in_its_first_round_ends_after_it(
    number: signal.Signals, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark is not started; what ends the process is real."""
    rounds: list[Run] = []

    class Session:
        def stop(self) -> None: ...

    def start(*_: object) -> Session:
        if when == "as Spark starts":
            os.kill(os.getpid(), number)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # as Spark does
        return Session()

    def once(run: Run, *_: object) -> RunSummary:
        if not rounds and when == "in the first round":
            os.kill(os.getpid(), number)
        rounds.append(run)
        return RunSummary({"tally": 1}, 1, {}, {}, {}, {}, [], {}, [], [], [], 0.0)

    monkeypatch.setattr("tallystick.pipeline.session.start", start)
    monkeypatch.setattr(Run, "__call__", once)
    before = [(one, signal.getsignal(one)) for one in (signal.SIGINT, signal.SIGTERM)]
    try:
        said = CliRunner().invoke(
            command, ["run", str(tmp_path), "--out", str(tmp_path / "out"), "--stream"]
        )
    finally:
        for one, handler in before:
            signal.signal(one, handler)
    assert said.exit_code == 0, said.output
    assert len(rounds) == 2


_REFUSED = "store: cannot publish: Read-only file system"


@pytest.mark.parametrize("away", [2, 1_000], ids=["for a while", "to the end"])
def test_a_stream_goes_on_while_its_tables_cannot_be_published(
    away: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark is not started: nothing is new, and what was not sent is tried again all the same."""
    tried: list[int] = []

    class Session:
        def stop(self) -> None: ...

    class Unchanged:
        def __init__(self, run: Run) -> None:
            self._now = run._state(run._planned())

        def open(self) -> RunState:
            return self._now

    def publish(*_: object) -> None:
        tried.append(1)
        if len(tried) == 5:
            signal.raise_signal(signal.SIGTERM)
        if len(tried) <= away:
            raise LogUnreadableError("cannot publish: Read-only file system", file="store")

    def once(run: Run, spark: SparkSession, *_: object) -> RunSummary:
        run.advance(spark)
        return RunSummary({"tally": 1}, 1, {}, {}, {}, {}, [], {}, [], [], [], 0.0)

    monkeypatch.setattr("tallystick.pipeline.session.start", lambda *_: Session())
    monkeypatch.setattr(Run, "_place", lambda run, _: Unchanged(run))
    monkeypatch.setattr(Run, "__call__", once)
    monkeypatch.setattr("tallystick.pipeline.runner.publish", publish)
    given = ["run", str(tmp_path), "--out", str(tmp_path / "out"), "--every", "0.01"]
    given += ["--publish", f"local://{tmp_path}/store"]
    before = [(one, signal.getsignal(one)) for one in (signal.SIGINT, signal.SIGTERM)]
    try:
        said = CliRunner().invoke(command, [*given, "--stream"])
    finally:
        for one, handler in before:
            signal.signal(one, handler)
    assert len(tried) == 6
    assert said.stderr.count(f"{_REFUSED}; every round tries again") == 1
    assert said.exit_code == (2 if away > 2 else 0), said.output
    assert said.stderr.count(f"published to local://{tmp_path}/store") == (0 if away > 2 else 1)
    assert said.stderr.endswith(f"tallystick: {_REFUSED}\n") is (away > 2)
    with pytest.raises(LogUnreadableError, match="cannot publish"):  # without a stream
        tried.clear()
        CliRunner().invoke(command, given, catch_exceptions=False)


def test_a_run_that_is_interrupted_ends_spark_by_another_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The one of this thread waits for an answer; py4j printed a traceback, and Java was left."""
    ended: list[threading.Thread] = []

    class Session:
        def stop(self) -> None:
            ended.append(threading.current_thread())

    def start(*_: object) -> Session:
        signal.signal(signal.SIGINT, lambda *_: pytest.fail("Spark's own handler"))
        return Session()

    def work(*_: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            logging.getLogger().error("as py4j says it")

    monkeypatch.setattr("tallystick.pipeline.session.start", start)
    monkeypatch.setattr(Run, "__call__", work)
    before = signal.getsignal(signal.SIGINT)
    job = Run([str(tmp_path)], str(tmp_path / "out"))
    try:
        with pytest.raises(KeyboardInterrupt):
            _build(job, None, {}, None)
    finally:
        signal.signal(signal.SIGINT, before)
        logging.disable(logging.NOTSET)
    assert [one is threading.main_thread() for one in ended] == [False]
    assert not caplog.records


def test_failfast_fails_a_run_at_a_file_that_cannot_be_read(
    spark: SparkSession, estate: Path, tmp_path: Path
) -> None:
    logs = shutil.copytree(estate, tmp_path / "logs")
    (logs / "committed-2pc" / "broken.gz").write_bytes(b"\x1f\x8b\x08garbage")
    run = Run([str(logs)], str(tmp_path / "tables"), options={"mode": "failfast"})
    for _ in range(2):
        with pytest.raises(LogUnreadableError, match=r"broken\.gz"):
            run.advance(spark)
    assert not (tmp_path / "tables").exists()


def test_runs_add_up(
    spark: SparkSession, estate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One story, because every step takes seconds: first run, nothing new, a failure, a change
    and a vanished log, and at the end the same as if all had been built anew. The letters of the
    folder's name are a pattern for Spark, which another folder fits."""
    out = tmp_path / "t*s [a] {b} ?"
    other = tmp_path / "tables a b c" / "logs"
    other.mkdir(parents=True)
    (other / "0.parquet").write_bytes(b"none of ours")
    run = Run([str(estate)], str(out))
    reported: list[str] = []
    with untouched(estate):
        first = run(spark, lambda table, _done, _of: reported.append(table))
    assert reported == [*STEPS, ""]
    assert len(first.read) == 2
    assert first.logs == {"bitronix": 2}
    before = _tables(out)
    assert all(before[table] for table in ("files", "records", "transactions", "profile"))

    assert run.advance(spark) == []
    assert _tables(out) == before

    shutil.copytree(fixture_dir("bitronix") / "dangling", estate / "new")
    (estate / "new" / "manifest.json").unlink()
    shutil.rmtree(estate / "committed-2pc")
    with monkeypatch.context() as broken:

        def fail(*_frames: object) -> None:
            raise RuntimeError("half way")

        broken.setattr("tallystick.pipeline.tables.judge_task.JUDGED_AT_ONCE", 0)
        broken.setattr("tallystick.pipeline.stages.reconciled", fail)
        with pytest.raises(RuntimeError, match="half way"):
            run.advance(spark)
    assert _tables(out) == before

    (estate / "readme").write_text("no log, and no reason to read a log again")
    assert run.advance(spark) == [str(estate / "new")]
    apart = Run([str(estate)], str(tmp_path / "anew"), options={"splitBytes": "1"})
    apart.advance(spark)
    assert _tables(out) == _tables(tmp_path / "anew")
    _ask_all(spark, out)
    _leaves_the_rows_of_other_logs(spark, apart, estate / "new")


def _leaves_the_rows_of_other_logs(spark: SparkSession, run: Run, changed: Path) -> None:
    """Each log is a bundle of its own: the files of the other one stay the very same."""
    before, places = _tables(Path(run.out)), _places(Path(run.out))
    for file in changed.iterdir():
        os.utime(file, ns=(1, 1))
    assert run.advance(spark) == [str(changed)]
    assert _tables(Path(run.out)) == before
    after = _places(Path(run.out))
    assert {table: len(files) for table, files in after.items()} == {
        table: len(files) for table, files in places.items()
    }
    assert all(after[table] & places[table] for table in ("files", "records", "transactions"))
    assert all(after[table] - places[table] for table in ("files", "records", "transactions"))


def _places(folder: Path) -> dict[str, set[int]]:
    """The files of every table that has some per bundle, by their number in the file system."""
    tables = ("files", "records", "transactions", "changes")
    return {
        table: {file.stat().st_ino for file in (folder / table).glob("*.parquet")}
        for table in tables
    }


def _ask_all(spark: SparkSession, out: Path) -> None:
    """Every query of the guide, over these tables."""
    guide = Path(__file__).parents[2] / "docs" / "guide" / "pipeline.md"
    for table in OUTPUT:
        path = literal(str(out / table), "parquet")
        spark.read.parquet(path).createOrReplaceTempView(table)
    queries = [part.partition("```")[0] for part in guide.read_text().split("```sql\n")[1:]]
    assert len(queries) >= 6
    for query in queries:
        spark.sql(query).collect()


def test_following_yields_what_was_read_after_every_look_until_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = iter([[], ["a"], [], ["b"]])
    stopped = threading.Event()
    monkeypatch.setattr(Run, "advance", lambda _self, _spark: next(looks))
    seen = []
    for read in Run([], "tables").follow(None, 0.001, stopped):  # type: ignore[arg-type]
        seen.append(read)
        if read == ["b"]:
            stopped.set()
    assert seen == [[], ["a"], [], ["b"]]


def test_a_source_that_is_not_there_stops_the_run_before_anything_else(tmp_path: Path) -> None:
    run = Run([str(tmp_path / "nowhere")], str(tmp_path / "out"))
    with pytest.raises(OptionError, match=r"matches the path; found .*/none\*"):
        replace(run, sources=[str(tmp_path), str(tmp_path / "none*")])(None)  # type: ignore[arg-type]
    with pytest.raises(LogUnreadableError, match="nowhere"):
        run(None)  # type: ignore[arg-type]  # Spark is not needed to say so


@pytest.mark.parametrize("out", [".", "tables"])
@pytest.mark.parametrize("system", ["tally", "bitronix"])
def test_tables_never_lie_among_the_files_of_a_log_that_is_read(
    tmp_path: Path, system: str, out: str
) -> None:
    log = tmp_path / "log"
    if system == "tally":
        Journal(log).close()
    else:
        shutil.copytree(fixture_dir("bitronix") / "committed-2pc", log)
    with untouched(tmp_path), pytest.raises(OptionError, match="among the files of a log"):
        Run([str(tmp_path)], str(log / out))(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("named", ["plain", "link", "relative"])
@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_tables_never_replace_the_logs_that_they_are_made_of(
    estate: Path, tmp_path: Path, form: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``pipeline run logs --out .`` would: a table has the name ``logs``."""
    shutil.copytree(estate, tmp_path / "logs")
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    out = {"plain": str(tmp_path), "link": str(tmp_path / "link"), "relative": "./"}[named]
    with (
        untouched(tmp_path / "logs"),
        pytest.raises(OptionError, match=r"would replace a log.*found .*logs/"),
    ):
        Run(["logs"], out, form).advance(None)  # type: ignore[arg-type]  # Spark is not needed


@pytest.mark.parametrize("name", ["table", "startingTimestamp", "COLUMNS", "maxRowsPerTrigger"])
def test_an_option_that_a_run_would_pass_over_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(OptionError, match=f"option {name} is for a single table or a stream"):
        Run([str(tmp_path)], str(tmp_path / "out"), options={name: "changes"})


@pytest.mark.parametrize("out", ["", "/", "//"])
def test_tables_need_a_folder_of_their_own(out: str) -> None:
    """Of an empty name they went into the folder that the command was run in."""
    with pytest.raises(OptionError, match=f"a folder of their own; found '{out}'"):
        Run(["logs"], out)


@pytest.mark.parametrize("name", ["records", "files", "_old"])
def test_a_folder_that_no_run_has_written_is_not_replaced(
    estate: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "kept").write_text("kept")
    with pytest.raises(OptionError, match=f"no run has written it; found {name}"):
        Run([str(estate)], str(tmp_path)).advance(None)  # type: ignore[arg-type]
    assert (tmp_path / name / "kept").read_text() == "kept"


def test_a_run_waits_for_another_one_in_the_same_folder(estate: Path, tmp_path: Path) -> None:
    """Each removes what others have staged: a scheduler may start one before the last has ended."""
    (tmp_path / "records").mkdir()
    ended = threading.Event()

    def run() -> None:
        with pytest.raises(OptionError, match="no run has written it"):
            Run([str(estate)], str(tmp_path)).advance(None)  # type: ignore[arg-type]
        ended.set()

    other = threading.Thread(target=run)
    with TableSpace(str(tmp_path)).alone():
        other.start()
        assert not ended.wait(0.5)
    assert ended.wait(60)
    other.join()


class _NoTables:
    """Notes what a run would make tables of, and makes none: Spark is not needed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plans: list[Plan] = []
        monkeypatch.setattr(Run, "_tables", self._noted)

    @contextmanager
    def _noted(self, _place: object, plan: Plan, *_states: object) -> Iterator[_NoTables]:
        self.plans.append(plan)
        yield self

    def write(self, _progress: object) -> None: ...


def test_a_run_that_waited_puts_nothing_older_in_the_place_of_newer_tables(
    estate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had searched before it waited: the other run has read a log that it does not know."""
    logs, out, made = tmp_path / "logs", tmp_path / "out", _NoTables(monkeypatch)
    shutil.copytree(estate / "committed-2pc", logs / "first")
    run, searched = Run([str(logs)], str(out)), threading.Event()

    def searching(paths: list[str]) -> Plan:
        found = find(paths)
        searched.set()
        return found

    monkeypatch.setattr("tallystick.pipeline.runner.find", searching)
    thread = threading.Thread(target=run.advance, args=(None,))
    with TableSpace(str(out)).alone():
        thread.start()
        assert searched.wait(60)
        shutil.copytree(estate / "crash-mid-commit", logs / "second")
        now = run._state(find([str(logs)]))
        now.logs["second"] = []  # not equal to what the run finds, so that it makes tables
        state.save(out / STATE, now)
    thread.join()
    (plan,) = made.plans
    assert [Path(log.path).name for log in plan.logs] == ["first", "second"]


def test_tables_below_a_source_are_no_findings_of_the_next_run(
    estate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _NoTables(monkeypatch)
    shutil.copytree(estate, tmp_path / "logs")
    (tmp_path / "logs" / "a note").write_text("of a person")
    for _ in range(2):
        Run([str(tmp_path)], str(tmp_path / "tables"), anew=True).advance(None)  # type: ignore[arg-type]
        (tmp_path / "tables" / "files").mkdir(exist_ok=True)
        (tmp_path / "tables" / "files" / "1.parquet").write_text("rows")
    first, second = ([one.message for one in plan.problems] for plan in made.plans)
    assert first == second == ["no log of any known system: a note"]


@pytest.mark.parametrize("swapped", [0, 1, 2])
def test_an_interrupted_swap_is_completed_by_the_next_run(tmp_path: Path, swapped: int) -> None:
    tables = ["one", "two"]
    now = RunState({"version": 1}, {"log": []})
    for place, text in (("", "old"), ("_staging/", "new")):
        for table in tables:
            (tmp_path / f"{place}{table}").mkdir(parents=True)
            (tmp_path / f"{place}{table}" / "part").write_text(text)
    intent = {"tables": tables, "state": asdict(now)}
    (tmp_path / "_swap.json").write_text(json.dumps(intent))
    for table in tables[:swapped]:
        shutil.rmtree(tmp_path / table)
        (tmp_path / "_staging" / table).rename(tmp_path / table)
    assert TableSpace(str(tmp_path)).open() == now
    assert [(tmp_path / table / "part").read_text() for table in tables] == ["new", "new"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["_tallystick.json", "one", "two"]


_STATE = asdict(RunState({}))


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"settings": 1}',
     *(json.dumps(_STATE | {name: "x"}) for name in _STATE)],
)  # fmt: skip
def test_a_damaged_state_builds_everything_anew(tmp_path: Path, content: str) -> None:
    (tmp_path / "state").write_text(content)
    assert state.load(tmp_path / "state") is None


@pytest.mark.parametrize(
    "note", ["", '{"tables": ["files"', "[]", '{"tables": []}', '{"tables": [], "state": {}}']
)
def test_a_damaged_note_of_a_swap_builds_everything_anew(tmp_path: Path, note: str) -> None:
    """As a loss of power leaves it, or a run of another version that was killed."""
    space = TableSpace(str(tmp_path))
    (tmp_path / "files").mkdir()
    state.save(tmp_path / STATE, RunState({}))
    (tmp_path / "_swap.json").write_text(note)
    for _ in range(2):  # the second one comes after a run that failed
        assert space.open() is None
    space.staging("files").mkdir(parents=True)
    space.commit(["files"], RunState({"made": "anew"}))
    found = space.open()
    assert found is not None
    assert found.settings == {"made": "anew"}


def test_a_state_of_a_version_that_noted_no_files_counts(tmp_path: Path) -> None:
    older = {name: value for name, value in _STATE.items() if name != "files"}
    (tmp_path / "state").write_text(json.dumps(older))
    assert state.load(tmp_path / "state") == RunState({})


@pytest.mark.parametrize("change", ["removed", "cut", "added"])
def test_tables_whose_files_somebody_changed_are_made_anew(tmp_path: Path, change: str) -> None:
    """Else their rows would be missing for good: no log of theirs changed."""
    space, now = TableSpace(str(tmp_path)), RunState({"version": 1}, {"log": []})
    for table in ("records", "changes"):
        space.staging(table).mkdir(parents=True)
        (space.staging(table) / "1-1.parquet").write_bytes(b"rows")
        (space.staging(table) / "_SUCCESS").touch()
    space.commit(["records", "changes"], now)
    (tmp_path / "changes" / "_SUCCESS").unlink()
    assert space.open() == now
    file = tmp_path / "changes" / "1-1.parquet"
    if change == "removed":
        file.unlink()
    else:
        (file if change == "cut" else file.with_name("2-1.parquet")).write_bytes(b"row")
    assert space.open() is None


def test_a_file_that_grew_or_was_replaced_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "1.log"
    file.write_text("one")
    plan = Plan([LogSource("fake", str(tmp_path), (str(file),))])
    first = state_of(plan, {})
    assert not state_of(plan, {}).changed(first)
    file.write_text("more")
    assert state_of(plan, {}).changed(first) == {str(tmp_path)}
    assert state_of(plan, {"timezone": "CET"}).changed(state_of(plan, {})) == {str(tmp_path)}
    assert state_of(Plan(), {}).vanished(first) == {str(tmp_path)}
