"""A process is started by the `spawn` of a box or of none, and in no other way but for a few, each with its reason."""

import ast
import re
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "journeyman"
OTHERS = {
    "cli/view.py": "A person's browser.",
    "mcp/oauth.py": "A person's browser, at the address at which they sign in.",
}
"""The modules that start one in another way."""
ROOMS = ("processes/", "sandbox/")
"""The rooms in which that is done."""
MODULES = frozenset(
    ("subprocess", "_posixsubprocess", "multiprocessing", "pty", "webbrowser", "concurrent.futures.process", "_winapi")
)
OF_OS = ("exec", "spawn", "posix_spawn", "fork", "system", "popen", "startfile")
ANYWHERE = frozenset(
    ("create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "subprocess_shell", "ProcessPoolExecutor")
)
ABOUT_FORKS = {"register_at_fork", "fork_context"}


MAY_START = re.compile(
    r"subprocess|multiprocessing|_winapi|\bpty\b|webbrowser|ProcessPool|concurrent\.futures\.process|getattr\((o|_o|p|n)"
    r"|\b_?(os|posix|nt)(\.(exec|spawn|posix_spawn|fork|system|popen|startfile)| (as|import) )"
)
"""Found in every program that does: to parse all the others takes seconds."""


def ways_in(source: str) -> Iterator[str]:
    """Give each place of a program where a process is started, or where what starts one is got hold of."""
    nodes = [*ast.walk(ast.parse(source))] if MAY_START.search(source) else []
    systems = {"os", "posix", "nt", "_os"}
    for node in nodes:
        if isinstance(node, ast.Import):
            systems |= {each.asname for each in node.names if each.name in ("os", "posix", "nt") and each.asname}
    for node in nodes:
        yield from ways_of(node, systems)


def ways_of(node: ast.AST, systems: Collection[str]) -> list[str]:
    """Return the ways that one part of a program is: an import, a name, a call, a text that names a module."""
    named: list[str] = []
    match node:
        case ast.Import(names=names):
            named = [each.name for each in names]
        case ast.ImportFrom(module=str(module), names=names):
            named = [f"{module}.{each.name}" for each in names]
        case ast.Attribute(value=ast.Name(id=base), attr=name):
            named = [f"{'os' if base in systems else base}.{name}"]
        case ast.Attribute(value=value, attr=name):
            named = [f"{ast.unparse(value)}.{name}"]
        case ast.Call(func=ast.Name(id="getattr"), args=[ast.Name(id=base), name, *_]) if base in systems:
            named = [f"os.{name.value}" if isinstance(name, ast.Constant) else "subprocess"]
        case ast.Constant(value=str(text)):
            named = [text.replace(":", ".")]
        case _:
            pass
    return [each for each in named if starts_processes(each) or each.rsplit(".", 1)[-1] in ANYWHERE]


def starts_processes(dotted_name: str) -> bool:
    """Tell whether a name is a module that is there to start processes, or something of one, or such a function."""
    if dotted_name.startswith(("os.", "posix.", "nt.")):
        name = dotted_name.partition(".")[2]
        return name.startswith(OF_OS) and name not in ABOUT_FORKS
    return any(dotted_name == each or dotted_name.startswith(f"{each}.") for each in MODULES)


def test_no_other_module_starts_a_process() -> None:
    places = {
        path.relative_to(PACKAGE).as_posix(): [*ways_in(path.read_text(encoding="utf-8"))]
        for path in sorted(PACKAGE.rglob("*.py"))
    }
    found = {place: ways for place, ways in places.items() if ways and not place.startswith(ROOMS)}
    told = "Start it by Box, OpenSandbox.spawn or Unboxed.spawn; or say here why that cannot be"
    assert found.keys() == OTHERS.keys(), f"{told}: {found}"


BREACHES = """\
import subprocess
from subprocess import run
import os; os.system('x')
import os as o; o.execv('x', [])
from os import posix_spawn
import os; os.fork()
import posix; posix.fork()
import os; os.popen('x')
import os; os.spawnlp(0, 'x')
import os; getattr(os, 'system')('x')
import os; getattr(os, 'sys' + 'tem')('x')
import pty; pty.spawn('x')
import webbrowser; webbrowser.open('x')
import asyncio; asyncio.create_subprocess_exec('x')
from asyncio import create_subprocess_shell as c
import asyncio; asyncio.subprocess.create_subprocess_exec
loop.subprocess_exec(None, 'x')
import multiprocessing as m
from concurrent.futures import ProcessPoolExecutor
import concurrent; concurrent.futures.ProcessPoolExecutor()
import concurrent.futures.process
import_module('subprocess')
resolve_name('subprocess:run')"""


@pytest.mark.parametrize("breach", BREACHES.splitlines())
def test_every_way_is_found(breach: str) -> None:
    assert [*ways_in(breach)] != []


def test_what_only_sounds_like_one_is_not_taken_for_it() -> None:
    harmless = "os.register_at_fork(before=f); getattr(os, 'O_BINARY', 0); box.spawn('x'); durable.fork(1); os.environ"
    assert [*ways_in(f"import os as os; {harmless}")] == []
