"""Requests as the Messages API gets them: exact bytes, cache marks, and what is settled so that nothing is refused."""

from typing import Any, cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman import Agent, DefinitionError, Tool
from journeyman.errors import ProviderError
from journeyman.model import CachePolicy, ModelSettings, Prefix, Request, ThinkingLevel
from journeyman.models.anthropic.model import AnthropicModel
from journeyman.models.openai import OpenAIModel
from journeyman.types import JsonObject, Message, Opaque, Text, Thinking, ToolResult, ToolUse
from tests.models.asking import HELLO, QUERY
from tests.models.encoding import assistant, body_of, closed, faults_of, histories, request, strict_tool, user

SONNET = AnthropicModel("claude-sonnet-5-5", api_key="sk-ant-key")
MARK = {"type": "ephemeral"}


def sent(*messages: Message, model: AnthropicModel = SONNET, **more: Any) -> dict[str, Any]:
    return body_of(model, *messages, **more)


def marked_places(body: dict[str, Any]) -> list[str]:
    """Return where the cache marks are: `tools.0`, `system.1`, `2.0` (message 2, block 0)."""
    places = [f"{name}.{i}" for name in ("tools", "system") for i, b in enumerate(body.get(name, [])) if is_marked(b)]
    return places + [
        f"{m}.{i}"
        for m, message in enumerate(body["messages"])
        for i, b in enumerate(message["content"])
        if is_marked(b)
    ]


def is_marked(block: dict[str, Any]) -> bool:
    assert block.get("cache_control", MARK) == MARK
    return "cache_control" in block


def without_marks(body: Any) -> Any:  # noqa: ANN401 - JSON
    match body:
        case dict():
            members = cast("dict[str, Any]", body)
            return {key: without_marks(value) for key, value in members.items() if key != "cache_control"}
        case list():
            return [without_marks(item) for item in cast("list[Any]", body)]
        case _:
            return body


BASH = Tool(
    "bash",
    "Run a command.",
    {"type": "object", "anyOf": [{}]},
    print,
    provider_schemas={"anthropic": {"type": "bash_20250124", "cache": 1}},
)
ODD: list[JsonObject] = [
    {"type": "object", "properties": {"größe": {}}},
    {"type": "object", "properties": {"": {}, "x" * 65: {}}},
    {"type": "object", "anyOf": [{}]},
]


def test_a_tool_that_the_provider_defines_is_sent_in_its_own_form() -> None:
    assert sent(tools=(BASH.spec,))["tools"] == [{"type": "bash_20250124", "cache": 1, "name": "bash"}]
    marked = sent(tools=(BASH.spec,), cache="auto")["tools"]
    assert marked == [{"type": "bash_20250124", "cache": 1, "name": "bash", "cache_control": MARK}]
    function = body_of(OpenAIModel("gpt-5.2"), HELLO, tools=(BASH.spec,))["tools"][0]
    assert (function["name"], function["description"]) == ("bash", "Run a command.")


@pytest.mark.parametrize("schema", ODD)
def test_a_schema_that_only_anthropic_refuses_is_refused_for_anthropic_only(schema: JsonObject) -> None:
    spec = Tool("odd", "Odd.", schema, print).spec
    with pytest.raises(ProviderError, match=r"The tool 'odd' cannot be sent\. Anthropic") as caught:
        SONNET.body(request(tools=(spec,)))
    assert caught.value.kind == "bad_request"
    [function] = body_of(OpenAIModel("gpt-5.2"), HELLO, tools=(spec,))["tools"]
    sent_schema = {name: value for name, value in schema.items() if name != "anyOf"}  # OpenAI takes no union at the top
    assert {**sent_schema, **function["parameters"]} == function["parameters"]


@pytest.mark.parametrize("model", ["anthropic:claude-sonnet-5-5", SONNET])
def test_an_agent_of_anthropics_is_told_of_such_a_schema_when_it_is_defined(model: str | AnthropicModel) -> None:
    tools = [Tool(f"odd_{number}", "Odd.", schema, print) for number, schema in enumerate(ODD)]
    with pytest.raises(DefinitionError) as caught:
        Agent(name="a", model=model, tools=tools)
    codes = [problem.code for problem in caught.value.problems]
    assert codes == ["INVALID_PROPERTY_NAME"] * 3 + ["INVALID_INPUT_SCHEMA"]
    assert Agent(name="a", model="openai:gpt-5.2", tools=tools).tools == tuple(tools)
    assert Agent(name="a", model=model, tools=[BASH]).tools == (BASH,)


def said(*texts: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text} for text in texts]}


def test_a_continuation_is_joined_to_the_message_it_continues() -> None:  # A30
    first, empty = assistant(Text("I look. \n")), assistant(continues=True)
    third, last = [assistant(Text(text), continues=True) for text in ("It is", "9. ")]
    assert sent(HELLO, first)["messages"][1:] == [said("I look.")]
    assert sent(HELLO, first, empty, third, last)["messages"][1:] == [said("I look.", "It is", "9.")]
    assert sent(HELLO, first, third, HELLO)["messages"][1] == said("I look.", "It is")


