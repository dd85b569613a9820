"""The glossary: each of its words has one meaning in the package, as a class and as a variable.

A word of the glossary is defined once, be it as a class or as the alias of a type; a leading underscore makes no other
word of it. In the kernel a variable that is named after one of `HELD` holds that class, or one whose name ends with it:
`turn` may be a `ChatTurn` and never an `Iterated`. What breaks this stands in `EXCEPTIONS` with a reason; that list may
only shrink. Beside it stand numbers that may only fall, too: short helpers with one caller; names that many tests
define, each for itself. And tests use no name that is private to others.
"""

import ast
import functools
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.called_once import MOST_SHORT, SHORT_LINES, Helper, called_once
from tests.test_architecture import KERNEL, Module, package_modules, room_of

GLOSSARY = {
    "Abort": "What a caller holds to stop a run, which then returns a failure.",
    "Agent": "Who works: the definition that a user writes.",
    "Answer": "What a model says to one request.",
    "Asked": "A question that has been put and waits.",
    "Attempt": "Iterations until there is an output, and its validation.",
    "Budget": "What runs may use together: reserved before, settled after.",
    "Call": "One call of a tool in a response.",
    "Candidate": "An output that was handed in and is not yet validated.",
    "Chat": "A conversation of many prompts that keeps its state.",
    "Compaction": "What became of a history that was shortened.",
    "Conversation": "The messages between a user and an agent; in code it is the History.",
    "Effect": "Whether a step may be repeated after a crash.",
    "ErrorInfo": "How a run ends without an output.",
    "Event": "Something that can be seen while a run works.",
    "Failure": "A run's result without an output.",
    "Finished": "A run's end with an output that passed.",
    "Gate": "What allows, denies, asks about or rewrites a call.",
    "Guard": "The gates of a run and of those above it, as one.",
    "HandIn": "How an attempt gets its output.",
    "History": "The messages of a run, always in a state that a provider takes.",
    "Inbox": "What waits to be said in the next request.",
    "Iterated": "What one iteration left.",
    "Iteration": "One model call and the tool calls of its response.",
    "Journal": "The memory of finished steps, for resuming.",
    "Layer": "One of the checks that a candidate passes in turn.",
    "Ledger": "What one run has used, below a budget.",
    "Limits": "How much a run may do.",
    "Member": "One of a team.",
    "Message": "One entry of a history.",
    "Model": "The port to a provider.",
    "ModelSettings": "How a model is to answer.",
    "Options": "The arguments with which a run begins.",
    "Outcome": "The result of a call, and how it came about.",
    "Output": "What a run hands in, as the agent declares it.",
    "Part": "A piece of a response while it arrives.",
    "PermissionMode": "How tools are permitted in general.",
    "Place": "Where in a run something happens: attempt, iteration, phase.",
    "Prefix": "What every request of a run starts with: system and tools.",
    "Prompt": "What turns an input into the first message.",
    "Request": "What a model is asked.",
    "Response": "What a model answers, complete.",
    "Result": "What a run returns: a Success or a Failure.",
    "Run": "One task for one agent, from input to result.",
    "RunPath": "The place of a run below the runs that started it.",
    "Runtime": "What surrounds a run: grace, listeners, journal.",
    "Scope": "What is cancelled together.",
    "Session": "A stored chat.",
    "Snapshot": "The state of a chat at one step, as it is stored.",
    "Stop": "A gate's decision to end the run.",
    "SubmitTool": "The tool that hands in a reflected output.",
    "Success": "A run's result with an output.",
    "Task": "Work in the background, with an id.",
    "Team": "Members that live long and write to one another.",
    "TeamMessage": "A message from one member of a team to another.",
    "Text": "A block of text in a message.",
    "Tool": "What a model may call.",
    "Turn": "One prompt of a chat, until its natural stop.",
    "Usage": "What model calls have used.",
    "Validator": "A user's check of an output.",
    "Verdict": "What a gate decides about a call.",
    "View": "The messages of a history that are sent.",
    "Watch": "The listeners and callbacks of a run.",
    "Window": "How many tokens a model reads at most.",
}

