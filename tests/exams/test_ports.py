"""Whoever implements a port is in the list of its exam: found as the type checker finds it."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.exams.ports import APART, EXAMS

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "journeyman"


def statements(module: ast.Module) -> Iterator[ast.stmt]:
    """Give the statements of a module, those for the type checker included."""
    for each in module.body:
        yield from each.body if isinstance(each, ast.If) else [each]


def protocols(modules: list[ast.Module]) -> set[str]:
    """Return the names of the ports that modules define."""
    classes = [each for module in modules for each in statements(module) if isinstance(each, ast.ClassDef)]
    return {each.name for each in classes if "Protocol" in map(_name, each.bases)}


def implementations(modules: list[ast.Module]) -> set[tuple[str, str]]:
    """Return the ports that are implemented, each with who does: by `_name: type[Port] = Class`, or as its base."""
    found, ports = set[tuple[str, str]](), protocols(modules)
    for node in [each for module in modules for each in statements(module)]:
        match node:
            case ast.AnnAssign(annotation=ast.Subscript(value=ast.Name("type"), slice=port), value=ast.Name(id=name)):
                found.add((_name(port), name))
            case ast.ClassDef(name=name, bases=bases) if "Protocol" not in map(_name, bases):
                found |= {(_name(base), name) for base in bases}
            case _:
                pass
    return {(port, name) for port, name in found if port in ports}


def _name(node: ast.expr) -> str:
    match node:
        case ast.Subscript(value=value):
            return _name(value)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def unlisted(modules: list[ast.Module]) -> list[str]:
    """Return who implements a port and takes no exam."""
    found = sorted(implementations(modules))
    n_of = Counter(port for port, _ in found)
    is_apart = {port: why != "one implementation" or n_of[port] == 1 for port, why in APART.items()}
    return [
        f"{name} implements {port}"
        for port, name in found
        if name not in EXAMS.get(port, {}) and not is_apart.get(port, False)
    ]


@pytest.fixture(scope="module")
def source() -> list[ast.Module]:
    return [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))]


def test_whoever_implements_a_port_takes_its_exam(source: list[ast.Module]) -> None:
    assert unlisted(source) == []


def test_whoever_is_in_the_list_is_there_and_so_is_its_exam(source: list[ast.Module]) -> None:
    found = implementations(source)
    listed = {(port, name): file for port, exams in EXAMS.items() for name, file in exams.items()}
    assert [each for each in listed if each not in found] == []
    assert [port for port in APART if port in EXAMS or port not in {each for each, _ in found}] == []
    assert [file for file in listed.values() if not (ROOT / "tests" / file).is_file()] == []


def test_an_implementation_that_takes_no_exam_is_found(source: list[ast.Module]) -> None:
    twin = "if TYPE_CHECKING:\n    _engine: type[Engine] = SlowEngine\n"
    below = "class OtherRuns(SentRuns): ...\n"
    second = "class OtherRecords(Records): ...\n"
    modules = [*source, *map(ast.parse, (twin, below, second))]
    assert unlisted(modules) == [
        "SlowEngine implements Engine",
        "OtherRecords implements Records",
        "Recorder implements Records",
        "OtherRuns implements SentRuns",
    ]