@pytest.mark.parametrize("before", [HELLO, assistant(Thinking("cut off")), assistant(Text(" "))], ids=str)
def test_a_continuation_of_nothing_is_a_message_of_its_own(before: Message) -> None:
    body = sent(HELLO, before, assistant(Text("It is 9."), continues=True))
    assert body["messages"][-1] == said("It is 9.")


def test_what_is_left_out_at_the_end_uncovers_no_white_space() -> None:
    unsigned = Thinking("cut off")
    assert sent(HELLO, assistant(Text("So. "), unsigned, Text(" "), unsigned))["messages"][1:] == [said("So.")]
    assert sent(HELLO, assistant(Text(" "), unsigned))["messages"][1:] == []


def test_stored_messages_keep_their_white_space() -> None:
    message = assistant(Text("I look. \n"))
    sent(HELLO, message)
    assert sent(HELLO, message, HELLO)["messages"][1] == said("I look. \n")


@given(histories(), st.lists(st.booleans(), max_size=3), st.sampled_from(["auto", "explicit"]))
def test_marks_change_nothing_else_and_are_never_too_many(
    requests: list[tuple[Message, ...]], system_marks: list[bool], cache: CachePolicy
) -> None:  # D10, A40, M5
    system = tuple(Text("Be brief.", cache_mark=mark) for mark in system_marks)
    prefix = Prefix(system=system, tools=(QUERY,))
    assert requests
    for messages in requests:
        marked = orjson.loads(
            SONNET.body(Request(prefix=prefix, messages=messages, settings=ModelSettings(cache=cache)))
        )
        plain = Request(prefix=prefix, messages=messages, settings=ModelSettings(cache="off"))
        assert without_marks(marked) == orjson.loads(SONNET.body(plain))
        assert len(marked_places(marked)) <= 4
        assert faults_of(SONNET, marked) == []


def test_a_mark_leaves_no_trace_in_what_is_kept() -> None:  # X19
    sent(HELLO, cache="auto")
    assert b"cache_control" not in b"".join(HELLO.wire.values())


Texts = tuple[Text, ...]
Messages = tuple[Message, ...]
BRIEF, MARKED = Text("Be brief."), Text("Be right.", cache_mark=True)
ANSWERED = (HELLO, assistant(ToolUse("t", "query")), user(ToolResult("1", tool_use_id="t")))


@pytest.mark.parametrize(
    ("cache", "system", "messages", "places"),
    [
        pytest.param("off", (MARKED,), (user(MARKED),), [], id="off"),
        pytest.param("explicit", (BRIEF,), ANSWERED, [], id="explicit, none set"),
        pytest.param("explicit", (MARKED, BRIEF), (user(MARKED, Text("b")),), ["system.0", "0.0"], id="explicit"),
        pytest.param("auto", (BRIEF, BRIEF), ANSWERED, ["system.1", "2.0"], id="auto: system and the last message"),
        pytest.param("auto", (), ANSWERED, ["tools.0", "2.0"], id="auto: the last tool, without a system prompt"),
        pytest.param("auto", (Text(""),), ANSWERED, ["tools.0", "2.0"], id="auto: an empty system prompt"),
        pytest.param("auto", (MARKED,), (user(MARKED),), ["system.0", "0.0"], id="auto: both are marked by hand"),
        pytest.param(
            "auto",
            (MARKED, BRIEF),
            (user(MARKED, Text("b")), assistant(Text("c")), user(Text("d"))),
            ["system.0", "system.1", "0.0", "2.0"],
            id="auto: between those set by hand",
        ),
        pytest.param("auto", (MARKED,) * 5, ANSWERED, [f"system.{n}" for n in range(1, 5)], id="the last four by hand"),
        pytest.param(
            "explicit",
            (MARKED, MARKED),
            (user(*[MARKED] * 3), assistant(Text("x")), user(*[MARKED] * 2)),
            ["0.1", "0.2", "2.0", "2.1"],
            id="the last four by hand, over messages",
        ),
        pytest.param("auto", (MARKED,) * 3, ANSWERED, ["system.0", "system.1", "system.2", "2.0"], id="one left"),
        pytest.param("auto", (BRIEF,), (user(Text("a"), Text("")),), ["system.0", "0.0"], id="never on an empty text"),
        pytest.param(
            "auto",
            (BRIEF,),
            (HELLO, assistant(Text("x"), Thinking("t", "s"))),
            ["system.0", "1.0"],
            id="never on thinking",
        ),
        pytest.param(
            "auto",
            (BRIEF,),
            (HELLO, assistant(Opaque("anthropic", '{"type":"web_search_tool_result","tool_use_id":"s","content":[]}'))),
            ["system.0", "1.0"],
            id="on the server's results, when a turn pauses",
        ),
        pytest.param(
            "auto",
            (BRIEF,),
            (HELLO, assistant(Opaque("anthropic", '{"type":"brand_new"}'))),
            ["system.0", "0.0"],
            id="never on a block that is not known",
        ),
        pytest.param(
            "explicit",
            (),
            (HELLO, assistant(ToolUse("t", "query")), user(ToolResult((MARKED, BRIEF), tool_use_id="t"), Text("b"))),
            ["2.0"],
            id="a mark inside of a result marks the result",
        ),
    ],
)
def test_marks_are_set(cache: CachePolicy, system: Texts, messages: Messages, places: list[str]) -> None:
    # A40, D10, D11, M5, X16, X19
    body = SONNET.body(request(*messages, system=system, cache=cache))
    assert marked_places(orjson.loads(body)) == places
    assert body.count(b"cache_control") == len(places)


