"""Every function that the package takes is called, and never silently left unawaited."""

from __future__ import annotations

import ast
import asyncio
import functools
import re
import sqlite3
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
import sqlalchemy as sa

import tallystick
from tallystick.callables import is_coroutine_function, is_lazy, require_done
from tallystick.disposal.disposers import FunctionDisposer, disposer_of
from tallystick.disposal.retention import Chain, Copying, KeepForReader
from tallystick.disposal.worker import Disposal
from tallystick.errors import TallystickError, TransactionUsageError
from tallystick.investigate.records import follow
from tallystick.reading.discovery import discover
from tallystick.reading.survey import survey, verify
from tallystick.services.journal import AsyncJournal, Journal
from tallystick.services.page_store import PageStore
from tallystick.services.transactions import (
    AsyncTransactionManager,
    IdempotencyKey,
    Outbox,
    Relay,
    Status,
    TransactionManager,
)
from tallystick.services.transactions.resources import adapt
from tallystick.services.transactions.resources.mysql import MySqlResource
from tallystick.services.transactions.resources.pep249 import TpcResource, oracle_resource
from tallystick.services.transactions.resources.postgres import PostgresResource
from tallystick.services.write_behind import WriteBehind, WriteBehindSettings
from tallystick.services.write_behind.targets.adapters import target_of
from tallystick.services.write_behind.targets.sql import SqlTarget
from tallystick.testing import run_and_kill
from tallystick.testing.chaos import Scenario
from tallystick.testing.simulate import simulate

ROOT = Path(tallystick.__file__).parent
BELOW = ("storage", "systems", "arrow", "cli", "report", "roles", "reconcile")
"""Packages whose functions take callables from this package alone."""

# -- what is lazy -------------------------------------------------------------------------------


async def coroutine(*_: object) -> None:
    """Do nothing."""


def generator(*_: object) -> Iterator[None]:
    yield


async def async_generator(*_: object) -> AsyncIterator[None]:
    yield


@functools.wraps(coroutine)
def runs_it(*given: object) -> None:
    """Run the wrapped coroutine function to its end."""
    asyncio.run(coroutine(*given))


class Asynchronous:
    async def __call__(self, *_: object) -> None: ...

    async def method(self, *_: object) -> None: ...

    @staticmethod
    async def static(*_: object) -> None: ...

    @classmethod
    async def of_class(cls, *_: object) -> None: ...


COROUTINES: dict[str, Any] = {
    "coroutine function": coroutine,
    "partial": functools.partial(functools.partial(coroutine)),
    "object": Asynchronous(),
    "partial of an object": functools.partial(Asynchronous()),
    "bound method": Asynchronous().method,
    "static method": Asynchronous.static,
    "class method": Asynchronous.of_class,
    "mock": AsyncMock(),
    "mock of a signature": MagicMock(spec=coroutine),
}
LAZY: dict[str, Any] = {
    **COROUTINES,
    "generator": generator,
    "asynchronous generator": async_generator,
}
PLAIN: dict[str, Any] = {
    "function": lambda *_: None,
    "wrapper that runs it": runs_it,
    "built-in": print,
    "method of a list": [].append,
    "mock": MagicMock(),
    "class": dict,
    "partial": functools.partial(print),
}


@pytest.mark.parametrize("kind", LAZY)
def test_what_returns_before_its_body_runs_is_known(kind: str) -> None:
    assert is_lazy(LAZY[kind])
    assert is_coroutine_function(LAZY[kind]) is (kind in COROUTINES)


@pytest.mark.parametrize("kind", PLAIN)
def test_an_ordinary_function_passes(kind: str) -> None:
    assert not is_lazy(PLAIN[kind])


def test_what_was_not_done_is_refused_and_closed() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for made in (coroutine(), generator(), async_generator(), Future[None]()):
            with pytest.raises(TransactionUsageError, match="its work is not done"):
                require_done(made, "a call")
    assert require_done(7, "a call") == 7
    assert isinstance(require_done(MagicMock()(), "a call"), MagicMock)


def test_a_task_that_nobody_awaits_is_refused_and_cancelled() -> None:
    async def main() -> None:
        task = asyncio.ensure_future(asyncio.sleep(60))
        with pytest.raises(TransactionUsageError, match="returned a Task"):
            require_done(task, "a call")
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


