"""Middlewares around a call: in order, each inside of the one before it; they may change, answer, time and trace."""

import asyncio
from dataclasses import replace
from typing import Any

from journeyman import ToolResult, tool
from journeyman.gate import Allow, GateRequest
from journeyman.testing.scripted import call
from journeyman.tools.tools import CallNext, Middleware, MiddlewareCall
from tests.permission import workshop
from tests.play import make_tool, succeeded, texts, virtual_clock


def tracing(name: str, trace: list[str]) -> Middleware:
    async def middleware(call: MiddlewareCall, proceed: CallNext) -> ToolResult:
        trace.append(f"{name} sees {call.arguments['n']}")
        result = await proceed(replace(call, arguments={"n": f"{call.arguments['n']}{name}"}))
        trace.append(f"{name} gets {result.text}")
        return ToolResult(f"{result.text}{name}")

    return middleware


echo = make_tool("echo", "<{n}>")


fail = make_tool("fail", ValueError("broken"))


async def play(*middlewares: Middleware, answer: Any = None, calls: Any = echo, **more: Any) -> list[str]:  # noqa: ANN401
    """Run an agent that makes one call, or what `answer` says, and return what came of it."""
    made = answer or (call("echo", n="0") if calls is echo else call(calls.name))
    result = await workshop.play([calls], made, tool_middleware=middlewares, **more)
    succeeded(result)
    return texts(result)


async def test_the_first_is_outermost_and_the_inner_ones_see_what_it_changed() -> None:
    trace: list[str] = []
    assert await play(tracing("a", trace), tracing("b", trace), tracing("c", trace)) == ["<0abc>cba"]
    assert trace == ["a sees 0", "b sees 0a", "c sees 0ab", "c gets <0abc>", "b gets <0abc>c", "a gets <0abc>cb"]


async def test_one_that_answers_keeps_the_call_from_those_inside() -> None:
    trace: list[str] = []

    async def answer(call: MiddlewareCall, proceed: CallNext) -> ToolResult:
        return ToolResult("from the cache")

    assert await play(tracing("a", trace), answer, tracing("c", trace)) == ["from the cachea"]
    assert trace == ["a sees 0", "a gets from the cache"]


async def test_one_can_change_arguments_in_place_and_call_the_tool_again() -> None:
    async def insist(call: MiddlewareCall, proceed: CallNext) -> ToolResult:
        first = await proceed(call)
        call.arguments["n"] = "again"
        return ToolResult(f"{first.text}{(await proceed(call)).text}")

    assert await play(insist) == ["<0><again>"]


@virtual_clock
async def test_one_can_time_a_call_and_the_tools_time_out_holds_for_all_of_it() -> None:
    times: list[float] = []
    clock = asyncio.get_running_loop().time

    @tool(timeout_s=10)
    async def wait(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "waited"

    async def timed(call: MiddlewareCall, proceed: CallNext) -> ToolResult:
        started = clock()
        try:
            return await proceed(call)
        finally:
            times.append(clock() - started)

    answer = [call("wait", seconds=3, id="a"), call("wait", seconds=30, id="b")]
    assert await play(timed, calls=wait, answer=answer) == ["waited", "Error: wait timed out after 10s"]
    assert times == [3, 10]


async def test_what_a_tool_raises_passes_through_all_of_them() -> None:
    seen: list[str] = []

    async def watching(call: MiddlewareCall, proceed: CallNext) -> ToolResult:
        try:
            return await proceed(call)
        except ValueError as error:
            seen.append(str(error))
            raise

    assert await play(watching, watching, calls=fail) == ["Error: broken"]
    assert seen == ["broken", "broken"]


async def test_one_may_turn_a_failure_into_a_result() -> None:
    async def forgiving(call: MiddlewareCall, proceed: CallNext) -> ToolResult:
        try:
            return await proceed(call)
        except ValueError:
            return ToolResult("never mind")

    assert await play(forgiving, calls=fail) == ["never mind"]


async def test_gates_are_asked_before_the_middlewares_and_only_once() -> None:
    trace: list[str] = []

    class Gate:
        async def decide(self, request: GateRequest) -> Allow:
            trace.append(f"gate sees {request.arguments['n']}")
            return Allow()

    await play(tracing("a", trace), gate=Gate())
    assert trace == ["gate sees 0", "a sees 0", "a gets <0a>"]


async def test_each_call_of_a_response_goes_through_by_itself() -> None:
    trace: list[str] = []
    assert await play(tracing("a", trace), answer=[call("echo", n=n, id=n) for n in "12"]) == ["<1a>a", "<2a>a"]
