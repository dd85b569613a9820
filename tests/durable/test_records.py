"""What is stored is read as it was written; what is damaged, or not known, blocks its run and nothing else."""

import zlib
from dataclasses import replace
from typing import Any

import pytest

from journeyman import Agent, Limits, Success, tool
from journeyman.durable.durable import Durable
from journeyman.durable.records import BEGUN, FORMAT, MOST_BYTES, Record, seal_record, taken_by, unpack_step
from journeyman.errors import RunBlocked
from journeyman.store import codec
from journeyman.testing.scripted import Answer, call
from tests.durable.processes import Stage, a_row, a_step, found
from tests.durable.stored_runs import RUN, Letter, stored_run, writer
from tests.durable.worlds import UNKNOWN, World, do
from tests.play import existing, following, succeeded, texts, virtual_clock

_MODEL = "attempt/1/iteration/1/model"
_CALL = "attempt/1/iteration/1/call/A"


@virtual_clock
async def test_a_stored_run_replays_without_anything_that_it_did(stage: Stage) -> None:
    # K16
    head, lived = await stored_run()
    expected = {"head", "state", "system", "said", "model", "approval", "call", "answer", "verdict", "feedback", "end"}
    assert {each.kind for each in lived} == expected
    row = a_row("id", name=RUN, agent="writer", head=head, lives=1)
    records = [seal_record(each._replace(run="id")) for each in lived if each.kind != "end"]
    process = await stage.begin()
    await process.add(row, records)
    async with stage.durable() as durable:
        result = succeeded(await durable.resume(RUN, writer(is_live=False)))
    assert result.output == Letter(text="Hello, all. " * 200)
    assert texts(result) == ["paid é🎉", "Formal.", "paid B", "Longer!", "Accepted."]
    assert [each.kind for each in await process.records("id")] == [*[each.kind for each in records], "end"]


@pytest.mark.parametrize(
    "value", [b"null", b'"short"', b'"' + b"long " * 10_000 + b'"', b'"' + bytes(range(97, 123)) * 38 + b'"']
)
@pytest.mark.parametrize("taken", [(), (1, 2, -99)])
def test_a_value_comes_back_as_it_was(value: bytes, taken: tuple[int, ...]) -> None:
    made = a_step("a", _MODEL, value, taken=taken)
    assert (unpack_step(made), tuple(taken_by(made))) == (value, taken)
    assert len(existing(made.body)) <= len(value)


def with_body(body: bytes, **fields: Any) -> Record:
    """Return a record with a body that somebody else has written, and the checksum that belongs to it."""
    return seal_record(a_step("a", _MODEL, **fields)._replace(body=body))


