"""The rules of the package that a test can check: rooms, vendor packages, sizes, faces.

A rule that bites is either kept or gets an entry in `EXCEPTIONS`, with a reason; that list may only shrink.
A new module belongs to the room of its folder; a new vendor package is one more line in `HOMES`.
"""

from __future__ import annotations

import ast
import functools
import importlib
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "journeyman"
FRONT_PAGE = "__init__"

# The rooms: a folder each, but for those whose modules stand at the top, so that users import them by name.
TOP: dict[str, str] = {
    "values": "definition types errors endings result events content hosted step texts",
    "ports": "model budget cancellation closing gate journal history inbox session window machine",
    "agent": "agent output prompt connect",
    "compaction": "compaction",
    "applications": f"cli __main__ {FRONT_PAGE}",
}
KERNEL = "values ports tools agent loop batch chat tasks team subagents"
ADAPTERS = "compaction hosts models permission processes sandbox store toolbox mcp skills"
# Which rooms a room may import, wherever the import stands in a file, for types as well. Inside a room only a circle
# is forbidden.
MAY_IMPORT: dict[str, str] = {
    "values": "",
    "ports": "values",
    "tools": "values ports",
    "agent": "values ports tools",
    "loop": "values ports tools agent",
    **dict.fromkeys(("batch", "chat", "tasks"), "values ports tools agent loop"),
    "team": "values ports tools agent loop chat tasks",
    "subagents": "values ports tools agent loop chat tasks team",
    **dict.fromkeys(ADAPTERS.split(), "values ports tools agent"),
    "hosts": "values",
    "processes": "values ports",
    "sandbox": "values ports hosts processes",  # a program in a box has a keeper as one in none has
    "permission": "values ports tools agent hosts sandbox",  # rules become the borders of a box
    "toolbox": "values ports tools agent hosts processes sandbox",
    "models": "values ports tools agent hosts processes sandbox",  # the server of a local model is started in a box
    "mcp": "values ports tools agent hosts processes sandbox",
    "skills": "values ports tools toolbox",  # a skill's files are read as those of a workspace are
    "durable": f"{KERNEL} store",
    "record": "values ports tools store",
    "otel": "values ports tools hosts",
    "testing": "values ports tools agent models",
    "serve": f"{KERNEL} {ADAPTERS} durable",
    "mcp_server": f"{KERNEL} {ADAPTERS} serve",
    "view": "values ports tools durable record serve",
    "applications": f"{KERNEL} {ADAPTERS} durable record otel serve mcp_server view testing",
}
# Of a room that may be imported, all that may be.
ONLY = {
    **{(room, "hosts"): {"hosts.proxies"} for room in ("models", "otel")},
    ("subagents", "team"): {"team.spawn"},
    **{(adapter, "agent"): {"connect"} for adapter in ADAPTERS.split()},
    ("skills", "toolbox"): {"toolbox.files"},
    ("view", "serve"): {"serve.http_guard"},
    ("mcp_server", "serve"): {"serve.http_guard", "serve.refusals"},
    ("testing", "models"): {"models.cassette.cassette", "models.transport", "models.wire", "models.wrappers"},
}
# What stands at the top, and is public by its own path; a room is public by its face, and by these of its modules.
DEEP = {"models.transport"}
ANYWHERE = {"pydantic", "pydantic_core", "orjson", "jiter", "typing_extensions", "_typeshed"}
# The place of each other package: a module, or a room.
HOMES: dict[str, str] = {
    "ag_ui": "serve.agui serve.bodies serve.api",
    "anyio": "mcp_server.stdio",
    # fetch talks to any site, the others to providers
    "aiohttp": "models.exchange models.reuse models.transport toolbox.fetch",
    "aiohttp_socks": "models.transport",
    "anthropic": "models.anthropic.client",
    **dict.fromkeys(("cyclopts", "prompt_toolkit", "rich"), "cli"),
    "filelock": "machine.files",
    "httpx2": "mcp.oauth mcp.transports",
    "jsonschema_rs": "tools.raw_schema",
    "keyring": "mcp.oauth",
    "mcp": "mcp mcp_server",  # the two ends of one protocol
    "openai": "models.openai",
    "opentelemetry": "otel",
    "procrastinate": "durable.postgres.procrastinate",
    "psycopg": "durable.postgres store.client store.database store.postgres store.shared",
    "pydantic_ai": "models.bridge",
    "pytest": "testing.pytest_plugin",
    "starlette": "serve mcp_server cli.serve view",
    "uvicorn": "serve.http_guard",
    "yaml": "skills.skills models.cassette.vcr",
}
# Imported inside a function, in its home: the linter forbids it elsewhere, and at the top of a file.
LAZY_PACKAGES = frozenset(
    tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["lint"]["flake8-tidy-imports"][
        "banned-module-level-imports"
    ]
)
# Turns a name into a module at run time; nothing else may.
LAZY_MODULES = {"connect", "definition.faces"}
MODULE_LINES = 900
FUNCTION_LINES = 60
FIELDS = 24
FIELDS_OF = {"loop.state.Run": 22}
"""Fewer are allowed of what everybody reads."""
BANNER = re.compile(r"^ *# ?(--|==|\*\*|##).*", re.MULTILINE)
RESTATES = re.compile(r"\bImports\b|\bRead `[^`]+` next\b|is to be read next")