# -- what takes callables -------------------------------------------------------------------------


def _progress(read: Callable[..., object]) -> Callable[[Any, Path], object]:
    def take(given: Any, folder: Path) -> object:
        Journal(folder / "log").close()
        return read(folder, progress=given)

    return take


def _relay(given: Any, folder: Path) -> object:
    with TransactionManager(folder / "c", {"a": f"sqlite:///{folder}/a.db"}) as tm:
        return Relay(Outbox(tm, "a"), given)


def _backup(given: Any, folder: Path) -> None:
    with Journal(folder / "j") as journal:
        journal.append(b"one")
        journal.backup(str(folder / "copy"), progress=given)


async def _backup_awaited(given: Any, folder: Path) -> None:
    async with AsyncJournal(folder / "j") as journal:
        await journal.append(b"one")
        await journal.backup(str(folder / "copy"), progress=given)


def _hook(given: Any, folder: Path, name: str) -> None:
    with TransactionManager(folder / "c", {}) as tm, tm.begin() as tx:
        getattr(tx, name)(given)


def _on_step(given: Any, folder: Path) -> None:
    with TransactionManager(folder / "c", {}, on_step=given):
        pass


async def _run(given: Any, folder: Path) -> None:
    async with AsyncTransactionManager(TransactionManager(folder / "c", {})) as tm:
        await tm.run(given)


async def _run_in(given: Any, folder: Path) -> None:
    url = f"sqlite:///{folder}/a.db"
    async with (
        AsyncTransactionManager(TransactionManager(folder / "c", {"a": url})) as tm,
        tm.begin() as tx,
    ):
        await tx.run("a", given)


def _transactional(given: Any, folder: Path) -> None:
    with TransactionManager(folder / "c", {}) as tm:
        tm.transactional(given)


def _atomic_all(given: Any, folder: Path) -> None:
    del folder
    from tallystick.services.transactions.integrations.django import AtomicAll

    AtomicAll("default")(given)


def _write_behind(given: Any, folder: Path) -> None:
    with WriteBehind(folder / "w", {"x": print}, disposer=given):
        pass


class _Deletes:
    def dispose(self, path: str) -> None:
        Path(path).unlink()


