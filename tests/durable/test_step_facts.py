"""What a step stands for in limits is what its writer has stored beside its value, whatever the value holds."""

import asyncio
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from journeyman import Abort, Agent, Callbacks, Event, Failure, Limits, Result, Runtime, Subagents, Tasks, run, tool
from journeyman.durable.durable import Durable
from journeyman.durable.memory import InMemoryEngine
from journeyman.gate import Approval, Ask, Decision, Rewrite
from journeyman.journal import InMemoryJournal, Journal, StepFacts, StoredStep, StoringJournal, decode_step, encode_step
from journeyman.model import Request
from journeyman.step import RunStep
from journeyman.testing.scripted import Answer, FunctionModel, ScriptedModel, call, say
from journeyman.tools.context import States, ToolContext
from journeyman.types import Effect, JsonObject, Usage
from tests.durable.processes import Stage
from tests.play import Door, cancelled, existing, make_gate, n_answers, succeeded, virtual_clock
from tests.support.lines_journal import LinesJournal

_NAMES: Final = ("spent", "error", "kind", "v", "f", "s", "value", "counts", "children", "unstored_calls", "response")
_WORDS: Final = ("skipped", "over_budget", "call", "model", "end", "", "7")
_LEAVES: Final = st.one_of(st.sampled_from(_WORDS), st.integers(-3, 99), st.booleans(), st.none())
_HOSTILE: Final = st.dictionaries(
    st.sampled_from(_NAMES),
    st.recursive(_LEAVES, lambda each: st.dictionaries(st.sampled_from(_NAMES), each)),
    max_size=4,
)


@dataclass
class Ledger:
    """A state with whatever its users like to keep."""

    kept: dict[str, JsonValue] = field(default_factory=dict[str, JsonValue])


@dataclass
class Outcome:
    """What was seen of a run in all its lives."""

    n_made: int
    code: str
    tokens: int


ASKING = make_gate(Ask("May it?"))


@dataclass
class Bench:
    """An agent whose state, arguments and rewritten arguments are hostile, and which may die in one of its calls."""

    hostile: JsonObject
    limits: Limits
    dies_in: int = 0
    n_made: int = 0
    abort: Abort = field(default_factory=Abort)
    asleep: asyncio.Event = field(default_factory=asyncio.Event)

    def agent(self) -> Agent[Any, Any]:
        @tool(effect="pure")
        async def work(context: ToolContext, given: dict[str, JsonValue], spent: int = 0, error: str = "") -> str:
            """Work."""
            self.n_made += 1
            context.set_run_state(Ledger({**self.hostile, "n": self.n_made}))
            if self.n_made == self.dies_in:
                self.abort.abort("a death")
                self.asleep.set()
            return "done"

        def answer(request: Request) -> Answer:
            n = n_answers(request)
            usage = Usage(requests=1, input_tokens=100, output_tokens=50)
            ask = call("work", given=self.hostile, spent=n, error="skipped", id=str(n))
            return say(ask, usage=usage) if n < 9 else say("Done.", usage=usage)

        def kept(input: str) -> Ledger:
            return Ledger(dict(self.hostile))

        return Agent(
            name="worker", model=FunctionModel(answer), tools=[work], run_state=kept, limits=self.limits, gate=ASKING
        )

    def runtime(self, journal: Journal | None = None) -> Runtime:
        given: JsonObject = {"given": self.hostile, "spent": 3, "error": "over_budget"}

        async def approve(approval: Approval) -> Decision:
            return Rewrite(given, "as an operator likes")

        return Runtime(journal=journal, approver=approve)

    def outcome(self, result: Result[Any]) -> Outcome:
        return Outcome(self.n_made, str(result.code), existing(result.metadata.usage).total_tokens)


