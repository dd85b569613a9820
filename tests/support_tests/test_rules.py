"""Every rule of the strict servers: good requests pass, and each breach in the tables is found for its reason."""

import re
from collections.abc import Callable, Iterator
from copy import copy, deepcopy
from functools import cached_property
from typing import Any, Final

import pytest

from tests.support import gemini_rules, messages_rules, openai_rules
from tests.support.messages_json import Json, as_list, as_object
from tests.support.strict_request import Rule, StrictRequest, broken_rules, make
from tests.support.strict_schema import Api
from tests.support_tests import gemini_bodies, messages_bodies, openai_bodies
from tests.support_tests.gemini_bodies import answered, called, model, user


def messages(good: Json) -> messages_rules.Request:
    """Return a request to a server that remembers to have said what the assistant says in it. So do the others."""
    request = messages_rules.Request(deepcopy(good), messages_bodies.HEADERS)
    for turn in request.turns:
        if turn.role == "assistant":
            said = deepcopy([block.data for block in turn.blocks])
            request.memory.remember(said, paused=False, prefix=request.prefix(turn))
    return request


def openai(good: Json, api: Api) -> openai_rules.Request:
    memory = openai_rules.Memory()
    for message in map(as_object, as_list(good.get("messages"))):
        memory.remember_calls(deepcopy([*map(as_object, as_list(message.get("tool_calls")))]))
    items = [item for item in map(as_object, as_list(good.get("input"))) if "type" in item]
    memory.remember_items(deepcopy(items), stored=False)
    return openai_rules.Request(api, deepcopy(good), openai_bodies.HEADERS, memory)


def gemini(good: Json) -> gemini_rules.Request:
    memory = gemini_rules.Memory()
    memory.remember([called("a", "1", "c2ln"), {"text": "", "thoughtSignature": "dGV4dA=="}])
    return gemini_rules.Request(gemini_bodies.MODEL, deepcopy(good), gemini_bodies.HEADERS, memory)


GOOD: Final = {"messages": messages_bodies.GOOD, **openai_bodies.GOOD, "gemini": gemini_bodies.GOOD}
RULES: Final[dict[str, tuple[Rule[Any], ...]]] = {
    "messages": messages_rules.RULES + messages_rules.RULES_OF_BOUND_THINKING,
    **openai_rules.RULES,
    "gemini": gemini_rules.RULES,
}
REQUEST: Final[dict[str, Callable[[Json], StrictRequest]]] = {
    "messages": messages,
    "chat": lambda good: openai(good, "chat"),
    "responses": lambda good: openai(good, "responses"),
    "gemini": gemini,
}


def breaches() -> Iterator[object]:
    for api, rules in RULES.items():
        for rule in rules:
            for number, change in enumerate(rule.breach.changes):
                yield pytest.param(api, rule, change, id=f"{api}: {rule.text}: {number}")


@pytest.mark.parametrize(("api", "name"), [(api, name) for api, good in GOOD.items() for name in good])
def test_a_good_request_is_taken(api: str, name: str) -> None:
    assert broken_rules(RULES[api], REQUEST[api](GOOD[api][name])) == []


@pytest.mark.parametrize(("api", "rule", "change"), [*breaches()])
def test_a_breach_is_found_by_its_rule(api: str, rule: Rule[Any], change: Any) -> None:  # noqa: ANN401 - of any request
    good = REQUEST[api](GOOD[api][rule.breach.base])
    make(change, good)
    request = copy(good)
    for name in [name for name in vars(good) if isinstance(getattr(type(good), name, None), cached_property)]:
        del vars(request)[name]
    assert broken_rules([rule], request) != []


@pytest.mark.parametrize("api", RULES)
def test_every_rule_has_a_breach_and_names_its_source(api: str) -> None:
    is_named = re.compile(r"\((P |[A-Z]\d?[ ,:)]|.*#\d|.*(API|SDK))").search
    assert [rule.text for rule in RULES[api] if not rule.breach.changes or not is_named(rule.text)] == []


def test_early_models_take_calls_without_signatures() -> None:
    bare = gemini_bodies.body(gemini_bodies.ASKED, model(called("a", None)), user(answered("a", None)))
    assert gemini_rules.judge("gemini-2.5-flash", bare, gemini_bodies.HEADERS) == []