# Words of which there are objects that move through a run. The others also name what they are about: a `call` may be
# the block of the model or what became of it, an `output` is the user's value.
HELD = {
    *("Agent", "Budget", "Candidate", "Chat", "ErrorInfo", "Gate", "Guard", "History", "Runtime", "Inbox", "Iterated"),
    *("Journal", "Layer", "Ledger", "Member", "Prefix", "Run", "Scope", "Session", "Snapshot", "Team", "Turn"),
    *("Verdict", "View", "Watch"),
}

# Per word and per variable: the modules that give it another meaning, and why they still do.
EXCEPTIONS: dict[str, dict[str, str]] = {
    # classes and aliases
    "Event": {"models.sse": "The word of the standard for server-sent events."},
    "Prompt": {"cli.permit.asked": "The prompt of a terminal."},
    "Validator": {"tools.raw_schema": "The class of jsonschema_rs that it describes has this name."},
    "Verdict": {"loop.validation": "What the layers say of a candidate; a gate's verdict is a union of classes."},
    # variables
    "candidate": {"result": "A failure shows the last candidate as JSON; the field is public."},
    "chat": {"tasks.task": "The inbox of the chat that the task belongs to."},
    "member": {"team.team": "What is told about a member."},
    "team": {"subagents.tool": "The port through which members are started; the argument is public."},
}


@pytest.fixture(scope="module")
def _package() -> None:
    """Read the package once, before the first test, whichever that is."""
    assert all(module.nodes for module in package_modules())


def meanings(modules: Sequence[Module]) -> dict[str, list[str]]:
    """Name, for each class and each alias of a type, the modules that define it."""
    found: dict[str, list[str]] = {}
    for module in modules:
        for name in sorted({name.lstrip("_") for name in defined_in(module)}):
            found.setdefault(name, []).append(module.name)
    return found


def defined_in(module: Module) -> Iterator[str]:
    for node in module.nodes:
        match node:
            case ast.ClassDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias")):
                yield name
            case _:
                continue


def words_with_two_meanings(modules: Sequence[Module]) -> Iterator[tuple[str, str]]:
    """Yield each module that defines a word of the glossary, where more than one does."""
    for word, homes in meanings(modules).items():
        if word in GLOSSARY and len(homes) > 1:
            yield from ((word, home) for home in homes)


def variables_with_another_meaning(modules: Sequence[Module]) -> Iterator[tuple[str, str]]:
    """Yield each variable of the kernel that is named after a word of the glossary and holds another class of ours."""
    classes = meanings(modules)
    for module in modules:
        if room_of(module.name) in KERNEL.split():
            for name, held in sorted({*annotated_in(module)}):
                word = "".join(each.capitalize() for each in name.strip("_").split("_"))
                if word in HELD & classes.keys() and held in classes and not held.endswith(word):
                    yield name.strip("_"), module.name


def annotated_in(module: Module) -> Iterator[tuple[str, str]]:
    """Yield each parameter and each field, and the class that it holds besides None."""
    for node in module.nodes:
        match node:
            case ast.arg(arg=name, annotation=ast.expr() as annotation):
                yield name, _class(annotation)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                yield name, _class(annotation)
            case _:
                continue


def _class(annotation: ast.expr) -> str:
    return re.split(r"[\[|]", ast.unparse(annotation).strip("'\""))[0].strip().lstrip("_")


Check = Callable[[Sequence[Module]], Iterator[tuple[str, str]]]


def breaches(check: Check) -> list[tuple[str, str]]:
    """Return what a check finds in the package and no exception allows: of a word's homes one may stay."""
    free: dict[str, list[str]] = {}
    for name, home in check(package_modules()):
        if home not in EXCEPTIONS.get(name, {}):
            free.setdefault(name, []).append(home)
    may_stay = 1 if check is words_with_two_meanings else 0
    return sorted((name, home) for name, homes in free.items() if len(homes) > may_stay for home in homes)


