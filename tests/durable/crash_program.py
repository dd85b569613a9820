"""The program of the crash tests: a tree of runs that uses everything durable, in a process that may kill itself.

Each life of it writes into a log, a line at a time, what it did, what it has stored, and where it died. What comes from
outside, such as approvals, follows from the state of the run: so it is the same in every life.
"""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from journeyman import Agent, Limits, Output, Rejected, Result, Subagents, Success, ToolContext, Usage, ask_user, tool
from journeyman.agent import Runtime
from journeyman.durable import Durable, PostgresEngine, RunHandle
from journeyman.durable.engine import Engine
from journeyman.durable.records import BEGUN, DONE, OVER, Record, unpack_step
from journeyman.durable.sqlite import SqliteEngine
from journeyman.gate import Allow, Ask
from journeyman.inbox.signals import Signal
from journeyman.journal import decode_step
from journeyman.model import Request
from journeyman.record import Recorder, Recordings
from journeyman.testing.scripted import Answer, FunctionModel, call, say
from journeyman.tools.tools import AnyTool
from journeyman.types import Effect, ToolUse
from tests.durable.statements import Statement, hear_statements
from tests.durable.worlds import read_without_times
from tests.play import make_gate
from tests.support.invariants_history import history_faults

ID = "crash"
TASK = "Do the accounts."
BEFORE = "Begin with the invoices."
MEANWHILE = {"listen1": "Hurry, please.", "listen2": "And be brief."}
"""What is said to the leader while these calls go on; the second is one of a sub-agent below."""
_BY_EFFECT: dict[Effect, str] = {
    "pure": "look1 left2 read1",
    "idempotent": "fetch1 note1 boss1 second2",
    "once": "pay1 pay2 listen1 clerk1 listen2 left1 right1 right2 first1 second1 sign1",
}
EFFECTS = {id: effect for effect, ids in _BY_EFFECT.items() for id in ids.split()}
"""What each call of a tool does to the world, by its id, in the whole tree."""


@dataclass
class World:
    """Where one life leaves its traces, and where it dies."""

    log: int
    life: int
    dies_at: int = 0
    """The point at which the process kills itself; 0: nowhere."""
    points: "count[int]" = field(default_factory=lambda: count(1))
    """The numbers of the points: a recorder reaches some in a thread of its own."""
    store: Path | str = Path()
    """A file, or the URL of a database."""
    notes_syncs: bool = False
    stays: bool = False
    """The run stays in memory while it waits: it has one life, and replays nothing."""
    is_recorded: bool = False
    """A recorder on the same store is open all the time."""
    most_tokens: int = 0
    """How many tokens the leader may use, with all below it."""
    stirred: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the run may have changed."""
    heard: set[str] = field(default_factory=set[str])
    """What was said, and has reached the run."""
    listened: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when somebody has looked for what was said."""

    def line(self, word: str, what: object) -> None:
        os.write(self.log, f"{self.life} {word} {what}\n".encode())

    def point(self, label: str) -> None:
        """Die here, if this is the point."""
        if next(self.points) == self.dies_at:
            self.line("died", label)
            os.kill(os.getpid(), signal.SIGKILL)

    def effect(self, id: str) -> None:
        """Do something to the world that can be counted."""
        self.point(f"before {id}")
        self.line("did", id)
        self.point(f"after {id}")


