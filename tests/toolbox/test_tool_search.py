"""Many tools behind `tool_search` and `call_tool`: finding them, calling them, and what the run is told."""

import asyncio
import json
import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest

from journeyman import Agent, DefinitionError, Image, Result, Tool, ToolContext, ToolResult, run, tool
from journeyman.events import Event, Listener, ToolCalled, ToolProgress
from journeyman.gate import Allow, GateRequest, Rewrite, Verdict
from journeyman.model import facts_of
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.models.openai.chat import OpenAIChatModel
from journeyman.models.wrappers import FallbackModel, SwappableModel
from journeyman.testing.scripted import ScriptedModel, call
from journeyman.toolbox import deferred_tools
from journeyman.tools.tools import AnyTool
from journeyman.types import Base64, Effect, JsonObject, Text, ToolReference, dump_messages, load_messages
from tests.play import answered
from tests.support.messages_answers import answer, tool_use
from tests.support.openai_answers import answer as openai_answer
from tests.support.servers import MessagesApi, OpenAiApi


@tool(effect="pure", parallel=True)
async def find_customer(email: str) -> str:
    """Look a customer up in the register."""
    return f"customer of {email}"


@tool(effect="once", max_chars=9)
def send_invoice(customer: str, amount: float, ctx: ToolContext) -> str:
    """Send an invoice to a customer."""
    ctx.progress(f"in {threading.current_thread() is not threading.main_thread()}")
    return f"{customer} owes {amount}"


@tool(effect="idempotent", untrusted=True)
async def weather(city: str) -> Image:
    """Draw the weather map."""
    return Image(Base64.of(city.encode(), "image/png"))


ALL: tuple[AnyTool, ...] = (find_customer, send_invoice, weather)


async def found(query: str, **options: object) -> list[str]:
    search, *_ = deferred_tools(ALL)
    text = (await answered(search, {"query": query, **options})).text
    return [json.loads(line)["name"] if line.startswith("{") else line for line in text.split("\n")]


WORDS = "is not found: tool_search takes words alone. Try"
LONG = f'- query: String should have at most 1000 characters, got "{"x" * 60}"… (1,001 characters)'


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("weather, find_customer", ["find_customer", "weather", "send_invoice"]),  # by their names, the best first
        ("WEATHER no_such", ["weather"]),
        ("customer", ["find_customer", "send_invoice"]),  # name before description and parameter
        ("invoice amount", ["send_invoice"]),
        ("city", ["weather"]),
        ("nothing like it", ["No tool matches 'nothing like it'. Try other words."]),
        ("", ["No tool matches ''. Try other words."]),
        ("select:weather,find_customer", [f"'select:weather,find_customer' {WORDS} 'weather find customer'."]),
        ("/^send|map/", [f"'/^send|map/' {WORDS} 'send map'."]),
        ("x" * 1_001, ["Error: Invalid arguments for tool 'tool_search':", LONG]),
    ],
)
async def test_tools_are_found_by_the_words_of_their_names_descriptions_and_parameters(
    query: str, names: list[str]
) -> None:
    assert await found(query) == names


async def test_a_search_gives_five_unless_it_says_so() -> None:
    async def nothing() -> None:
        """Do it."""

    search, *_ = deferred_tools([tool(nothing, name=f"do_{n}") for n in range(8)])
    for arguments, n in (({"query": "do"}, 5), ({"query": "do", "limit": 7}, 7)):
        assert len((await answered(search, dict(arguments))).text.split("\n")) == n


async def test_what_is_found_has_what_it_takes_to_call_it_and_the_description_has_all_names() -> None:
    search, *_ = deferred_tools(ALL)
    shown = json.loads((await answered(search, {"query": "register"})).text)
    told = {"name": "find_customer", "description": "Look a customer up in the register."}
    assert shown == {**told, "input_schema": find_customer.spec.input_schema}
    assert search.description.endswith("There are 3: find_customer, send_invoice, weather.")


async def called(
    name: str, *, tools: Sequence[AnyTool] = ALL, on_event: Listener | None = None, **arguments: object
) -> ToolResult:
    """Return the result of a call that is passed on, once the tool was found."""
    script = [call("tool_search", query=name), call("call_tool", name=name, arguments=arguments), "Done."]
    agent = Agent(name="a", model=ScriptedModel(script), tools=deferred_tools(tools))
    result = await run(agent, "Go.", on_event=on_event)
    (found,) = [block for block in result.history[4].content if isinstance(block, ToolResult)]
    return found


async def test_a_tool_is_called_with_its_own_rules() -> None:
    assert (await called("find_customer", email="a@b")).text == "customer of a@b"
    assert (await called("weather", city="Bern")).content == (Image(Base64.of(b"Bern", "image/png")),)
    cut = await called("send_invoice", customer="Ada", amount=3)
    assert cut.text == "Ada owes \n[Cut: the first 9 of 12 characters.]"


@tool(timeout_s=0.05)
async def wait() -> None:
    await asyncio.Event().wait()


