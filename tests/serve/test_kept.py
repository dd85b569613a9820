"""Runs and chats that a server without a store keeps: at a flat cost, and no more than its limit."""

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable
from statistics import median
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from journeyman import Agent, tool
from journeyman.durable import Durable, InMemoryEngine, Memory
from journeyman.durable.records import Row
from journeyman.errors import RunBlocked
from journeyman.model import Request, Response
from journeyman.serve import AgentApp, ServeLimits, create_app
from journeyman.testing.scripted import FunctionModel, call, say
from tests.durable.processes import a_row
from tests.play import cancelled
from tests.serve.http_served import Served, serving


def echo() -> Agent:
    return Agent(name="echo", model=FunctionModel(lambda request: request.messages[-1].text))


async def begin_run(served: Served, key: str) -> None:
    assert (await served.ask("POST", "/agents/echo/runs", {"input": key}, Idempotency_Key=key))[0] == 200


async def say_in_chat(served: Served, key: str) -> None:
    assert (await served.ask("POST", f"/agents/echo/chats/{key}/turns", {"input": key}))[0] == 200


@pytest.mark.parametrize(("say", "place"), [(begin_run, "runs"), (say_in_chat, "chats")], ids=["runs", "chats"])
async def test_of_what_has_ended_the_newest_are_kept_and_no_more(
    say: Callable[[Served, str], Awaitable[None]], place: str
) -> None:
    async with serving([echo()], limits=ServeLimits(kept_runs=3)) as served:
        for number in range(8):
            await say(served, f"k{number}")
        async with asyncio.timeout(30):
            while (await served.ask("GET", f"/{place}/k4"))[0] == 200:  # noqa: ASYNC110 - the server looks each second
                await asyncio.sleep(0.05)
        found = [(await served.ask("GET", f"/{place}/k{number}"))[0] for number in range(8)]
        assert found == [404] * 5 + [200] * 3
        await say(served, "k0")  # its name is free again


async def answered(served: AgentApp, path: str) -> None:
    """Ask without a port."""
    body, sent = [b'{"input": "Hello."}'], list[Message]()

    async def receive() -> Message:
        if body:
            return {"type": "http.request", "body": body.pop(), "more_body": False}
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    head: dict[str, Any] = {"type": "http", "method": "POST", "query_string": b"", "headers": [], "root_path": ""}
    await served({**head, "path": path, "raw_path": path.encode()}, receive, send)
    assert sent[0]["status"] == 200


