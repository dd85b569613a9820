"""What the strict Messages API server remembers, and how it says what is wrong; `test_rules.py` tries its rules."""

from tests.support.messages_json import Json
from tests.support.messages_memory import Memory
from tests.support.messages_request import Request
from tests.support.messages_rules import OPTIONAL_RULES, judge
from tests.support_tests.messages_bodies import (
    ASKED,
    GOOD,
    HEADERS,
    MANUAL,
    MARK,
    PNG,
    THINKING,
    assistant,
    body,
    call,
    result,
    text,
    tool,
    user,
)
from tests.support_tests.mutants import rules_broken


def test_a_bearer_token_is_a_key_and_header_names_have_no_case() -> None:
    headers = {
        "Authorization": "Bearer k",
        "Anthropic-Version": "2026-10-21",
        "Content-Type": "application/json; charset=utf-8",
    }
    assert judge(GOOD["plain text"], headers) == []


def test_a_violation_says_where_and_what() -> None:
    request = body(
        user({"type": "image", "source": PNG | {"media_type": "image/bmp"}}),
        assistant(call("t1")),
        user(text("Well?"), result("t2", 5)),
        tools=[tool()],
    )
    assert judge(request, HEADERS) == [
        'types_fit: messages.0.content.0.source.media_type: "image/bmp" is not one of "image/jpeg", "image/png"'
        " or 2 other candidates",
        'types_fit: messages.2.content.1.content: 5 is not of type "string"',
        "every_call_is_answered: messages.1.content.0: call t1 has no result right after it",
        "every_result_has_its_call: messages.2.content.1: no call t2 right before it",
        "tool_results_come_first: messages.2.content.1: `tool_result` blocks must come before other content",
    ]


def test_marks_nulls_and_empty_texts_may_change_in_what_was_served() -> None:
    memory = Memory()
    memory.remember([text(""), text("I look."), call("t1")], paused=False, prefix="")
    echo = assistant(text("I look.", citations=None), {**call("t1"), "cache_control": MARK})
    assert judge(body(ASKED, echo, user(result("t1")), tools=[tool()]), HEADERS, memory=memory) == []


def test_thinking_may_be_left_out_once_what_was_before_it_has_changed() -> None:
    answers = [assistant(THINKING, call("t1")), user(result("t1"))]
    before = body(ASKED, tools=[tool()])
    memory = Memory()
    memory.remember([THINKING, call("t1")], paused=False, prefix=Request(before, HEADERS, memory).prefix())
    bare = [assistant(call("t1")), user(result("t1"))]
    kept = body(ASKED, *bare, tools=[tool()])
    assert rules_broken(judge(kept, HEADERS, memory=memory)) == {"answers_come_back_unchanged"}
    changed = body(user(text("Asked otherwise.")), *bare, tools=[tool()])
    assert judge(changed, HEADERS, memory=memory, bind_thinking=True) == []
    manual = judge({**changed, "thinking": MANUAL}, HEADERS, memory=memory)
    assert rules_broken(manual) == {"the_tool_turn_starts_with_thinking"}
    stale = body(user(text("Asked otherwise.")), *answers, tools=[tool()])
    assert rules_broken(judge(stale, HEADERS, memory=memory, bind_thinking=True)) == {"thinking_keeps_its_conversation"}


def test_thinking_that_comes_last_is_not_taken_for_gone() -> None:
    memory = Memory()
    memory.remember([call("t1"), THINKING], paused=False, prefix="")
    unchanged = body(ASKED, assistant(call("t1"), THINKING), user(result("t1")), tools=[tool()])
    assert judge(unchanged, HEADERS, memory=memory) == []


def test_a_call_whose_id_the_conversation_had_before_may_come_back_with_another() -> None:
    def faults(second: Json, *, taken: frozenset[str] = frozenset({"t1"})) -> list[str]:
        memory = Memory()
        memory.remember([THINKING, call("t1")], paused=False, prefix="")
        memory.remember([{**THINKING, "signature": "c2Vjb25k"}, call("t1")], paused=False, prefix="", taken=taken)
        first = [assistant(THINKING, call("t1")), user(result("t1"))]
        answer = [assistant({**THINKING, "signature": "c2Vjb25k"}, second), user(result(str(second["id"])))]
        return judge(body(ASKED, *first, *answer, tools=[tool()]), HEADERS, memory=memory)

    assert faults(call("call_2")) == faults(call("t1")) == []
    renamed_for_nothing = faults(call("call_2"), taken=frozenset())
    assert rules_broken(renamed_for_nothing) == {"answers_come_back_unchanged"}
    changed = {**call("call_2"), "input": {"sql": "drop table sales"}}
    assert rules_broken(faults(changed)) == {"answers_come_back_unchanged"}


def test_calls_of_one_answer_that_share_an_id_come_back_with_two() -> None:
    memory = Memory()
    memory.remember([THINKING, call("t1"), call("t1")], paused=False, prefix="")
    for ids, n_violations in ((("t1", "call_2"), 0), (("call_1", "t1"), 1)):
        answer = assistant(THINKING, *map(call, ids))
        request = body(ASKED, answer, user(*map(result, ids)), tools=[tool()])
        assert len(judge(request, HEADERS, memory=memory)) == n_violations


def test_equal_ids_of_two_conversations_do_not_mix() -> None:
    memory = Memory()
    for said in ("One.", "Two."):
        memory.remember([text(said), call("t1")], paused=False, prefix="")
    for said, n_violations in (("One.", 0), ("Two.", 0), ("Three.", 1)):
        request = body(ASKED, assistant(text(said), call("t1")), user(result("t1")), tools=[tool()])
        assert len(judge(request, HEADERS, memory=memory)) == n_violations


def test_a_block_of_an_unknown_type_is_taken_if_it_was_served() -> None:
    future: Json = {"type": "oracle", "vision": {"depth": 3}}
    request = body(ASKED, assistant(future, call("t1")), user(result("t1")), tools=[tool()])
    memory = Memory()
    assert rules_broken(judge(request, HEADERS, memory=memory)) == {"types_fit"}
    memory.remember([future, call("t1")], paused=False, prefix="")
    assert judge(request, HEADERS, memory=memory) == []


def test_a_paused_answer_is_continued_as_it_is_and_then_joined() -> None:
    paused, continued = [text("I search. ")], [text("Umbrellas."), call("t1")]
    memory = Memory()
    memory.remember([THINKING, *paused], paused=True, prefix="")
    request = body(ASKED, assistant(THINKING, *paused), tools=[tool()], thinking=MANUAL)
    assert judge(request, HEADERS, memory=memory) == []
    memory.remember(continued, paused=False, prefix="")
    joined = body(ASKED, assistant(THINKING, *paused, *continued), user(result("t1")), tools=[tool()], thinking=MANUAL)
    apart = body(
        ASKED, assistant(THINKING, *paused), assistant(*continued), user(result("t1")), tools=[tool()], thinking=MANUAL
    )
    assert judge(joined, HEADERS, memory=memory) == judge(apart, HEADERS, memory=memory) == []


def test_optional_rules_are_off_by_default() -> None:
    memory = Memory()
    memory.remember([THINKING, call("t1")], paused=False, prefix="another conversation")
    request = body(ASKED, assistant(THINKING, call("t1")), user(result("t1")), tools=[tool()])
    assert judge(request, HEADERS, memory=memory) == []
    bound = judge(request, HEADERS, memory=memory, bind_thinking=True)
    assert rules_broken(bound) == {rule.__name__ for rule in OPTIONAL_RULES}