# Per rule: the place, as the failing test prints it, and why the rule cannot hold there.
EXCEPTIONS: dict[str, dict[str, str]] = {
    "wide class": {
        "agent.Agent": "What a user says of an agent stands in one place.",
        "durable.records.Row": "One column of the table of runs each.",
        "serve.live.Live": "The state of one run that is served: what it has told, who listens, and what they may do.",
    }
}


@dataclass(frozen=True)
class Module:
    """A module, named as below `journeyman`: `agent`, `loop.calls`, a face `loop`, the front page `__init__`."""

    name: str
    source: str
    is_face: bool = False

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @functools.cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    @functools.cached_property
    def imports(self) -> tuple[Import, ...]:
        by_name = "import_module" in self.source or "__import__" in self.source
        return tuple(_imports_below(self.tree, lazy=False, by_name=by_name))

    @property
    def n_lines(self) -> int:
        return len(self.source.splitlines())


@dataclass(frozen=True, slots=True)
class Import:
    """One imported name, dotted and absolute, and whether it is imported only when a function runs."""

    target: str
    lazy: bool

    @property
    def package(self) -> str:
        return self.target.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Breach:
    """A place where a rule does not hold. The place is what an exception names."""

    rule: str
    place: str
    advice: str


@functools.cache
def package_modules() -> tuple[Module, ...]:
    return tuple(_read(path) for path in sorted(PACKAGE.rglob("*.py")))


def _read(path: Path) -> Module:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    is_face = parts[-1] == "__init__"
    name = ".".join(parts[:-1] if is_face and len(parts) > 1 else parts)
    return Module(name, path.read_text(encoding="utf-8"), is_face)


@functools.cache
def known_names() -> frozenset[str]:
    return frozenset(module.name for module in package_modules())