@settings(deadline=None, max_examples=settings().max_examples // 4)
@given(
    hostile=_HOSTILE, calls=st.integers(1, 8), tokens=st.sampled_from([None, 2_000, 20_000]), dies_in=st.integers(1, 8)
)
async def test_limits_count_after_a_death_as_without_one(
    hostile: JsonObject, calls: int, tokens: int | None, dies_in: int
) -> None:
    limits = Limits(calls=calls, tokens=tokens, iterations=20)
    alive, mortal = Bench(hostile, limits), Bench(hostile, limits, dies_in=dies_in)
    expected = alive.outcome(await run(alive.agent(), "Go.", runtime=alive.runtime()))
    journal = InMemoryJournal()
    result = await run(mortal.agent(), "Go.", runtime=mortal.runtime(journal), abort=mortal.abort)
    result = await run(mortal.agent(), "Go.", runtime=mortal.runtime(journal))
    assert mortal.outcome(result) == expected


async def _in_a_file(bench: Bench, path: Path) -> Result[Any]:
    for abort in (bench.abort, None):
        result = await run(bench.agent(), "Go.", runtime=bench.runtime(LinesJournal(path)), abort=abort)
    return result


_WORST: Final[JsonObject] = {
    "spent": {"input_tokens": "many"},
    "error": "skipped",
    "kind": "model",
    "v": 1,
    "f": 9,
    "s": ["x"],
    "value": {"error": "over_budget", "spent": 7},
    "counts": -5,
    "children": [1],
}


async def test_limits_count_after_a_death_in_a_journal_of_a_stranger(tmp_path: Path) -> None:
    limits = Limits(calls=4, tokens=20_000, iterations=20)
    alive, mortal = Bench(_WORST, limits), Bench(_WORST, limits, dies_in=3)
    expected = alive.outcome(await run(alive.agent(), "Go.", runtime=alive.runtime()))
    assert mortal.outcome(await _in_a_file(mortal, tmp_path / "steps.jsonl")) == expected
    assert expected.n_made == 4


@virtual_clock
async def test_limits_count_after_a_death_in_a_durable_run(stage: Stage) -> None:
    limits = Limits(calls=4, tokens=20_000, iterations=20)
    alive, mortal = Bench(_WORST, limits), Bench(_WORST, limits, dies_in=3)
    expected = alive.outcome(await run(alive.agent(), "Go.", runtime=alive.runtime()))
    async with stage.durable() as durable:
        living = asyncio.create_task(durable.run(mortal.agent(), "Go.", id="7", runtime=mortal.runtime()))
        await cancelled(living, when=mortal.asleep)
    async with stage.durable() as durable:
        assert mortal.outcome(await durable.run(mortal.agent(), "Go.", id="7", runtime=mortal.runtime())) == expected


@given(value=st.recursive(_LEAVES, lambda each: st.dictionaries(st.sampled_from(_NAMES), each) | st.lists(each)))
def test_a_step_is_read_as_it_was_written_whatever_its_value_is(value: JsonValue) -> None:
    written = encode_step(
        json.dumps(value).encode(), StepFacts(kind="call", counts=2, spent=Usage(requests=1, cost=0.5))
    )
    facts, read = decode_step(written)
    assert (facts.kind, facts.counts, facts.spent) == ("call", 2, Usage(requests=1, cost=0.5))
    assert json.loads(read) == value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"7",
        b"[]",
        b'{"value":1}',
        b'{"kind":"call"}',
        b'{"kind":"unheard of","value":1}',
        b'{"kind":[],"value":1}',
    ],
)
def test_what_is_no_step_is_no_step(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"another version|EOF|JSON"):
        decode_step(data)


def _words(result: Result[Any]) -> str:
    assert isinstance(result, Failure)
    return str(result.error)


async def test_a_durable_run_refuses_what_a_run_refuses_and_tells_it_in_the_same_way() -> None:
    agent = Agent(name="a", model=FunctionModel(lambda request: "ok"))
    wrong: list[dict[str, Any]] = [*({"max_attempts": each} for each in (0, 1.5, True, "2", float("nan")))]
    wrong += [{"abort": 3}, {"callbacks": 3}, {"runtime": 3}, {"history": [3]}, {"on_event": 3}]
    async with Durable(InMemoryEngine()) as durable:
        for each in wrong:
            plain: Any = await run(agent, "Go.", **each)
            stored = cast("Any", await durable.run(agent, "Go.", id="7", **each))
            assert (stored.code, _words(stored)) == (plain.code, _words(plain)), each
        assert await durable.list() == ()
        told: list[str] = []

        def tell(event: Event) -> None:
            told.append(type(event).__name__)

        options: dict[str, Any] = {
            "callbacks": Callbacks(on_failure=lambda context, error: told.append(error.code)),
            "on_event": tell,
        }
        await durable.run(agent, 5, id="7", **options)  # pyright: ignore[reportArgumentType, reportCallIssue]
        assert told == ["RunStarted", "RunFailed", "INVALID_INPUT"]
        await durable.run(agent, "Go.", id="7")
        with pytest.raises(ValueError, match="callbacks is 3"):
            await durable.resume("7", agent, callbacks=3)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class Table:
    rows: tuple[str, ...]


