"""What a task carries: the files that its reader needs, however many a log has."""

from __future__ import annotations

import pickle
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tallystick.pipeline import planning
from tallystick.pipeline import task as executing
from tallystick.pipeline.options import SourceOptions
from tallystick.pipeline.planning import Task, find
from tallystick.pipeline.source.tailer import Tailer
from tallystick.reading.names import log_name
from tallystick.records import Severity
from tallystick.services.journal import Journal
from tallystick.systems.bitronix.live.role import BitronixDecisionLog
from tallystick.systems.jboss.live.role import JBossRecordJournal
from tallystick.systems.tally.format.headers import decode_control, encode_control
from tallystick.systems.tally.format.layout import COPY_OFFSET, SEGMENT_SIZE_MIN
from tallystick.systems.tally.live.log import TallyLog
from tallystick.systems.tally.live.settings import Settings


def _log(folder: Path, segments: int) -> list[Path]:
    """A native log of so many segments; returns them in order."""
    settings = Settings(
        segment_size=SEGMENT_SIZE_MIN, preallocate=False, spares=0, idle_mark_s=None
    )
    with TallyLog(str(folder), settings=settings) as log:
        while log.last_segment < segments:
            log.append(b"x" * 2_000).wait()
    return sorted(folder.glob("0*"))


def _cut(path: Path, offset: int) -> None:
    """Leave nothing from there on."""
    data = path.read_bytes()
    path.write_bytes(data[:offset] + bytes(len(data) - offset))


def _set_head(path: Path, head: bytes) -> None:
    """Begin both copies of a file's head with these bytes."""
    data = bytearray(path.read_bytes())
    for place in (0, COPY_OFFSET):
        data[place : place + len(head)] = head
    path.write_bytes(data)


def _set_control(path: Path, state: str) -> None:
    control = decode_control(path.read_bytes(), 0)
    assert control is not None
    if state == "stale":
        _set_head(path, encode_control(replace(control, durable_lsn=0)))
    elif state == "damaged":
        _set_head(path, bytes(COPY_OFFSET))


def _settings(folder: Path, split_bytes: int) -> SourceOptions:
    return SourceOptions((str(folder),), split_bytes=split_bytes)


def _places(tasks: list[Task], settings: SourceOptions) -> list[tuple[str, int, str]]:
    rows = (
        b.select(["file", "offset", "outcome"])
        for t in tasks
        for b in executing.execute(t, settings)
    )
    return [tuple(row.values()) for batch in rows for row in batch.to_pylist()]


def test_a_task_carries_few_files_however_many_its_log_has(tmp_path: Path) -> None:
    sizes = {}
    for segments in (20, 80):
        _log(tmp_path / str(segments), segments)
        tasks = planning.tasks(_settings(tmp_path / str(segments), 4 * SEGMENT_SIZE_MIN))
        assert len(tasks) >= segments // 5
        sizes[segments] = max(len(pickle.dumps(task)) for task in tasks)
        for task in tasks:
            assert len({piece.source for piece in task.pieces}) == 1
            assert len(task.pieces[0].source.files) <= len(task.pieces) + 3
    assert sizes[80] < 1.1 * sizes[20]


@pytest.mark.parametrize("control", ["whole", "stale", "damaged"])
@pytest.mark.parametrize("damaged", [(), (3,), (3, 4), (9,)])
def test_a_split_is_judged_as_if_all_files_were_there(
    tmp_path: Path, control: str, damaged: tuple[int, ...]
) -> None:
    segments = _log(tmp_path, 10)
    settings = _settings(tmp_path, SEGMENT_SIZE_MIN)
    places = _places(planning.tasks(settings), settings)
    # Within its last record: that it was acknowledged, only other files can tell.
    _cut(segments[2], 100 + max(at for file, at, _ in places if file == str(segments[2])))
    _set_control(tmp_path / "control.tally", control)
    for number in damaged:
        _set_head(segments[number], bytes(COPY_OFFSET))
    tasks = planning.tasks(settings)
    (log,) = planning.find([str(tmp_path)]).logs
    whole = [
        Task(tuple(planning.Piece(log, piece.split) for piece in task.pieces)) for task in tasks
    ]
    found = _places(tasks, settings)
    assert found == _places(whole, settings)
    assert {outcome for _, _, outcome in found} == {"valid", "corrupt"}


def test_a_file_that_is_written_counts_by_what_there_is_of_it(tmp_path: Path) -> None:
    BitronixDecisionLog(tmp_path, max_log_size=1 << 16).close()
    sizes = [path.stat().st_size for path in sorted(tmp_path.glob("*.tlog"))]
    tasks = planning.tasks(_settings(tmp_path, max(sizes)))
    assert [piece.size for task in tasks for piece in task.pieces] == sizes


def test_attributes_that_only_the_whole_log_tells_are_one_task(tmp_path: Path) -> None:
    with closing(JBossRecordJournal(str(tmp_path / "log"))) as log:
        log.add(1, b"x").wait()
    whole = replace(_settings(tmp_path, 2_000), columns=("offset", "attributes"))
    (task,) = planning.tasks(whole)
    assert [piece.split for piece in task.pieces] == [None]
    assert len(planning.tasks(replace(whole, columns=("offset",)))) > 1


@pytest.mark.parametrize(("filled", "tasks"), [(1, 2), (600 << 10, 7)], ids=["zeros", "full"])
def test_what_is_made_ahead_of_small_logs_does_not_fill_tasks(
    tmp_path: Path, filled: int, tasks: int
) -> None:
    """Forty logs of 1 MiB, of which six full ones fit into a task."""
    settings = Settings(segment_size=1 << 20, preallocate=True, spares=0, idle_mark_s=None)
    for number in range(40):
        with TallyLog(str(tmp_path / str(number)), settings=settings) as log:
            log.append(b"x" * filled).wait()
    planned = planning.tasks(_settings(tmp_path, 7 << 20))
    assert len(planned) == tasks
    assert [piece.source for task in planned for piece in task.pieces] == planning.find(
        [str(tmp_path)]
    ).logs


def test_a_folder_and_links_to_it_are_read_once_and_called_by_its_own_name(tmp_path: Path) -> None:
    """A link that came later, and before it by its name, gave a stream all records once more."""
    Journal(tmp_path / "logs" / "one").close()
    options = SourceOptions((f"{tmp_path}/*",))
    position = Tailer(options).advance({})
    for name in ("a-link", "z-link"):
        (tmp_path / name).symlink_to("logs")
    (tmp_path / "logs" / "again").symlink_to("one")
    assert [log_name(log) for log in find(options.paths).logs] == [f"{tmp_path}/logs/one"]
    assert Tailer(options).advance(position) == position
    assert not find(options.paths).problems


def test_a_linked_folder_that_is_not_searched_is_named(tmp_path: Path) -> None:
    """Nothing was said of it: no row, and no finding."""
    Journal(tmp_path / "far" / "one").close()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "way").symlink_to(tmp_path / "far")
    plan = find([str(tmp_path / "logs")])
    assert not plan.logs
    (note,) = (one for one in plan.problems if one.code == "linked-folder")
    assert (note.severity, note.file) == (Severity.INFO, f"{tmp_path}/logs/way")
    assert f"leads to the folder {tmp_path}/far" in note.message
    plan = find([str(tmp_path / "logs"), str(tmp_path / "far")])
    assert [log_name(log) for log in plan.logs] == [f"{tmp_path}/far/one"]
    assert "linked-folder" not in {one.code for one in plan.problems}
