"""Stores of each kind to look at: every run in them was really run, by programs that play the model.

python -m tests.view.stores runs.db [PACE]
"""

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from signal import SIGKILL
from typing import Any

import orjson

from examples.analyst.agent import analyst, birdstrikes, demo_agent
from examples.analyst.offline import answer as play_analyst
from journeyman import Agent, Chat, Limits, Runtime, Tasks, Team, ToolContext, run, tool
from journeyman.compaction import ClearToolResults, Compaction
from journeyman.events import ApprovalRequested, Event
from journeyman.model import Request, Response
from journeyman.permission import Permission
from journeyman.record import RecordedRun, Recorder, Recordings
from journeyman.sandbox import SandboxRefusal
from journeyman.team import TeamSpawnRequest
from journeyman.testing.scripted import Answer, ScriptedModel, call, say
from journeyman.toolbox import Workspace
from journeyman.types import ToolResult, ToolUse
from tests.cli.program import Warm, running
from tests.loop.test_endings import ENDINGS
from tests.play import Stage
from tests.view.provider import Provider
from tests.view.served import STEERABLE

_PATIENCE_S = 30.0
CREW = Path(__file__).parents[2] / "examples" / "crew"
DOCS = Path(__file__).parents[2] / "docs"
CLERKS = Path(__file__).parents[1] / "cli" / "durable_agents.py"

HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\">",
    "<script>document.title='owned'</script>",
    "</script><svg onload=document.title='owned'>",
    "javascript:document.title='owned'",
    "[click](javascript:document.title='owned')",
    "{{constructor.constructor('document.title=1')()}}",
    "\u202egnp.exe \u2066x\u2069 \x00 \x1b[31mred",
)
"""What tools and models may say, and what must stay text."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A chat whose turn waits for a person."""

    chat: Chat
    turn: asyncio.Task[Any]
    asked: list[ApprovalRequested]
    """What it waits for."""


async def record_analyst(recorder: Recorder, provider: Provider) -> None:
    """A success after a draft that was revised and an attempt that was rejected."""
    question = demo_agent().question
    await run(analyst(birdstrikes, provider.model(play_analyst)), question, runtime=Runtime(recorder=recorder))


async def record_stubborn(recorder: Recorder, provider: Provider) -> None:
    """The same, by one who does not look up what was rejected: all attempts are used up."""
    question = demo_agent().question
    await run(analyst(birdstrikes, provider.model(_play_stubborn)), question, runtime=Runtime(recorder=recorder))


def _play_stubborn(request: Request) -> Response:
    blocks = [block for message in request.messages for block in message.content]
    rejected = [each for each in blocks if isinstance(each, ToolResult) and "Validation failed" in each.text]
    if not rejected:
        return play_analyst(request)
    drafts = [each for each in blocks if isinstance(each, ToolUse) and each.name == "report"]
    if isinstance(blocks[-1], ToolResult) and blocks[-1] is not rejected[-1]:
        return say("The draft reads well. I hand it in.", call("submit"))
    draft = orjson.loads(drafts[-1].input_json)
    draft["findings"][0]["value"] = 46.2 if len(rejected) == 1 else 46.3
    return say("I correct the share; the rest stands.", call("report", draft))


def _lead(provider: Provider, limits: Limits) -> Agent:
    """Return the lead of the example, whose agents are all played over the wire."""
    sys.path.insert(0, str(CREW))
    for each in CREW.glob("*.py"):  # another program's modules may have these names
        sys.modules.pop(each.stem, None)
    agents: Any = import_module("agents")
    agents.model = provider.model
    return replace(agents.crew(DOCS), limits=limits)


QUESTION = "What happens to cancelled calls, abandoned threads and unread messages?"


