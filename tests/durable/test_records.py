"""What is stored is read for ever; what is damaged, or newer than the program, blocks its run and nothing else."""

import json
import zlib
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journeyman import Agent, Limits, Success, tool
from journeyman.durable.durable import Durable
from journeyman.durable.records import BEGUN, FORMAT, MOST_BYTES, Record, crc_of, kind_of_step, packed, unpacked
from journeyman.errors import RunBlocked
from journeyman.testing.scripted import Answer, call
from tests.durable.processes import Stage, a_row, a_step, found
from tests.durable.stored_runs import RUN, Letter, records_of, writer
from tests.durable.worlds import UNKNOWN, World, do
from tests.play import existing, following, succeeded, texts, virtual_clock

_FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("f*.jsonl"))
_MODEL = "attempt/1/iteration/1/model"
_CALL = "attempt/1/iteration/1/call/A"


# -- old formats -------------------------------------------------------------------------------------------------------


def test_a_run_is_kept_of_every_format() -> None:
    # K16
    assert [path.stem for path in _FIXTURES] == [f"f{number}" for number in range(1, FORMAT + 1)]


@pytest.mark.parametrize("path", _FIXTURES, ids=lambda path: path.stem)
@virtual_clock
async def test_a_run_that_was_stored_in_any_format_replays(stage: Stage, path: Path) -> None:
    # K16
    head, *lines = path.read_text().splitlines()
    row = a_row("id", name=RUN, agent="writer", f=json.loads(head)["f"], head=b64decode(json.loads(head)["head"]))
    records = [each._replace(run="id", crc=crc_of("id", each.key, each.kind, each.body)) for each in records_of(lines)]
    process = await stage.begin()
    await process.add(row, records)
    async with stage.durable() as durable:
        result = succeeded(await durable.resume(RUN, writer(is_live=False)))
    assert result.output == Letter(text="Hello, all. " * 200)
    assert texts(result) == ["paid é🎉", "Formal.", "paid B", "Longer!", "Accepted."]
    assert list(await process.records("id")) == records, "nothing was done"


@pytest.mark.parametrize("path", _FIXTURES, ids=lambda path: path.stem)
def test_every_kind_of_step_that_was_stored_is_known(path: Path) -> None:
    # K16
    kinds = {kind_of_step(each.key) for each in records_of(path.read_text().splitlines()[1:])}
    expected = {"head", "state", "texts", "model", "approval", "call", "answer", "verdict", "feedback", "end"}
    assert kinds == expected


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("attempt/1/iteration/2/call/x", "call"),
        ("attempt/1/iteration/2/call/x\ny", "call"),
        ("attempt/1/iteration/2/call/s/parallel/0/attempt/1/iteration/1/call/y", "call"),
        ("attempt/1/iteration/2/call/s\nt/parallel/0/attempt/1/iteration/1/model", "model"),
        ("attempt/1/iteration/2/call/x/approval/1/0123456789abcdef", "approval"),
        ("answer/child#1/attempt/1/iteration/2/call/x", "answer"),
        ("attempt/1/iteration/1/model/extended/smaller", "model"),
        ("attempt/1/iteration/1/model/smaller/fit/2", "compaction"),
        ("attempt/1/verdict/0", "verdict"),
        ("attempt/1/iteration/1/guard", "guard"),
        ("attempt/1/iteration/1/unheard_of", None),
        ("attempt/1/iteration/2/call/x/preview", None),
    ],
)
def test_a_key_tells_what_kind_of_step_it_is(key: str, kind: str | None) -> None:
    assert kind_of_step(key) == kind


# -- bodies ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [b"null", b'"short"', b'"' + b"long " * 10_000 + b'"', b'"' + bytes(range(97, 123)) * 38 + b'"']
)
@pytest.mark.parametrize("used_up", [(), (1, 2, 99)])
@pytest.mark.parametrize("deaths", [0, 19])
def test_a_value_comes_back_as_it_was(value: bytes, used_up: tuple[int, ...], deaths: int) -> None:
    made = a_step("a", _MODEL)._replace(body=packed(value, key=_MODEL, used_up=used_up, deaths=deaths))
    assert unpacked(made._replace(crc=crc_of("a", _MODEL, 1, made.body))) == (value, used_up, deaths)
    assert len(existing(made.body)) <= len(value) + 60