Take = Callable[[Any, Path], object]
CHECKED: dict[str, Take] = {
    "disposal/disposers.py disposer_of disposer": lambda given, _: disposer_of(given),
    "disposal/disposers.py FunctionDisposer.function": lambda given, _: FunctionDisposer(given),
    "disposal/retention.py KeepForReader.committed": lambda given, _: KeepForReader(
        given, _Deletes()
    ),
    "investigate/records.py follow tell": lambda given, folder: next(follow(folder, tell=given)),
    "reading/discovery.py discover progress": _progress(
        lambda folder, progress: discover(folder, progress=progress)
    ),
    "reading/scrubbing.py scrub progress": _progress(tallystick.scrub),
    "reading/survey/logs.py Survey.readings progress": _progress(
        lambda folder, progress: list(survey(folder).readings(progress))
    ),
    "reading/survey/logs.py Survey.observers progress": _progress(
        lambda folder, progress: list(survey(folder).observers(progress))
    ),
    "reading/survey/logs.py survey progress": _progress(survey),
    "reading/survey/judging.py explain progress": _progress(tallystick.explain),
    "reading/survey/judging.py inspect progress": _progress(tallystick.inspect),
    "reading/survey/judging.py verify progress": _progress(verify),
    "reading/triaging.py triage progress": _progress(tallystick.triage),
    "services/journal/aio.py AsyncJournal.backup progress": lambda given, folder: asyncio.run(
        _backup_awaited(given, folder)
    ),
    "services/journal/journal.py Journal.backup progress": _backup,
    "services/page_store/store.py PageStore.__init__ open_log": lambda given, folder: PageStore(
        folder / "s", open_log=given
    ),
    "services/transactions/aio.py AsyncTransaction.run work": lambda given, folder: asyncio.run(
        _run_in(given, folder)
    ),
    "services/transactions/aio.py AsyncTransactionManager.run work": lambda given, folder: (
        asyncio.run(_run(given, folder))
    ),
    "services/transactions/integrations/django.py AtomicAll.__call__ function": _atomic_all,
    "services/transactions/integrations/django.py atomic_all aliases": _atomic_all,
    "services/transactions/manager.py TransactionManager.__init__ on_step": _on_step,
    "services/transactions/manager.py TransactionManager.transactional function": _transactional,
    "services/transactions/messaging/handlers.py refuse_lazy function": _transactional,
    "services/transactions/messaging/keys.py IdempotencyKey.of": lambda given, _: IdempotencyKey(
        "a", given
    ),
    "services/transactions/messaging/keys.py IdempotencyKey.encode": lambda given, _: (
        IdempotencyKey("a", "key", encode=given)
    ),
    "services/transactions/messaging/keys.py IdempotencyKey.decode": lambda given, _: (
        IdempotencyKey("a", "key", decode=given)
    ),
    "services/transactions/messaging/keys.py IdempotencyKey.payload": lambda given, _: (
        IdempotencyKey("a", "key", payload=given)
    ),
    "services/transactions/messaging/relay.py Relay.__init__ deliver": _relay,
    "services/transactions/resources/connection_resource.py ConnectionResource.__init__ connect": (
        lambda given, _: PostgresResource("p", given)
    ),
    "services/transactions/resources/connection_resource.py ConnectionResource.__init__ alive": (
        lambda given, _: PostgresResource("p", given)
    ),
    "services/transactions/resources/mysql/resource.py MySqlResource.__init__ connect": (
        lambda given, _: MySqlResource("m", given)
    ),
    "services/transactions/resources/pep249.py TpcResource.__init__ connect": (
        lambda given, _: TpcResource("o", given, sqlite3)
    ),
    "services/transactions/resources/pep249.py TpcResource.__init__ unknown": (
        lambda given, _: TpcResource("o", lambda: None, sqlite3, unknown=given)
    ),
    "services/transactions/resources/pep249.py oracle_resource connect": (
        lambda given, _: oracle_resource("o", given)
    ),
    "services/transactions/resources/postgres/resource.py PostgresResource.__init__ connect": (
        lambda given, _: PostgresResource("p", given)
    ),
    "services/transactions/steps.py observer on_step": _on_step,
    "services/transactions/transaction.py GlobalTransaction.before_commit hook": (
        lambda given, folder: _hook(given, folder, "before_commit")
    ),
    "services/transactions/transaction.py GlobalTransaction.after_completion hook": (
        lambda given, folder: _hook(given, folder, "after_completion")
    ),
    "services/write_behind/service.py WriteBehind.__init__ disposer": _write_behind,
    "services/write_behind/service.py WriteBehind.__init__ serializer": lambda given, folder: (
        WriteBehind(folder / "w", {"x": print}, serializer=given)
    ),
    "services/write_behind/targets/sql.py SqlTarget.__init__ apply": lambda given, _: SqlTarget(
        sa.create_engine("sqlite://"), apply=given
    ),
    "testing/chaos/trials.py Scenario.work": lambda given, _: Scenario(given, bool, bool),
    "testing/chaos/trials.py Scenario.recover": lambda given, _: Scenario(print, given, bool),
    "testing/chaos/trials.py Scenario.look": lambda given, _: Scenario(print, bool, given),
    "testing/kill.py run_and_kill work": lambda given, _: run_and_kill(given, after=0),
    "testing/kill.py run_and_kill before": lambda given, _: run_and_kill(
        print, after=0, before=given
    ),
    "testing/simulate/simulation.py simulate scenario": lambda given, _: simulate(given),
}
"""Where a function is given by an application, and a call that gives one there."""

NEEDS = {"oracle_resource": "oracledb"}

BY_OTHERS = {
    "services/journal/aio.py AsyncJournal.open key": "secret_of",
    "services/journal/base.py BaseJournal.__init__ key": "secret_of",
    "pipeline/runner.py Run.__call__ progress": "its advance() checks it",
    "pipeline/runner.py RunTables.write progress": "advance() has checked it",
    "pipeline/runner.py Run.advance progress": "checked; a test needs Spark",
    "services/transactions/resources/sqlite_session.py Session.cursor factory": "sqlite3 does",
    "services/write_behind/targets/adapters.py CallableTarget.__init__ function": "target_of",
    "testing/chaos/trials.py Chaos.run scenario": "a Scenario",
    "testing/kill.py check_kills work": "run_and_kill checks it",
    "testing/simulate/explore.py explore scenario": "simulate checks it",
    "testing/simulate/explore.py shortened scenario": "simulate checks it",
}
"""What is checked by what it is passed on to."""