def look(arguments: dict[str, object]) -> str:
    raise LookupError(f"no {arguments['key']}")


KEYED: JsonObject = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}
WRONG = (
    "Error: Invalid arguments for tool 'send_invoice':\n- customer: is required\n"
    '- amount: should be a valid number, got "much"\n- color: is not a known name'
)


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        pytest.param("send_invoice", {"amount": "much", "color": "red"}, WRONG, id="its arguments are checked"),
        ("no_such", {}, "There is no tool 'no_such'. Find one with tool_search."),
        ("wait", {}, "Error: wait timed out after 0.05s"),
        pytest.param("look", {"key": "x"}, "Error: no x", id="its failure is what the model reads"),
    ],
)
async def test_a_call_that_fails_is_an_error(name: str, arguments: dict[str, object], text: str) -> None:
    result = await called(name, tools=[*ALL, wait, Tool("look", "", KEYED, look)], on_event=None, **arguments)
    assert (result.is_error, result.text) == (True, text)


async def test_the_run_is_told_which_tool_is_called_and_a_sync_one_runs_in_a_thread() -> None:
    events: list[Event] = []
    await called("send_invoice", customer="Ada", amount=1, on_event=events.append)
    arguments = {"name": "send_invoice", "arguments": {"customer": "Ada", "amount": 1}}
    assert [event.tool_input for event in events if isinstance(event, ToolCalled)][1:] == [arguments]
    told = [(event.tool_name, event.message) for event in events if isinstance(event, ToolProgress)]
    assert told == [("call_tool", "in True")]


class Sees:
    """A gate that keeps what it is asked."""

    def __init__(self) -> None:
        self.asked: list[GateRequest] = []

    async def decide(self, request: GateRequest) -> Verdict:
        self.asked.append(request)
        return Rewrite({"email": "c@d"}) if request.arguments == {"email": "a@b"} else Allow()


@pytest.mark.parametrize("spelling", ["call_tool", "find_customer"])
async def test_a_gate_sees_one_spelling_and_may_rewrite_it(spelling: str) -> None:
    passed = {"name": "find_customer", "arguments": {"email": "a@b"}}
    used = call("call_tool", passed) if spelling == "call_tool" else call("find_customer", email="a@b")
    gate = Sees()
    script = ScriptedModel([call("tool_search", query="register"), used, "Done."])
    agent = Agent(name="a", model=script, tools=deferred_tools(ALL), gate=gate)
    result = await run(agent, "Go.")
    seen = [
        (each.tool_name, each.arguments, each.effect, each.permission_kind, each.untrusted) for each in gate.asked[1:]
    ]
    assert seen[0] == ("find_customer", {"email": "a@b"}, "pure", None, False)
    assert {name for name, *_ in seen} == {"find_customer"}
    assert "customer of c@d" in cast("ToolResult", result.history[4].content[0]).text


@pytest.mark.parametrize("spelling", ["call_tool", "find_customer"])
async def test_a_tool_that_no_search_has_found_is_not_run(spelling: str) -> None:
    passed = {"name": "find_customer", "arguments": {"email": "a@b"}}
    used = call("call_tool", passed) if spelling == "call_tool" else call("find_customer", email="a@b")
    other, both = call("tool_search", query="weather"), call("tool_search", query="register")
    script = ScriptedModel([other, [used], [both, used], used, "Done."])
    agent = Agent(name="a", model=script, tools=deferred_tools(ALL))
    result = await run(agent, "Go.")
    told = [cast("ToolResult", message.content[-1]).text for message in result.history[2:-1:2]]
    refused = "Error: not run: you have not read yet what find_customer does and takes. "
    assert [text.startswith(refused) for text in told] == [False, True, True, False]
    assert told[-1] == "customer of a@b"
    later = Agent(name="a", model=ScriptedModel([used, "Done."]), tools=deferred_tools(ALL))
    again = await run(later, "Again.", history=load_messages(dump_messages(result.history)))
    assert cast("ToolResult", again.history[-2].content[0]).text == "customer of a@b", "a conversation remembers it"


async def test_the_tools_that_the_model_is_told_of_never_change_in_a_run() -> None:
    found = call("call_tool", name="find_customer", arguments={"email": "a"})
    script = ScriptedModel([call("tool_search", query="customer"), found, "Done."])
    agent = Agent(name="a", model=script, tools=[*deferred_tools(ALL)])
    assert (await run(agent, "Go.")).unwrap() == "Done."
    told = [[spec.name for spec in request.prefix.tools] for request in script.requests]
    assert told == [["tool_search", "call_tool"]] * 3
    assert len({id(request.prefix) for request in script.requests}) == 1


def with_effects(*effects: Effect | None) -> AnyTool:
    async def nothing() -> None:
        """Do it."""

    return deferred_tools([tool(nothing, name=f"do_{n}", effect=each) for n, each in enumerate(effects)])[1]


