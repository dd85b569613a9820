"""The rules of the package that a test can check: layers, vendor packages, sizes, the front page.

A rule that bites is either kept or gets an entry in `EXCEPTIONS`, with a reason; that list may only shrink.
A new module is one more word in `LAYERS`, a new vendor package one more line in `HOMES`.
"""

from __future__ import annotations

import ast
import functools
import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import journeyman

PACKAGE = Path(__file__).parent.parent / "src" / "journeyman"
FRONT_PAGE = "__init__"

# A module may import modules of the layers named after its own, wherever the import stands in the file.
LAYERS: dict[str, str] = {
    "values": "faces types errors contexts endings result events.chat events.task events.team events.run",
    "parts": (
        "cancel model connect loop.retry budget journal gate output guard prompt loop.validation_part history window kept_view loop.watch"
        " ledger tools.task_output tools.background tools.tool tools.context tools.results tools.signature tools.schema tools.raw_schema tools.docstrings tools.issues"
        " tools.canonical files inbox session"
    ),
    "loop.iteration": (
        "definition agent loop.outcome loop.record loop.deltas loop.invoking loop.permitting loop.calls loop.paying loop.request loop.asking loop.iteration"
        " compaction compaction_summary"
    ),
    "conversations": (
        "loop.hand_in loop.execution loop.validation loop.prepare loop.attempts_part loop.conclude loop.attempts loop.streaming chat.turn chat.questions chat.question_tool"
        " chat.keeping chat.opening chat.chat_runs chat.chat"
        " tasks.notice tasks.tools tasks.task tasks.tasks"
    ),
    "groups": (
        "team.team team.mail team.life team.post team.members team.shutdown team.spawn team.tools"
        " subagents.tool subagents.calls subagents.results subagents.delegation subagents.modes subagents.background"
    ),
    "adapters": (
        "models models.sse models.transport models.refusal models.answers models.wire models.strict"
        " models.untrusted models.foreign"
        " models.anthropic.model models.anthropic.encode models.anthropic.decode models.anthropic.anthropic_blocks"
        " models.anthropic.client models.openai.names models.openai.endpoint models.openai.openai_facts models.openai_strict"
        " models.anthropic.anthropic_references models.openai.openai_media models.openai.chat"
        " models.openai.chat_encode models.openai.chat_decode models.openai.openai_chat_marks models.openai.openai_chat_usage"
        " models.openai.responses"
        " models.openai.responses_encode models.openai.responses_decode models.openai.openai_responses_blocks"
        " models.bridge.model"
        " models.bridge.encode models.bridge.decode models.bridge.bridge_settings models.bridge.failure models.vendor_errors"
        " models.scripted models.faulty models.wrappers models.rate_limit models.prices models.offline"
        " models.cassette.cassette models.cassette.player models.cassette.record models.cassette.pieces models.cassette.replay models.cassette.format"
        " models.cassette.redaction models.cassette.nearest"
        " permission.permission permission.rules permission.shell permission.roots permission.capability permission.approvals permission.approval_file permission.audit permission.taint"
        " toolbox mcp.tools mcp.servers mcp.pins mcp.stdio mcp.http mcp.content mcp.running mcp.connection durable otel"
        " store.store store.file store.lock store.log store.session store.journal store.repair"
    ),
    "hosts": "serve.server serve.calls serve.served_tool serve.stdio serve.http worker",
    "applications": f"cli pytest_plugin web __main__ {FRONT_PAGE}",
}
KERNEL = "values parts iteration conversations groups"
BELOW: dict[str, str] = {
    "values": "",
    "parts": "values",
    "iteration": "values parts",
    "conversations": "values parts iteration",
    "groups": "values parts iteration conversations",
    "adapters": "values parts",
    "hosts": f"{KERNEL} adapters",
    "applications": f"{KERNEL} adapters hosts applications",
}
# Inside a layer only this is imported, and what is in the same room: a folder that LAYERS names as one.
NEIGHBOURS: dict[str, str] = {
    "errors": "types",
    "contexts": "types errors",
    "endings": "contexts",
    "result": "types errors contexts endings",
    "events.chat": "types result",
    "events.task": "types",
    "events.team": "events.task",
    "events.run": "types errors endings result events.chat events.task events.team",
    "connect": "model session",
    "session": "inbox",
    "loop.retry": "cancel model",
    "window": "model",
    "kept_view": "window",
    "loop.validation_part": "cancel tools.issues",
    "loop.watch": "cancel",
    "tools.results": "tools.issues",
    "tools.schema": "tools.issues",
    "tools.raw_schema": "tools.issues tools.schema tools.canonical",
    "tools.signature": "tools.docstrings tools.schema",
    "tools.background": "cancel inbox tools.task_output",
    "tools.context": "cancel tools.background",
    "tools.tool": "tools.results tools.canonical model tools.raw_schema tools.schema tools.signature tools.context",
    "gate": "cancel tools.tool",
    "guard": "cancel gate",
    "journal": "tools.tool",
    # Inside the iteration, from the values of a call up to the two verbs.
    "agent": "definition",
    "loop.record": "loop.outcome",
    "loop.deltas": "loop.record",
    "loop.invoking": "loop.record loop.outcome",
    "loop.permitting": "loop.record loop.invoking loop.outcome",
    "loop.calls": "loop.record loop.outcome loop.permitting",
    "loop.paying": "loop.record",
    "loop.request": "loop.record loop.paying",
    "loop.asking": "loop.record loop.deltas loop.request loop.paying",
    "compaction": "compaction_summary",
    "loop.iteration": "loop.asking loop.calls loop.record",
    # Inside a run, from what counts as handing in up to the loop.
    "loop.execution": "loop.hand_in",
    "loop.validation": "loop.execution loop.hand_in",
    "loop.prepare": "loop.execution",
    "loop.attempts_part": "loop.execution loop.hand_in loop.validation",
    "loop.conclude": "loop.attempts_part loop.execution loop.validation",
    "loop.attempts": "loop.attempts_part loop.conclude loop.execution loop.hand_in loop.prepare loop.validation",
    "loop.streaming": "loop.attempts",
    "chat.question_tool": "chat.questions",
    "chat.turn": "loop.execution",
    "chat.chat_runs": "loop.execution chat.keeping loop.attempts chat.questions chat.turn",
    "chat.chat": "chat.chat_runs chat.opening chat.questions chat.turn",
    "store.store": "store.file store.journal store.lock store.log store.repair store.session",
    "store.journal": "store.file store.lock",
    "store.repair": "store.file store.journal store.lock store.log",
    "store.session": "store.file store.lock store.log",
    "tasks.task": "loop.execution tasks.notice",
    "tasks.tasks": "loop.execution tasks.task tasks.tools",
    # A team, from its mail up to its members.
    "team.members": "team.mail",
    "team.post": "team.mail team.members",
    "team.life": "team.post team.members",
    "team.shutdown": "team.post team.members",
    "team.tools": "team.post team.members team.shutdown",
    "team.team": "team.mail team.life team.post team.members team.shutdown team.spawn team.tools",
    # Delegation, from what a call means up to the tool.
    "subagents.delegation": "subagents.calls subagents.results",
    "subagents.modes": "subagents.calls subagents.results subagents.delegation",
    "subagents.background": "subagents.calls subagents.results subagents.delegation team.spawn",
    "subagents.tool": "subagents.calls subagents.results subagents.delegation subagents.modes subagents.background team.spawn",
    "permission.rules": "permission.capability permission.roots permission.shell",
    "permission.approvals": "permission.approval_file",
    "permission.audit": "permission.capability",
    "permission.permission": "permission.approvals permission.audit permission.capability permission.roots permission.rules",
    "permission.taint": "permission.capability",
    "mcp.tools": "mcp.connection mcp.content mcp.pins mcp.servers",
    "mcp.connection": "mcp.pins mcp.running mcp.servers",
    "mcp.running": "mcp.http mcp.stdio mcp.servers",
    "mcp.http": "mcp.servers",
    "mcp.servers": "environment",
    "mcp.stdio": "mcp.servers environment processes toolbox.transcript",
    "serve.server": "serve.calls serve.served_tool serve.http serve.stdio",
    "models": "models.scripted models.faulty models.cassette.cassette models.wrappers models.rate_limit models.prices",
    "models.prices": "models.untrusted",
    "models.transport": "models.sse models.offline",
    "models.refusal": "models.transport",
    "models.answers": "models.refusal models.sse models.transport",
    "models.anthropic.model": "models.transport models.refusal models.answers models.prices models.anthropic.encode"
    " models.anthropic.decode models.anthropic.anthropic_blocks",
    "models.anthropic.decode": "models.anthropic.anthropic_blocks models.untrusted",
    "models.anthropic.anthropic_blocks": "models.untrusted",
    "models.anthropic.encode": "models.wire models.foreign models.strict models.anthropic.anthropic_references",
    "models.anthropic.anthropic_references": "models.wire models.foreign",
    "models.anthropic.client": "models.transport models.refusal models.anthropic.model models.anthropic.decode"
    " models.anthropic.anthropic_blocks models.untrusted models.vendor_errors",
    "models.vendor_errors": "models.refusal",
    "models.bridge.model": "models.transport models.bridge.encode models.bridge.decode models.bridge.bridge_settings"
    " models.bridge.failure models.vendor_errors",
    "models.bridge.bridge_settings": "models.untrusted",
    "models.bridge.encode": "models.foreign models.strict models.untrusted",
    "models.bridge.decode": "models.untrusted",
    "models.bridge.failure": "models.refusal models.vendor_errors",
    "models.openai.names": "models.openai.chat models.openai.endpoint models.openai.responses models.prices models.transport",
    "models.openai.endpoint": "models.openai.openai_facts models.refusal",
    "models.openai.chat": "models.transport models.refusal models.answers models.openai.endpoint"
    " models.openai.chat_encode models.openai.chat_decode",
    "models.openai.chat_encode": "models.wire models.foreign models.openai_strict models.openai.endpoint"
    " models.openai.openai_media models.openai.openai_chat_marks",
    "models.openai.chat_decode": "models.untrusted models.openai.endpoint models.openai.openai_chat_usage",
    "models.openai.openai_chat_usage": "models.untrusted",
    "models.openai.responses": "models.transport models.refusal models.answers models.openai.endpoint"
    " models.openai.openai_facts models.openai.responses_encode models.openai.responses_decode",
    "models.openai.responses_encode": "models.wire models.foreign models.openai_strict models.openai.endpoint"
    " models.openai.openai_media models.untrusted",
    "models.openai.responses_decode": "models.openai.openai_responses_blocks models.untrusted models.openai.endpoint",
    "models.openai.openai_responses_blocks": "models.untrusted",
    "models.cassette.cassette": "models.cassette.player models.cassette.replay models.cassette.record models.cassette.redaction models.cassette.format",
    "models.cassette.player": "models.cassette.replay models.cassette.pieces models.cassette.record models.cassette.format",
    "models.cassette.replay": "models.cassette.nearest models.cassette.format",
    "models.cassette.record": "models.cassette.pieces models.cassette.redaction models.cassette.format",
    "models.cassette.format": "models.cassette.pieces",
}
ROOMS = ("toolbox", "cli", "web")

