"""The rule of the conversation: whatever is put in, what comes out can be sent."""

import json
from itertools import groupby

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from journeyman.history import INTERRUPTED, NO_OUTPUT, History
from journeyman.types import (
    Block,
    Image,
    Message,
    Opaque,
    RedactedThinking,
    Role,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Url,
    dump_messages,
    load_messages,
)

PICTURE = Image(Url("https://example.org/cat.png"))


def faults_of(messages: tuple[Message, ...]) -> list[str]:
    """Say why a provider would refuse the messages (M1 to M4)."""
    faults: list[str] = []
    ids: set[str] = set()
    waiting: list[str] = []
    for message in messages:
        if not message.content:
            faults.append("an empty message")
        if message.role == "assistant":
            if waiting:
                faults.append(f"unanswered: {waiting}")
            waiting = [call.id for call in message.tool_uses]
            if ids & set(waiting) or len(set(waiting)) < len(waiting) or "" in waiting:
                faults.append(f"ids not unique: {waiting}")
            ids |= set(waiting)
            continue
        results = [block.tool_use_id for block in message.content if isinstance(block, ToolResult)]
        if results != waiting:
            faults.append(f"results {results} for calls {waiting}")
        if any(isinstance(block, ToolResult) for block in message.content[len(results) :]):
            faults.append("a result behind a text")
        waiting = []
    return [*faults, *([f"unanswered at the end: {waiting}"] if waiting else [])]


def test_a_user_message_is_one_message_with_the_results_in_call_order_and_then_the_texts() -> None:  # R28-R30, R58, M2
    history = History()
    history.say(Text("go"))
    history.commit()
    history.respond([ToolUse("a", "look"), ToolUse("b", "look")])
    history.say(Text("and hurry"))
    history.answer(ToolResult("second", tool_use_id="b"))
    history.answer(ToolResult("first", tool_use_id="a"))
    history.commit()
    assert history.export()[2] == Message(
        "user", (ToolResult("first", tool_use_id="a"), ToolResult("second", tool_use_id="b"), Text("and hurry"))
    )


def test_a_request_cannot_be_built_while_a_call_has_no_result() -> None:  # M1
    history = History()
    history.respond([ToolUse("a", "look")])
    with pytest.raises(ValueError, match="a"):
        history.commit()


def test_a_call_is_answered_once() -> None:
    history = History()
    history.respond([ToolUse("a", "look")])
    history.answer(ToolResult("yes", tool_use_id="a"))
    with pytest.raises(KeyError, match="a"):
        history.answer(ToolResult("no", tool_use_id="a"))


def test_closing_answers_what_is_open_and_keeps_what_is_answered() -> None:
    history = History()
    history.respond([ToolUse("a", "look"), ToolUse("b", "look")])
    history.answer(ToolResult("found", tool_use_id="b"))
    history.close()
    assert history.export()[-1].content == (
        ToolResult(INTERRUPTED, is_error=True, tool_use_id="a"),
        ToolResult("found", tool_use_id="b"),
    )


def test_an_empty_response_leaves_no_message() -> None:
    history = History()
    assert history.respond([Text("")]) is None
    assert history.export() == ()


@pytest.mark.parametrize("content", ["", "  \n", (), (Text(" "),)])
def test_a_blank_result_says_that_there_is_no_output(content: str | tuple[Text, ...]) -> None:  # D7, M4
    history = History()
    history.respond([ToolUse("a", "look")])
    assert history.answer(ToolResult(content, tool_use_id="a")).content == NO_OUTPUT


def test_a_repeated_or_empty_id_is_replaced_and_the_providers_kept() -> None:  # A37 as the design decides it
    history = History([Message("assistant", (ToolUse("a", "look"), ToolUse("a", "look"), ToolUse("", "look")))])
    calls = history.export()[0].tool_uses
    assert len({call.id for call in calls}) == 3
    assert [call.wire_id for call in calls] == [None, "a", ""]


def test_arguments_that_are_no_object_are_kept_beside_the_message() -> None:
    history = History()
    stored = history.respond([ToolUse("a", "look", '{"x": ')])
    assert stored is not None
    assert stored.tool_uses[0] == ToolUse("a", "look", "{}", malformed='{"x": ')


def test_a_model_that_goes_on_after_a_pause_continues_its_turn() -> None:  # A30
    history = History()
    history.say(Text("go"))
    history.commit()
    history.respond([Text("First")])
    assert history.commit() is None
    history.respond([Text("second")])
    assert [message.continues for message in history.export()] == [False, False, True]


def test_what_is_said_before_the_model_answered_joins_the_message_it_has_not_answered() -> None:
    history = History([Message("user", (Text("one"),))])
    history.say(Text("two"))
    history.commit()
    assert history.export() == (Message("user", (Text("one"), Text("two"))),)


