"""The judge of OpenAI requests: all rules of an API in order, and the pure function that applies them.

The rules that types can express come from `openai_schema.py`, the others from `openai_rules_settings.py`,
`openai_rules_chat.py` and `openai_rules_responses.py`. Deliberately not checked, because it depends on the model: which
parameters a reasoning model refuses, and which efforts it knows.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from tests.support.messages_json import Json, as_object
from tests.support.openai_request import Memory, Request, Service
from tests.support.openai_rules_chat import CHAT_RULES
from tests.support.openai_rules_responses import RESPONSES_RULES
from tests.support.openai_rules_settings import SETTINGS_RULES
from tests.support.openai_schema import Api, type_errors, without_marks

Rule: TypeAlias = Callable[[Request], Iterator[str]]


def types_fit(request: Request) -> Iterator[str]:
    """The body has the official request type, apart from what the API's own messages bring (P api-reference)."""
    field = request.service.reasoning_field
    echoed = () if field is None else (field,)
    body = as_object(without_marks(request.body)) if request.service.takes_marks else request.body
    yield from type_errors(request.api, body, echoed=echoed, extensions=request.service.extensions)


RULES: Mapping[Api, tuple[Rule, ...]] = {
    "chat": (types_fit, *SETTINGS_RULES, *CHAT_RULES),
    "responses": (types_fit, *SETTINGS_RULES, *RESPONSES_RULES),
}


def judge(
    api: Api, body: Json, headers: Mapping[str, str], *, memory: Memory | None = None, service: Service | None = None
) -> list[str]:
    """Return every violation in a request, each as `rule: text`; none means that the API would take it.

    `memory` holds the answers served before, which must come back unchanged.
    """
    request = Request(api, body, headers, Memory() if memory is None else memory, service)
    return [f"{rule.__name__}: {text}" for rule in RULES[api] for text in rule(request)]
