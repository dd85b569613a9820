"""Every rule of the strict OpenAI server: good requests pass, and each planted fault is found for its reason."""

import re

import pytest

from tests.support.messages_json import Json, as_list, as_object
from tests.support.openai_request import Memory, Service
from tests.support.openai_rules import RULES, judge
from tests.support.openai_schema import Api
from tests.support_tests.mutants import Mutant, rules_broken
from tests.support_tests.openai_bodies import (
    ASKED,
    GOOD,
    HEADERS,
    PNG,
    call,
    called,
    chat,
    output,
    responses,
    result,
    said,
    user,
)
from tests.support_tests.openai_bodies import flat as flat_tool
from tests.support_tests.openai_bodies import tool as chat_tool
from tests.support_tests.openai_mutants import HEADER_MUTANTS, MUTANTS, SERVED_MUTANTS

APIS: tuple[Api, ...] = ("chat", "responses")


def every(mutants: dict[Api, list[Mutant]]) -> list[object]:
    return [pytest.param(api, mutant, id=f"{api}: {mutant}") for api in APIS for mutant in mutants[api]]


def memory_of(request: Json) -> Memory:
    memory = Memory()
    for message in map(as_object, as_list(request.get("messages"))):
        memory.remember_calls(map(as_object, as_list(message.get("tool_calls"))))
    items = [as_object(item) for item in as_list(request.get("input"))]
    memory.remember_items([item for item in items if "type" in item], stored=False)
    return memory


@pytest.mark.parametrize(("api", "name"), [(api, name) for api in APIS for name in GOOD[api]])
def test_a_good_request_is_taken(api: Api, name: str) -> None:
    assert judge(api, GOOD[api][name], HEADERS) == []


@pytest.mark.parametrize(("api", "mutant"), every(MUTANTS))
def test_a_bad_request_is_refused_for_its_reason(api: Api, mutant: Mutant) -> None:
    assert mutant.rule in rules_broken(judge(api, mutant.of(GOOD[api]), HEADERS))


@pytest.mark.parametrize(("api", "mutant"), every(SERVED_MUTANTS))
def test_what_was_served_comes_back_as_it_was(api: Api, mutant: Mutant) -> None:
    memory = memory_of(GOOD[api][mutant.base])
    assert judge(api, GOOD[api][mutant.base], HEADERS, memory=memory) == []
    assert mutant.rule in rules_broken(judge(api, mutant.of(GOOD[api]), HEADERS, memory=memory))


@pytest.mark.parametrize("name", HEADER_MUTANTS)
@pytest.mark.parametrize("api", APIS)
def test_a_bad_header_is_refused_for_its_reason(api: Api, name: str) -> None:
    rule, headers = HEADER_MUTANTS[name]
    assert rules_broken(judge(api, GOOD[api]["plain text"], HEADERS | headers)) == {rule}


def test_every_rule_is_broken_by_a_mutant() -> None:
    by_mutants = {mutant.rule for api in APIS for mutant in [*MUTANTS[api], *SERVED_MUTANTS[api]]}
    by_headers = {rule for rule, _ in HEADER_MUTANTS.values()}
    assert by_mutants | by_headers == {rule.__name__ for api in APIS for rule in RULES[api]}


@pytest.mark.parametrize("api", APIS)
def test_every_rule_names_its_source(api: Api) -> None:
    assert [rule.__name__ for rule in RULES[api] if not re.search(r"\((P |.*#\d)", rule.__doc__ or "")] == []


def test_a_service_that_takes_cache_marks_takes_four_at_texts() -> None:
    def part(**more: object) -> Json:
        return {"type": "text", "text": "Hm.", "cache_control": {"type": "ephemeral"}, **more}

    def found(*parts: Json) -> list[str]:
        return judge("chat", chat(user(list(parts))), HEADERS, service=Service(takes_marks=True))

    assert found(*[part()] * 4) == []
    assert found(*[part()] * 5) == [
        "cache_marks_are_few_and_at_texts: A maximum of 4 blocks with cache_control may be provided. Found 5"
    ]
    picture: Json = {"type": "image_url", "image_url": {"url": PNG}, "cache_control": {"type": "ephemeral"}}
    at_a_picture = "messages.0.content.1.cache_control: is for texts of the system, the user and tools"
    assert found(part(), picture) == [f"cache_marks_are_few_and_at_texts: {at_a_picture}"]
    assert rules_broken(judge("chat", chat(user([part()])), HEADERS)) == {"types_fit"}


def test_a_violation_says_where_and_what() -> None:
    request = chat(ASKED, said(None, call("t1", arguments="{")), result("t2"), tools=[chat_tool(name="db.query")])
    assert judge("chat", request, HEADERS) == [
        "tool_names_fit_the_pattern: tools.0.function.name: 'db.query' should match '^[a-zA-Z0-9_-]{1,64}$'",
        "every_tool_call_is_answered: messages.1.tool_calls.0: no tool message responds to tool_call_id t1",
        "every_tool_message_has_its_call: messages.2.role: must be a response to a preceding message with 'tool_calls'",
        "arguments_are_the_text_of_an_object: messages.1.tool_calls.0.function.arguments:"
        " must be the text of a JSON object",
    ]


def test_a_service_with_reasoning_in_a_field_takes_it_back_and_may_know_more_parameters() -> None:
    request = chat(ASKED, said("Umbrellas.", reasoning="Hm."), ASKED, top_k=40)
    assert rules_broken(judge("chat", request, HEADERS)) == {"types_fit"}
    service = Service(reasoning_field="reasoning", extensions=frozenset({"top_k"}))
    assert judge("chat", request, HEADERS, service=service) == []


def test_arguments_that_were_broken_may_come_back_repaired() -> None:
    memory = Memory()
    memory.remember_calls([call("t1", arguments='{"sql')])
    memory.remember_items([called("t1", arguments='{"sql')], stored=False)
    in_chat = chat(ASKED, said(None, call("t1", arguments="{}")), result("t1"), tools=[chat_tool()])
    assert judge("chat", in_chat, HEADERS, memory=memory) == []
    in_responses = responses(ASKED, called("t1", arguments="{}"), output("t1"), tools=[flat_tool()])
    assert judge("responses", in_responses, HEADERS, memory=memory) == []


def test_equal_ids_of_two_conversations_do_not_mix() -> None:
    memory = Memory()
    for n in (1, 2):
        memory.remember_calls([call("t1", arguments=f'{{"sql":"{n}"}}')])
    for n, n_violations in ((1, 0), (2, 0), (3, 1)):
        answered = said(None, call("t1", arguments=f'{{"sql":"{n}"}}'))
        request = chat(ASKED, answered, result("t1"), tools=[chat_tool()])
        assert len(judge("chat", request, HEADERS, memory=memory)) == n_violations


def test_reasoning_that_the_server_stored_needs_no_encrypted_content() -> None:
    memory = Memory()
    item: Json = {"type": "reasoning", "id": "rs_1", "summary": []}
    memory.remember_items([item, called("t1")], stored=True)
    request = responses(ASKED, item, called("t1"), output("t1"), tools=[flat_tool()])
    assert judge("responses", request, HEADERS, memory=memory) == []