AWAITED = {
    "services/transactions/integrations/web.py TransactionMiddleware.__call__ receive",
    "services/transactions/integrations/web.py TransactionMiddleware.__call__ send",
    "services/transactions/integrations/web.py TransactionMiddleware.__init__ app",
    "services/transactions/aio.py AsyncTransactionManager.transactional function",
    "services/transactions/messaging/handlers.py decorate_task function",
    "services/transactions/resources/postgres/resource.py PostgresResource.__init__ connect_async",
    "services/write_behind/targets/adapters.py AsyncTarget.__init__ function",
}

VALUE_IS_USED = {
    "testing/checks.py check_items writer_of",
    "testing/checks.py check_recovery recover",
    "testing/checks.py check_recovery writer_of",
    "testing/faults.py every_fault fault",
    "testing/faults.py every_fault make",
    "testing/kill.py check_kills recover",
    "testing/kill.py check_kills writer_of",
    "testing/simulate/swap.py set_urandom urandom",
}
"""Functions of tests whose value is needed: a coroutine in its place fails the test."""

OURS = re.compile(
    r"disposal/(disposers.py install|worker.py AskingLog)|investigate/export.py write_whole"
    r"|metrics.py|pipeline/(stages|tables)/"
    r"|reading/(settled|tables).py|reading/survey/logs.py Survey.streamed|records.py Deferred"
    r"|services/journal/(engine.py|transaction.py submitted)"
    r"|services/page_store/(checkpoint|recovery|pages/cache).py"
    r"|services/transactions/(deadlines|metrics|recovery|tracing|two_phase_commit|xids).py"
    r"|services/transactions/messaging/(handlers.py (Handler.__init__|decorate) "
    r"|keys.py KeyedHandler|statements.py)"
    r"|services/transactions/resources/(pool|sqlalchemy|thread_branch).py"
    r"|services/transactions/resources/(connection_resource.py url_options|pep249.py TpcErrors"
    r"|postgres/branches.py BasePostgresBranch)"
    r"|services/transactions/steps.py (drive|follow|one_step|Whole)"
    r"|services/write_behind/(metrics|sequencer|transaction).py"
    r"|services/write_behind/targets/(contact|persisted_marks|rows|statements|workers).py"
    r"|testing/chaos/(faults.py Away|process.py)"
    r"|testing/simulate/(disk|loop|primitives|scheduler).py"
    r"|testing/simulate/simulation.py Simulation"
    r"|(callables|posix|values).py|indoubt/doctor/"
)
"""Functions given within the package, and stand-ins of the standard library's."""


def _names(node: ast.AST | None) -> set[str]:
    return set() if node is None else set(re.findall(r"\w+", ast.unparse(node)))


def _aliases(modules: dict[str, ast.Module]) -> set[str]:
    """Return the names of types that callables have, of this package's own."""
    found = {"Callable"}
    while True:
        before = len(found)
        for module in modules.values():
            for node in module.body:
                if (
                    isinstance(node, ast.Assign)
                    and isinstance(node.targets[0], ast.Name)
                    and not isinstance(node.value, ast.Call | ast.Dict)
                    and _names(node.value) & found
                ):
                    found.add(node.targets[0].id)
        if len(found) == before:
            return found