async def record_crew(recorder: Recorder, provider: Provider) -> None:
    """A lead with scouts at the same time, a chain, and a checker in the background, who is heard in the end."""
    lead = _lead(provider, Limits(tokens=1_000_000, cost=0.50, seconds=600, attempts=3, iterations=15))
    async with Tasks() as tasks, Chat(lead, runtime=Runtime(recorder=recorder, tasks=tasks)) as chat:
        await chat.prompt(QUESTION)
        await tasks.wait()
        if chat.state.follow_ups:
            await chat.continue_()


async def record_poor(recorder: Recorder, provider: Provider) -> None:
    """The same with few tokens for all of them together."""
    lead = _lead(provider, Limits(tokens=25_000, cost=0.50, seconds=600, attempts=3, iterations=15))
    async with Tasks() as tasks:
        await run(lead, QUESTION, runtime=Runtime(recorder=recorder, tasks=tasks))
        await tasks.wait()


async def record_librarian(recorder: Recorder, provider: Provider) -> None:
    """Two turns with a clock in the system prompt, which breaks the cache between them."""
    times = iter(("09:41:07", "09:43:52", "09:44:10"))

    def system(*_: object) -> str:
        return f"You answer from the pages of a folder and say where it stands. It is {next(times)}."

    def play(request: Request) -> Response:
        blocks = [block for message in request.messages for block in message.content]
        n = sum(isinstance(block, ToolUse) for block in blocks)
        n_answers = sum(message.role == "assistant" and not message.tool_uses for message in request.messages)
        match n, n_answers:
            case 0, _:
                return say("I look where it is said.", call("grep", pattern="cancel", path="stopping.md"))
            case 1, _:
                two = [call("read", path="stopping.md", limit=90), call("read", path="one-loop.md", limit=90)]
                return say("Two pages say most about it.", *two)
            case 3, 0:
                return say(
                    "A call that is cut off gets a result that says so, `interrupted`; what had finished keeps its own."
                    " See stopping.md and one-loop.md."
                )
            case 3, _:
                return say("That is on the page about limits.", call("read", path="limits-and-budgets.md", limit=30))
            case _:
                return say("A thread cannot be stopped: the call is abandoned, and its late result is dropped.")

    agent = Agent(
        name="librarian", model=provider.model(play), system=system, tools=Workspace(DOCS).tools("grep", "read")
    )
    async with Chat(agent, runtime=Runtime(recorder=recorder)) as chat:
        await chat.prompt("What becomes of a call that is cancelled?")
        await chat.prompt("And of a sync tool that is still running?")


async def record_reader(recorder: Recorder, provider: Provider) -> None:
    """A chat with compaction."""

    @tool(effect="pure")
    def page(number: int) -> str:
        """Read a page of the log book."""
        return f"Page {number}: " + "calm sea, no ships. " * 80

    def play(request: Request) -> Response:
        blocks = [block for message in request.messages for block in message.content]
        n = sum(isinstance(block, ToolUse) for block in blocks)
        return say(call("page", number=n + 1)) if n < 24 else say("Calm seas on all pages, and no ship.")

    agent = Agent(
        name="reader",
        model=provider.model(play),
        tools=[page],
        limits=Limits(iterations=60),
        compaction=Compaction([ClearToolResults(keep=3)], window_tokens=8_000),
    )
    async with Chat(agent, runtime=Runtime(recorder=recorder)) as chat:
        await chat.prompt("Which ships were seen?")


@asynccontextmanager
async def mending(folder: Path) -> AsyncGenerator[None]:
    """Record a chat of `mender` in the store of a folder."""
    with Recorder(folder / "runs.db") as recorder:
        async with Provider() as provider, mender(recorder, provider, folder / "docs"):
            yield