@pytest.mark.parametrize(
    ("effects", "effect"),
    [
        (["pure", "pure"], "pure"),
        (["pure", "idempotent"], "idempotent"),
        (["pure", "once", None], "once"),
        (["pure", None], None),
        ([], None),
    ],
)
def test_call_tool_has_the_effect_of_the_riskiest_tool(effects: list[Effect | None], effect: Effect | None) -> None:
    assert with_effects(*effects).effect == effect


def test_call_tool_is_untrusted_if_any_is_and_parallel_if_all_are() -> None:
    mixed, calm = deferred_tools(ALL)[1], deferred_tools([find_customer])[1]
    assert (mixed.untrusted, mixed.parallel) == (True, False)
    assert (calm.untrusted, calm.parallel) == (False, True)


def test_two_tools_of_one_name_are_a_wrong_definition() -> None:
    with pytest.raises(DefinitionError, match="DUPLICATE_TOOL_NAME"):
        deferred_tools([find_customer, find_customer])


async def searched_and_called() -> tuple[Result[str], list[dict[str, Any]], list[Event]]:
    """Return the result, the bodies of the requests and the events of a run on a provider that loads tools itself."""
    script = [
        answer(tool_use("tool_search", {"query": "register"})),
        answer(tool_use("find_customer", {"email": "a@b"})),
        answer("Done."),
    ]
    events: list[Event] = []
    async with MessagesApi(script) as api:
        model = AnthropicModel("claude-sonnet-5-5", api_key="k", base_url=api.url, deferred_loading=True)
        agent = Agent(name="a", model=model, tools=[*deferred_tools(ALL)])
        result = await run(agent, "Go.", on_event=events.append)
    return result, [cast("dict[str, Any]", request.body) for request in api.requests], events


async def test_a_provider_that_loads_tools_is_sent_them_as_deferred() -> None:
    result, bodies, events = await searched_and_called()
    assert result.unwrap() == "Done."
    assert [body["tools"] for body in bodies] == [bodies[0]["tools"]] * 3
    told = [(each["name"], each.get("defer_loading", False), "cache_control" in each) for each in bodies[0]["tools"]]
    assert told == [("tool_search", False, True), *((each.name, True, False) for each in ALL)]
    (found,) = bodies[-1]["messages"][2]["content"]
    assert found["content"] == [{"type": "tool_reference", "tool_name": "find_customer"}]
    (given,) = bodies[-1]["messages"][4]["content"]
    assert given["content"] == "customer of a@b"
    called = [event.tool_name for event in events if isinstance(event, ToolCalled)]
    assert called == ["tool_search", "find_customer"]


async def test_a_conversation_with_references_is_stored_and_goes_on_elsewhere() -> None:
    result, _, _ = await searched_and_called()
    stored = load_messages(dump_messages(result.history))
    assert stored == [*result.history]
    (found,) = stored[2].content
    assert isinstance(found, ToolResult)
    assert isinstance(found.content, tuple)
    assert found.content[1:] == (ToolReference("find_customer"),)
    async with OpenAiApi([openai_answer("Yes.")]) as api:
        model = OpenAIChatModel("gpt-4.1", api_key="k", base_url=f"{api.url}/v1")
        agent = Agent(name="a", model=model, tools=[*deferred_tools(ALL)])
        assert (await run(agent, "And?", history=stored)).unwrap() == "Yes."
    body = cast("dict[str, Any]", api.requests[0].body)
    assert [each["function"]["name"] for each in body["tools"]] == ["tool_search", "call_tool"]
    assert [each["content"] for each in body["messages"] if each["role"] == "tool"] == [found.text, "customer of a@b"]


async def test_a_reference_to_a_tool_that_is_gone_is_left_out() -> None:
    result, _, _ = await searched_and_called()
    async with MessagesApi([answer("Yes.")]) as api:
        model = AnthropicModel("claude-sonnet-5-5", api_key="k", base_url=api.url, deferred_loading=True)
        agent = Agent(name="a", model=model, tools=[*deferred_tools([weather])])
        assert (await run(agent, "And?", history=result.history)).unwrap() == "Yes."
    body = cast("dict[str, Any]", api.requests[0].body)
    (found,) = body["messages"][2]["content"]
    assert [each["type"] for each in found["content"]] == ["text"]


def test_a_result_of_nothing_but_references_says_so_in_words() -> None:
    assert ToolResult((ToolReference("a"), ToolReference("b"))).parts == (Text("Found: a, b."),)


def test_models_around_models_load_tools_if_all_of_them_do() -> None:
    loads, does_not = AnthropicModel("claude-sonnet-5-5"), ScriptedModel([])
    older = AnthropicModel("claude-3-5-haiku")
    assert [facts_of(model).loads_tools for model in (loads, older, does_not)] == [True, False, False]
    assert not facts_of(AnthropicModel("claude-sonnet-5-5", base_url="https://gateway.test")).loads_tools
    assert [facts_of(FallbackModel(loads, each)).loads_tools for each in (loads, does_not)] == [True, False]
    assert [facts_of(SwappableModel(each)).loads_tools for each in (loads, does_not, None)] == [True, False, False]