def test_only_results_go_to_a_model_that_waits_for_a_tool_of_the_providers() -> None:  # A41
    search = Opaque("anthropic", '{"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}')
    history = History()
    history.respond([search, ToolUse("a", "look")])
    history.say(Text("one more thing"))
    history.answer(ToolResult("found", tool_use_id="a"))
    history.commit()
    assert history.export()[-1].content == (ToolResult("found", tool_use_id="a"),)
    history.respond([Text("Well.")])
    history.commit()
    assert history.export()[-1].content == (Text("one more thing"),)


X, Y, TWICE = ToolUse("x", "look"), ToolUse("y", "look"), ToolUse("x", "ask")
OF_X, OF_Y, LOST = (
    ToolResult("1", tool_use_id="x"),
    ToolResult("2", tool_use_id="y"),
    ToolResult(INTERRUPTED, is_error=True, tool_use_id="x"),
)
IN_A_ROW: dict[str, tuple[list[tuple[Block, ...]], list[tuple[Block, ...]]]] = {
    "the results of both": ([(X,), (Y,), (OF_X, OF_Y)], [(X, Y), (OF_X, OF_Y)]),
    "the results in two messages": ([(X,), (Y,), (OF_Y,), (OF_X,)], [(X, Y), (OF_X, OF_Y)]),
    "a text behind the call": ([(X,), (Text("So."),), (OF_X, Text("Go."))], [(X, Text("So.")), (OF_X, Text("Go."))]),
    "three messages": ([(X,), (Text("And"),), (Y,), (OF_X, OF_Y)], [(X, Text("And"), Y), (OF_X, OF_Y)]),
    "nothing in the second": ([(X,), (Text(""),), (OF_X,)], [(X,), (OF_X,)]),
    "no result of the first": ([(X,), (Y,), (OF_Y,)], [(X,), (LOST,), (Y,), (OF_Y,)]),
    "no result at all": ([(X,), (Text("So."),)], [(X,), (LOST,), (Text("So."),)]),
    "the same call again": (
        [(X,), (TWICE,), (OF_X,)],
        [(X,), (LOST,), (ToolUse("call_2", "ask", wire_id="x"),), (ToolResult("1", tool_use_id="call_2"),)],
    ),
    "a word of the user's between": ([(X,), (Text("Wait."), PICTURE), (Y,), (OF_X, OF_Y)], []),
}


def as_messages(contents: list[tuple[Block, ...]]) -> list[Message]:
    def is_users(content: tuple[Block, ...]) -> bool:
        return isinstance(content[0], ToolResult) or PICTURE in content

    return [Message("user" if is_users(content) else "assistant", content) for content in contents]


@pytest.mark.parametrize("name", IN_A_ROW)
def test_answers_in_a_row_are_joined_when_the_results_of_both_follow(name: str) -> None:
    given, kept = IN_A_ROW[name]
    made = History(as_messages(given)).export()
    if kept:
        assert made == tuple(as_messages(kept))
    else:
        assert made[1].content[0] == LOST
    assert faults_of(made) == []


@st.composite
def taken_conversations(draw: st.DrawFn) -> list[Message]:
    """Conversations that providers take: all answers in a row are one, and the results of all its calls follow."""
    messages: list[Message] = []
    n_calls = 0
    for number in range(draw(st.integers(1, 3))):
        messages += [Message("user", (Text(f"Go {number}."),))] * draw(st.integers(number == 0, 2))
        calls: list[str] = []
        for _ in range(draw(st.integers(1, 3))):
            content: list[Block] = [Text("Well.")] if draw(st.booleans()) else []
            for _ in range(draw(st.integers(not content, 2))):
                n_calls += 1
                calls.append(f"t{n_calls}")
                content.append(ToolUse(calls[-1], "look"))
            messages.append(Message("assistant", tuple(content)))
        results: list[Block] = [ToolResult("found", tool_use_id=id) for id in draw(st.permutations(calls))]
        cut = draw(st.integers(0, len(results)))
        messages += [Message("user", tuple(part)) for part in (results[:cut], results[cut:]) if part]
    return messages


def turns_of(messages: list[Message] | tuple[Message, ...]) -> list[tuple[str, list[str]]]:
    """Return what each side says in a row, results in the order of their ids."""
    turns: list[tuple[str, list[str]]] = []
    for role, said in groupby(messages, key=lambda message: message.role):
        blocks = [repr(block) for message in said for block in message.content]
        results = [block for block in blocks if block.startswith("ToolResult")]
        turns.append((role, sorted(results) + [block for block in blocks if block not in results]))
    return turns


@given(taken_conversations())
def test_what_providers_take_is_kept_in_loading(messages: list[Message]) -> None:
    made = History(messages).export()
    assert turns_of(made) == turns_of(messages)
    assert faults_of(made) == []


def a_result(text: str, is_error: bool, id: str) -> ToolResult:
    return ToolResult(text, is_error, id)