@asynccontextmanager
async def mender(recorder: Recorder, provider: Provider, folder: Path) -> AsyncGenerator[Waiting]:
    """Record a chat that asks whether it may edit a file; it waits as long as the block."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "permissions.md").write_text("# Permissions\n", encoding="utf-8")
    lines = [f"Line {number} says what a tool is." for number in range(1, 12)]
    lines[5] = "raises denies. [Permissions](permission.md) are ready gates."
    (folder / "tools.md").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def play(request: Request) -> Response:
        blocks = [block for message in request.messages for block in message.content]
        n = sum(isinstance(block, ToolUse) for block in blocks)
        if n == 0:
            two = [call("grep", pattern=r"\]\((limits|permission)\.md"), call("glob", pattern="*.md")]
            return say("I look for the link, and for the pages there are.", *two)
        if n == 2:
            two = [call("read", path="tools.md"), call("read", path="permission.md")]
            return say("One link leads nowhere. I read the lines around it.", *two)
        if n == 4:
            before, after = lines[5], lines[5].replace("permission.md", "permissions.md")
            edit = call("edit", path="tools.md", old_text=before, new_text=after)
            return say("There is no permission.md; permissions.md is what is meant. I mend the link.", edit)
        return say("The link is mended.")

    workspace = Workspace(folder)
    agent = Agent(
        name="mender",
        model=provider.model(play),
        tools=workspace.tools("grep", "glob", "read", "edit"),
        gate=Permission(mode="balanced", roots=[folder]),
        limits=Limits(attempts=3, iterations=12, cost=0.25),
    )
    asked: list[ApprovalRequested] = []
    waits = asyncio.Event()

    def hear(event: Event) -> None:
        if isinstance(event, ApprovalRequested):
            asked.append(event)
            waits.set()

    async with Chat(agent, runtime=Runtime(recorder=recorder), on_event=hear) as chat:
        turn = asyncio.ensure_future(chat.prompt("The link check names tools.md. Mend what leads nowhere."))
        await asyncio.wait([turn, asyncio.ensure_future(waits.wait())], return_when=asyncio.FIRST_COMPLETED)
        await recorder.flush()
        try:
            yield Waiting(chat, turn, asked)
        finally:
            chat.abort("the viewer was closed")
            await turn


@tool(effect="pure")
def look(topic: str = "") -> str:
    """Look something up."""
    if topic == "fire":
        raise RuntimeError("the library burns")
    return f"About {topic}: nothing new."


def _endless(limits: Limits) -> Agent:
    def step(request: Request) -> Answer:
        return [call("look", topic=f"page {len(request.messages)}")]

    return Agent(name="detective", model=ScriptedModel([step], repeat=True), tools=[look], limits=limits)


async def record_failures(recorder: Recorder) -> None:
    """A run for each way in which runs end, and one whose tool fails."""
    for case in ENDINGS.values():
        await case.run(Stage(over_http=False), runtime=Runtime(recorder=recorder))
    await run(_endless(Limits(iterations=4)), "Where are the keys?", runtime=Runtime(recorder=recorder))
    agent = Agent(name="clerk", model=ScriptedModel([[call("look", topic="fire")], "The library burns."]), tools=[look])
    await run(agent, "What of the fire?", runtime=Runtime(recorder=recorder))


async def record_team(recorder: Recorder) -> None:
    """Two members, one of which writes to the other."""
    writer = Agent(
        name="writer", model=ScriptedModel([call("send_message", to="max", message="Chapter 1 is ready."), "Written."])
    )
    reader = Agent(name="reader", model=ScriptedModel(["I wait.", "Chapter 1 is fine."]))
    async with Team("editors", runtime=Runtime(recorder=recorder)) as team:
        await team.spawn(TeamSpawnRequest(agent=reader, prompt="Read what ada writes.", name="max"))
        await team.spawn(TeamSpawnRequest(agent=writer, prompt="Write chapter 1 for max.", name="ada"))
        while await team.news():
            await team.receive()


async def record_shapes(path: Path) -> None:
    """A run of whose texts only the length and the digest are kept."""
    agent = Agent(name="discreet", model=ScriptedModel([[call("look", topic="it")], "I say nothing."]), tools=[look])
    with Recorder(path, content=False) as recorder:
        await run(agent, "What do you know?", runtime=Runtime(recorder=recorder))


def _newest(path: Path) -> RecordedRun:
    with Recordings(path) as recordings:
        return recordings.find("last")


def _wait_until(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + _PATIENCE_S
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def record_lives(path: Path, warm: Warm) -> None:
    """A durable run that is killed and recovered, one that is killed and left, and a recorded one that is killed."""
    folder = path.parent
    for name, words in (("recovered", ["--durable"]), ("abandoned", ["--durable"]), ("killed", [])):
        (folder / "stuck").touch()
        named = ["--id", name] if words else []
        command = ("run", f"{CLERKS}:clerk", f"Pay, {name}.", *words, *named, "--store", str(path), "--record")
        with running(*command, cwd=folder, env=STEERABLE, start=warm.start) as process:
            process.wait_for("stuck in: ")
            _wait_until(lambda name=name: (now := _newest(path)).input == f"Pay, {name}." and now.calls == 3)
            process.send(SIGKILL)
            process.done()
        (folder / "stuck").unlink()
    done = warm("resume", "recovered", "--store", path, cwd=folder, env=STEERABLE)
    assert done.code == 0, done.stderr


async def record_hostile(recorder: Recorder) -> None:
    """A run in which everything that can be said is an attack."""

    @tool(effect="pure")
    def echo(text: str, ctx: ToolContext) -> str:
        """Say it again, and have a name of it refused by a sandbox."""
        ctx.report_refusal("bubblewrap", SandboxRefusal(cause="write", what=f"/srv/{text}", need=f"write:/srv/{text}"))
        return "\n".join(HOSTILE) + text

    answers: list[Answer] = [say(text, call("echo", text=text)) for text in HOSTILE]
    agent = Agent(
        name="echo", model=ScriptedModel([*answers, "\n\n".join(HOSTILE)]), tools=[echo], limits=Limits(iterations=50)
    )
    await run(agent, HOSTILE[0], runtime=Runtime(recorder=recorder))


async def record_long(recorder: Recorder, n_iterations: int = 1_250) -> None:
    """A run of about eight events an iteration."""
    await run(
        Agent(
            name="archivist",
            model=ScriptedModel([_step(n_iterations)], repeat=True),
            tools=[look],
            limits=Limits(iterations=n_iterations + 1),
        ),
        "Find the letter of 14 March.",
        runtime=Runtime(recorder=recorder),
    )


def _step(n_iterations: int) -> Callable[[Request], Answer]:
    def step(request: Request) -> Answer:
        n = len(request.messages) // 2 + 1
        return say(f"Shelf {n}.", call("look", topic=f"shelf {n}")) if n < n_iterations else "It is not here."

    return step


async def record_all(path: Path, *, pace: float = 0.0, names: Sequence[str] = ()) -> None:
    """Record a run of each kind, those of `names` only if there are any."""
    kinds: dict[str, Callable[[Recorder, Provider], Any]] = {
        "long": lambda recorder, _: record_long(recorder),
        "hostile": lambda recorder, _: record_hostile(recorder),
        "failures": lambda recorder, _: record_failures(recorder),
        "team": lambda recorder, _: record_team(recorder),
        "shapes": lambda _, __: record_shapes(path),
        "reader": record_reader,
        "librarian": record_librarian,
        "crew": record_crew,
        "stubborn": record_stubborn,
        "analyst": record_analyst,
        "poor": record_poor,
    }
    with Recorder(path) as recorder:
        async with Provider(pace) as provider:
            for name, record in kinds.items():
                if not names or name in names:
                    await record(recorder, provider)


if __name__ == "__main__":
    asyncio.run(
        record_all(Path(sys.argv[1]), pace=float(sys.argv[2]) if len(sys.argv) > 2 else 0.0, names=sys.argv[3:])
    )