def _taken(body: list[ast.stmt], aliases: set[str], prefix: str) -> Iterator[str]:
    """Yield what the public functions and classes of a module take as functions."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            made = any("dataclass" in _names(one) for one in node.decorator_list)
            for field in node.body if made else ():
                if isinstance(field, ast.AnnAssign) and _names(field.annotation) & aliases:
                    name = ast.unparse(field.target)
                    if not name.startswith("_"):
                        yield f"{prefix}{node.name}.{name}"
            yield from _taken(node.body, aliases, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
            not node.name.startswith("_") or node.name in ("__init__", "__call__")
        ):
            every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            for one in [*every, node.args.vararg]:
                if one is not None and _names(one.annotation) & aliases:
                    yield f"{prefix}{node.name} {one.arg}"


def test_every_function_that_is_taken_is_classified() -> None:
    """One that is missing here: check it by `tallystick.callables`, and give it a case above."""
    modules = {}
    for path in sorted(ROOT.rglob("*.py")):
        relative = path.relative_to(ROOT)
        if relative.parts[0] not in BELOW:
            modules[relative.as_posix()] = ast.parse(path.read_text("utf-8"))
    aliases = _aliases(modules)
    found = {
        name
        for file, module in modules.items()
        for name in _taken(module.body, aliases, f"{file} ")
    }
    known = CHECKED.keys() | BY_OTHERS.keys() | AWAITED | VALUE_IS_USED
    assert {one for one in found - known if not OURS.match(one)} == set()
    assert known - found == set(), "these are gone"


@pytest.mark.sampled(23)
@pytest.mark.parametrize("place", CHECKED)
def test_a_function_whose_body_would_not_run_is_refused_at_the_call(
    place: str, tmp_path: Path
) -> None:
    for needed in (module for part, module in NEEDS.items() if part in place):
        pytest.importorskip(needed)
    for kind in ("partial of an object", "asynchronous generator"):
        folder, given = tmp_path / kind, LAZY[kind]
        folder.mkdir()
        with pytest.raises(TransactionUsageError, match="before its body runs"):
            CHECKED[place](given, folder)


@pytest.mark.parametrize("name", ["apply", "settled", "open", "close"])
def test_a_target_with_asynchronous_calls_is_refused(name: str) -> None:
    made = type("Target", (), dict.fromkeys(("open", "apply", "settled", "close"), print))
    setattr(made, name, coroutine)
    made.batch_max = 1  # type: ignore[attr-defined]
    with pytest.raises(TransactionUsageError, match="a target"):
        target_of(made())


@pytest.mark.parametrize("name", ["dispose", "agrees"])
def test_a_disposer_with_asynchronous_calls_is_refused(name: str, tmp_path: Path) -> None:
    given: Any = type("Disposer", (), {"dispose": print, name: coroutine})()
    with Journal(tmp_path / "j") as journal:
        for take in (
            disposer_of,
            lambda one: Chain([one]),
            Copying,
            lambda one: KeepForReader(str, one),
            lambda one: Disposal(journal, one),  # type: ignore[arg-type]
        ):
            with pytest.raises(TransactionUsageError, match="a disposer"):
                take(given)


@pytest.mark.parametrize("name", ["begin", "in_doubt", "commit", "rollback", "close"])
def test_a_resource_with_asynchronous_calls_is_refused(name: str) -> None:
    calls = dict.fromkeys(("begin", "in_doubt", "commit", "rollback", "preflight", "close"), print)
    with pytest.raises(TransactionUsageError, match="the resource 'a'"):
        adapt("a", type("Resource", (), calls | {"name": "a", name: coroutine})())


# -- functions that turn out to be lazy when they are called --------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make", [coroutine, generator, async_generator])
def test_a_message_whose_delivery_was_not_awaited_stays(
    make: Callable[[], object], tmp_path: Path
) -> None:
    with TransactionManager(tmp_path / "c", {"a": f"sqlite:///{tmp_path}/a.db"}) as tm:
        outbox = Outbox(tm, "a")
        with tm.begin() as tx:
            outbox.add(tx, "orders", b"one fig")
        relay = Relay(outbox, lambda _: make(), give_up_after=1)
        with pytest.raises(TransactionUsageError, match="deliver of a relay returned"):
            relay.run_once()
        relay.run()  # ends, as it would not be done the next time either
        assert outbox.pending().messages == 1
        assert outbox.pending().parked == 0


def test_a_journal_that_has_to_be_awaited_is_no_receiver(tmp_path: Path) -> None:
    with TransactionManager(tmp_path / "c", {"a": f"sqlite:///{tmp_path}/a.db"}) as tm:
        outbox, journal = Outbox(tm, "a"), AsyncJournal(tmp_path / "j")
        wrong: list[Any] = [journal, object()]
        for receiver in wrong:
            with pytest.raises(TransactionUsageError, match="relay"):
                Relay(outbox, receiver)
        asyncio.run(journal.close())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["function", "sql"])
def test_an_entry_whose_target_was_not_awaited_is_not_applied(kind: str, tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/b.db")
    target: Any = (
        SqlTarget(engine, apply=lambda *_: coroutine()) if kind == "sql" else lambda _: coroutine()
    )
    settings = WriteBehindSettings(attempts_max=1)
    with WriteBehind(tmp_path / "w", {"b": target}, settings=settings) as behind:
        with behind.begin() as tx:
            tx.insert("t", {"id": 1}, {"v": 1})
        while "its work is not done" not in str(behind.pending()):
            assert not behind.drain(timeout=0.05)
    engine.dispose()


@pytest.mark.filterwarnings("error")
def test_a_file_whose_disposer_was_not_awaited_stays(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    calls: list[Any] = [
        disposer_of(lambda _: coroutine()),  # type: ignore[arg-type]
        Chain([disposer_of(lambda _: coroutine()), _Deletes()]),  # type: ignore[arg-type]
        KeepForReader(lambda: coroutine(), _Deletes()),  # type: ignore[arg-type, return-value]
    ]
    for disposer in calls:
        with pytest.raises(TransactionUsageError, match="its work is not done"):
            disposer.dispose(str(file))
    assert file.exists()


@pytest.mark.filterwarnings("error")
def test_a_hook_that_is_not_awaited_rolls_back(tmp_path: Path) -> None:
    with (
        Journal(tmp_path / "j") as journal,
        TransactionManager(tmp_path / "c", {"j": journal}, close_resources=False) as tm,
    ):
        with pytest.raises(TallystickError, match="its work is not done"), tm.begin() as tx:
            tx["j"].add(1, b"one")
            tx.before_commit(lambda: coroutine())
        assert tx.status is Status.ROLLED_BACK
        assert not list(journal.live_records())


def test_hooks_of_a_task_are_awaited_before_and_after(tmp_path: Path) -> None:
    seen: list[object] = []

    async def before() -> None:
        await asyncio.sleep(0)
        seen.append("before")

    async def after(status: Status) -> None:
        await asyncio.sleep(0)
        seen.append(status)

    async def main() -> None:
        async with AsyncTransactionManager(TransactionManager(tmp_path / "c", {})) as tm:
            for hooks in ((before, after), (lambda: before(), lambda one: after(one))):
                async with tm.begin() as tx:
                    tx.before_commit(hooks[0])
                    tx.after_completion(hooks[1])
            with pytest.raises(ZeroDivisionError):
                async with tm.begin() as tx:
                    tx.after_completion(after)
                    raise ZeroDivisionError
            with pytest.raises(TransactionUsageError):
                tm.begin().before_commit(async_generator)

    asyncio.run(main())
    assert seen == ["before", Status.COMMITTED] * 2 + [Status.ROLLED_BACK]


@pytest.mark.filterwarnings("error")
def test_a_branch_that_is_not_awaited_is_not_taken_for_committed(tmp_path: Path) -> None:
    class Branch:
        handle = None

        def __init__(self, xid: object) -> None:
            self.xid = xid

        def __getattr__(self, _: str) -> Any:
            return coroutine

    calls: dict[str, Any] = dict.fromkeys(("preflight", "close"), lambda _: [])
    calls |= {"in_doubt": lambda _: [], "begin": lambda _, xid: Branch(xid), "name": "a"}
    calls |= dict.fromkeys(("commit", "rollback"), print)
    resource = type("Resource", (), calls)()
    with TransactionManager(tmp_path / "c", {"a": resource}) as tm:
        with pytest.raises(TransactionUsageError, match="does not await"), tm.begin() as tx:
            tx["a"]
        assert tx.status is not Status.COMMITTED


@pytest.mark.filterwarnings("error")
def test_a_key_or_an_outcome_that_is_not_awaited_rolls_back(tmp_path: Path) -> None:
    lazy: Any = lambda *_, **__: coroutine()  # noqa: E731
    keys = [
        IdempotencyKey("a", of=lazy),
        IdempotencyKey("a", "number", encode=lazy),
    ]
    with TransactionManager(tmp_path / "c", {"a": f"sqlite:///{tmp_path}/a.db"}) as tm:
        for key in keys:
            handler = tm.transactional(key=key)(lambda number: number)
            with pytest.raises(TransactionUsageError, match="its work is not done"):
                handler("one")
        good = tm.transactional(key=IdempotencyKey("a", "number"))(lambda number: number)
        assert good("one") == "one", "no key was kept"
