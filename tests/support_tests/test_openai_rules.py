"""What the strict OpenAI server remembers, and how services differ; its rules are tried in `test_rules.py`."""

from tests.support.messages_json import Json
from tests.support.openai_request import Memory, Service
from tests.support.openai_rules import judge
from tests.support_tests.mutants import rules_broken
from tests.support_tests.openai_bodies import (
    ASKED,
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
        "arguments_are_the_text_of_an_object: messages.1.tool_calls.0.function.arguments:"
        " must be the text of a JSON object",
        r"tool_names_fit_the_pattern: tools.0.function.name: 'db.query' should match '^[a-zA-Z0-9_-]{1,64}\Z'",
        "every_call_is_answered: messages.1.tool_calls.0: call t1 has no result right after it",
        "every_result_has_its_call: messages.2: no call t2 right before it",
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