ANYWHERE = {"pydantic", "pydantic_core", "orjson", "jiter", "typing_extensions"}
# The one place of each other package: a module, or a room. Two places need a reason.
HOMES: dict[str, tuple[str, ...]] = {
    "anyio": ("serve.stdio",),
    "aiohttp": (
        "models.transport",
        "toolbox.fetch",
    ),  # fetch talks to any site, the transport only to providers
    "anthropic": ("models.anthropic.client",),
    "cyclopts": ("cli",),
    "dbos": ("durable",),
    "griffe": ("tools.docstrings",),
    "jinja2": (),
    "jsonschema_rs": ("tools.raw_schema",),
    "httpx2": ("mcp.http",),
    # The two ends of one protocol, each in several modules: the ways to the other, what is said, what comes of a call.
    "mcp": (
        *("mcp.running", "mcp.connection", "mcp.content", "mcp.http", "mcp.stdio"),
        *("serve.server", "serve.served_tool", "serve.stdio", "serve.http"),
    ),
    "openai": ("models.openai.names",),
    "opentelemetry": ("otel",),
    # One adapter in five modules: what it sends and asks for, what it reads, and what goes wrong.
    "pydantic_ai": (
        "models.bridge.model",
        "models.bridge.encode",
        "models.bridge.decode",
        "models.bridge.bridge_settings",
        "models.bridge.failure",
    ),
    "prompt_toolkit": ("cli",),
    "pytest": ("pytest_plugin",),
    "rich": ("cli",),
    "starlette": ("web", "serve.http"),
    "uvicorn": ("web", "serve.http"),
}
# Imported inside a function, in its home: needed by few programs, and paid for in start-up time by all.
LAZY_PACKAGES = {"anthropic", "griffe", "httpx2", "jsonschema_rs", "mcp", "openai"}
# Turns a name into a module at run time; nothing else may.
LAZY_MODULES = {"connect", "faces", FRONT_PAGE}
# What `import journeyman` alone must not load.
NOT_AT_IMPORT = {*HOMES, "griffelib"}

