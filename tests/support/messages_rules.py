"""The judge of Messages API requests: all rules in order, and the pure function that applies them.

The rules that types can express come from `messages_schema.py`, the others from `messages_rules_settings.py`
and `messages_rules_history.py`. Deliberately not checked, because real requests break them and are taken:
that the first message is the user's, that roles alternate, that tool_use ids are unique in the whole history,
that a text is never one space. Not checked either, because it depends on the model: prefill as such, and
manual thinking on the newest models.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import orjson

from tests.support.messages_json import Json, as_list, as_object
from tests.support.messages_memory import Memory
from tests.support.messages_request import Request
from tests.support.messages_rules_history import HISTORY_RULES, thinking_keeps_its_conversation
from tests.support.messages_rules_settings import SETTINGS_RULES
from tests.support.messages_schema import type_errors

Rule: TypeAlias = Callable[[Request], Iterator[str]]


def types_fit(request: Request) -> Iterator[str]:
    """The body has the official request type (P api/messages); a block that comes back as served has too."""
    if errors := type_errors(request.body):
        yield from type_errors(_without_served_blocks(request)) if _has_served_blocks(request) else errors


RULES: tuple[Rule, ...] = (types_fit, *SETTINGS_RULES, *HISTORY_RULES)
OPTIONAL_RULES: tuple[Rule, ...] = (thinking_keeps_its_conversation,)
"""Rules that only the newest models have; off unless they are asked for."""


def judge(
    body: Json,
    headers: Mapping[str, str],
    raw: bytes | None = None,
    *,
    memory: Memory | None = None,
    bind_thinking: bool = False,
) -> list[str]:
    """Return every violation in a request, each as `rule: text`; none means that the API would take it.

    `raw` is the body as sent, for its size; `memory` holds the answers served before, which must come back
    unchanged.
    """
    size = len(orjson.dumps(body) if raw is None else raw)
    return violations(Request(body, headers, size, Memory() if memory is None else memory), bind_thinking=bind_thinking)


def violations(request: Request, *, bind_thinking: bool = False) -> list[str]:
    """Apply all rules to a request, in order."""
    rules = [rule for rule in RULES if bind_thinking or rule not in OPTIONAL_RULES]
    return [f"{rule.__name__}: {text}" for rule in rules for text in rule(request)]


def _has_served_blocks(request: Request) -> bool:
    return any(request.memory.knows(block.data) for message in request.messages for block in message.blocks)


def _without_served_blocks(request: Request) -> Json:
    messages: list[object] = []
    for message in map(as_object, as_list(request.body.get("messages"))):
        content = message.get("content")
        if isinstance(content, list):
            content = [block for block in as_list(message["content"]) if not request.memory.knows(as_object(block))]
        messages.append({**message, "content": content})
    return {**request.body, "messages": messages}
