"""Every rule of the strict servers: good requests pass, and each planted fault is found for its reason."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Final, Protocol

import pytest

from tests.support import messages_memory, messages_rules, openai_request, openai_rules
from tests.support.messages_json import Json, as_list, as_object
from tests.support_tests import messages_bodies, openai_bodies
from tests.support_tests.mutants import Mutant, rules_broken

APIS: Final = ("messages", "chat", "responses")
GOOD: Final[dict[str, dict[str, Json]]] = {"messages": messages_bodies.GOOD, **openai_bodies.GOOD}
MUTANTS: Final[dict[str, list[Mutant]]] = {"messages": messages_bodies.MUTANTS, **openai_bodies.MUTANTS}
SERVED: Final[dict[str, list[Mutant]]] = {"messages": messages_bodies.SERVED_MUTANTS, **openai_bodies.SERVED_MUTANTS}
OPENAI: Final = (openai_bodies.HEADERS, openai_bodies.HEADER_MUTANTS)
HEADERS: Final = {"messages": (messages_bodies.HEADERS, messages_bodies.HEADER_MUTANTS), "chat": OPENAI} | {
    "responses": OPENAI
}
RULES: Final = {"messages": messages_rules.RULES, **openai_rules.RULES}


class Judge(Protocol):
    def __call__(self, body: Json, headers: Mapping[str, str]) -> list[str]: ...


def judge_of(api: str, served: Json | None = None) -> Judge:
    """Return the judge of an API, who remembers the answers that stand in a request."""
    if api == "messages":
        memory = messages_memory.Memory()
        for message in map(as_object, as_list((served or {}).get("messages"))):
            if message["role"] == "assistant":
                memory.remember(map(as_object, as_list(message["content"])), paused=False, prefix="")
        return partial(messages_rules.judge, memory=memory)
    said = openai_request.Memory()
    for message in map(as_object, as_list((served or {}).get("messages"))):
        said.remember_calls(map(as_object, as_list(message.get("tool_calls"))))
    items = map(as_object, as_list((served or {}).get("input")))
    said.remember_items([item for item in items if "type" in item], stored=False)
    return partial(openai_rules.judge, "chat" if api == "chat" else "responses", memory=said)


def every(mutants: Mapping[str, list[Mutant]]) -> list[object]:
    return [pytest.param(api, mutant, id=f"{api}: {mutant}") for api in APIS for mutant in mutants[api]]


@pytest.mark.parametrize(("api", "name"), [(api, name) for api in APIS for name in GOOD[api]])
def test_a_good_request_is_taken(api: str, name: str) -> None:
    assert judge_of(api)(GOOD[api][name], HEADERS[api][0]) == []


@pytest.mark.parametrize(("api", "mutant"), every(MUTANTS))
def test_a_bad_request_is_refused_for_its_reason(api: str, mutant: Mutant) -> None:
    assert mutant.rule in rules_broken(judge_of(api)(mutant.of(GOOD[api]), HEADERS[api][0]))


@pytest.mark.parametrize(("api", "mutant"), every(SERVED))
def test_what_was_served_comes_back_as_it_was(api: str, mutant: Mutant) -> None:
    good = GOOD[api][mutant.base]
    judge = judge_of(api, served=good)
    assert judge(good, HEADERS[api][0]) == []
    assert mutant.rule in rules_broken(judge(mutant.of(GOOD[api]), HEADERS[api][0]))


@pytest.mark.parametrize(("api", "name"), [(api, name) for api in APIS for name in HEADERS[api][1]])
def test_a_bad_header_is_refused_for_its_reason(api: str, name: str) -> None:
    headers, mutants = HEADERS[api]
    rule, changed = mutants[name]
    assert rules_broken(judge_of(api)(GOOD[api]["plain text"], headers | changed)) == {rule}


@pytest.mark.parametrize("apis", [("messages",), ("chat", "responses")])
def test_every_rule_is_broken_by_a_mutant(apis: tuple[str, ...]) -> None:
    by_mutants = {mutant.rule for api in apis for mutant in [*MUTANTS[api], *SERVED[api]]}
    by_headers = {rule for api in apis for rule, _ in HEADERS[api][1].values()}
    optional = messages_rules.OPTIONAL_RULES if "messages" in apis else openai_rules.SERVICE_RULES
    apart = {rule.__name__ for rule in optional}
    assert by_mutants | by_headers | apart == {rule.__name__ for api in apis for rule in RULES[api]}


@pytest.mark.parametrize("api", APIS)
def test_every_rule_names_its_source(api: str) -> None:
    is_named = re.compile(r"\((P |.*#\d|.*(API|SDK))").search
    assert [rule.__name__ for rule in RULES[api] if not is_named(rule.__doc__ or "")] == []
