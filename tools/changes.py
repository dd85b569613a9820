"""Small changes of a module, of the kind that somebody makes by mistake: each is one place, and one other text.

Left out is what no run could show: names of `__all__`, docstrings, texts of logs, annotations, and what stands there
for the type checker only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

Found: TypeAlias = tuple[ast.expr | ast.stmt, str]
"""A part of a module, and what it becomes."""

_COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_COUNTED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
}
_LOGS: Final = frozenset(("_log", "logger", "log", "logging", "warnings"))


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one module."""

    line: int
    start: int
    end: int
    """Where it stands, in bytes."""
    old: str
    new: str

    def made_in(self, source: bytes) -> bytes:
        """Return the source with this change."""
        return source[: self.start] + self.new.encode() + source[self.end :]


def changes(source: bytes) -> list[Change]:
    """Return all changes of a module, in the order of their places."""
    offsets = [0]
    for line in source.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    made: list[Change] = []
    for node, new in _in_statements(ast.parse(source).body):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start, end = offsets[node.lineno - 1] + node.col_offset, offsets[node.end_lineno - 1] + node.end_col_offset
        made.append(Change(node.lineno, start, end, source[start:end].decode(), new))
    return sorted(made, key=lambda change: (change.start, change.end, change.new))


def _in_statements(body: list[ast.stmt]) -> Iterator[Found]:
    for each in body:
        if not _is_silent(each):
            yield from _in_statement(each)


def _is_silent(statement: ast.stmt) -> bool:
    """Tell whether no run could show that a statement is another one."""
    match statement:
        case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return name in _LOGS
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name == "__all__"
        case _:
            return False


def _in_statement(statement: ast.stmt) -> Iterator[Found]:
    match statement:
        case ast.Expr(value=ast.Await() | ast.Call()) | ast.AugAssign() | ast.Raise():
            yield statement, "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield statement, "pass"
        case _:
            pass
    for name, value in ast.iter_fields(statement):
        if name not in _NEVER_RUN:
            for part in _as_list(value):
                yield from _in_part(part)


_NEVER_RUN: Final = frozenset(("annotation", "returns", "decorator_list", "bases", "type_params", "msg"))
"""Parts of statements that hold types, texts, and what is decided once."""


def _as_list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else [value]


def _in_part(part: object) -> Iterator[Found]:
    match part:
        case ast.stmt():
            yield from _in_statements([part])
        case ast.ExceptHandler(body=body) | ast.match_case(body=body):
            yield from _in_statements(body)
        case ast.withitem(context_expr=expression):
            yield from _in_expression(expression)
        case ast.arguments(defaults=defaults, kw_defaults=others):
            for each in (*defaults, *others):
                yield from () if each is None else _in_expression(each)
        case ast.expr():
            yield from _in_expression(part)
        case _:
            pass


def _in_expression(expression: ast.expr) -> Iterator[Found]:
    for node in ast.walk(expression):
        if isinstance(node, ast.JoinedStr):  # texts are for people
            return
    for node in ast.walk(expression):
        if isinstance(node, ast.expr) and (new := _other(node)) is not None:
            yield node, ast.unparse(new)


def _other(node: ast.expr) -> ast.expr | None:
    """Return what an expression becomes; None: it stays."""
    other: ast.expr | None = None
    match node:
        case ast.Compare(left=left, ops=[op], comparators=compared):
            other = ast.Compare(left, [_COMPARED[type(op)]()], compared)
        case ast.BoolOp(op=op, values=values):
            other = ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            other = operand
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _COUNTED and not _is_text(left, right):
            other = ast.BinOp(left, _COUNTED[type(op)](), right)
        case ast.Constant(value=bool(value)):
            other = ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            other = ast.Constant(value + 1)
        case _:
            pass
    return other


def _is_text(*sides: ast.expr) -> bool:
    return any(isinstance(each, ast.JoinedStr | ast.Constant) and not _is_number(each) for each in sides)


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)