def test_the_mark_before_a_long_turn_is_set_too_because_the_api_looks_back_only_20_blocks() -> None:
    calls = [ToolUse(f"t{n}", "query") for n in range(10)]
    results = [ToolResult(str(n), tool_use_id=f"t{n}") for n in range(10)]
    body = sent(HELLO, assistant(*calls), user(*results), system=(BRIEF,), cache="auto")
    assert marked_places(body) == ["system.0", "0.0", "2.9"]


def test_no_more_is_enforced_than_one_request_allows() -> None:
    many = sent(tools=tuple(strict_tool(closed(), f"t{n}") for n in range(22)))
    assert ["strict" in spec for spec in many["tools"]] == [True] * 20 + [False] * 2
    union: JsonObject = {"type": ["string", "null"]}
    wide = closed(**{f"p{n}": union for n in range(10)})
    unions = sent(tools=(strict_tool(wide, "a"), strict_tool(wide, "b"), strict_tool(closed(a=union), "c")))
    assert ["strict" in spec for spec in unions["tools"]] == [True, False, True]


ADAPTIVE = {"type": "adaptive"}


@pytest.mark.parametrize(
    ("name", "thinking", "expected"),
    [
        ("claude-opus-5-5", None, {}),
        ("claude-opus-5-5", "minimal", {"thinking": ADAPTIVE, "output_config": {"effort": "low"}}),
        ("claude-opus-5-5", "max", {"thinking": ADAPTIVE, "output_config": {"effort": "max"}}),
        ("claude-sonnet-5-5", "medium", {"thinking": ADAPTIVE, "output_config": {"effort": "medium"}}),
        ("claude-sonnet-5-5", "off", {"thinking": {"type": "between_tools"}}),
        ("claude-haiku-5-5", "off", {"thinking": {"type": "disabled"}}),
        ("claude-opus-5", "off", {"thinking": {"type": "disabled"}}),
        ("claude-opus-4-6", 2_000, {"thinking": {"type": "enabled", "budget_tokens": 2_000}}),
        ("claude-opus-4-6", "high", {"thinking": ADAPTIVE, "output_config": {"effort": "high"}}),
        ("claude-haiku-4-5", "minimal", {"thinking": {"type": "enabled", "budget_tokens": 1_024}}),
        ("claude-haiku-4-5", 1_024, {"thinking": {"type": "enabled", "budget_tokens": 1_024}}),
        ("claude-haiku-4-5", 63_999, {"thinking": {"type": "enabled", "budget_tokens": 63_999}}),
        ("claude-haiku-4-5", "max", {"thinking": {"type": "enabled", "budget_tokens": 48_000}}),
        ("claude-haiku-4-5", "off", {"thinking": {"type": "disabled"}}),
        ("glm-9", "high", {"thinking": {"type": "enabled", "budget_tokens": 6_144}}),
    ],
)
def test_thinking_is_asked_for_in_the_models_own_way(
    name: str, thinking: ThinkingLevel | int | None, expected: JsonObject
) -> None:
    body = sent(model=AnthropicModel(name), settings=ModelSettings(thinking=thinking))
    assert {key: value for key, value in body.items() if key in ("thinking", "output_config")} == expected
    assert faults_of(SONNET, body) == []


@pytest.mark.parametrize(
    ("limit", "budget"), [(4_000, 2_000), (2_000, 1_744), (1_280, 1_024), (1_279, None), (300, None)]
)
def test_a_lowered_limit_lowers_the_thinking_budget_or_leaves_it_out(limit: int, budget: int | None) -> None:
    body = sent(model=AnthropicModel("claude-haiku-4-5"), settings=ModelSettings(thinking=2_000), max_tokens=limit)
    assert body.get("thinking", {}).get("budget_tokens") == budget
    assert faults_of(SONNET, body) == []


def test_extra_fields_are_sent_as_they_are_and_objects_are_put_together() -> None:
    settings = ModelSettings(
        thinking="high",
        extra={"thinking": {"display": "summarized"}, "output_config": {"format": {"type": "x"}}, "max_tokens": 5},
    )
    body = sent(settings=settings)
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert body["output_config"] == {"effort": "high", "format": {"type": "x"}}
    assert body["max_tokens"] == 5
