"""Statements of undo and redo, run in the real H2 and Derby, against the history without them.

A history is run twice, with one of its transactions and without. The first, with what `undo` gives
for it, has to be equal to the second; the second, with what `redo` gives, to the first: in all rows
but those of which a later change, or that they cannot be told, is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tallystick.investigate.steps import grouped
from tallystick.investigate.undo import Reversal, redo, undo
from tallystick.reading.survey import survey
from tests.interop.java import classpath, compile_java, start_java
from tests.interop.undo.histories import History, Ident, Maker, is_h2
from tests.sweeps import Sweep

pytestmark = pytest.mark.interop

ENGINES = {
    "h2-1.3.176": ["com.h2database:h2:1.3.176"],
    "h2-1.4.200": ["com.h2database:h2:1.4.200"],
    "derby-10.14.2.0": ["org.apache.derby:derby:10.14.2.0"],
    "derby-10.16.1.1": [f"org.apache.derby:{one}:10.16.1.1" for one in ("derby", "derbytools")],
}
HISTORIES = 100
"""Of each engine; half of the engines are H2, half Derby."""
OF_THE_DATABASE = {"h2-1.3.176": 0, "h2-1.4.200": 6, "derby-10.14.2.0": 0, "derby-10.16.1.1": 0}
"""A history of each engine of which an undo needs old rows that only the database has."""
AT_ONCE = 25
_OPTIONS = [
    "-Dderby.stream.error.file=/dev/null", "-Dderby.storage.logSwitchInterval=100000",
    "-Duser.timezone=UTC",
]  # fmt: skip
Rows = Counter[tuple[Ident, tuple[str, ...]]]


def run_steps(engine: str, steps: Iterable[str]) -> list[list[str]]:
    """Run steps in one process (see Scripts.java); the fields of the lines that it prints."""
    jars = classpath(ENGINES[engine])
    classes = compile_java(Path(__file__).parent)
    lines = "".join(f"{word}{tab}{escaped(rest)}\n" for word, tab, rest in _parts(steps))
    with start_java("Scripts", classpath=f"{classes}:{jars}", options=_OPTIONS) as process:
        printed, _ = process.communicate(lines, timeout=3_000)
        assert process.returncode == 0, printed[-2000:]
    return [line.split("\t") for line in printed.splitlines()]


def _parts(steps: Iterable[str]) -> list[tuple[str, str, str]]:
    return [step.partition("\t") for step in steps]


def escaped(text: str) -> str:
    """A text as Scripts.java takes it: UTF-16 units that are not printable ASCII in hexadecimal."""
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    plain = (32 <= one < 127 and one != ord("\\") for one in units)
    return "".join(
        chr(one) if keep else f"\\{one:04x}" for one, keep in zip(units, plain, strict=True)
    )


def url(engine: str, path: Path, *, create: bool = True) -> str:
    """Where a database is."""
    if is_h2(engine):
        store = ";MV_STORE=FALSE" if "1.4" in engine else ""
        # A lock that an opening left takes the next one two seconds.
        return f"jdbc:h2:{path};WRITE_DELAY=0;FILE_LOCK=NO{store}"
    return f"jdbc:derby:{path}" + (";create=true" if create else "")


def reopening(engine: str, path: Path) -> list[str]:
    """Steps that close a database as it should be, and open it again."""
    down = [] if is_h2(engine) else [f"shutdown\tjdbc:derby:{path};shutdown=true"]
    return ["close", *down, f"open\t{url(engine, path)}"]


@dataclass(slots=True)
class Case:
    """A history and its two databases, and what they show."""

    history: History
    with_it: Path
    without: Path

    def log(self, path: Path) -> Path:
        """Where its log is found."""
        return path if path.is_dir() else path.with_name(f"{path.name}.h2.db")


def made(engine: str, folder: Path, seeds: Iterable[int]) -> tuple[list[Case], list[Rows]]:
    """Run histories; the rows of each database in turn."""
    cases, steps = [], list[str]()
    for seed in seeds:
        paths = folder / f"with{seed}", folder / f"without{seed}"
        # The same history, with the steps to reopen each of the two.
        first, second = (Maker(engine, seed).made(reopening(engine, one)) for one in paths)
        cases.append(Case(first, *paths))
        for path, lines in zip(paths, (first.with_it, second.without), strict=True):
            steps += [f"open\t{url(engine, path)}", *lines, *_dumped(first)]
    return cases, _shown(cases, run_steps(engine, steps))


def _dumped(history: History) -> list[str]:
    return [*(f"dump\t{name}" for name in history.tables), "commit", "say\tend"]


def _shown(cases: Sequence[Case], lines: list[list[str]]) -> list[Rows]:
    names = {escaped(name): table for name, table in cases[0].history.tables.items()}
    found, rows = list[Rows](), Counter[tuple[Ident, tuple[str, ...]]]()
    for word, *rest in lines:
        if word == "SAY":
            found.append(rows)
            rows = Counter()
        elif word == "ROW":
            table, *cells = rest
            rows[(table, tuple(cells[: len(names[table].keys)])), tuple(cells)] += 1
    return found


def target_of(case: Case) -> str:
    """What the transaction that is left out is called."""
    (reading,) = survey(case.log(case.with_it)).readings()
    for _, row in grouped(reading):
        change = row.change
        if change.collection.endswith(".MARKS") and str((change.values or {}).get("K")) == str(
            case.history.target
        ):
            return f"{change.transaction}@{change.commit_sequence}"
    raise AssertionError("the target is not in its log")


def told_of(case: Case, found: Reversal) -> set[Ident]:
    """The rows of which something is said, with those that they were before and became later."""
    names = {one.name.replace('"', ""): one for one in case.history.tables.values()}
    told = set[Ident]()
    for act in found.acts:
        table = names.get(act.collection.partition(".")[2].replace('"', ""))
        if (act.warnings or act.cannot_tell) and table is not None:
            keys = [one.strip('"').replace('""', '"') for one in table.keys]
            told.add((escaped(table.name), tuple(f"s{escaped(str(act.row[one]))}" for one in keys)))
    moves = [
        {(escaped(name), tuple(_cell(one) for one in ident)) for name, ident in pair}
        for pair in case.history.moves
    ]
    grown = True
    while grown:
        more = set[Ident]().union(*(pair for pair in moves if pair & told))
        grown = not more <= told
        told |= more
    return told


def _cell(literal: str) -> str:
    text = literal[1:-1].replace("''", "'") if literal.startswith("'") else literal
    return f"s{escaped(text)}"


def _differences(
    cases: Sequence[Case], got: Sequence[Rows], wanted: Sequence[Rows], found: Sequence[Reversal]
) -> Counter[str]:
    counts = Counter[str]()
    for case, mine, theirs, reversal in zip(cases, got, wanted, found, strict=True):
        told = told_of(case, reversal)
        counts["histories"] += 1
        counts["rows"] += theirs.total()
        counts["acts"] += len(reversal.acts)
        counts["acts with a warning"] += sum(bool(one.warnings) for one in reversal.acts)
        counts["acts that cannot be told"] += sum(bool(one.cannot_tell) for one in reversal.acts)
        for source, number in reversal.sources.items():
            counts[f"old rows: {source}"] += number
        other = {
            one: n for one, n in ((mine - theirs) + (theirs - mine)).items() if one[0] not in told
        }
        assert not other, (
            f"{case.with_it}, transaction {case.history.target}\n{_short(reversal.text)}"
            + "".join(f"{n} of {_short(str(one))}\n" for one, n in other.items())
        )
    return counts


def _short(text: str) -> str:
    return "".join(f"{line[:200]}\n" for line in text.split("\n"))


def agree(engine: str, folder: Path, seeds: Sequence[int]) -> Counter[str]:
    """Compare histories; count what was seen."""
    cases, shown = made(engine, folder, seeds)
    with_it, without = shown[::2], shown[1::2]
    counts = Counter[str]()
    ways: tuple[tuple[str, Callable[..., list[Reversal]], int], ...] = (
        ("undo", undo, 0), ("redo", redo, 1),
    )  # fmt: skip
    found = {
        name: [make(case.log(case.with_it), target_of(case))[0] for case in cases]
        for name, make, _ in ways
    }
    for name, _, at in ways:
        steps = list[str]()
        for case, one in zip(cases, found[name], strict=True):
            path = (case.with_it, case.without)[at]
            texts = [f"sql\t{act.text}" for act in one.acts if act.text]
            steps += [
                f"open\t{url(engine, path, create=False)}",
                *texts,
                "commit",
                *_dumped(case.history),
            ]
        got = _shown(cases, run_steps(engine, steps))
        said = _differences(cases, got, (without, with_it)[at], found[name])
        counts += Counter({f"{name}: {what}": number for what, number in said.items()})
    return counts


@pytest.mark.sampled(2)
@pytest.mark.parametrize("engine", ENGINES)
def test_what_undo_and_redo_give_makes_the_tables_of_the_history_without_and_with(
    engine: str, sweep: Sweep, tmp_path: Path
) -> None:
    seeds = sorted({*sweep.of(range(HISTORIES), 2), OF_THE_DATABASE[engine]})
    counts = Counter[str]()
    for first in range(0, len(seeds), AT_ONCE):
        counts += agree(engine, tmp_path, seeds[first : first + AT_ONCE])
    assert counts["undo: histories"] == len(seeds)
    assert counts["undo: old rows: database"] > 0
    for what, number in sorted(counts.items()):
        print(f"{engine}  {what}: {number}")  # noqa: T201 - figures


_DOUBLED = {True: "INT AS (A * 2)", False: "GENERATED ALWAYS AS (A * 2)"}
"""A column that is computed, in H2 or not."""


@pytest.mark.parametrize("engine", ENGINES)
def test_values_that_the_database_gives_and_unique_ones_that_moved_are_taken_back(
    engine: str, tmp_path: Path
) -> None:
    path, names = tmp_path / "db", ("T", "BARE", "MOVED")
    doubled = _DOUBLED[is_h2(engine)]
    created = [
        f"T (ID INT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, A INT, B {doubled})",
        f"BARE (A INT, B {doubled}, C INT GENERATED BY DEFAULT AS IDENTITY)",
        "MOVED (ID INT NOT NULL PRIMARY KEY, A INT NOT NULL, UNIQUE (A))",
    ]
    changed = [
        *(f"insert into {name} (A) values (9)" for name in names[:2]),
        *(f"update {name} set A = 8 where A = 1" for name in names[:2]),
        *(f"delete from {name} where A = 2" for name in names[:2]),
        "update MOVED set A = A + 1",
    ]
    filled = [
        *(f"insert into {name} (A) values (1), (2), (3)" for name in names[:2]),
        "insert into MOVED values (1, 1), (2, 2), (3, 3)",
    ]

    def ran(*steps: str, create: bool = False) -> list[list[list[str]]]:
        found, rows = list[list[list[str]]](), list[list[str]]()
        for line in run_steps(engine, [f"open\t{url(engine, path, create=create)}", *steps]):
            assert line[0] != "REFUSED", line
            rows.append(line)
            if line[0] == "SAY":
                found.append(sorted(rows))
                rows = []
        return found

    shown = ["commit", *(f"dump\t{name}" for name in names), "say\tend"]
    before, after = ran(
        *(f"sql\tcreate table {one}" for one in created),
        *(f"sql\t{one}" for one in filled), *shown,
        *(f"sql\t{one}" for one in changed), *shown,
        create=True,
    )  # fmt: skip
    log = path if path.is_dir() else path.with_name("db.h2.db")
    *_, last = next(iter(survey(log).readings())).changes()
    called = f"{last.transaction}@{last.commit_sequence}"
    back, again = (make(log, called)[0].acts for make in (undo, redo))
    assert not any(act.cannot_tell for act in (*back, *again))
    assert not any(act.warnings for act in back)
    assert ran(*(f"sql\t{act.text}" for act in back), *shown) == [before]
    assert ran(*(f"sql\t{act.text}" for act in again), *shown) == [after]


OLD = {
    "10.10.2.0": "10.13 or later takes it, once it is upgraded (upgrade=true)",
    "10.12.1.1": "10.13 or later takes it",
}


@pytest.mark.parametrize("version", OLD)
def test_an_old_derby_that_keeps_its_identities_is_named(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, path = f"derby-{version}", tmp_path / "db"
    monkeypatch.setitem(ENGINES, engine, [f"org.apache.derby:derby:{version}"])
    made = run_steps(engine, [
        f"open\t{url(engine, path)}",
        "sql\tcreate table T (ID INT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, A INT)",
        "sql\tinsert into T (A) values (1), (2)", "commit", "sql\tdelete from T where A = 2",
        "commit", "sql\talter table T alter column ID set generated by default",
    ])  # fmt: skip
    assert [one[0] for one in made] == ["REFUSED"], made
    *_, last = next(iter(survey(path).readings())).changes()
    (reversal,) = undo(path, f"{last.transaction}@{last.commit_sequence}")
    freed, inserted, bound = reversal.acts
    assert (freed.warnings, inserted.warnings) == (bound.warnings, ())
    (warning,) = freed.warnings
    assert warning.endswith(f"which refuses SET GENERATED: {OLD[version]}")
    assert reversal.text.count("WARNING: APP.T was written by Derby 10.") == 1


_P = "create table P (ID INT NOT NULL PRIMARY KEY)"
_C = "create table C (ID INT NOT NULL PRIMARY KEY, PID INT, FOREIGN KEY (PID) REFERENCES P (ID){})"
_S = "create table S (ID INT NOT NULL PRIMARY KEY, UP INT, FOREIGN KEY (UP) REFERENCES S (ID){})"
_X = "create table X (A INT NOT NULL, B CHAR(5) NOT NULL, PRIMARY KEY (A, B))"
_Y = (
    "create table Y (ID INT NOT NULL PRIMARY KEY, B CHAR(5), A INT, "
    "FOREIGN KEY (A, B) REFERENCES X (A, B))"
)
FAMILIES = {
    "a cascade": (
        ["P", "C"], [_P, _C.format(" ON DELETE CASCADE"), "insert into P values (1), (2)",
        "insert into C values (10, 1), (11, 1), (12, 2)"], ["delete from P where ID = 1"],
    ),
    "set to null": (
        ["P", "C"], [_P, _C.format(" ON DELETE SET NULL"), "insert into P values (1), (2)",
        "insert into C values (10, 1), (11, 1), (12, 2)"], ["delete from P where ID = 1"],
    ),
    "a tree": (
        ["S"], [_S.format(" ON DELETE CASCADE"), "insert into S values (1, NULL)",
        *(f"insert into S values ({n}, {n - 1})" for n in (2, 3, 4))],
        ["delete from S where ID = 1"],
    ),
    "a ring": (
        ["S"], [_S.format(""), "insert into S values (1, NULL)"],
        ["insert into S values (2, 1), (3, 2)", "update S set UP = 3 where ID = 1"],
    ),
    "two columns": (
        ["X", "Y"], [_X, _Y, "insert into X values (1, 'x'), (2, 'y')",
        "insert into Y values (1, 'x', 1), (2, NULL, 7)"],
        ["delete from Y where ID = 1", "delete from X where A = 1", "insert into X values (7, 'z')",
         "update Y set B = 'z' where ID = 2"],
    ),
    "another parent": (
        ["P", "C"], [_P, _C.format(""), "insert into P values (1)", "insert into C values (10, 1)"],
        ["insert into P values (2)", "insert into C values (20, 2)",
         "update C set PID = 2 where ID = 10", "delete from P where ID = 1"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_row_comes_after_the_one_that_it_leads_to_and_goes_before_it(
    engine: str, family: str, tmp_path: Path
) -> None:
    tables, made, changed = FAMILIES[family]
    path = tmp_path / "db"
    shown = ["commit", *(f"dump\t{name}" for name in tables), "say\tend"]

    def ran(*parts: Iterable[str], create: bool = False) -> list[list[list[str]]]:
        steps = [f"open\t{url(engine, path, create=create)}"]
        for some in parts:
            steps += [*(f"sql\t{one}" for one in some), *shown]
        found = [list[list[str]]()]
        for line in run_steps(engine, steps):
            assert line[0] != "REFUSED", line
            found[-1].append(line)
            found += [[]] if line[0] == "SAY" else []
        return [sorted(one) for one in found[:-1]]

    before, after = ran(made, changed, create=True)
    log = path if path.is_dir() else path.with_name("db.h2.db")
    *_, last = next(iter(survey(log).readings())).changes()
    called = f"{last.transaction}@{last.commit_sequence}"
    # An opening of H2 begins another log.
    made_acts = [make(log, called)[0].acts for make in (undo, redo)]
    for acts, expected in zip(made_acts, (before, after), strict=True):
        assert not any(act.cannot_tell for act in acts)
        assert ran([act.text for act in acts]) == [expected]
