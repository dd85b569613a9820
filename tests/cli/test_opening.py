"""`FILE:AGENT` may name what gives an agent: a function, also an async one, or a context manager, closed at the end."""

from pathlib import Path
from signal import SIGINT

import pytest

from tests.cli.program import Warm, assert_one_error_line, running

FILE = """
import asyncio, threading
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from journeyman import Agent, tool
from journeyman.testing.scripted import ScriptedModel, call

def made(name="made"):
    return Agent(name=name, model=ScriptedModel([f"I am {name}."], repeat=True))

async def later():
    loop = asyncio.get_running_loop()
    def is_in_that_loop(output):
        assert asyncio.get_running_loop() is loop
    return Agent(name="later", model=ScriptedModel(["I am later."]), validators=[is_in_that_loop])

@asynccontextmanager
async def open_async():
    task = asyncio.current_task()
    async with asyncio.TaskGroup():
        print("opened")
        try:
            yield made("async")
        finally:
            assert asyncio.current_task() is task
            print("closed")

@contextmanager
def open_sync():
    yield made("sync")

class Manager:
    async def __aenter__(self):
        print("opened")
        return made("class")
    async def __aexit__(self, *about):
        print("closed")

async def later_open():
    return open_async()

ready = open_async()
other = partial(made, "other")

def raises():
    helper()

def helper():
    raise ValueError("no\\x1b[2J database")

async def raises_later():
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(helper))
        await asyncio.Event().wait()

def leaves():
    raise SystemExit(3)

def misdefines():
    return Agent(name="a b", model="claude")

def nothing():
    pass

def needs(db):
    return made(db)

async def forgot():
    yield made()

async def waits():
    print("waiting")
    await asyncio.Event().wait()

def blocks():
    print("blocking")
    threading.Event().wait()

async def ignores():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

async def blocks_a_thread():
    await asyncio.to_thread(threading.Event().wait)

@asynccontextmanager
async def open_sleeper():
    @tool
    async def sleep():
        print("asleep")
        await asyncio.Event().wait()
    yield Agent(name="sleeper", model=ScriptedModel([call("sleep")]), tools=[sleep])
    print("closed")

@asynccontextmanager
async def closes_badly():
    yield made("bad")
    raise RuntimeError('cannot close')

class Db:
    name = "shop"

def matches(text, db):
    assert db.name == "shop"

needy = Agent(name="needy", model=ScriptedModel(["I have it."], repeat=True), deps=Db, validators=[matches])

@asynccontextmanager
async def with_db():
    yield needy.with_deps(Db())
    print("closed")

@asynccontextmanager
async def never_closes():
    yield made("stuck")
    await asyncio.Event().wait()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agents.py").write_text(FILE)
    return tmp_path


@pytest.mark.parametrize(("name", "text"), [("made", "I am made."), ("other", "I am other."), ("later", "I am later.")])
def test_a_function_is_called_and_gives_the_agent(folder: Path, warm: Warm, name: str, text: str) -> None:
    done = warm("run", f"agents.py:{name}", "hi", "--quiet", cwd=folder)
    assert (done.code, done.stdout, done.stderr) == (0, f"{text}\n", "")


@pytest.mark.parametrize(
    ("name", "text"), [("open_async", "async"), ("Manager", "class"), ("later_open", "async"), ("ready", "async")]
)
def test_a_context_manager_is_closed_after_the_command(folder: Path, warm: Warm, name: str, text: str) -> None:
    done = warm("run", f"agents.py:{name}", "hi", cwd=folder)
    lines = done.stderr.splitlines()
    assert (done.code, done.stdout) == (0, f"I am {text}.\n")
    assert [lines[0], lines[-1]] == ["opened", "closed"]


def test_every_command_takes_what_gives_an_agent(folder: Path, warm: Warm) -> None:
    assert "closed" in warm("check", "agents.py:open_async", cwd=folder).stderr
    chatted = warm("chat", "agents.py:open_async", "--session-file", "s.db", cwd=folder, stdin=b"hi\nyou?\n")
    assert (chatted.code, chatted.stdout) == (0, "I am async.\nI am async.\n")
    assert "closed" in chatted.stderr
    served = warm("mcp", "agents.py:open_async", "agents.py:Manager", cwd=folder)
    assert (served.code, served.stdout, served.stderr.split()) == (0, "", ["opened", "opened", "closed", "closed"])
    recorded = warm("cassette", "record", "agents.py:open_async", "hi", "--out", "c.jsonl", cwd=folder)
    replayed = warm("cassette", "replay", "c.jsonl", "agents.py:open_async", cwd=folder)
    assert recorded.stdout == replayed.stdout == "I am async.\n"
    begun = warm("run", "agents.py:open_async", "hi", "--durable", "--id", "one", "--detach", cwd=folder)
    assert (begun.code, begun.stdout) == (0, "one\n")
    fork = ["fork", "one", "--at", "1/1", "--agent", "agents.py:later_open", "--input", "hi", "--yes"]
    forked = warm(*fork, cwd=folder)
    assert "closed" in forked.stderr, forked.stderr
    resumed = warm("resume", "one", cwd=folder)
    assert (resumed.code, resumed.stdout) == (0, "I am async.\n")
    assert "closed" in resumed.stderr


def test_an_agent_has_the_deps_that_the_file_opens_for_it(folder: Path, warm: Warm) -> None:
    done = warm("run", "agents.py:with_db", "hi", cwd=folder)
    assert (done.code, done.stdout, done.stderr.splitlines()[-1]) == (0, "I have it.\n", "closed")
    lacks = warm("run", "agents.py:needy", "hi", cwd=folder)
    assert (lacks.code, lacks.stdout) == (2, "")
    assert "agents.py:needy: deps are missing: the agent needs Db, which no command can know." in lacks.stderr
    assert "Name a function that returns needy.with_deps(…), or a context manager." in lacks.stderr
    assert "deps         Db, given to each run\n" in warm("check", "agents.py:needy", cwd=folder).stdout
    assert "deps         Db\n" in warm("check", "agents.py:with_db", cwd=folder).stdout


def test_the_problems_of_an_agent_that_a_function_defines_wrongly_are_listed(folder: Path, warm: Warm) -> None:
    done = warm("check", "agents.py:misdefines", cwd=folder)
    assert done.code == 1
    assert f"{MISDEFINED}: Agent 'a b' has 2 problems:" in done.stdout


def place(text: str) -> str:
    """Return where in the file of the agents a line stands."""
    [number] = [number for number, line in enumerate(FILE.splitlines(), start=1) if line.strip() == text]
    return f"agents.py, line {number}"


MISDEFINED = place('return Agent(name="a b", model="claude")')
RAISES = place('raise ValueError("no\\x1b[2J database")')
CASES = {
    "raises": (2, f"{RAISES} raises ValueError: no database. It happens when agents.py:raises is opened."),
    "raises_later": (2, f"{RAISES} raises ValueError: no database."),
    "leaves": (2, f"{place('raise SystemExit(3)')} calls sys.exit(3). agents.py:leaves has to give an agent"),
    "misdefines": (2, f"{MISDEFINED}: Agent 'a b' has 2 problems, first: "),
    "nothing": (
        2,
        f"agents.py:nothing ({place('def nothing():')}) gives None, not an agent. Return the agent from it.",
    ),
    "needs": (2, f"{place('def needs(db):')}: needs is called without arguments: missing a required argument: 'db'."),
    "open_sync": (2, "not an agent. Begin the function with async def, and put @asynccontextmanager above it"),
    "forgot": (2, "gives an async_generator, not an agent. Put @asynccontextmanager above the function"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_gives_no_agent_is_one_line_with_the_place(folder: Path, warm: Warm, name: str) -> None:
    code, part = CASES[name]
    assert_one_error_line(warm("run", f"agents.py:{name}", "hi", cwd=folder), code, [part])


@pytest.mark.parametrize("name", ["waits", "ignores", "blocks_a_thread"])
def test_what_never_gives_an_agent_ends_after_the_timeout(folder: Path, warm: Warm, name: str) -> None:
    done = warm("run", f"agents.py:{name}", "hi", "--timeout", "0.05", cwd=folder)
    late = (
        f"agents.py:{name} gives no agent within 0.05 s. Fix what it waits for, or give it longer: --timeout SECONDS."
    )
    assert_one_error_line(done, 2, [late])


def test_a_timeout_is_above_zero(folder: Path, warm: Warm) -> None:
    done = warm("run", "agents.py:made", "hi", "--timeout", "0", cwd=folder)
    assert_one_error_line(done, 2, ["for --timeout. Give a number above 0."])


def test_what_does_not_close_is_one_line_and_the_output_is_printed(folder: Path, warm: Warm) -> None:
    bad = warm("run", "agents.py:closes_badly", "hi", "--quiet", cwd=folder)
    assert (bad.code, bad.stdout) == (1, "I am bad.\n")
    where = place("raise RuntimeError('cannot close')")
    assert bad.error.startswith(f"error: {where} raises RuntimeError: cannot close. It happens when")
    stuck = warm("run", "agents.py:never_closes", "hi", "--quiet", "--timeout", "0.3", cwd=folder)
    assert (stuck.code, stuck.stdout) == (2, "I am stuck.\n")
    assert stuck.error.startswith("error: agents.py:never_closes is not closed within 0.3 s.")


def test_an_interrupted_run_closes_its_agent(folder: Path, warm: Warm) -> None:
    with running("run", "agents.py:open_sleeper", "hi", cwd=folder, start=warm.start) as program:
        program.wait_for("asleep")
        program.send(SIGINT)
        done = program.done()
    assert done.code == 130
    assert done.stderr.splitlines()[-1] == "closed"


@pytest.mark.parametrize(("name", "sign"), [("waits", "waiting\n"), ("blocks", "blocking\n")])
def test_an_interrupt_ends_what_gives_no_agent(folder: Path, warm: Warm, name: str, sign: str) -> None:
    with running("run", f"agents.py:{name}", "hi", cwd=folder, start=warm.start) as program:
        program.wait_for(sign)
        program.send(SIGINT)
        done = program.done()
    assert (done.code, done.error) == (130, "error: interrupted. Nothing was running yet.")