def _imports_below(node: ast.AST, *, lazy: bool, by_name: bool) -> Iterator[Import]:
    """Give what is imported; `by_name` says whether expressions may do it, so that they are to be looked through."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import(names=names):
                yield from (Import(alias.name, lazy) for alias in names)
            case ast.ImportFrom(module=str(origin), names=names):
                yield from (Import(f"{origin}.{alias.name}", lazy) for alias in names)
            case ast.Attribute(attr="import_module") | ast.Name(id="__import__" | "import_module"):
                yield Import("importlib.import_module", lazy=True)
            case ast.expr() if not by_name:
                continue
            case _:
                inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                yield from _imports_below(child, lazy=lazy or inside, by_name=by_name)


@functools.cache
def own_imports(module: Module) -> tuple[str, ...]:
    """Name each module of this package that the module imports."""
    found: set[str] = set()
    for target in {found.target for found in module.imports if found.package == "journeyman"}:
        name = target.partition(".")[2]
        while name and name not in known_names():
            name = name.rpartition(".")[0]
        found.add(name or FRONT_PAGE)
    return tuple(sorted(found - {module.name}))


def room_of(name: str) -> str:
    top = name.partition(".")[0]
    return next((room for room, row in TOP.items() if top in row.split()), top)


def forbidden_imports(modules: Sequence[Module]) -> Iterator[Breach]:
    for module in modules:
        ours = room_of(module.name)
        if ours not in MAY_IMPORT:
            yield Breach("room", module.name, "Put it into a room, or its room into MAY_IMPORT.")
            continue
        for imported in own_imports(module):
            theirs = room_of(imported)
            only = ONLY.get((ours, theirs), {imported})
            if ours != theirs and (theirs not in MAY_IMPORT[ours].split() or imported not in only):
                advice = f"{ours} may import: {MAY_IMPORT[ours] or 'nothing'}."
                yield Breach("room", f"{module.name} -> {imported}", advice)


def circles(modules: Sequence[Module]) -> Iterator[Breach]:
    """Faces are left out: they load their modules when a name is first used."""
    eager = {"events"}
    graph = {each.name: own_imports(each) for each in modules if not each.is_face or each.name in eager}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        yield Breach("circle", " -> ".join(reversed(circle.args[1])), "Move what both need below both.")


def adapters_on_the_front_page(modules: Sequence[Module]) -> Iterator[Breach]:
    for module in modules:
        for imported in own_imports(module) if module.name == FRONT_PAGE else ():
            if room_of(imported) not in KERNEL.split():
                yield Breach("front page", f"{FRONT_PAGE} -> {imported}", "The front page shows the kernel only.")


def strayed_vendors(modules: Sequence[Module]) -> Iterator[Breach]:
    for module in modules:
        for package in sorted({found.package for found in module.imports} - ANYWHERE - {"journeyman"}):
            homes = HOMES.get(package, "").split()
            at_home = any(f"{module.name}.".startswith(f"{home}.") for home in homes)
            if package not in sys.stdlib_module_names and not at_home:
                advice = f"Its home: {' or '.join(homes) or 'none yet, see HOMES'}."
                yield Breach("vendor", f"{module.name} -> {package}", advice)


def hidden_imports(modules: Sequence[Module]) -> Iterator[Breach]:
    for module in modules:
        for found in module.imports:
            if found.lazy and module.name not in LAZY_MODULES and found.package not in LAZY_PACKAGES:
                yield Breach("hidden import", f"{module.name} -> {found.target}", "Import at the top of the file.")


def long_modules(modules: Sequence[Module]) -> Iterator[Breach]:
    for module in modules:
        if module.n_lines > MODULE_LINES:
            yield Breach("long module", module.name, f"{module.n_lines} lines, {MODULE_LINES} are allowed. Split it.")


def long_functions(modules: Sequence[Module]) -> Iterator[Breach]:
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES:
                    advice = f"{lines} lines, {FUNCTION_LINES} are allowed. Split it."
                    yield Breach("long function", f"{module.name}.{node.name}", advice)


def wide_classes(modules: Sequence[Module]) -> Iterator[Breach]:
    for module in modules:
        classes = {node.name: node for node in module.nodes if isinstance(node, ast.ClassDef)}
        for node in classes.values():
            fields = len({each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute) and _is_set(each)})
            if any("dataclass" in ast.unparse(each) for each in node.decorator_list):
                bases = [classes[name] for each in node.bases if (name := ast.unparse(each)) in classes]
                fields = sum(isinstance(each, ast.AnnAssign) for declared in (node, *bases) for each in declared.body)
            most = FIELDS_OF.get(f"{module.name}.{node.name}", FIELDS)
            if fields > most:
                advice = f"{fields} fields, {most} are allowed. Which of them belong together?"
                yield Breach("wide class", f"{module.name}.{node.name}", advice)


def _is_set(field: ast.Attribute) -> bool:
    return isinstance(field.ctx, ast.Store) and isinstance(field.value, ast.Name) and field.value.id == "self"


def docstrings_that_restate(modules: Sequence[Module]) -> Iterator[Breach]:
    for module in modules:
        text = ast.get_docstring(module.tree)
        if text is None or RESTATES.search(text):
            advice = "Say what the module is for and its one rule, not what it imports or what to read next."
            yield Breach("module docstring", module.name, advice)


def banners(modules: Sequence[Module]) -> Iterator[Breach]:
    for module in modules:
        for found in BANNER.finditer(module.source):
            yield Breach("banner", module.name, f"{found.group().strip()!r}: names say what stands together.")


Rule = Callable[[Sequence[Module]], Iterator[Breach]]
RULES: tuple[Rule, ...] = (
    *(forbidden_imports, circles, adapters_on_the_front_page, strayed_vendors, hidden_imports, long_modules),
    *(long_functions, wide_classes, docstrings_that_restate, banners),
)


@functools.cache
def breaches_of(rule: Rule) -> tuple[Breach, ...]:
    """Return what a rule finds in the package; exceptions are among it."""
    return tuple(rule(package_modules()))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_package_has_no(rule: Rule) -> None:
    breaches = [found for found in breaches_of(rule) if found.place not in EXCEPTIONS.get(found.rule, {})]
    assert [f"{found.place}: {found.advice}" for found in breaches] == []


def test_every_exception_is_still_needed_and_has_a_reason() -> None:
    needed = {(found.rule, found.place) for rule in RULES for found in breaches_of(rule)}
    listed = {(rule, place) for rule, places in EXCEPTIONS.items() for place in places}
    assert listed - needed == set(), "Remove these from EXCEPTIONS: the rule holds there now."
    assert all(reason for places in EXCEPTIONS.values() for reason in places.values())


def test_every_room_and_module_that_the_rules_name_exists() -> None:
    rooms = {room_of(name) for name in known_names()}
    listed = {name for row in (*TOP.values(), *HOMES.values()) for name in row.split()}
    assert rooms == set(MAY_IMPORT) == {name for row in MAY_IMPORT.values() for name in row.split()} | {"applications"}
    assert (listed | DEEP | LAZY_MODULES | {name for names in ONLY.values() for name in names}) - known_names() == set()


@pytest.mark.parametrize(
    ("rule", "name", "source", "places"),
    [
        (forbidden_imports, "history", "from journeyman.loop.run import run", ["history -> loop.run"]),
        (forbidden_imports, "history", "import journeyman.loop.calls as c", ["history -> loop.calls"]),
        (forbidden_imports, "history", "from journeyman import run", [f"history -> {FRONT_PAGE}"]),
        (forbidden_imports, "history", "if TYPE_CHECKING:\n    from journeyman.chat import Chat", ["history -> chat"]),
        (forbidden_imports, "history", "async def f():\n    from journeyman.chat import C", ["history -> chat"]),
        (forbidden_imports, "history", "from journeyman.types import Text", []),
        (forbidden_imports, "chat.turn", "import journeyman.tasks.tasks", ["chat.turn -> tasks.tasks"]),
        (forbidden_imports, "subagents.tool", "import journeyman.team.spawn, journeyman.loop.state", []),
        (forbidden_imports, "subagents.tool", "import journeyman.team.mail", ["subagents.tool -> team.mail"]),
        (forbidden_imports, "models.sse", "import journeyman.models.transport", []),
        (forbidden_imports, "mystery.thing", "", ["mystery.thing"]),
        (adapters_on_the_front_page, FRONT_PAGE, "import journeyman.store", [f"{FRONT_PAGE} -> store"]),
        (adapters_on_the_front_page, FRONT_PAGE, "import journeyman.loop", []),
        (strayed_vendors, "loop.calls", "import aiohttp", ["loop.calls -> aiohttp"]),
        (strayed_vendors, "loop.calls", "import brand_new.thing", ["loop.calls -> brand_new"]),
        (strayed_vendors, "toolbox.fetch", "import aiohttp.web, asyncio, orjson", []),
        (strayed_vendors, "cli.runs", "from rich.table import Table", []),
        (hidden_imports, "model", "class A:\n    async def b(self):\n        import json", ["model -> json"]),
        (hidden_imports, "model", "importlib.import_module('json')", ["model -> importlib.import_module"]),
        (hidden_imports, "skills.skills", "def parse():\n    import yaml", []),
        (hidden_imports, "connect", "def load(name):\n    return importlib.import_module(name)", []),
        (long_modules, "loop.calls", "\n" * 901, ["loop.calls"]),
        (long_modules, "loop.calls", "\n" * 900, []),
        (long_functions, "loop.calls", "def run():\n" + "    x = 1\n" * 60, ["loop.calls.run"]),
        (long_functions, "loop.calls", "def run():\n" + "    x = 1\n" * 59, []),
        (wide_classes, "model", "@dataclass\nclass A:\n" + "    x: int\n" * 25, ["model.A"]),
        (wide_classes, "model", "@dataclass\nclass A:\n" + "    x: int\n" * 24, []),
        (
            wide_classes,
            "model",
            "class A:\n def f(self):\n" + "".join([f"  self.a{n}=1\n" for n in range(25)]),
            ["model.A"],
        ),
        (docstrings_that_restate, "model", '"""A model. Imports `types`."""', ["model"]),
        (docstrings_that_restate, "model", '"""A model."""', []),
        (banners, "model", "# -- the requests ----\n    # -- reading\n# A -- b\n", ["model", "model"]),
    ],
)
def test_a_planted_breach_is_found(rule: Rule, name: str, source: str, places: list[str]) -> None:
    assert [found.place for found in rule([Module(name, source)])] == places


def test_a_planted_circle_is_found() -> None:
    ring = [Module("model", "import journeyman.budget"), Module("budget", "import journeyman.model")]
    assert [found.rule for found in circles(ring)] == ["circle"]
    assert [*circles(ring[:1])] == []


IMPORTED = re.compile(r"^[ \t]*(?:>>> )?from (journeyman[\w.]*) import (\([^)]*\)|[^\n#(]*)", re.MULTILINE)


@functools.cache
def faces() -> list[Module]:
    return [module for module in package_modules() if module.is_face]


def public_names(face: Module) -> list[str]:
    assigned = (node for node in face.tree.body if isinstance(node, ast.Assign))
    values = [node.value for node in assigned if ast.unparse(node.targets[0]) == "__all__"]
    return ast.literal_eval(values[0]) if values else []


def homes_of(face: Module) -> dict[str, str]:
    """Name the module of each name that the face takes from this package."""
    shown = [each for node in face.tree.body for each in (node.body if isinstance(node, ast.If) else [node])]
    return {
        alias.name: str(node.module)
        for node in shown
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("journeyman")
        for alias in node.names
    }


def imports_in_the_docs() -> Iterator[tuple[str, str]]:
    """Name what README, docs and examples import: the module, and the name."""
    texts = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]
    for text in texts:
        for found in IMPORTED.finditer(text.read_text(encoding="utf-8")):
            for name in re.findall(r"(\w+)(?: as \w+)?\s*(?:,|$|\n)", found.group(2).strip("() \n")):
                yield found.group(1).partition(".")[2] or FRONT_PAGE, name


def by_kind(name: str) -> tuple[int, str]:
    """Order names as the linter does: constants, classes, functions."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def test_a_face_is_sorted_complete_and_loads_its_names() -> None:
    assert [f"{face.name}: {fault}" for face in faces() for fault in faults_of(face)] == []