async def test_a_state_that_is_read_back_has_its_type() -> None:
    untold = Agent(
        name="untold",
        model=FunctionModel(lambda request: "ok"),
        run_state=lambda input: Table(("a",)),
        final_state=lambda states: states.run,
    )

    def rows(states: States) -> set[str]:
        return {"a", "b"}

    told = Agent(name="told", model=FunctionModel(lambda request: "ok"), final_state=rows)
    async with Durable(InMemoryEngine()) as durable:
        for agent, state in ((untold, Table(("a",))), (told, {"a", "b"})):
            for _ in range(2):
                assert succeeded(await durable.run(agent, "Go.", id=agent.name)).state == state


async def test_without_a_team_a_durable_run_has_no_members() -> None:
    scout = Agent(name="scout", model=FunctionModel(lambda request: "x"))
    join = call("subagent", agent="scout", task="t", name="ada", team_name="alpha")
    lead = Agent(name="lead", model=ScriptedModel([join, "Done."]), tools=[Subagents(scout)])
    async with Durable(InMemoryEngine()) as durable:
        result = await durable.run(lead, "Go.", id="7")
        assert len(await durable.list()) == 1
    assert "There is no team to join" in repr(result.history[2].content)


async def test_background_work_ends_with_the_durable_run_that_has_left() -> None:
    door, leading = Door(), Door()
    found = FunctionModel(door.before("What it found."))
    model = ScriptedModel([call("subagent", agent="scout", task="t", background=True), leading.before("never")])
    async with Tasks(notify=lambda text, task: None) as tasks, Durable(InMemoryEngine()) as durable:
        crew = Subagents(Agent(name="scout", model=found, stop_guard=lambda stopping: None), tasks=tasks)
        agent = Agent(name="lead", model=model, tools=[crew])
        living = asyncio.create_task(durable.run(agent, "Go.", id="7"))
        await leading.reached.wait()
        await cancelled(living, when=door.reached)
        door.opened.set()
        await asyncio.wait_for(tasks.wait(), 30)
        [info] = tasks.list()
    assert info.status == "failed"
    assert "has left this process" in (info.error or "")


class Structural:
    """What has the one method that is asked for by name, and is no journal."""

    def reserve(self, step: RunStep, *, effect: str, about: object = None) -> None:
        return None


class Older(StoringJournal):
    """A journal whose `reserve` takes less than it is given."""

    def reserve(self, step: RunStep, *, effect: Effect) -> StoredStep:  # pyright: ignore[reportIncompatibleMethodOverride]
        return StoredStep(self, step.key, effect)

    def put(self, key: str, value: bytes | None) -> None:
        return

    def stored(self, prefix: str = "") -> list[tuple[str, bytes | None]]:
        return []


class Unreadable(Older):
    """A journal that cannot be read."""

    def reserve(self, step: RunStep, *, effect: Effect, about: object = None) -> StoredStep:
        return StoredStep(self, step.key, effect)

    def stored(self, prefix: str = "") -> list[tuple[str, bytes | None]]:
        raise OSError("the disk is gone")


class Broken:
    """A model whose property raises."""

    provider, name = "broken", "broken"

    @property
    def stream(self) -> object:
        raise RuntimeError("factory failed")


@pytest.mark.parametrize(
    ("around", "words"),
    [
        ({"journal": Structural()}, "a subclass of journeyman.journal.StoringJournal"),
        ({"journal": Older()}, r"reserve\(self, step, \*, effect, about=None\)"),
        ({"journal": Unreadable()}, "the journal cannot be used .*the disk is gone"),
        ({"model": Broken()}, "raised RuntimeError: factory failed"),
    ],
)
async def test_what_raises_around_a_run_ends_it(around: dict[str, Any], words: str) -> None:
    result = await run(Agent(name="a", model=ScriptedModel(["never"])), "Go.", runtime=Runtime(**around))
    assert result.code == "INVALID_INPUT"
    assert re.search(words, _words(result)) is not None
