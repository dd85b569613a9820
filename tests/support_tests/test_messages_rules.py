"""Every rule of the strict Messages API server: good requests pass, and each planted fault is found for its reason."""

import re
from typing import cast

import pytest

from tests.support.messages_json import Json, as_list, as_object
from tests.support.messages_memory import Memory
from tests.support.messages_request import Request
from tests.support.messages_rules import OPTIONAL_RULES, RULES, judge
from tests.support.messages_rules_settings import MAX_BODY_BYTES
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
from tests.support_tests.messages_mutants import HEADER_MUTANTS, MUTANTS, SERVED_MUTANTS
from tests.support_tests.mutants import Mutant, rules_broken


def memory_of(request: Json) -> Memory:
    memory = Memory()
    for message in map(as_object, as_list(request["messages"])):
        if message["role"] == "assistant":
            memory.remember(cast("list[Json]", message["content"]), paused=False, prefix="")
    return memory


@pytest.mark.parametrize("name", GOOD)
def test_a_good_request_is_taken(name: str) -> None:
    assert judge(GOOD[name], HEADERS) == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_bad_request_is_refused_for_its_reason(mutant: Mutant) -> None:
    assert mutant.rule in rules_broken(judge(mutant.of(GOOD), HEADERS))


@pytest.mark.parametrize("mutant", SERVED_MUTANTS, ids=str)
def test_an_answer_that_was_served_comes_back_unchanged(mutant: Mutant) -> None:
    memory = memory_of(GOOD[mutant.base])
    assert judge(GOOD[mutant.base], HEADERS, memory=memory) == []
    assert mutant.rule in rules_broken(judge(mutant.of(GOOD), HEADERS, memory=memory))


@pytest.mark.parametrize("name", HEADER_MUTANTS)
def test_a_bad_header_is_refused_for_its_reason(name: str) -> None:
    rule, headers = HEADER_MUTANTS[name]
    assert rules_broken(judge(GOOD["plain text"], HEADERS | headers)) == {rule}


def test_every_rule_is_broken_by_a_mutant() -> None:
    tested_apart = {
        "answers_come_back_unchanged",
        "thinking_keeps_its_conversation",
        "the_body_fits",
        "sampling_is_for_the_older_version",
    }
    by_mutants = {mutant.rule for mutant in MUTANTS} | {rule for rule, _ in HEADER_MUTANTS.values()}
    assert by_mutants | tested_apart == {rule.__name__ for rule in RULES}


def test_every_rule_names_its_source() -> None:
    assert [rule.__name__ for rule in RULES if not re.search(r"\((P |.*#\d|.*(API|SDK))", rule.__doc__ or "")] == []


def test_a_body_of_more_than_32_mb_is_refused() -> None:
    assert judge(GOOD["plain text"], HEADERS, b" " * MAX_BODY_BYTES) == []
    too_large = judge(GOOD["plain text"], HEADERS, b" " * (MAX_BODY_BYTES + 1))
    assert rules_broken(too_large) == {"the_body_fits"}


def test_a_bearer_token_is_a_key_and_header_names_have_no_case() -> None:
    headers = {
        "Authorization": "Bearer k",
        "Anthropic-Version": "2026-10-21",
        "Content-Type": "application/json; charset=utf-8",
    }
    assert judge(GOOD["plain text"], headers) == []


def test_sampling_parameters_end_with_the_version_that_has_none() -> None:
    request = GOOD["sampling for an older model"]
    newest = judge(request, HEADERS | {"anthropic-version": "2026-10-21"})
    assert newest == [
        "sampling_is_for_the_older_version: temperature: extra inputs are not permitted",
        "sampling_is_for_the_older_version: top_p: extra inputs are not permitted",
        "sampling_is_for_the_older_version: top_k: extra inputs are not permitted",
    ]


def test_interleaved_thinking_may_have_a_budget_beyond_max_tokens() -> None:
    request = GOOD["thinking turn"] | {"thinking": {"type": "enabled", "budget_tokens": 10_000}}
    assert rules_broken(judge(request, HEADERS)) == {"the_thinking_budget_fits"}
    assert judge(request, HEADERS | {"anthropic-beta": "interleaved-thinking-2025-05-14"}) == []


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
        "every_tool_use_is_answered: messages.1.content.0: `tool_use` t1 has no `tool_result` in the next message",
        "every_tool_result_has_its_tool_use: messages.2.content.1: no `tool_use` t2 in the message before",
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
    memory.remember([THINKING, call("t1")], paused=False, prefix=Request(before, HEADERS, 0, memory).prefix())
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