def with_body(body: bytes, key: str = _MODEL) -> Record:
    """Return a record with a body that somebody else has written, and the checksum that belongs to it."""
    return a_step("a", key)._replace(body=body, crc=crc_of("a", key, 1, body))


_BOMB = b"z" + zlib.compress(b'{"f":1,"v":"' + b"x" * 17_000_000 + b'"}', 1)
_WRONG = {
    "no JSON": with_body(b"nothing"),
    "no object": with_body(b"[1]"),
    "no format": with_body(b'{"v":1}'),
    "no value": with_body(b'{"f":1}'),
    "a format that is no number": with_body(b'{"f":"1","v":1}'),
    "a format that is true": with_body(b'{"f":true,"v":1}'),
    "format 0": with_body(b'{"f":0,"v":1}'),
    "a negative format": with_body(b'{"f":-3,"v":1}'),
    "a newer format": with_body(b'{"f":3,"v":1}'),
    "no facts": with_body(b'{"f":2,"v":{"response":1,"spent":{}}}'),
    "a kind of step that is none": with_body(b'{"f":2,"v":{"kind":"unheard of","value":1}}'),
    "facts of another kind": with_body(b'{"f":2,"v":{"kind":"call","counts":"many","value":1}}'),
    "an old format, with what it spent in words": with_body(b'{"f":1,"v":{"response":1,"spent":"much"}}'),
    "signals that are none": with_body(b'{"f":1,"s":7,"v":1}'),
    "deaths that are none": with_body(b'{"f":1,"d":"x","v":1}'),
    "fewer deaths than none": with_body(b'{"f":2,"d":-1,"v":1}'),
    "signals that are texts": with_body(b'{"f":1,"s":["x"],"v":1}'),
    "not deflated": with_body(b"znothing"),
    "cut off": with_body((b"z" + zlib.compress(packed(b'"' + b"x" * 900 + b'"', key=_MODEL)))[:-9]),
    "a bomb": with_body(_BOMB),
    "half a text": with_body(b'{"f":1,"s":[],"v":"\\ud800"}'),
    "deeply nested": with_body(b'{"f":1,"s":[1],"v":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "an unknown kind": with_body(b'{"f":1,"v":1}', key="attempt/1/iteration/1/unheard_of"),
    "a wrong checksum": a_step("a", _MODEL)._replace(crc=7),
    "a body of another run": a_step("b", _MODEL)._replace(run="a"),
    "another key": a_step("a", _MODEL)._replace(key="attempt/1/iteration/2/model"),
    "begun under another key": a_step("a", _CALL, None, kind=BEGUN)._replace(key="attempt/1/iteration/1/call/B"),
    "begun, of an unknown kind": a_step("a", "attempt/1/unheard_of", None, kind=BEGUN),
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
    if name in ("a newer format", "an unknown kind"):
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


# -- large values ------------------------------------------------------------------------------------------------------


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


# -- what is asked is no longer what was answered ----------------------------------------------------------------------


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


@pytest.mark.parametrize("key", ["head", "system", _MODEL, _CALL, "end"])
@virtual_clock
async def test_a_step_whose_value_is_of_another_kind_blocks_its_run(stage: Stage, key: str) -> None:
    # K15
    world, process = World(), await stage.begin()

    def system(_: str) -> str:
        return "Pay."

    agent = Agent(name="clerk", model=following(do("once", "A"), "Done."), tools=world.tools(), system=system)
    async with stage.durable() as durable:
        handle = await durable.start(agent, "Go.", id="run")
        row = await found(process, handle.id)
        wrong = a_step("a", key, b'{"kind": "call", "value": {"something": ["else"]}}')._replace(about=None)
        await process.add(replace(row, id="a", name="damaged", lives=1), [wrong])
        with pytest.raises(RunBlocked):
            await durable.run(agent, "Go.", id="damaged")
        assert (await found(process, "a")).status == "blocked"
    assert world.done == (["A"] if key == "end" else [])


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
