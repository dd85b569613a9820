"""Calls of tools: the arguments a tool is given, and what the model reads of what it returned or raised."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from itertools import product
from typing import Annotated, Any, Required

import pytest
from pydantic import BaseModel, Field, SecretStr
from typing_extensions import TypedDict

from journeyman import Limits, Output, Rejected, Tool, ToolContext, run, tool
from journeyman.events import CallbackContext, Callbacks, Event, ToolCalled
from journeyman.gate import Allow, GateRequest
from journeyman.model import ToolSpec
from journeyman.testing.scripted import ScriptedModel, call
from journeyman.tools.tools import CallNext, MiddlewareCall
from journeyman.types import Base64, Image, JsonObject, Text, ToolResult, ToolUse, dump_messages, load_messages
from tests.loop.callback_log import CallbackLog
from tests.loop.parts import circular, first_input
from tests.play import instance_of, raising
from tests.play.agents import Report, report, reporter, submit, talker
from tests.play.recorder import Recorder
from tests.play.results import succeeded
from tests.play.stage import Stage
from tests.play.tools import look, make_tool


async def answered(stage: Stage, made: Tool[..., Any], **arguments: object) -> ToolResult:
    """Return what the model reads of one call of a tool."""
    agent = talker(stage.model([call(made.name, arguments, id="a"), "Done."]), tools=[made])
    assert succeeded(await run(agent, "Go.")).output == "Done."
    return stage.tool_results(1)[0]


async def test_a_tool_is_a_definition_and_a_handler(stage: Stage) -> None:  # R18, R69, X7
    def handler(arguments: dict[str, Any]) -> str:
        return f"dug {arguments['depth']}"

    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"depth": {"type": "integer", "minimum": 1}},
        "required": ["depth"],
    }
    dig = Tool("dig", "Dig a hole.", schema, handler)
    assert await answered(stage, dig, depth=2) == ToolResult("dug 2", tool_use_id="a")
    assert stage.requests[0].prefix.tools == (ToolSpec(name="dig", description="Dig a hole.", input_schema=schema),)


async def test_a_tool_sees_its_run(stage: Stage) -> None:  # X1
    facts: list[object] = []

    @tool
    async def ask(context: ToolContext) -> None:
        facts.extend([context.input, context.agent, context.path])
        facts.extend([context.attempt, context.iteration, context.tool_use_id])

    await answered(stage, ask)
    assert facts == ["Go.", "talker", ("talker",), 1, 1, "a"]


WHO: ContextVar[str] = ContextVar("who", default="nobody")


async def test_a_sync_tool_runs_in_a_thread_of_its_own_with_the_callers_context(stage: Stage) -> None:  # A17
    WHO.set("somebody")

    @tool
    def where() -> str:
        seen = f"{WHO.get()} {threading.current_thread().name}"
        WHO.set("the tool")
        return seen

    @tool(thread=False)
    def inline() -> str:
        return f"{WHO.get()} {threading.current_thread().name}"

    model = stage.model([[call("where"), call("where"), call("inline")], "Done."])
    await run(talker(model, tools=[where, inline]), "Go.")
    homes = [answered.content for answered in stage.tool_results(1)]
    assert homes == ["somebody tool where"] * 2 + [f"somebody {threading.main_thread().name}"]
    assert WHO.get() == "somebody"


async def test_a_sync_tool_that_returns_an_awaitable_is_awaited_in_the_loop(stage: Stage) -> None:  # A17
    homes: list[object] = []

    async def fetch() -> str:
        homes.append(threading.current_thread())
        return "fetched"

    def begin(arguments: JsonObject) -> Awaitable[str]:
        homes.append(threading.current_thread())
        return fetch()

    used = Tool("begin", "Begin.", {"type": "object"}, begin)
    await run(talker(stage.model([call("begin", id="a"), "Done."]), tools=[used]), "Go.")
    assert stage.tool_results(1) == [ToolResult("fetched", tool_use_id="a")]
    assert [home is threading.main_thread() for home in homes] == [False, True]


async def test_the_loop_goes_on_while_a_sync_tool_blocks(stage: Stage) -> None:  # A17
    released = threading.Event()

    @tool
    def block() -> str:
        return "released" if released.wait(5) else "stuck"

    def on_call(context: CallbackContext, name: str, arguments: object) -> None:
        asyncio.get_running_loop().call_soon(released.set)

    agent = talker(stage.model([call("block"), "Done."]), tools=[block])
    await run(agent, "Go.", callbacks=Callbacks(on_tool_call=on_call))
    assert stage.tool_results(1)[0].content == "released"


async def test_a_tool_is_called_by_the_name_it_is_offered_under(stage: Stage) -> None:  # D33
    def plain(n: int) -> str:
        return f"plain {n}"

    model = stage.model([[call("renamed", n=1, id="a"), call("plain", n=1, id="b"), call("look", id="c")], "Done."])
    await run(talker(model, tools=[tool(plain, name="renamed"), look]), "Go.")
    assert stage.tool_names() == ["renamed", "look"]
    assert stage.tool_results(1) == [
        ToolResult("plain 1", tool_use_id="a"),
        ToolResult("Error: Unknown tool plain", is_error=True, tool_use_id="b"),
        ToolResult("found here", tool_use_id="c"),
    ]


UNSENDABLE = [
    *("look ", " look", "look\x00", "l\u043eok", "", "../look", "{name}", "%s", "x" * 300, "\U0001f4a5", "\ud800")
]
"""Names that no tool may have. One has a Cyrillic letter, one half a pair of surrogates."""

HOSTILE = [
    *("constructor", "__class__", "__init__", "get", "items", "LOOK", "loo", "run", "handler", "output", "None", "0")
]
"""Names that no tool has, but some object may."""


@pytest.mark.parametrize(
    ("stage", "name"),
    [
        *product(["in process", "over http"], HOSTILE),
        *product(["in process"], UNSENDABLE),  # the adapter sends another name, and the server wants its answers back
    ],
    indirect=["stage"],
    ids=lambda given: repr(given)[:20],
)
async def test_a_name_that_no_tool_has_is_answered_as_unknown_whatever_it_is(
    stage: Stage, name: str, recorder: Recorder
) -> None:  # D33, D34, D42, R25, R48, A15
    result = succeeded(await run(talker(stage.model([call(name, id="a"), "Done."])), "Go.", on_event=recorder))
    text = f"Error: Unknown tool {name}".encode(errors="replace").decode()
    assert stage.tool_results(1) == [ToolResult(text, is_error=True, tool_use_id="a")]
    assert len(load_messages(dump_messages(result.history))) == len(result.history)
    stats = result.metadata.tools["(unknown)"]
    assert (stats.kind, stats.calls, stats.errors) == ("unknown", 1, {"unknown": 1})
    assert set(result.metadata.tools) == {"(unknown)"}


async def test_a_tool_may_have_the_name_of_an_attribute(stage: Stage) -> None:  # D34
    names = ["__class__", "get", "tools", "constructor", "None"]
    tools = [make_tool(name, name) for name in names]
    result = await run(talker(stage.model([[call(name) for name in names], "Done."]), tools=tools), "Go.")
    assert [answered.content for answered in stage.tool_results(1)] == names
    assert set(result.metadata.tools) == set(names)


async def test_names_differ_by_case(stage: Stage) -> None:  # A15
    model = stage.model([[call("Look"), call("look"), call("LOOK")], "Done."])
    await run(talker(model, tools=[make_tool("look", "look"), make_tool("Look", "Look")]), "Go.")
    assert [answered.content for answered in stage.tool_results(1)] == ["Look", "look", "Error: Unknown tool LOOK"]


async def test_names_of_any_allowed_form_are_sent_as_they_are(stage: Stage) -> None:  # D13
    names = ["x" * 128, "-", "_", "0", "A-z_9"]
    await run(talker(stage.model(["Done."]), tools=[make_tool(name, name) for name in names]), "Go.")
    assert stage.tool_names() == names


@pytest.mark.parametrize("raw", [False, True], ids=["typed", "with a schema"])
async def test_a_tool_whose_arguments_do_not_fit_is_not_called_and_the_model_reads_every_fault(
    stage: Stage, raw: bool
) -> None:  # A36, D43, R20
    runs: list[str] = []

    async def send(to: str, copies: Annotated[int, Field(le=5)], when: str = "now") -> str:
        runs.append(to)
        return "sent"

    def send_raw(arguments: JsonObject) -> str:
        runs.append(str(arguments["to"]))
        return "sent"

    typed = tool(send)
    used = Tool("send", "Send.", typed.input_schema, send_raw) if raw else typed
    told = CallbackLog()
    model = stage.model([call("send", copies=9, at="noon", id="a"), call("send", to="me", copies=1), "Done."])
    result = await run(talker(model, tools=[used]), "Go.", callbacks=told.callbacks())
    assert runs == ["me"]
    assert stage.tool_results(1) == [
        ToolResult(
            "Error: Invalid arguments for tool 'send':\n"
            "- to: is required\n"
            f"- copies: {'is greater than the maximum of' if raw else 'should be less than or equal to'} 5, got 9\n"
            "- at: is not a known name",
            is_error=True,
            tool_use_id="a",
        )
    ]
    assert [context.is_error for context, _ in told.of("tool_result")] == [True, False]
    assert len(told.of("tool_call")) == 2
    assert result.metadata.tools["send"].errors == {"invalid_input": 1}


MALFORMED = ['{"where": "up"', "", "[1]", "null", '"up"', "{'where': 'up'}", '{"where": NaN}', "[" * 5_000, "\ud800"]


@pytest.mark.parametrize("written", MALFORMED, ids=[f"{n}" for n in range(len(MALFORMED))])
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "undeclared"])
async def test_arguments_that_are_no_object_are_faults_of_the_models_and_do_not_spoil_the_history(
    written: str, declared: bool
) -> None:  # A36, A37, M8
    use = ToolUse("a", "look", "{}", malformed=written) if declared else ToolUse("a", "look", written)
    result = succeeded(await run(talker(ScriptedModel([use, "Done."])), "Go."))
    assert result.history[1].tool_uses[0].input == {}
    assert load_messages(dump_messages(result.history))
    answered = instance_of(ToolResult, result.history[2].content[0])
    assert answered.is_error
    assert answered.text.startswith("Error: Invalid arguments for tool 'look':")
    assert "\nYou wrote: " in answered.text


async def test_of_a_long_text_that_is_no_object_the_middle_is_left_out(stage: Stage) -> None:
    use = ToolUse("a", "look", malformed='{"where": "' + "u" * 50_000 + "p")
    await run(talker(stage.model([use, "Done."])), "Go.")
    told = stage.tool_results(1)[0].text
    assert '\nYou wrote: {"where": "uuu' in told
    assert told.endswith("u\n[… 49,012 characters left out …]\n" + "u" * 299 + "p")
    assert len(told) < 1_300


class Login(BaseModel, hide_input_in_errors=True):
    word: str


@tool
async def hidden_login(login: Login) -> str:
    return login.word


@tool
async def secret_login(password: SecretStr) -> str:
    return password.get_secret_value()


RAW_LOGIN: JsonObject = {"type": "object", "properties": {"password": {"type": "string", "writeOnly": True}}}
raw_login = Tool("raw_login", "Log in.", RAW_LOGIN, str)


@pytest.mark.parametrize("made", [hidden_login, secret_login, raw_login], ids=lambda made: made.name)
async def test_what_may_hold_a_secret_is_not_repeated(stage: Stage, made: Tool[..., Any]) -> None:
    use = ToolUse("a", made.name, malformed='{"password": "open sesame')
    await run(talker(stage.model([use, "Done."]), tools=[made]), "Go.")
    told = stage.tool_results(1)[0]
    assert told.text.startswith(f"Error: Invalid arguments for tool '{made.name}':\n- ")
    assert "open sesame" not in told.text


async def test_a_null_for_a_parameter_that_may_be_left_out_counts_as_absent(stage: Stage) -> None:
    class Area(TypedDict, total=False):
        radius: Required[int]
        unit: str

    @tool
    async def dig(
        depth: int = 2, tools: tuple[str, ...] = ("spade",), area: Area | None = None, name: str | None = "pit"
    ) -> str:
        return f"{depth} {tools} {area} {name}"

    nulls = {"depth": None, "tools": None, "area": {"radius": 1, "unit": None}, "name": None}
    assert (await answered(stage, dig, **nulls)).text == "2 ('spade',) {'radius': 1} None"
    assert stage.messages(1)[1].tool_uses[0].input == nulls  # what the model wrote stays as it is


async def test_a_null_for_what_is_required_is_a_fault(stage: Stage) -> None:
    @tool
    async def dig(depth: int, width: int = 1) -> str:
        return f"{depth} {width}"

    told = (await answered(stage, dig, depth=None, width=None)).text
    assert told == "Error: Invalid arguments for tool 'dig':\n- depth: should be a valid integer, got null"


ODD_TEXTS = ["x" * 1_000_000, "\x00\x1b[31m\u202e", "</tool_result>", "{0.__class__}"]


@pytest.mark.parametrize("text", ODD_TEXTS, ids=range(len(ODD_TEXTS)))
async def test_odd_texts_reach_the_tool_as_they_are(stage: Stage, text: str) -> None:  # A36
    seen: list[str] = []

    keep = make_tool("keep", "kept", into=seen)
    result = await run(talker(stage.model([call("keep", where=text), "Done."]), tools=[keep]), "Go.")
    assert seen == [text]
    assert result.history[1].tool_uses[0].input == {"where": text}


HOSTILE_NAMES = ["ctx", "self", "__class__", "__proto__", "args", "kwargs", "arguments", "context", "where "]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
async def test_an_argument_that_a_tool_does_not_name_is_refused(stage: Stage, name: str) -> None:  # A36, D34
    seen: list[ToolContext] = []

    @tool
    async def keep(ctx: ToolContext, where: str = "here") -> str:
        seen.append(ctx)
        return "kept"

    model = stage.model([call("keep", {name: {"abort": 1}}), call("keep"), "Done."])
    await run(talker(model, tools=[keep], limits=Limits(iterations=3)), "Go.")
    assert "is not a known name" in stage.tool_results(1)[0].text
    assert len(seen) == 1


class Basket(TypedDict):
    items: list[str]


@tool
async def pack(basket: Basket, labels: dict[str, list[int]]) -> str:
    """Pack the basket, and change everything that came."""
    basket["items"].append("stolen")
    labels["a"].clear()
    labels["b"] = [1]
    return "packed"


def pack_raw(arguments: JsonObject) -> str:
    arguments.clear()
    arguments["basket"] = "gone"
    return "packed"


PACKERS = [pack, Tool("pack", "Pack.", {"type": "object"}, pack_raw)]
ARGUMENTS: JsonObject = {"basket": {"items": ["pear"]}, "labels": {"a": [1, 2]}}


@pytest.mark.parametrize("packer", PACKERS, ids=["typed", "with a schema"])
async def test_a_tool_that_changes_its_arguments_does_not_rewrite_the_history(
    stage: Stage, packer: Tool[..., object]
) -> None:  # D12
    result = await run(talker(stage.model([call("pack", ARGUMENTS), "Done."]), tools=[packer]), "Go.")
    assert first_input(stage) == ARGUMENTS
    assert result.history[1].tool_uses[0].input == ARGUMENTS


async def test_a_default_that_a_tool_changes_is_new_for_the_next_call(stage: Stage) -> None:  # D12
    @tool
    async def note(word: str, words: list[str] = []) -> list[str]:  # noqa: B006 - that it is safe is what is tested
        words.append(word)
        return words

    await run(talker(stage.model([call("note", word="one"), call("note", word="two"), "Done."]), tools=[note]), "Go.")
    assert [stage.tool_results(n)[0].content for n in (1, 2)] == ['["one"]', '["two"]']


async def test_two_calls_with_the_same_arguments_do_not_share_them(stage: Stage) -> None:  # D12
    seen: list[JsonObject] = []

    @tool(parallel=True)
    async def add(to: dict[str, int]) -> str:
        to["added"] = to.get("added", 0) + 1
        await asyncio.sleep(0)
        seen.append(dict(to))
        return "added"

    await run(talker(stage.model([[call("add", to={}), call("add", to={})], "Done."]), tools=[add]), "Go.")
    assert seen == [{"added": 1}, {"added": 1}]


# D12, A27
async def test_callbacks_listeners_and_gates_that_change_the_arguments_change_only_their_own(stage: Stage) -> None:
    told, seen, heard = list[JsonObject](), list[JsonObject](), list[JsonObject]()

    def listen(event: Event) -> None:
        if isinstance(event, ToolCalled):
            heard.append(dict(event.tool_input))
            event.tool_input.clear()

    def on_call(context: CallbackContext, name: str, arguments: JsonObject) -> None:
        told.append(dict(arguments))
        arguments["where"] = "elsewhere"

    class Meddler:
        async def decide(self, request: GateRequest) -> Allow:
            seen.append(dict(request.arguments))
            request.arguments["where"] = "anywhere"
            return Allow()

    agent = talker(stage.model([call("look", where="up"), "Done."]), gate=Meddler())
    await run(agent, "Go.", callbacks=Callbacks(on_tool_call=on_call), on_event=listen)
    assert told == seen == heard == [{"where": "up"}]
    assert stage.tool_results(1)[0].content == "found up"
    assert first_input(stage) == {"where": "up"}


async def test_a_middleware_changes_what_the_tool_gets_but_not_the_history(stage: Stage) -> None:  # D12
    async def redirect(call: MiddlewareCall, proceed: CallNext) -> ToolResult:
        call.arguments["where"] = "down"
        return await proceed(call)

    await run(talker(stage.model([call("look", where="up"), "Done."]), tool_middleware=[redirect]), "Go.")
    assert stage.tool_results(1)[0].content == "found down"
    assert first_input(stage) == {"where": "up"}


class Odd:
    def __str__(self) -> str:
        return "an odd thing"


class Fruit(BaseModel):
    name: str = Field(alias="fruitName")
    weight: float = 0.5


async def _nothing_awaited() -> None: ...


VALUES: dict[str, tuple[Callable[[], object], str]] = {
    "text": (lambda: 'He said "größe 名 💥".\n', 'He said "größe 名 💥".\n'),
    "zero": (lambda: 0, "0"),
    "dict": (lambda: {"a": [1, None, True], "ü": "名"}, '{"a":[1,null,true],"ü":"名"}'),
    "model": (lambda: Fruit(fruitName="pear"), '{"fruitName":"pear","weight":0.5}'),
    "odd": (Odd, "an odd thing"),
    "nothing": (lambda: None, "(no output)"),
    "nothing, awaited": (_nothing_awaited, "(no output)"),
    "a blank block": (lambda: [Text(" ")], "(no output)"),
}
"""One of each kind; `tests/tools/test_results.py` has them all."""


async def returned(stage: Stage, value: Callable[[], object], **options: int) -> ToolResult:
    """Let a tool return a value, and return what the model reads."""

    def give(arguments: JsonObject) -> object:
        return value()

    used = Tool("give", "Give it.", {"type": "object"}, give, max_chars=options.get("max_chars"))
    told = CallbackLog()
    before = stage.n_requests
    model = stage.model([call("give", id="a"), "Done."])
    await run(talker(model, tools=[used]), "Go.", callbacks=told.callbacks())
    (result,) = stage.tool_results(before + 1)
    ((context, (_, text)),) = told.of("tool_result")
    assert (text, context.is_error) == (result.text, result.is_error)
    return result


@pytest.mark.parametrize("name", VALUES)
async def test_a_value_is_read_as_text_or_json(stage: Stage, name: str) -> None:  # A18, R21, D7, D42
    value, text = VALUES[name]
    assert await returned(stage, value) == ToolResult(text, tool_use_id="a")


def count() -> Iterator[int]:
    yield 1


async def fetch() -> str:
    return "fetched"


UNFINISHED: dict[str, tuple[Callable[[], object], str]] = {
    "generator": (count, "has no value yet. Await it"),
    "coroutine in a dict": (lambda: {"a": {"b": fetch()}}, "Await it"),
    "circular": (circular, "Error: The result cannot be written as JSON"),
}


# A18, R23, D7, D25
@pytest.mark.parametrize("name", UNFINISHED)
async def test_a_value_that_has_no_value_yet_or_no_end_is_an_error(stage: Stage, name: str) -> None:
    value, said = UNFINISHED[name]
    result = await returned(stage, value)
    assert result.is_error
    assert result.text.startswith("Error: ")
    assert said in result.text


async def test_a_tool_may_return_blocks_or_a_whole_result(stage: Stage) -> None:  # A18, R21
    picture = Image(Base64("iVBORw==", "image/png"))
    blocks = (Text("A picture:"), picture)
    assert await returned(stage, lambda: blocks) == ToolResult(blocks, tool_use_id="a")
    assert await returned(stage, lambda: ["A picture:", picture]) == ToolResult(blocks, tool_use_id="a")
    assert await returned(stage, lambda: picture) == ToolResult((picture,), tool_use_id="a")
    assert await returned(stage, lambda: ToolResult(blocks, is_error=False)) == ToolResult(blocks, tool_use_id="a")


async def test_a_tool_may_say_that_its_result_is_an_error(stage: Stage) -> None:  # A18, A37, R21, X2
    result = await returned(stage, lambda: ToolResult("no such row", is_error=True, tool_use_id="somebody's"))
    assert result == ToolResult("no such row", is_error=True, tool_use_id="a")


async def test_a_middleware_that_answers_without_words_still_gives_a_result(stage: Stage) -> None:  # D7
    async def silence(call: MiddlewareCall, proceed: CallNext) -> ToolResult:
        return ToolResult(" ", is_error=True)

    await run(talker(stage.model([call("look", id="a"), "Done."]), tool_middleware=[silence]), "Go.")
    assert stage.tool_results(1) == [ToolResult("(no output)", is_error=True, tool_use_id="a")]


async def test_the_limit_of_a_tool_counts_before_the_agents(stage: Stage) -> None:  # A19
    async def long() -> str:
        return "y" * 50

    short, usual = tool(long, name="short", max_chars=5), tool(long, name="usual")
    model = stage.model([[call("short"), call("usual")], "Done."])
    await run(talker(model, tools=[short, usual], limits=Limits(result_chars=20)), "Go.")
    first, second = (result.text for result in stage.tool_results(1))
    assert first == "yyyyy\n[Cut: the first 5 of 50 characters.]"
    assert second == "y" * 20 + "\n[Cut: the first 20 of 50 characters.]"


async def test_without_a_limit_nothing_is_cut(stage: Stage) -> None:  # A19
    assert len((await returned(stage, lambda: "z" * 200_000)).text) == 200_000


class Silent(Exception): ...


NESTED = ExceptionGroup("two failed", [ValueError("one"), ExceptionGroup("inner", [Silent(), KeyError("k")])])


class Wrong(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def caused() -> Exception:
    error = ValueError("on top")
    error.__cause__ = LookupError("below")
    return error


ERRORS: list[tuple[Exception, str]] = [
    (ValueError("two\nlines"), "Error: two\nlines"),
    (Silent("  "), "Error: Silent"),
    (Wrong(), "Error: Wrong"),
    (caused(), "Error: on top"),
    (NESTED, "Error: two failed\n- one\n- Silent\n- KeyError: 'k'"),
    (Rejected("ask again later"), "ask again later"),
]


@pytest.mark.parametrize(("error", "text"), ERRORS, ids=[type(error).__name__ for error, _ in ERRORS])
async def test_an_error_is_read_as_its_message_and_never_as_a_traceback(
    stage: Stage, error: Exception, text: str
) -> None:  # A20, R49
    assert await returned(stage, raising(error)) == ToolResult(text, is_error=True, tool_use_id="a")


# A20, R23, R24, X9
@pytest.mark.parametrize(("error", "text"), ERRORS, ids=[type(error).__name__ for error, _ in ERRORS])
async def test_an_error_of_a_reflection_is_read_the_same_way(stage: Stage, error: Exception, text: str) -> None:
    output = Output(Report, reflection=raising(error))
    await run(reporter(stage.model([report(1, "a"), submit()]), output=output), "Go.")
    said = text if isinstance(error, Rejected) else f"{text}\nNo preview can be made; submit or revise."
    assert stage.tool_results(1) == [ToolResult(said, is_error=True, tool_use_id="a")]


# R23, R24, R49, A20, X9
@pytest.mark.parametrize("how", ["async", "inline", "in a thread"])
@pytest.mark.parametrize("rejecting", [False, True])
async def test_an_error_is_read_the_same_way_wherever_the_tool_runs(stage: Stage, rejecting: bool, how: str) -> None:
    async def later() -> None:
        now()

    def now() -> None:
        raise Rejected("Not on Sundays.") if rejecting else ValueError("no such table")

    made = tool(later if how == "async" else now, name="give", thread=None if how != "inline" else False)
    said = "Not on Sundays." if rejecting else "Error: no such table"
    assert (await answered(stage, made)) == ToolResult(said, True, "a")


@pytest.mark.parametrize("error", [StopIteration("end"), StopAsyncIteration("end")], ids=repr)
async def test_a_tool_that_raises_the_end_of_an_iteration_has_failed(stage: Stage, error: Exception) -> None:  # A20
    assert (await returned(stage, raising(error))).is_error
