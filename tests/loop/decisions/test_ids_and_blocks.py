"""Ids that are missing or repeated, blocks that are sent back as they came, and where cache marks may stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pytest

from journeyman import Agent, Output, Settings, Success, Text, ToolResult, dump_messages, load_messages, run, tool
from journeyman.history import History
from journeyman.model import Response
from journeyman.models.scripted import Scripted, call, say
from journeyman.types import Block, Message, Opaque, RedactedThinking, Thinking, ToolUse
from tests.loop.pitfalls.players import TOO_LARGE, Report, look, report, shown, small, submit
from tests.support.messages_json import Json, as_list, as_object
from tests.support.recorder import CallbackLog, Recorder, check_balance
from tests.support.stage import Stage

# -- ids ---------------------------------------------------------------------------------------------------------------


class Keeper:
    """A model as a decoder without care would make it: it gives the ids as they are written."""

    def __init__(self, *responses: Sequence[ToolUse]) -> None:
        self.responses = responses

    def model(self) -> Scripted:
        return Scripted([list(each) for each in self.responses] + ["Done."])


ODD_IDS: list[list[str]] = [
    ["a", "a"],
    ["a", "a", "a"],
    ["a b", "a b"],
    ["ü", "x" * 65],
    ["call_1", "call_2", "call_1"],
    ["call_3", "a", "a"],
    ["a\n", "\ud800", "."],
]


@pytest.mark.parametrize("ids", ODD_IDS, ids=range(len(ODD_IDS)))
async def test_calls_with_odd_or_equal_ids_each_have_an_id_and_a_result_of_their_own(ids: list[str]) -> None:
    # A37, design 4.3
    runs: list[int] = []

    @tool
    async def act(n: int) -> str:
        runs.append(n)
        return f"acted {n}"

    told, recorder = CallbackLog(), Recorder()
    model = Keeper([call("act", n=n, id=id) for n, id in enumerate(ids)]).model()
    agent = Agent(name="a", model=model, tools=[act])
    result = await run(agent, "Go.", on_event=recorder, callbacks=told.callbacks())
    assert isinstance(result, Success)
    check_balance(recorder.events)
    uses = result.history[1].tool_uses
    made = [use.id for use in uses]
    assert len(set(made)) == len(ids)
    assert all(
        use.wire_id == id.encode(errors="replace").decode() for use, id in zip(uses, ids, strict=True) if use.id != id
    )
    assert result.history[2].content == tuple(ToolResult(f"acted {n}", tool_use_id=id) for n, id in enumerate(made))
    assert runs == list(range(len(ids)))
    assert [context.tool_use_id for context, _ in told.of("tool_call")] == made
    assert load_messages(dump_messages(result.history)) == list(result.history)


async def test_ids_are_unique_over_the_whole_history() -> None:  # A37, design 4.3
    model = Keeper([call("look", id="a")], [call("look", id="a")], [call("look", id="call_1")]).model()
    result = await run(Agent(name="a", model=model, tools=[look]), "Go.")
    ids = [use.id for message in result.history for use in message.tool_uses]
    assert (len(ids), len(set(ids)), ids[0], ids[2]) == (3, 3, "a", "call_1")


async def test_ids_are_unique_over_a_history_that_goes_on() -> None:  # A37
    first = await run(Agent(name="a", model=Keeper([call("look", id="a")]).model(), tools=[look]), "Go.")
    model = Keeper([call("look", id="a"), call("look", id="a")]).model()
    second = await run(Agent(name="a", model=model, tools=[look]), "Again.", history=first.history)
    ids = [use.id for message in second.history for use in message.tool_uses]
    assert len(set(ids)) == len(ids) == 3
    assert second.history[: len(first.history)] == first.history


async def test_two_outputs_of_one_id_are_two_calls() -> None:  # A37, A3
    recorder = Recorder()
    model = Keeper([report(99, "a"), report(1, "a")]).model()
    agent = Agent(name="a", model=model, output=Output(Report), validators=[small])
    assert (await run(agent, "Go.", on_event=recorder)).unwrap() == Report(total=1)
    check_balance(recorder.events)


async def test_calls_without_an_id_get_one(stage: Stage) -> None:  # A37
    model = stage.model([[call("look"), call("look")], [call("look")], "Done."])
    result = await run(Agent(name="a", model=model, tools=[look]), "Go.")
    ids = [use.id for message in result.history for use in message.tool_uses]
    assert all(ids)
    assert len(set(ids)) == 3


# -- blocks that are sent back -----------------------------------------------------------------------------------------

THOUGHT = Thinking("Let me think.\n", "c2lnbmF0dXJl")
HIDDEN = RedactedThinking("EmwKAhgBEgy3va3pzix")
SEARCHING = Opaque("anthropic", '{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"q":"x"}}')
FOUND = Opaque("anthropic", '{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}')


def stopping(*blocks: Block, reason: Literal["tool_use", "pause_turn"] = "tool_use") -> Response:
    return Response(content=blocks, stop_reason=reason, usage=say().usage)


async def test_what_the_model_thought_and_searched_is_sent_back_as_it_came(stage: Stage) -> None:  # A41, M8
    first = (THOUGHT, HIDDEN, Text("I will search."), SEARCHING, FOUND, Text(" Found."), call("look", id="a"))
    second = (Thinking("Now the draft.", "ZHJhZnQ="), report(99, "b"))
    third = (Thinking("Smaller.", "c21hbGw="), report(1, "c"))
    model = stage.model([stopping(*first), stopping(*second), stopping(*third)])
    agent = Agent(name="a", model=model, tools=[look], output=Output(Report), validators=[small])
    result = await run(agent, "Go.")
    assert isinstance(result, Success)
    assert stage.messages(1)[1].content == stage.messages(2)[1].content == first
    assert stage.messages(2)[3].content == second
    assert stage.messages(2)[:3] == stage.messages(1)


async def test_a_call_of_the_providers_own_that_is_open_is_answered_with_results_only(stage: Stage) -> None:  # A41
    searching_and_looking = stopping(SEARCHING, call("look", id="a"))
    model = stage.model([searching_and_looking, stopping(FOUND, report(1))])
    agent = Agent(name="a", model=model, tools=[look], output=Output(Report))
    assert isinstance(await run(agent, "Go."), Success)
    assert stage.messages(1)[-1].content == (ToolResult("found here", tool_use_id="a"),)


async def test_a_feedback_text_waits_until_the_providers_own_call_is_answered(stage: Stage) -> None:  # A41, A24
    model = stage.model([stopping(SEARCHING, report(99, "a")), stopping(FOUND, call("look", id="b")), report(1)])
    agent = Agent(name="a", model=model, tools=[look], output=Output(Report), validators=[small], feedback="text")
    assert isinstance(await run(agent, "Go."), Success)
    assert [type(block) for block in stage.messages(1)[-1].content] == [ToolResult]
    assert stage.messages(2)[-1].content == (ToolResult("found here", tool_use_id="b"), Text(TOO_LARGE))


async def test_unknown_blocks_are_kept(stage: Stage) -> None:  # A41, M10
    odd = Opaque("anthropic", '{"type":"hologram","shape":[1,2,3]}')
    if stage.over_http:
        pytest.skip("the server knows the blocks that there are")
    model = stage.model([stopping(odd, call("look", id="a")), "Done."])
    result = await run(Agent(name="a", model=model, tools=[look]), "Go.")
    assert result.history[1].content == (odd, call("look", id="a"))


# -- cache marks -------------------------------------------------------------------------------------------------------


def marks(body: Json) -> list[str]:
    """Return the places of the cache marks of a request: `tools.1`, `system.0`, `messages.2.0`."""
    places = [f"tools.{n}" for n, each in enumerate(as_list(body.get("tools"))) if "cache_control" in as_object(each)]
    places += [
        f"system.{n}" for n, each in enumerate(as_list(body.get("system"))) if "cache_control" in as_object(each)
    ]
    for n, message in enumerate(as_list(body.get("messages"))):
        content = as_list(as_object(message)["content"])
        places += [f"messages.{n}.{m}" for m, each in enumerate(content) if "cache_control" in as_object(each)]
    return places


async def long_talk(stage: Stage, settings: Settings, *system: Text) -> Sequence[Message]:
    model = stage.model([call("look"), [call("look"), call("look")], report(99), report(1)])
    agent = Agent(
        name="a",
        model=model,
        system=system,
        tools=[look],
        output=Output(Report),
        validators=[small],
        settings=settings,
    )
    result = await run(agent, "Go.")
    assert isinstance(result, Success)
    return result.history


async def test_the_mark_of_the_history_moves_and_is_not_stored(stage: Stage) -> None:  # A40, X19
    history = await long_talk(stage, Settings(), Text("Be brief."))
    assert [marks(body)[-1] for body in stage.bodies] == [
        "messages.0.0",
        "messages.2.0",
        "messages.4.1",
        "messages.6.0",
    ][: len(stage.bodies)]
    assert all(sum(place.startswith("messages") for place in marks(body)) == 1 for body in stage.bodies)
    assert b'"cache_mark":true' not in dump_messages(history)


@pytest.mark.parametrize("n_marked", [0, 1, 2, 3, 4, 5])
async def test_there_are_never_more_than_four_marks(stage: Stage, n_marked: int) -> None:  # A40, M5
    system = [Text(f"Rule {n}.", cache_mark=n < n_marked) for n in range(5)]
    await long_talk(stage, Settings(), *system)
    for body in stage.bodies:
        assert 1 <= len(marks(body)) <= 4
        marked = [place for place in marks(body) if place.startswith("system")]
        assert len(marked) >= min(n_marked, 3)


async def test_without_caching_there_is_no_mark_not_even_the_callers(stage: Stage) -> None:  # A40, D11
    await long_talk(stage, Settings(cache="off"), Text("Be brief.", cache_mark=True))
    assert [marks(body) for body in stage.bodies] == [[]] * len(stage.bodies)


async def test_with_explicit_caching_only_the_callers_marks_are_sent(stage: Stage) -> None:  # A40
    await long_talk(stage, Settings(cache="explicit"), Text("Be brief."), Text("Be kind.", cache_mark=True))
    assert [marks(body) for body in stage.bodies] == [["system.1"]] * len(stage.bodies)


async def test_a_history_is_loaded_as_it_was_saved(stage: Stage) -> None:  # A41, design 4.3
    history = await long_talk(stage, Settings())
    model = stage.model([stopping(THOUGHT, report(2, "z")), submit("s")])
    agent = Agent(name="b", model=model, tools=[look], output=Output(Report, reflection=shown))
    result = await run(agent, "And now?", history=load_messages(dump_messages(history)))
    assert isinstance(result, Success)
    assert result.history[: len(history) - 1] == tuple(history[:-1])
    assert History(result.history).export() == result.history