MODULE_LINES = 400
FUNCTION_LINES = 60

# Per rule: the place, as the failing test prints it, and why the rule cannot hold there yet.
EXCEPTIONS: dict[str, dict[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Module:
    """A module, named as below `journeyman`: `loop.attempts`, `models.openai.names`, `__init__` for the front page."""

    name: str
    source: str

    @property
    def tree(self) -> ast.Module:
        return _parse(self.source)


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
def _parse(source: str) -> ast.Module:
    return ast.parse(source)


@functools.cache
def package_modules() -> tuple[Module, ...]:
    return tuple(_read(path) for path in sorted(PACKAGE.rglob("*.py")))


def _read(path: Path) -> Module:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    is_package = parts[-1] == "__init__" and len(parts) > 1
    return Module(".".join(parts[:-1] if is_package else parts), path.read_text(encoding="utf-8"))


def known_names() -> set[str]:
    return {module.name for module in package_modules()} | {name for row in LAYERS.values() for name in row.split()}


def imports_of(module: Module) -> Iterator[Import]:
    return _imports_below(module.tree, lazy=False)


def _imports_below(node: ast.AST, *, lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import(names=names):
                yield from (Import(alias.name, lazy) for alias in names)
            case ast.ImportFrom(module=str(origin), names=names):
                yield from (Import(f"{origin}.{alias.name}", lazy) for alias in names)
            case ast.Attribute(attr="import_module") | ast.Name(id="__import__" | "import_module"):
                yield Import("importlib.import_module", lazy=True)
            case _:
                inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                yield from _imports_below(child, lazy=lazy or inside)


def own_imports(module: Module) -> Iterator[str]:
    """Name each module of this package that the module imports."""
    known = known_names()
    for target in {found.target for found in imports_of(module) if found.package == "journeyman"}:
        name = target.partition(".")[2]
        while name and name not in known:
            name = name.rpartition(".")[0]
        yield name or FRONT_PAGE


def room_of(name: str) -> str:
    top = name.partition(".")[0]
    return top if top in ROOMS else name


def layer_of(name: str) -> str | None:
    return next((layer for layer, row in LAYERS.items() if room_of(name) in row.split()), None)


def may_import(importer: str, imported: str) -> bool:
    ours, theirs = layer_of(importer), layer_of(imported)
    if ours is None or theirs is None:
        return True  # reported as a module without a layer
    neighbours = NEIGHBOURS.get(importer, "").split()
    return theirs in BELOW[ours].split() or imported in neighbours or room_of(importer) == room_of(imported)


def modules_without_a_layer(modules: Sequence[Module]) -> Iterator[Breach]:
    for module in modules:
        if layer_of(module.name) is None:
            yield Breach("unknown module", module.name, "Add its name to a row of LAYERS.")


def upward_imports(modules: Sequence[Module]) -> Iterator[Breach]:
    for module in modules:
        for imported in sorted(set(own_imports(module))):
            if not may_import(module.name, imported):
                advice = f"{layer_of(module.name)} may import: {BELOW[layer_of(module.name) or ''] or 'nothing'}."
                yield Breach("upward import", f"{module.name} -> {imported}", advice)


def adapters_on_the_front_page(modules: Sequence[Module]) -> Iterator[Breach]:
    for module in modules:
        for imported in sorted(set(own_imports(module))) if module.name == FRONT_PAGE else ():
            if layer_of(imported) not in KERNEL.split():
                yield Breach("front page", f"{FRONT_PAGE} -> {imported}", "The front page shows the kernel only.")


def strayed_vendors(modules: Sequence[Module]) -> Iterator[Breach]:
    for module in modules:
        for package in sorted({found.package for found in imports_of(module)} - ANYWHERE - {"journeyman"}):
            homes = HOMES.get(package, ())
            if package not in sys.stdlib_module_names and not {module.name, room_of(module.name)} & {*homes}:
                advice = f"Its home: {' or '.join(homes) or 'none yet, see HOMES'}."
                yield Breach("vendor", f"{module.name} -> {package}", advice)


def hidden_imports(modules: Sequence[Module]) -> Iterator[Breach]:
    for module in modules:
        for found in imports_of(module):
            if found.lazy and module.name not in LAZY_MODULES and found.package not in LAZY_PACKAGES:
                yield Breach("hidden import", f"{module.name} -> {found.target}", "Import at the top of the file.")


def long_modules(modules: Sequence[Module]) -> Iterator[Breach]:
    for module in modules:
        lines = len(module.source.splitlines())
        if lines > MODULE_LINES:
            yield Breach("long module", module.name, f"{lines} lines, {MODULE_LINES} are allowed. Split it.")


def long_functions(modules: Sequence[Module]) -> Iterator[Breach]:
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES:
                    advice = f"{lines} lines, {FUNCTION_LINES} are allowed. Split it."
                    yield Breach("long function", f"{module.name}.{node.name}", advice)


Rule = Callable[[Sequence[Module]], Iterator[Breach]]
RULES: tuple[Rule, ...] = (
    modules_without_a_layer,
    upward_imports,
    adapters_on_the_front_page,
    strayed_vendors,
    hidden_imports,
    long_modules,
    long_functions,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_package_has_no(rule: Rule) -> None:
    breaches = [found for found in rule(package_modules()) if found.place not in EXCEPTIONS.get(found.rule, {})]
    assert [f"{found.place}: {found.advice}" for found in breaches] == []


def test_every_exception_is_still_needed_and_has_a_reason() -> None:
    needed = {(found.rule, found.place) for rule in RULES for found in rule(package_modules())}
    listed = {(rule, place) for rule, places in EXCEPTIONS.items() for place in places}
    assert listed - needed == set(), "Remove these from EXCEPTIONS: the rule holds there now."
    assert all(reason for places in EXCEPTIONS.values() for reason in places.values())


PLANTED_IMPORTS = {
    ("loop.retry", "from journeyman.loop import run"): "loop.attempts",
    ("loop.retry", "import journeyman.loop as shortcut"): "loop.attempts",
    ("loop.retry", "from journeyman import loop"): "loop.attempts",
    ("loop.retry", "from journeyman import run"): FRONT_PAGE,
    ("loop.retry", "if TYPE_CHECKING:\n    from journeyman.chat import Chat"): "chat.chat",
    ("loop.retry", "async def call():\n    from journeyman.chat import Chat"): "chat.chat",
    ("loop.retry", "from journeyman.budget import Budget"): "budget",
    ("loop.retry", "from journeyman.models.openai import body"): "models.openai.names",
    ("loop.retry", "from journeyman.model import Model\nfrom journeyman.types import Text"): None,
    ("toolbox.search", "from journeyman.toolbox.workspace import Workspace"): None,
    ("models.openai.chat", "from journeyman.models.transport import post"): None,
    ("models.openai.names", "from journeyman.models.anthropic import body"): "models.anthropic.model",
    ("otel", "from journeyman.loop import run"): "loop.attempts",
}


@pytest.mark.parametrize(("importer", "source"), PLANTED_IMPORTS)
def test_a_planted_import_is_found_if_it_points_upwards(importer: str, source: str) -> None:
    imported = PLANTED_IMPORTS[importer, source]
    expected = [f"{importer} -> {imported}"] if imported else []
    assert [found.place for found in upward_imports([Module(importer, source)])] == expected


@pytest.mark.parametrize(
    ("rule", "name", "source", "places"),
    [
        (modules_without_a_layer, "models.mystery", "", ["models.mystery"]),
        (modules_without_a_layer, "toolbox.grep", "", []),
        (adapters_on_the_front_page, FRONT_PAGE, "import journeyman.otel", [f"{FRONT_PAGE} -> otel"]),
        (adapters_on_the_front_page, FRONT_PAGE, "import journeyman.loop", []),
        (strayed_vendors, "loop", "import aiohttp", ["loop -> aiohttp"]),
        (strayed_vendors, "loop", "import brand_new.thing", ["loop -> brand_new"]),
        (strayed_vendors, "toolbox.fetch", "import aiohttp.web, asyncio, orjson", []),
        (strayed_vendors, "cli.runs", "from rich.table import Table", []),
        (hidden_imports, "loop", "class A:\n    async def b(self):\n        import json", ["loop -> json"]),
        (hidden_imports, "loop", "importlib.import_module('json')", ["loop -> importlib.import_module"]),
        (hidden_imports, "tools", "def parse():\n    import griffe", []),
        (hidden_imports, "connect", "def load(name):\n    return importlib.import_module(name)", []),
        (long_modules, "loop", "\n" * 401, ["loop"]),
        (long_modules, "loop", "\n" * 400, []),
        (long_functions, "loop", "def run():\n" + "    x = 1\n" * 60, ["loop.run"]),
        (long_functions, "loop", "def run():\n" + "    x = 1\n" * 59, []),
    ],
)
def test_a_planted_breach_is_found(rule: Rule, name: str, source: str, places: list[str]) -> None:
    assert [found.place for found in rule([Module(name, source)])] == places


def front_page() -> Module:
    found = [module for module in package_modules() if module.name == FRONT_PAGE]
    assert found, "src/journeyman/__init__.py is missing."
    return found[0]


def public_names() -> list[str]:
    for node in front_page().tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return ast.literal_eval(value)
            case _:
                continue
    raise AssertionError("The front page has no __all__.")


def body_of(module: Module) -> list[ast.stmt]:
    """Return the top level, with what stands there for type checkers only."""
    body: list[ast.stmt] = []
    for node in module.tree.body:
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                body += node.body
            case _:
                body.append(node)
    return body


def bound_names(module: Module) -> Iterator[str]:
    """Name what the module's top level takes from this package or defines."""
    for node in body_of(module):
        match node:
            case ast.ImportFrom(module=str(origin), names=names) if origin.startswith("journeyman"):
                yield from (alias.asname or alias.name for alias in names)
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case _:
                continue


def docstrings(name: str, module: Module) -> Iterator[str | None]:
    """Find what documents a name: its docstring, or the string below a value. Follow re-exports."""
    body = body_of(module)
    for node, below in zip(body, [*body[1:], None], strict=True):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() if node.name == name:
                yield ast.get_docstring(node)
            case ast.Assign(targets=[ast.Name(id=found)]) | ast.AnnAssign(target=ast.Name(id=found)) if found == name:
                yield _string(below)
            case ast.ImportFrom(module=str(origin), names=names) if name in {alias.name for alias in names}:
                for source in package_modules():
                    if f"journeyman.{source.name}" == origin:
                        yield from docstrings(name, source)
            case _:
                continue


def _string(node: ast.stmt | None) -> str | None:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
        case _:
            return None


def by_kind(name: str) -> tuple[int, str]:
    """Order names as the linter does: constants, classes, functions."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def test_the_front_page_is_sorted() -> None:
    assert public_names() == sorted(public_names(), key=by_kind)


def test_the_front_page_is_complete() -> None:
    bound = {name for name in bound_names(front_page()) if not name.startswith("_")}
    assert set(public_names()) == bound - {"lazy_face"}


def test_every_public_name_is_loaded_from_where_type_checkers_look_for_it() -> None:
    homes = {
        alias.name: node.module
        for node in body_of(front_page())
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for name in public_names():
        assert getattr(journeyman, name) is getattr(importlib.import_module(str(homes[name])), name)


def test_the_front_page_stays_small() -> None:
    assert 30 <= len(public_names()) <= 60


def test_no_public_name_hides_a_module() -> None:
    assert set(public_names()) & {module.name.partition(".")[0] for module in package_modules()} == set()


def test_every_public_name_is_documented() -> None:
    assert [name for name in public_names() if not any(docstrings(name, front_page()))] == []


def test_importing_the_package_loads_no_heavy_package() -> None:
    program = "import json, sys, journeyman; journeyman.__all__; print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded: list[str] = json.loads(done.stdout)
    assert {name.partition(".")[0] for name in loaded} & NOT_AT_IMPORT == set()