_BOMB = b"z" + zlib.compress(b'{"kind":"call","value":"' + b"x" * 17_000_000 + b'"}', 1)
_GOOD = b'{"kind":"model","value":1}'
_WRONG = {
    "no JSON": with_body(b"nothing"),
    "no object": with_body(b"[1]"),
    "no value": with_body(b'{"kind":"model"}'),
    "no facts": with_body(b'{"response":1,"spent":{}}'),
    "facts of a kind that is none": with_body(b'{"kind":"unheard of","value":1}'),
    "facts of another kind": with_body(b'{"kind":"call","counts":"many","value":1}'),
    "not deflated": with_body(b"znothing"),
    "cut off": with_body((b"z" + zlib.compress(b'"' + b"x" * 900 + b'"'))[:-9]),
    "a bomb": with_body(_BOMB),
    "half a text": with_body(b'{"kind":"model","value":"\\ud800"}'),
    "deeply nested": with_body(b'{"kind":"model","value":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "an unknown kind": with_body(_GOOD, kind="unheard of"),
    "an unknown format": seal_record(a_step("a", _MODEL, _GOOD)._replace(f=codec.FORMAT + 1)),
    "a wrong checksum": a_step("a", _MODEL)._replace(crc=7),
    "a body of another run": a_step("b", _MODEL)._replace(run="a"),
    "another key": a_step("a", _MODEL)._replace(key="attempt/1/iteration/2/model"),
    "begun under another key": a_step("a", _CALL, None, state=BEGUN)._replace(key="attempt/1/iteration/1/call/B"),
    "begun, of an unknown kind": a_step("a", "attempt/1/unheard_of", None, state=BEGUN, kind="unheard of"),
    **{
        f"another {name}": a_step("a", _MODEL, _GOOD)._replace(**{name: value})
        for name, value in (
            *(("kind", "call"), ("state", BEGUN), ("attempt", 2), ("iteration", 9), ("call", "B")),
            *(("taken", "[7]"), ("deaths", 3), ("effect", "once"), ("epoch", 7), ("at", 8.0)),
            *(("used_s", 9.0), ("f", 0)),
        )
    },
}


@pytest.mark.share(one_in=3)  # each record, in one of the engines
@pytest.mark.parametrize("name", _WRONG)
@virtual_clock
async def test_a_record_that_cannot_be_read_blocks_its_run(stage: Stage, name: str) -> None:
    # K16, K21
    world = World()
    agent = Agent(name="clerk", model=following(do("once", "A"), "Done."), tools=world.tools())
    process = await stage.begin()
    async with stage.durable() as durable:
        await durable.start(agent, "Go.", id="run")
        handle = await durable.start(agent, "Go.", id="other")
        row = await found(process, "run")
        await process.add(replace(row, id="a", name="damaged", lives=1, tokens=70, cost=0.5), [_WRONG[name]])
        with pytest.raises(RunBlocked):
            await durable.run(agent, "Go.", id="damaged")
        blocked = await found(process, "a")
        assert (blocked.status, blocked.tokens, blocked.cost) == ("blocked", 70, 0.5)
        assert blocked.why is not None
        assert world.done == []
        assert isinstance(await durable.run(agent, "Go.", id="other"), Success)
        assert (await handle.info()).status == "done"
    if name.startswith("an unknown"):
        assert "this version" in blocked.why


@virtual_clock
async def test_a_run_whose_head_is_newer_is_blocked(stage: Stage) -> None:
    # K16
    process = await stage.begin()
    agent = Agent(name="clerk", model=following("Done."))
    await process.add(a_row("a", name="run", f=FORMAT + 1))
    async with stage.durable() as durable:
        with pytest.raises(RunBlocked, match="update journeyman"):
            await durable.resume("run", agent)
        assert (await durable.list())[0].status in ("ready", "blocked")


@virtual_clock
async def test_a_result_that_is_too_large_is_an_error_and_its_call_is_not_made_again(stage: Stage) -> None:
    # K23
    world, n_calls = World(dies_in="B"), 0

    @tool(effect="once")
    def fetch() -> str:
        """Fetch it."""
        nonlocal n_calls
        n_calls += 1
        return "x" * (MOST_BYTES + 1)

    answers: list[Answer] = [call("fetch", id="A"), do("idempotent", "B"), "Done."]
    agent = Agent(name="clerk", model=following(*answers), tools=[fetch, *world.tools()], limits=Limits(iterations=5))
    assert await stage.life(agent, until=world.reached) is None
    world.lives_on()
    told = texts(await stage.life(agent))
    assert "16,000," in told[0]
    assert "the call was made" in told[0]
    assert UNKNOWN not in told[0]
    assert told[1] == "did B"
    assert n_calls == 1


def payer(world: World, *, system: str = "Pay.", invoice: str = "A") -> Agent[str, str]:
    answers: list[Answer] = [do("once", invoice), do("idempotent", "B"), "Done."]
    return Agent(name="clerk", model=following(*answers), tools=world.tools(), system=system)


@virtual_clock
async def test_a_run_whose_prompt_is_another_now_is_blocked_before_anything_is_done(stage: Stage) -> None:
    # K15, at a model call
    world = World(dies_in="B")
    assert await stage.life(payer(world), until=world.reached) is None
    world.lives_on()
    other = payer(world, system="Pay nothing.")
    async with stage.durable() as durable:
        with pytest.raises(RunBlocked, match=f"at {_MODEL}, the model is asked something else") as caught:
            await durable.run(other, "Go.", id="run")
        assert "the agent's system prompt differ from" in caught.value.why
        info = await (await durable.get("run")).info()
        assert (info.status, world.done) == ("blocked", ["A"])
        with pytest.raises(RunBlocked):
            await durable.run(payer(world), "Go.", id="run")
        with pytest.raises(RunBlocked):
            await (await durable.get("run")).result()
        branch = await durable.fork("run", (1, 2), agent=other)
        forked = await durable.resume(branch.id, other)
        assert isinstance(forked, Success), "one way out"
        assert world.done == ["A", "B"]
        accepted = await durable.resume("run", other, accept=True)
        assert isinstance(accepted, Success), "another way out"
        assert texts(accepted) == ["did A", "did B"]
        assert world.done == ["A", "B", "B"]


@virtual_clock
async def test_a_run_goes_on_with_the_old_agent_after_it_was_blocked(stage: Stage) -> None:
    # K15
    world = World(dies_in="B")
    assert await stage.life(payer(world), until=world.reached) is None
    world.lives_on()
    async with stage.durable() as durable:
        with pytest.raises(RunBlocked):
            await durable.run(payer(world, system="Pay nothing."), "Go.", id="run")
        result: Any = await durable.resume("run", payer(world))
    assert texts(result) == ["did A", "did B"]
    assert world.done == ["A", "B"]


@virtual_clock
async def test_a_stored_call_that_is_another_now_blocks_its_run(stage: Stage) -> None:
    # K15, at a call
    world, process = World(), await stage.begin()
    answers: list[Answer] = [do("once", "A"), "Done."]
    agent = Agent(name="clerk", model=following(*answers), tools=world.tools())
    async with stage.durable() as durable:
        handle = await durable.start(agent, "Go.", id="run")
        row = await found(process, handle.id)
        outcome = b'{"result": {"type": "tool_result", "tool_use_id": "A", "content": "no"}}'
        wrong = a_step("a", _CALL, b'{"kind":"call","value":' + outcome + b"}")
        await process.add(replace(row, id="a", name="damaged", lives=1), [wrong])
        with pytest.raises(RunBlocked, match=f"at {_CALL}, the call is another one"):
            await durable.run(agent, "Go.", id="damaged")
    assert world.done == []


@pytest.mark.parametrize(("kind", "key"), [("head", "head"), ("system", "system"), ("model", _MODEL), ("call", _CALL)])
@virtual_clock
async def test_a_step_whose_value_is_of_another_kind_blocks_its_run(stage: Stage, kind: str, key: str) -> None:
    # K15
    world, process = World(), await stage.begin()

    def system(_: str) -> str:
        return "Pay."

    agent = Agent(name="clerk", model=following(do("once", "A"), "Done."), tools=world.tools(), system=system)
    async with stage.durable() as durable:
        handle = await durable.start(agent, "Go.", id="run")
        row = await found(process, handle.id)
        wrong = a_step("a", key, b'{"kind": "call", "value": {"something": ["else"]}}', about=None, kind=kind)
        await process.add(replace(row, id="a", name="damaged", lives=1), [wrong])
        with pytest.raises(RunBlocked):
            await durable.run(agent, "Go.", id="damaged")
        assert (await found(process, "a")).status == "blocked"
    assert world.done == []


@virtual_clock
async def test_a_strict_program_blocks_a_run_whose_agent_is_another_now(stage: Stage) -> None:
    # K15
    world = World(dies_in="B")
    assert await stage.life(payer(world), until=world.reached) is None
    world.lives_on()
    other = replace(payer(world), limits=Limits(iterations=7))
    async with Durable(stage.process(), now=stage.now, strict=True) as durable:
        with pytest.raises(RunBlocked, match="the agent's limits differ from those that it was begun with"):
            await durable.run(other, "Go.", id="run")
        assert isinstance(await durable.resume("run", other, accept=True), Success)
    assert world.done == ["A", "B"]