@pytest.mark.usefixtures("_package")
def test_no_word_of_the_glossary_is_defined_twice() -> None:
    assert breaches(words_with_two_meanings) == []


@pytest.mark.usefixtures("_package")
def test_a_variable_named_after_a_word_of_the_glossary_holds_that() -> None:
    assert breaches(variables_with_another_meaning) == []


@pytest.mark.usefixtures("_package")
def test_every_exception_is_still_needed_and_has_a_reason() -> None:
    needed = {*words_with_two_meanings(package_modules()), *variables_with_another_meaning(package_modules())}
    listed = {(name, home) for name, homes in EXCEPTIONS.items() for home in homes}
    assert listed - needed == set(), "Remove these from EXCEPTIONS: they have one meaning now."
    assert all(reason for homes in EXCEPTIONS.values() for reason in homes.values())


def test_the_glossary_is_sorted_and_says_what_each_word_means() -> None:
    assert [*GLOSSARY] == sorted(GLOSSARY)
    assert HELD - GLOSSARY.keys() == set()
    assert all(re.fullmatch(r"[A-Z].*\.", meaning) for meaning in GLOSSARY.values())


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("class Turn: pass", True),
        ("class _Turn: pass", True),
        ("def f():\n    class Turn: pass", True),
        ("Turn: TypeAlias = int", True),
        ("class ChatTurn: pass", False),
        ("turn = Turn()", False),
        ("class Detour: pass", False),
    ],
)
def test_a_planted_second_meaning_is_found(source: str, is_found: bool) -> None:
    modules = [Module("chat.turn", "class Turn: pass"), Module("cli.view", source), Module("a", "class Detour: pass")]
    expected = [("Turn", "chat.turn"), ("Turn", "cli.view")] if is_found else []
    assert [*words_with_two_meanings(modules)] == expected


@pytest.mark.parametrize(
    ("room", "source", "is_found"),
    [
        ("loop", "def f(turn: Iterated): pass", True),
        ("loop", "def f(_turn: 'Iterated | None'): pass", True),
        ("loop", "class A:\n    turn: Iterated", True),
        ("loop", "def f(turn: Turn[Out], turns: Iterated): pass", False),
        ("loop", "def f(turn: ChatTurn | None): pass", False),
        ("loop", "def f(turn: int): pass", False),
        ("cli", "def f(turn: Iterated): pass", False),
    ],
)
def test_a_planted_variable_of_another_class_is_found(room: str, source: str, is_found: bool) -> None:
    classes = Module("values", "class Turn: pass\nclass ChatTurn: pass\nclass Iterated: pass")
    found = [*variables_with_another_meaning([classes, Module(f"{room}.it", source)])]
    assert found == ([("turn", f"{room}.it")] if is_found else [])


def test_short_helpers_with_one_caller_become_fewer() -> None:
    short = [helper for helper in called_once(package_modules()) if helper.is_short]
    assert len(short) <= MOST_SHORT, "Fold one back: python -m tests.support.called_once --list"


def test_a_helper_that_is_called_once_is_found() -> None:
    body = "    x = 1\n" * SHORT_LINES
    source = f"""
def run(): _short(); _long(); _twice(); _twice(); public(); self._method()
def _short():
    '''Do it.'''
{body}
def _long():
    x = 0
{body}
def _twice(): pass
def _never(): pass
def public(): pass
class A:
    def _method(self): pass
    def __len__(self): pass
"""
    found = [*called_once([Module("model", source)])]
    assert found == [Helper("model._short", 4), Helper("model._long", 5), Helper("model._method", 1)]
    assert [helper.is_short for helper in found] == [True, False, True]