few_ids = st.sampled_from(["a", "b", "", "call_1", "not sendable!"])
texts = st.sampled_from(["", " ", "word", "two words"])
json_texts = st.sampled_from(["{}", '{"x": 1}', "[]", "{", "null", "", "\ud800"])
any_block: st.SearchStrategy[Block] = st.one_of(
    st.builds(Text, texts),
    st.builds(Thinking, texts, st.none() | st.just("sig")),
    st.just(RedactedThinking("xx")),
    st.just(PICTURE),
    st.builds(ToolUse, few_ids, st.just("look"), json_texts),
    st.builds(a_result, texts, st.booleans(), few_ids),
    st.just(Opaque("anthropic", '{"type": "web_search_tool_result", "tool_use_id": "s1"}')),
    st.just(Opaque("anthropic", '{"type": "server_tool_use", "id": "s1"}')),
)
roles: st.SearchStrategy[Role] = st.sampled_from(["user", "assistant"])


def a_message(role: Role, content: list[Block], goes_on: bool) -> Message:
    return Message(role, tuple(content), goes_on)


ASKED_ITS_TOOL = Opaque("anthropic", '{"type": "server_tool_use", "id": "s1"}')
any_messages = st.lists(st.builds(a_message, roles, st.lists(any_block, max_size=5), st.booleans()), max_size=8)


@given(any_messages)
def test_a_foreign_history_is_mended_totally(messages: list[Message]) -> None:
    assert faults_of(History(messages).export()) == []


@example([a_message("assistant", [Text(" "), ASKED_ITS_TOOL], False), a_message("user", [Text("word")], False)])
@given(any_messages)
def test_mending_a_mended_history_changes_nothing(messages: list[Message]) -> None:
    once = History(messages).export()
    assert History(once).export() == once


@given(any_messages)
def test_a_history_survives_being_stored(messages: list[Message]) -> None:
    repaired = History(messages).export()
    assert tuple(load_messages(dump_messages(repaired))) == repaired


def test_only_a_result_that_is_a_strangers_is_stored_with_that() -> None:
    told = [Message("user", (ToolResult("x", tool_use_id="a", untrusted=each),)) for each in (None, True)]
    plain, marked = [dump_messages([each]) for each in told]
    assert b"untrusted" not in plain
    assert marked == plain.replace(b'"type":"tool_result"', b'"untrusted":true,"type":"tool_result"')
    blocks = [block for each in (plain, marked) for block in load_messages(each)[0].content]
    assert [block.untrusted for block in blocks if isinstance(block, ToolResult)] == [None, True]


@given(any_messages)
def test_mending_loses_no_word_of_the_users_and_no_call_of_the_models(messages: list[Message]) -> None:
    def kept(all_messages: list[Message] | tuple[Message, ...]) -> list[str]:
        said = [
            block.text
            for message in all_messages
            for block in message.content
            if isinstance(block, Text) and block.text.strip()
        ]
        called = [block.name for message in all_messages if message.role == "assistant" for block in message.tool_uses]
        return sorted(said) + called

    assert kept(History(messages).export()) == kept(messages)


STORED = [
    {"role": "user", "content": [{"type": "text", "text": "Refund order 7: SECRET."}]},
    {"role": "assistant", "content": [{"type": "text", "text": "Refunded."}]},
]


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t", "name": "refund", "input": {"a": "SECRET"}}],
            },
            "[2].content[0].'input'",
        ),
        ({"role": "assistant", "content": [], "tool_calls": [{"id": "SECRET"}]}, "[2].'tool_calls'"),
        (
            {"role": "assistant", "content": [{"type": "text", "text": "a", "citations": ["SECRET"]}]},
            "[2].content[0].'citations'",
        ),
        (
            {
                "role": "user",
                "content": [
                    {"type": "document", "source": {"type": "url", "url": "https://a.example"}, "context": "SECRET"}
                ],
            },
            "[2].content[0].'context'",
        ),
        (
            {
                "role": "user",
                "content": [
                    {"type": "image", "source": {"type": "url", "url": "https://a.example", "detail": "SECRET"}}
                ],
            },
            "[2].content[0].source.'detail'",
        ),
        (
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t",
                        "content": [{"type": "text", "text": "a", "annotations": "SECRET"}],
                    }
                ],
            },
            "[2].content[0].content[0].'annotations'",
        ),
        ({"role": "system", "content": "SECRET"}, "at 2.role: "),
        ({"role": "user", "content": "SECRET"}, "at 2.content: "),
        ({"role": "user", "content": [{"type": "input_text", "text": "SECRET"}]}, "at 2.content.0: "),
    ],
)
def test_a_history_of_another_format_is_refused_by_name_without_its_content(message: object, told: str) -> None:
    with pytest.raises(ValueError, match="This is not what dump_messages wrote") as refused:
        load_messages(json.dumps([*STORED, message]))
    assert told in str(refused.value)
    assert "SECRET" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_is_verbatim_may_have_any_keys() -> None:
    blocks = (Text("a", extra={"citations": [{"a": 1}]}), ToolUse("t", "x", extra={"caller": {"type": "direct"}}))
    messages = [Message("assistant", blocks)]
    assert load_messages(dump_messages(messages)) == messages
