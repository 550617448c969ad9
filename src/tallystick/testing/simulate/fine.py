"""Scheduling points between any two statements of a module: slow, and as fine as a bug needs.

In: modules. Out: the same functions with a call of the scheduler before each statement. Their
code objects are compiled anew from source and put into the functions that exist, for the length
of a block; so methods, closures and decorated functions are reached as well. A tracer by
`sys.settrace` would not do: CPython turns tracing off while a tracer has switched greenlets.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import inspect
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Final

from tallystick.testing.simulate.scheduler import current

_POINT: Final = "__scheduling_point__"


def _point(line: int) -> None:
    scheduler = current()
    if scheduler.running is not None and not scheduler.running.killed:
        scheduler.point(f"line {line}")


class _Inserter(ast.NodeTransformer):
    """Puts a call before each statement of every function."""

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.body = self._with_points(node.body)
        return node

    visit_FunctionDef = _visit_function  # noqa: N815
    visit_AsyncFunctionDef = _visit_function  # noqa: N815

    def _with_points(self, body: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for place, statement in enumerate(body):
            docstring = place == 0 and isinstance(statement, ast.Expr)
            if not docstring and not isinstance(statement, ast.Global | ast.Nonlocal):
                line = ast.Constant(statement.lineno)
                call = ast.Call(ast.Name(_POINT, ast.Load()), [line], [])
                point = ast.Expr(call)
                ast.copy_location(point, statement)
                found.append(ast.fix_missing_locations(point))
            if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                for name in ("body", "orelse", "finalbody"):
                    inner = getattr(statement, name, None)
                    if isinstance(inner, list):
                        setattr(statement, name, self._with_points(inner))
                for handler in getattr(statement, "handlers", []):
                    handler.body = self._with_points(handler.body)
            found.append(statement)
        return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _instrumented(module: ModuleType) -> dict[tuple[str, int], CodeType]:
    """Return the code of every function of a module, with points, by its name and line."""
    tree = _Inserter().visit(ast.parse(inspect.getsource(module)))
    whole = compile(tree, module.__file__ or module.__name__, "exec", dont_inherit=True)
    return {(code.co_qualname, code.co_firstlineno): code for code in _codes(whole)}


@contextlib.contextmanager
def fine_points(modules: Sequence[ModuleType]) -> Iterator[None]:
    """Have every statement of these modules be a scheduling point within the block."""
    codes = {module.__name__: _instrumented(module) for module in modules}
    changed: list[tuple[FunctionType, CodeType]] = []
    for one in gc.get_objects():
        if type(one) is not FunctionType or one.__module__ not in codes:
            continue
        old = one.__code__
        new = codes[one.__module__].get((old.co_qualname, old.co_firstlineno))
        if new is not None and new.co_freevars == old.co_freevars:
            changed.append((one, old))
            one.__code__ = new
    for module in modules:
        vars(module)[_POINT] = _point
    try:
        yield
    finally:
        for function, code in changed:
            function.__code__ = code
        for module in modules:
            vars(module).pop(_POINT, None)