TESTS = Path(__file__).parent
MOST_REPEATED = 142
"""How many names are defined in five files of tests or more, outside of `tests/play`."""
MANY_FILES = 5
OF_TUPLES = {"_asdict", "_replace", "_fields", "_make"}
_DEFINED = re.compile(r"^ *(?:async def|def|class) (?!test_|__)(\w+)", re.MULTILINE)
_SUSPECT = re.compile(
    r"(?<!self)(?<!cls)\._(?!_)[A-Za-z]|setattr\(|import \(?_|, _(?!_)[A-Za-z]\w*|^    _\w+,$", re.MULTILINE
)
"""Only files with that are read closely: it takes seconds to read all."""


def repeated_names(sources: Iterable[str]) -> list[str]:
    """Return the names that many files define, each for itself; but for tests and what Python itself calls."""
    files = Counter(name for source in sources for name in set(_DEFINED.findall(source)))
    return sorted(name for name, n_files in files.items() if n_files >= MANY_FILES)


@functools.cache
def modules_of_tests() -> dict[str, str]:
    paths = [path for path in TESTS.rglob("*.py") if path != Path(__file__)]
    return {path.relative_to(TESTS).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def test_what_many_tests_need_is_defined_once() -> None:
    found = repeated_names(source for path, source in modules_of_tests().items() if not path.startswith("play/"))
    assert len(found) <= MOST_REPEATED, "Take it from `tests.play`, or call it what it is."


def test_a_name_that_one_more_file_defines_is_found() -> None:
    four = [
        "def look(): pass",
        "class A:\n    def look(self): pass",
        "def f():\n    async def look(): pass",
        "class look: 1",
    ]
    assert (repeated_names(four), repeated_names([*four, "def look(): pass"])) == ([], ["look"])


_CLOCKS = "How long it waits is no argument yet."
_OF_PYTHON = "It is Python's own, and nothing public does this."
PRIVATE: dict[str, str] = {
    "cli/warm.py: _run_exitfuncs": _OF_PYTHON,
    "cli/warm.py: _shutdown": _OF_PYTHON,
    "durable/test_heard_at_once.py: setattr journeyman.durable.driver._LOOK_S": _CLOCKS,
    "durable/test_heard_at_once.py: setattr journeyman.durable.worker._PATIENCE_S": _CLOCKS,
    "durable/test_tickets.py: setattr journeyman.": _CLOCKS,
    "durable/test_tickets.py: setattr journeyman.durable.worker._PATIENCE_S": _CLOCKS,
    "loop/test_unknown_use.py: _n_grants": "Nothing else tells what a budget holds back.",
    "loop/test_unknown_use.py: _tokens_reserved": "Nothing else tells what a budget holds back.",
    "mcp/test_calling.py: setattr connection": _CLOCKS,
    "models/test_addresses.py: _url": "One adapter of four keeps its address to itself.",
    "models/test_connections.py: _process": "Nothing else tells how many pools of connections there are.",
    "models/test_network.py: _environment": "A program is asked what it has loaded, before any request.",
    "models/test_network.py: _tls": "A program is asked what it has loaded, before any request.",
    "permission/test_answers.py: _waiting": "Nothing else shows that a call that waits no longer is forgotten.",
    "serve/test_http_hooks.py: setattr journeyman.durable.worker._PATIENCE_S": _CLOCKS,
    "store/test_forked.py: _PATIENCE_S": _CLOCKS,
    "support/eager.py: _PyTask": _OF_PYTHON,
    "support/eager.py: _Task__step": _OF_PYTHON,
    "support/eager.py: _context": _OF_PYTHON,
    "support/eager.py: _enter_task": _OF_PYTHON,
    "support/eager.py: _leave_task": _OF_PYTHON,
    "support/journaled.py: setattr module": "A run in a test is to have a journal that the test does not give it.",
    "test_hostile_texts.py: _MARK": "How long it takes is measured for the one expression.",
}
"""Where tests still reach for what is private, and why. This list may only shrink."""


def private_uses(source: str) -> set[str]:
    """Return what a module of tests takes of the private names of others, and what it puts in place of ours."""
    nodes = [*ast.walk(ast.parse(source))] if _SUSPECT.search(source) else []
    own = {node.attr for node in nodes if isinstance(node, ast.Attribute) and _is_self(node.value)}
    own |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    own |= {node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    ours = {alias.asname or alias.name for node in nodes for alias in _imported_of_ours(node)}
    found = set[str]()
    for node in nodes:
        match node:
            case ast.Attribute(attr=name) if _is_private(name) and name not in own | OF_TUPLES:
                found.add(name)
            case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] in ("journeyman", "tests"):
                found |= {alias.name for alias in names if _is_private(alias.name)}
            case ast.Call(func=ast.Name(id="setattr") | ast.Attribute(attr="setattr"), args=[where, *_]):
                found |= {f"setattr {name}" for name in _put_in_place(where, ours, nodes)}
            case ast.Constant(value=str(text)) if "journeyman" in text and "\n" in text:
                found |= _private_uses_of_a_program(text)
            case _:
                continue
    return found


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name != "_exit"


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _imported_of_ours(node: ast.AST) -> Sequence[ast.alias]:
    match node:
        case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] == "journeyman":
            return names
        case ast.Import(names=names):
            return [alias for alias in names if alias.name.partition(".")[0] == "journeyman"]
        case _:
            return ()