def faults_of(face: Module) -> Iterator[str]:
    names, homes = public_names(face), homes_of(face)
    loaded = importlib.import_module("journeyman" if face.name == FRONT_PAGE else f"journeyman.{face.name}")
    if names != sorted(names, key=by_kind):
        yield "not sorted"
    if "lazy_face" in homes and set(names) != set(homes) - {"lazy_face"}:
        yield "not complete"
    for name in names:
        if name in homes and getattr(loaded, name) is not getattr(importlib.import_module(homes[name]), name):
            yield name


def declared() -> dict[str, list[str]]:
    """Return the public names of each face, and of each module that is public by its own path."""
    at_the_top = {name for row in TOP.values() for name in row.split()}
    return {
        module.name: public_names(module)
        for module in package_modules()
        if module.is_face or (module.name in at_the_top | DEEP and "\n__all__ = " in module.source)
    }


def test_what_the_docs_import_is_declared() -> None:
    names = declared()
    hidden = {f"{module}.{name}" for module, name in imports_in_the_docs() if name not in names.get(module, ())}
    assert sorted(hidden) == []


def test_what_is_declared_is_there_sorted_and_stands_in_one_place() -> None:
    places: dict[tuple[int, str], list[str]] = {}
    for module, names in declared().items():
        loaded = importlib.import_module("journeyman" if module == FRONT_PAGE else f"journeyman.{module}")
        assert names == sorted(names, key=by_kind), module
        for name in names:
            places.setdefault((id(getattr(loaded, name)), name), []).append(module)
    on_faces = {face.name for face in faces()}
    twice = [found for found in places.values() if len(found) > 1 and not on_faces.issuperset(found)]
    assert [found for found in twice if found != ["models", "testing.scripted"]] == []