class Deaths:
    """Lets the process die before and after each statement that writes into the store. Of what a recorder writes, the
    ends of its transactions alone: how many statements it has in one is a matter of moments."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._loop = asyncio.get_running_loop()

    def begins(self, statement: Statement) -> None:
        if not statement.table.startswith("rec_"):
            self.world.point(f"before {statement}")
        if statement.table == "jm_steps" and statement.values["state"] == BEGUN:
            self.world.line("begins", name_of(_record_of(statement)))

    def ended(self, statement: Statement, *, n_rows: int) -> None:
        if not statement.table.startswith("rec_"):
            self.world.point(f"after {statement}")

    def committed(self, statements: Sequence[Statement], *, is_synced: bool) -> None:
        if is_synced:
            self.note_sync()
        for each in statements:
            if each.table == "jm_steps" and each.values["state"] == DONE:
                self.world.line("stored", name_of(_record_of(each)))
            if each.table == "jm_runs" and each.verb == "UPDATE":
                self._loop.call_soon_threadsafe(self.world.stirred.set)
                if "status" in each.values:
                    self.world.line("status", each.values["status"])
                if each.values.get("status") in OVER:
                    self.world.line("ended", each.values["status"])

    def note_sync(self) -> None:
        """Note how long the log of SQLite is now that all of it is on the disk, and which log it is, where a power cut
        is played."""
        if not self.world.notes_syncs or isinstance(self.world.store, str):
            return
        log = self.world.store.with_name(f"{self.world.store.name}-wal")
        if log.exists():
            with log.open("rb") as file:
                self.world.line("synced", f"{log.stat().st_size} {file.read(32).hex()}")


def _record_of(statement: Statement) -> Record:
    return Record(**{name: statement.values[name] for name in Record._fields})


def engine_of(world: World) -> Engine:
    """Return the engine of one life, which tells when somebody has looked for what was said."""
    store = world.store
    engine = PostgresEngine(store, grace_s=0.0) if isinstance(store, str) else SqliteEngine(store)
    look = engine.signals

    async def signals(*, run: str | None = None, after: int = 0) -> Sequence[Signal]:
        found = await look(run=run, after=after)
        world.heard.update(str(each.body.get("text")) for each in found)
        world.listened.set()
        return found

    engine.signals = signals
    return engine


def name_of(record: Record) -> str:
    """Return what a step is called in the log: a call by id, a model call by what it says, others by key."""
    if record.kind == "call" and record.call is not None:
        return record.call
    if record.kind == "model" and record.state == DONE:
        return "model " + unpack_step(record).decode().partition("«")[2].partition("»")[0]
    return record.key


class Letter(BaseModel):
    """What the leader hands in."""

    text: str


@dataclass
class Books:
    """The state of the run and of its attempts."""

    lines: list[str]


def tools_of(world: World, steer: Callable[[str], Any]) -> dict[str, AnyTool]:
    """Return the tools, by name."""

    @tool(effect="pure", parallel=True)
    async def look(context: ToolContext) -> str:
        world.effect(context.tool_use_id)
        await asyncio.sleep(0)
        return f"seen {context.tool_use_id}"

    @tool(effect="idempotent", parallel=True)
    async def fetch(context: ToolContext) -> str:
        await asyncio.sleep(0)
        world.effect(context.tool_use_id)
        return f"fetched {context.tool_use_id}"

    @tool(effect="once", parallel=True)
    async def pay(context: ToolContext) -> str:
        await asyncio.sleep(0)
        world.effect(context.tool_use_id)
        await asyncio.sleep(0)
        return f"paid {context.tool_use_id}"

    @tool(effect="once")
    async def sign(context: ToolContext) -> str:
        world.effect(context.tool_use_id)
        return "signed"

    @tool(effect="idempotent")
    async def note(context: ToolContext, line: str) -> str:
        world.effect(context.tool_use_id)
        context.set_run_state(Books([*context.run_state(Books).lines, line]))
        context.set_attempt_state(Books([*context.attempt_state(Books).lines, line]))
        return "noted"

    @tool(effect="pure")
    async def read(context: ToolContext) -> str:
        world.effect(context.tool_use_id)
        return f"{context.run_state(Books).lines} {context.attempt_state(Books).lines}"

    @tool(effect="once")
    async def listen(context: ToolContext) -> str:
        """Let the user say something while this call goes on."""
        world.effect(context.tool_use_id)
        text = MEANWHILE[context.tool_use_id]
        await steer(text)
        while text not in world.heard:
            await world.listened.wait()
            world.listened.clear()
        return "heard"

    return {each.name: each for each in (look, fetch, pay, sign, note, read, listen)}


def following(world: World, name: str, answers: Sequence[Sequence[ToolUse] | str]) -> FunctionModel:
    """Return a model that knows by the conversation how far it is, and says so."""
    usage = Usage(requests=1, input_tokens=100, output_tokens=20)

    def answer(request: Request) -> Answer:
        n = sum([message.role == "assistant" for message in request.messages])
        world.effect(f"model {name}:{n}")
        given = answers[n]
        blocks = [f"«{name}:{n}»", *([given] if isinstance(given, str) else given)]
        return say(*blocks, usage=usage)

    return FunctionModel(answer)


def agent_of(world: World, steer: Callable[[str], Any]) -> Agent[Any, str]:
    """Return the agent of the run that the tests kill."""
    tools = tools_of(world, steer)
    few = Limits(seconds=600)

    def worker(name: str, *answers: Sequence[ToolUse], more: Sequence[AnyTool] = ()) -> Agent[str, str]:
        given = [tools[each] for each in ("look", "fetch", "pay")]
        model = following(world, name, [*answers, f"{name} is done."])
        return Agent(name=name, description="Works.", model=model, tools=[*given, *more], limits=few)

    clerk = worker("clerk", [call("pay", id="clerk1")], [call("listen", id="listen2")], more=[tools["listen"]])
    boss = worker(
        "boss",
        [call("subagent", agent="clerk", task="Pay.", id="boss-clerk")],
        [call("fetch", id="boss1")],
        more=[Subagents(clerk)],
    )
    left = worker("left", [call("pay", id="left1")], [call("look", id="left2")])
    right = worker("right", [call("pay", id="right1"), call("pay", id="right2")])
    first = worker("first", [call("pay", id="first1")])
    second = worker("second", [call("pay", id="second1"), call("fetch", id="second2")])

    def preview(letter: Letter) -> str:
        world.effect(f"preview {letter.text}")
        return f"It reads: {letter.text}"

    def is_long(letter: Letter) -> None:
        """It must be long."""
        world.effect(f"verdict {letter.text}")
        if len(letter.text) < 5:
            raise Rejected("It is too short.")

    def run_state(_: str) -> Books:
        world.effect("state")
        return Books(["run"])

    def attempt_state(_: str, __: Books, number: int) -> Books:
        world.effect(f"attempt/{number}/state")
        return Books([f"attempt {number}"])

    return Agent(
        name="leader",
        model=following(world, "leader", _LEADER),
        tools=[*tools.values(), ask_user, Subagents(boss, left, right, first, second)],
        output=Output(Letter, reflection=preview),
        validators=[is_long],
        run_state=run_state,
        attempt_state=attempt_state,
        gate=make_gate(Ask("Shall it be signed?"), "sign"),
        limits=Limits(tokens=world.most_tokens, calls=MOST_CALLS),
    )


def _tasks(*names: str, task: str = "Work.") -> list[dict[str, str]]:
    return [{"agent": name, "task": task} for name in names]


_LEADER: Sequence[Sequence[ToolUse] | str] = (
    [call("look", id="look1"), call("fetch", id="fetch1"), call("pay", id="pay1"), call("pay", id="pay2")],
    [call("note", line="one", id="note1")],
    [call("listen", id="listen1")],
    [call("subagent", agent="boss", task="Rule.", id="single")],
    [call("output", text="Hi", id="out1")],
    [call("submit", id="submit1")],
    [call("subagent", tasks=_tasks("left", "right"), id="parallel")],
    [call("subagent", chain=[*_tasks("first"), *_tasks("second", task="Go on from: {previous}")], id="chain")],
    [call("sign", id="sign1")],
    [call("ask_user", question="Which year?", id="ask1")],
    [call("read", id="read1")],
    [call("fetch", id="refused")],
    [call("output", text="Hello, all.", id="out2")],
    [call("submit", id="submit2")],
)
MOST_CALLS = 23
"""One less than the tree asks for: the last call is refused."""
MOST_TOKENS = 3_815
"""What the last answer needs, and less than one answer more: one that is counted twice ends the run."""
MORE_TOKENS = 40_000
"""What each death after the first may add: the reservations of all model calls that it can cut."""


async def live(world: World, outcome: Path) -> None:
    """Let the run live until it is over, and write down how it ended."""
    engine, deaths = engine_of(world), Deaths(world)
    hear_statements(deaths)
    recorder = Recorder(world.store) if world.is_recorded else None
    async with Durable(engine, suspend_after_s=600 if world.stays else 0.01) as durable:
        deaths.note_sync()  # what a life finds, it finds on the disk

        async def steer(text: str) -> None:
            await (await durable.get(ID)).steer(text, who="tests")

        agent = agent_of(world, steer)
        handle = await durable.start(agent, TASK, id=ID)
        await _told_before(world, engine, handle)
        driver = asyncio.create_task(_answering(world, handle))
        result = await durable.run(agent, TASK, id=ID, runtime=Runtime(recorder=recorder))
        driver.cancel()
        await asyncio.wait({driver})
        again = await handle.result()
        info = await handle.info()
        records = await engine.records(handle.id)
    document: dict[str, Any] = {
        "id": handle.id,
        "result": shown(result),
        "stored": shown(again),
        "status": info.status,
        "lives": info.leases,
        "unknown": [name_of(each) for each in records if _is_unknown(each)],
        "cut": sum([_n_cut(each) for each in records]),
        "keys": sorted(f"{each.key} {each.state}" for each in records),
        "faults": list(history_faults(result.history)),
        "points": next(world.points) - 1,
    }
    if recorder is not None:
        recorder.close()
        document["recordings"] = recordings_of(world.store)
    outcome.write_text(json.dumps(document))


def recordings_of(store: Path | str) -> list[dict[str, Any]]:
    """Return what can be read of each recording in a store."""
    with Recordings(store) as recordings:
        return [
            {
                **{name: getattr(run, name) for name in ("id", "status", "why")},
                "events": [[*each.path, each.kind] for each in recordings.all_events(run)],
                "cut": [
                    each.n for each in recordings.all_requests(run) if len(recordings.body(each) or b"") < each.size
                ],
            }
            for run in recordings.runs()
        ]


async def _told_before(world: World, engine: Engine, handle: RunHandle[Any]) -> None:
    """Say the first words, if no life has, and note which steps are known."""
    for record in await engine.records(handle.id):
        if record.state == DONE:
            world.line("stored", name_of(record))
    said = [each for each in await engine.signals(run=handle.id) if each.body.get("text") == BEFORE]
    if not said and (await handle.info()).status == "ready":
        await handle.steer(BEFORE, who="tests")


async def _answering(world: World, handle: RunHandle[Any]) -> None:
    """Answer what waits: a call at once, a question when the run is out of memory."""
    answered: set[str] = set()
    while True:
        world.stirred.clear()
        info = await handle.info()
        for question in info.pending:
            if question.key in answered:
                continue
            try:
                if question.kind == "approve":
                    await handle.approve(question.question_id, Allow(), who="tests")
                elif info.status == "waiting" or world.stays:
                    await handle.answer(question.question_id, "2024", who="tests")
                else:
                    continue
            except LookupError:  # an earlier life has answered
                world.line("answered", question.key)
            answered.add(question.key)
        await world.stirred.wait()


def _is_unknown(record: Record) -> bool:
    if record.state != DONE or record.kind != "call":
        return False
    stored: dict[str, Any] = json.loads(unpack_step(record))["value"]
    return stored.get("error") == "interrupted"


def _n_cut(record: Record) -> int:
    """Return how many requests a step counts by what was reserved for them."""
    return 0 if record.state != DONE else decode_step(unpack_step(record))[0].lost.requests


def shown(result: Result[Any]) -> dict[str, Any]:
    """Return a result as a document without what differs from life to life: times."""
    document = read_without_times(result.to_json())
    if isinstance(result, Success):
        document["output"] = result.output.text
    return document
