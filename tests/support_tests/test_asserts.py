"""A test asserts something that is reached: not only within a loop over what may be empty, a branch, or a function."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

TESTS: Final = Path(__file__).parents[1]
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

SAYS: Final = frozenset(("raises", "warns", "fail", "fnmatch_lines", "run_state_machine_as_test"))
"""Functions of others that fail where something is not so."""
FOR_TYPES: Final = "typing/"
"""Programs for the type checkers, which are what fails there."""


def functions(holder: ast.Module | ast.ClassDef) -> list[Function]:
    """Return the functions of a module and of its classes."""
    classes = [each for each in holder.body if isinstance(each, ast.ClassDef)]
    own = [each for each in holder.body if isinstance(each, Function)]
    return [*own, *[each for inner in classes for each in functions(inner)]]


def reached(body: Sequence[ast.stmt], above: Mapping[str, ast.expr] = MappingProxyType({})) -> Iterator[ast.AST]:
    """Give the statements and expressions that are reached whatever happens, as long as nothing is raised."""
    known = {**above, **values_of(body)}
    for statement in body:
        match statement:
            case ast.With(body=inner, items=items) | ast.AsyncWith(body=inner, items=items):
                yield from (node for item in items for node in ast.walk(item.context_expr))
                yield from reached(inner, known)
            case ast.Try(body=inner, orelse=orelse, finalbody=finalbody):
                yield from (node for part in (inner, orelse, finalbody) for node in reached(part, known))
            case ast.For(body=inner, iter=each) | ast.AsyncFor(body=inner, iter=each):
                yield from ast.walk(each)
                yield from reached(inner, known) if has_items(each, known) else ()
            case ast.While(body=inner, test=test):
                yield from ast.walk(test)
                yield from reached(inner, known)
            case ast.If(body=inner, orelse=orelse, test=test):
                yield from ast.walk(test)
                both = [[*reached(part, known)] for part in (inner, orelse)]
                yield from [*both[0], *both[1]] if all(map(asserts_by_itself, both)) else ()
            case ast.Match(cases=cases):
                each_case = [[*reached(case.body, known)] for case in cases]
                yield from (
                    [node for part in each_case for node in part] if all(map(asserts_by_itself, each_case)) else ()
                )
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                pass
            case _:
                yield from ast.walk(statement)


def asserts_by_itself(nodes: Sequence[ast.AST]) -> bool:
    return any(isinstance(node, ast.Assert | ast.Raise | ast.Call) for node in nodes)


def has_items(iterated: ast.expr, known: Mapping[str, ast.expr]) -> bool:
    """Tell whether what a loop goes through is surely not empty: written out, or something made of that. `known` are
    the values of names."""
    has: bool = False
    match iterated:
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            has = any(not isinstance(each, ast.Starred) or has_items(each.value, known) for each in elements)
        case ast.Dict(keys=keys):
            has = bool(keys)
        case ast.Constant(value=str(text)):
            has = bool(text)
        case ast.Call():
            has = _gives_items(iterated, known)
        case ast.IfExp(body=one, orelse=other):
            has = has_items(one, known) and has_items(other, known)
        case ast.Subscript(value=value, slice=ast.Slice()):
            has = has_items(value, known)
        case ast.Name(id=name):
            has = name.isupper() or (name in known and has_items(known[name], {}))
        case ast.Attribute(attr=name):
            has = name.isupper()
        case _:
            pass
    return has


def _gives_items(call: ast.Call, known: Mapping[str, ast.expr]) -> bool:
    match call:
        case ast.Call(func=ast.Name(id="range"), args=[*_, stop]):
            is_counted = any(isinstance(each, ast.Call) for each in ast.walk(stop))
            return not is_counted and (not isinstance(stop, ast.Constant) or stop.value != 0)
        case ast.Call(func=ast.Name(id="enumerate" | "zip" | "sorted" | "reversed" | "product"), args=args):
            return bool(args) and all(has_items(each, known) for each in args)
        case ast.Call(func=ast.Attribute(value=value, attr="items" | "split" | "values" | "keys")):
            return has_items(value, known)
        case _:
            return False


def values_of(body: Sequence[ast.stmt]) -> dict[str, ast.expr]:
    """Return what names of a function are, as far as each is given one value that is written out."""
    known: dict[str, ast.expr] = {}
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                known[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                known[name] = value
            case _:
                pass
    return known


def called(nodes: Iterator[ast.AST]) -> set[str]:
    """Return the names of what is called, and whether something is asserted as `assert`."""
    names: set[str] = set()
    for node in nodes:
        match node:
            case ast.Assert():
                names.add("assert")
            case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
                names.add(name)
            case ast.Call(args=args):
                names |= {each.id for each in args if isinstance(each, ast.Name)}
            case _:
                pass
    return names


def without_assert(modules: Mapping[str, ast.Module]) -> list[str]:
    """Return the tests that assert nothing, in none of the functions of these modules that they surely call."""
    calls = {
        (module, each.name): called(reached(each.body)) for module, tree in modules.items() for each in functions(tree)
    }
    says = {"assert", *SAYS}
    while new := {name for (_, name), names in calls.items() if names & says} - says:
        says |= new
    return [
        f"{module}: {name}" for (module, name), names in calls.items() if name.startswith("test_") and not names & says
    ]


def test_every_test_asserts_something_that_is_reached() -> None:
    files = {str(path.relative_to(TESTS)): path for path in TESTS.rglob("*.py")}
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in files.items()}
    modules = {name: tree for name, tree in trees.items() if not name.startswith(FOR_TYPES)}
    assert without_assert(modules) == []


PLANTED = """
def test_nothing():
    work()

def test_in_a_loop():
    for each in found():
        assert each

def test_in_a_loop_over_what_is_counted():
    for each in range(2, len(found())):
        assert each

def test_in_a_loop_over_what_is_written_out():
    rows = [1, 2]
    for each in enumerate(rows[:1]):
        assert each

def test_in_a_branch():
    if found():
        assert True

def test_in_a_function():
    def inner():
        assert True

def test_by_another_that_says_nothing():
    helps()

def helps():
    return [each for each in found()]

def test_by_another():
    checks()

def checks():
    with opened():
        for each in (1, 2):
            assert each

def test_by_an_error():
    with pytest.raises(ValueError):
        work()

def test_in_every_branch():
    if found():
        assert True
    else:
        checks()
"""


def test_a_planted_test_without_an_assert_is_found() -> None:
    assert without_assert({"planted": ast.parse(PLANTED)}) == [
        "planted: test_nothing",
        "planted: test_in_a_loop",
        "planted: test_in_a_loop_over_what_is_counted",
        "planted: test_in_a_branch",
        "planted: test_in_a_function",
        "planted: test_by_another_that_says_nothing",
    ]