def test_the_front_page_stays_small() -> None:
    (front,) = [face for face in faces() if face.name == FRONT_PAGE]
    assert 30 <= len(public_names(front)) <= 45


def test_no_public_name_hides_a_module() -> None:
    assert [(face.name, hidden) for face in faces() if (hidden := {*public_names(face)} & modules_in(face))] == []


def modules_in(face: Module) -> set[str]:
    prefix = "" if face.name == FRONT_PAGE else f"{face.name}."
    return {name.removeprefix(prefix).partition(".")[0] for name in known_names() if name.startswith(prefix)}


def test_every_public_name_is_documented() -> None:
    undocumented = [
        f"{face.name}.{name}"
        for face in faces()
        for name, home in homes_of(face).items()
        if name in public_names(face) and not is_documented(name, home.partition(".")[2])
    ]
    assert undocumented == []


def is_documented(name: str, home: str) -> bool:
    """Whether a definition has a docstring, or the string below a value; re-exports are followed."""
    module = next(each for each in package_modules() if each.name == home)
    for node, below in zip(module.tree.body, [*module.tree.body[1:], None], strict=True):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() if node.name == name:
                if ast.get_docstring(node):
                    return True
            case ast.Assign(targets=[ast.Name(id=found)]) | ast.AnnAssign(target=ast.Name(id=found)) if found == name:
                return isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            case _:
                continue
    further = homes_of(module).get(name)
    return further is not None and is_documented(name, further.partition(".")[2])


@functools.cache
def loaded_at_start() -> frozenset[str]:
    """Return the modules that a program with an agent has loaded before its first line runs."""
    program = "import json, sys; from journeyman import Agent, Output, run, tool; print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return frozenset(json.loads(done.stdout))


def test_what_is_loaded_at_start_compiles_no_dataclass() -> None:
    at_start = {name.removeprefix("journeyman.") for name in loaded_at_start()} - {
        "definition.problems"
    }  # which `data` needs
    compiling = [
        f"{module.name}.{node.name}"
        for module in package_modules()
        for node in module.nodes
        if module.name in at_start and isinstance(node, ast.ClassDef)
        if any(re.match(r"(dataclasses\.)?dataclass\b", ast.unparse(each)) for each in node.decorator_list)
    ]
    assert compiling == [], "Declare it with lazy_dataclass: start-up pays for each that is not."