def _put_in_place(where: ast.expr, ours: set[str], nodes: Sequence[ast.AST]) -> set[str]:
    """Return what of ours is replaced: a module, also one of a loop over modules, or a path to a name."""
    match where:
        case ast.Name(id=name):
            looped = [each.iter for each in nodes if isinstance(each, ast.For) and ast.unparse(each.target) == name]
            names = {name, *(each.id for loop in looped for each in ast.walk(loop) if isinstance(each, ast.Name))}
            return {name} if names & ours else set()
        case ast.Constant(value=str(path)) if path.startswith("journeyman"):
            return {path}
        case ast.JoinedStr(values=[ast.Constant(value=str(path)), *_]) if path.startswith("journeyman"):
            return {path}
        case _:
            return set()


def _private_uses_of_a_program(text: str) -> set[str]:
    try:
        return private_uses(textwrap.dedent(text))
    except SyntaxError:
        return set()


def test_tests_use_what_users_can() -> None:
    found = {f"{path}: {use}" for path, source in modules_of_tests().items() for use in private_uses(source)}
    assert sorted(found - PRIVATE.keys()) == [], "Look at what users see, or give it as an argument."
    assert sorted(PRIVATE.keys() - found) == [], "Remove these from PRIVATE."


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("team._post.wake()", {"_post"}),
        ("from journeyman.team.mail import _MARK", {"_MARK"}),
        ("from tests.team.members import _box", {"_box"}),
        (
            "from journeyman.mcp import connection\nmonkeypatch.setattr(connection, 'PAUSE_S', 0)",
            {"setattr connection"},
        ),
        (
            "from journeyman import chat, loop\nfor each in (chat, loop):\n    setattr(each, 'begin', f)",
            {"setattr each"},
        ),
        (
            "monkeypatch.setattr('journeyman.durable.worker.PATIENCE_S', 0)",
            {"setattr journeyman.durable.worker.PATIENCE_S"},
        ),
        ("monkeypatch.setattr(f'journeyman.durable.{place}', 0)", {"setattr journeyman.durable."}),
        ("PROGRAM = '''\n    from journeyman import forks\n    forks._PATIENCE_S = 0.05\n'''", {"_PATIENCE_S"}),
        ("class A:\n    def f(self, other): return self._x + other._x", set[str]()),
        ("row._replace(n=1).__class__", set[str]()),
        ("monkeypatch.setattr(sys, 'path', [])", set[str]()),
    ],
)
def test_a_planted_look_behind_the_door_is_found(source: str, found: set[str]) -> None:
    assert private_uses(source) == found