async def n_lines(work: Awaitable[None]) -> int:
    """Count the lines of Python that are run: what a loop over all that is kept makes more."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        await work
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("path", ["/agents/echo/runs", "/agents/echo/chats/{}/turns"], ids=["runs", "chats"])
async def test_what_is_new_costs_the_same_however_much_is_kept(path: str) -> None:
    served = create_app([echo()])
    async with served.lifespan():
        costs = [await n_lines(answered(served, path.format(number))) for number in range(120)]
    assert median(costs[-20:]) <= 1.02 * median(costs[10:30])


@pytest.mark.parametrize(
    ("path", "most"), [("/agents/echo/runs", 5), ("/agents/echo/chats/{}/turns", 55)], ids=["runs", "chats"]
)
async def test_what_is_kept_is_little_that_a_collection_of_garbage_has_to_look_through(path: str, most: int) -> None:
    served = create_app([echo()])
    async with served.lifespan():
        for number in range(10):
            await answered(served, path.format(number))
        costs: list[float] = []
        for window in range(1, 4):  # of three, the least: what else is made once in this process is in one of them
            gc.collect()
            gc.freeze()
            for number in range(200):  # asyncio holds a hundred timers that were called off
                await answered(served, path.format(1_000 * window + number))
            await asyncio.sleep(0)
            gc.collect()
            costs.append(len(gc.get_objects()) / 200)
        assert 1 < min(costs) <= most


@pytest.mark.parametrize("path", ["/agents/echo/runs", "/agents/echo/chats/{}/turns"], ids=["runs", "chats"])
async def test_what_a_run_was_made_of_is_freed_without_a_collection_of_garbage(path: str) -> None:
    served = create_app([echo()])
    async with served.lifespan():
        for number in range(5):
            await answered(served, path.format(number))
        gc.collect()
        gc.disable()
        try:
            for number in range(5, 10):
                await answered(served, path.format(number))
            for _ in range(10):
                await asyncio.sleep(0)  # what drove the last one ends
            assert gc.collect() == 0
        finally:
            gc.enable()


async def test_a_run_of_which_no_steps_are_kept_is_not_begun_a_second_time() -> None:
    asked, is_asked = list[str](), asyncio.Event()

    async def answer(request: Request) -> str:
        asked.append(request.messages[-1].text)
        is_asked.set()
        await asyncio.Event().wait()
        return "Never."

    agent = Agent(name="slow", model=FunctionModel(answer))
    async with Durable(InMemoryEngine()) as durable:
        durable.hub.keeps_steps = False  # as of a server without a store
        going = asyncio.create_task(durable.run(agent, "Pay.", id="x"))
        await is_asked.wait()
        await cancelled(going)
        with pytest.raises(RunBlocked, match="its steps were not kept"):
            await durable.run(agent, "Pay.", id="x")
    assert asked == ["Pay."]


async def test_a_run_of_which_no_steps_are_kept_takes_none_while_it_is_held() -> None:
    asked, may_answer = asyncio.Queue[None](), asyncio.Event()
    look = tool(name="look", description="Look.")(lambda: "a tree")

    async def answer(request: Request) -> Response:
        asked.put_nowait(None)
        await may_answer.wait()
        return say("Seen.") if len(request.messages) > 1 else say(call("look", id="1"))

    agent = Agent(name="slow", model=FunctionModel(answer), tools=[look])
    async with Durable(InMemoryEngine()) as durable:
        durable.hub.keeps_steps = False
        going = asyncio.create_task(durable.run(agent, "Look.", id="x"))
        await asked.get()
        await (await durable.get("x")).hold()
        may_answer.set()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asked.get(), 0.3)
        await (await durable.get("x")).release()
        assert (await going).code == "SUCCESS"


async def test_a_run_in_memory_is_found_by_its_name_its_beginning_and_its_dedup_until_it_is_forgotten() -> None:
    agent = echo()
    async with Durable(InMemoryEngine()) as durable:
        first = await durable.start(agent, "a", id="ada:1", idempotency_key="x")
        assert (await durable.start(agent, "b", idempotency_key="x")).id == first.id
        await durable.start(agent, "c", id="ada:12")
        second = await durable.start(agent, "d", id="bob:1")
        assert (await durable.get("bob")).id == second.id
        assert (await durable.get("ada:1")).id == first.id
        for run in ("ada:1", "bob:1", "ada:12"):
            await durable.resume(run, agent)
        await durable.forget("ada:1", "bob:1")
        assert [each.name for each in await durable.list()] == ["ada:12"]
        assert (await durable.get("ada")).id == (await durable.get("ada:12")).id
        assert (await durable.start(agent, "b", idempotency_key="x")).id != first.id


@given(st.lists(st.tuples(st.sampled_from(["put", "drop", "ask"]), st.text("ab", max_size=3)), max_size=40))
def test_runs_in_memory_are_found_by_how_their_names_begin(deeds: list[tuple[str, str]]) -> None:
    memory, kept = Memory(), dict[str, Row]()
    for number, (deed, word) in enumerate(deeds):
        if deed == "put" and all(each.name != word for each in kept.values()):
            row = kept[f"{number:03}"] = a_row(f"{number:03}", name=word)
            memory.put(row)
            memory.records[row.id] = {}
        elif deed == "drop" and kept:
            id = next(iter(kept))
            del kept[id]
            memory.drop(id)
        elif deed == "ask":
            found = {each.id for each in memory.beginning(word)}
            assert found == {id for id, row in kept.items() if (row.name or "").startswith(word) or id.startswith(word)}
    assert {each.id for each in memory.beginning("")} == {*kept}


def test_names_of_runs_that_were_dropped_take_no_room() -> None:
    memory = Memory()
    for number in range(5_000):
        memory.put(a_row(f"run{number}", name=f"name{number}"))
        memory.records[f"run{number}"] = {}
        if number > 10:
            memory.drop(f"run{number - 10}")
    assert len(memory.words) + len(memory.new_words) < 3_000
