"""The judge of Messages API requests: all rules in order, and the pure function that applies them.

The rules that types can express come from `messages_schema.py`, those that other APIs have as well from
`strict_request.py`, those of the conversation from `messages_rules_history.py`; the others are here. A rule is kept if
one of our encoders could break it. Deliberately not checked, because real requests break them and are taken: that the
first message is the user's, that roles alternate, that tool_use ids are unique in the whole history, that a text is
never one space. Not checked either, because it depends on the model: prefill as such, and manual thinking on the newest
models.
"""

import re
from collections.abc import Iterator, Mapping

from tests.support.messages_json import Json, as_list, as_number, as_object, as_text
from tests.support.messages_memory import THINKING, Memory
from tests.support.messages_request import Request
from tests.support.messages_rules_history import HISTORY_RULES, thinking_keeps_its_conversation
from tests.support.messages_schema import type_errors
from tests.support.strict_request import SHARED_RULES, Item, Rule, broken_rules, rules_of

MAX_CACHE_MARKS = 4
MIN_BUDGET_TOKENS = 1024

_VERSION = re.compile(r"^\d{4}-\d{2}-\d{2}\Z")


def judge(
    body: Json, headers: Mapping[str, str], *, memory: Memory | None = None, bind_thinking: bool = False
) -> list[str]:
    """Return every violation in a request, each as `rule: text`; none means that the API would take it.

    `memory` holds the answers served before, which must come back unchanged.
    """
    return violations(Request(body, headers, Memory() if memory is None else memory), bind_thinking=bind_thinking)


def violations(request: Request, *, bind_thinking: bool = False) -> list[str]:
    """Apply all rules to a request, in order."""
    return broken_rules([rule for rule in RULES if bind_thinking or rule not in OPTIONAL_RULES], request)


def types_fit(request: Request) -> Iterator[str]:
    """The body has the official request type (P api/messages); a block that comes back as served has too."""
    if errors := type_errors(request.body):
        yield from type_errors(_without_served_blocks(request)) if _has_served_blocks(request) else errors


def the_version_is_given(request: Request) -> Iterator[str]:
    """The header anthropic-version names a date (P api/overview)."""
    if not _VERSION.match(request.headers.get("anthropic-version", "")):
        yield "anthropic-version: header is required, as a date"


def tools_are_given_for_tool_blocks(request: Request) -> Iterator[str]:
    """A history with calls or results needs tools (P agents-and-tools/tool-use/define-tools)."""
    used = any(turn.of_type("tool_use", "tool_result") for turn in request.turns)
    if used and not request.tools:
        yield "tools: requests which have `tool_use` or `tool_result` blocks must define tools"


def not_every_tool_is_deferred(request: Request) -> Iterator[str]:
    """At least one tool is in the prompt (P tool-use/tool-search-tool)."""
    if request.tools and all(tool.data.get("defer_loading") is True for tool in request.tools):
        yield "tools: at least one tool must have defer_loading=false"


def deferred_tools_have_no_cache_mark(request: Request) -> Iterator[str]:
    """What is not in the prompt cannot end a cached beginning (P tool-use/tool-use-with-prompt-caching)."""
    for tool in request.tools:
        if tool.data.get("defer_loading") is True and _cache_mark(tool):
            yield f"{tool.where}: a tool with defer_loading cannot have cache_control"


def the_thinking_budget_fits(request: Request) -> Iterator[str]:
    """At least 1024 and less than max_tokens (P extended-thinking)."""
    budget = as_number(as_object(request.body.get("thinking")).get("budget_tokens"))
    max_tokens = as_number(request.body.get("max_tokens"))
    if request.thinking != "enabled" or budget is None or max_tokens is None:
        return
    if budget < MIN_BUDGET_TOKENS:
        yield f"thinking.budget_tokens: must be at least {MIN_BUDGET_TOKENS}"
    if budget >= max_tokens:
        yield "max_tokens: must be greater than thinking.budget_tokens"


def thinking_allows_no_forced_tool(request: Request) -> Iterator[str]:
    """With manual thinking a tool cannot be forced (P extended-thinking)."""
    choice = as_text(as_object(request.body.get("tool_choice")).get("type"))
    if request.thinking == "enabled" and choice in ("any", "tool"):
        yield "tool_choice: thinking may not be enabled when tool_choice forces tool use"


def thinking_allows_no_prefill(request: Request) -> Iterator[str]:
    """With thinking the last message is not the assistant's, but for a paused one (P extended-thinking)."""
    ends_with_answer = bool(request.messages) and request.messages[-1].role == "assistant"
    if request.thinking and ends_with_answer and not request.continues_a_pause:
        yield "messages: the final message cannot be the assistant's when thinking is enabled"


def there_are_at_most_four_cache_marks(request: Request) -> Iterator[str]:
    """Over tools, system and messages (P prompt-caching)."""
    marks = [place for place in request.cacheable if _cache_mark(place)]
    if len(marks) > MAX_CACHE_MARKS:
        yield f"a maximum of {MAX_CACHE_MARKS} blocks with cache_control may be provided, found {len(marks)}"


def cache_marks_sit_on_content(request: Request) -> Iterator[str]:
    """Thinking and empty text cannot be marked (P prompt-caching, tghamm/Anthropic.SDK#50)."""
    for block in request.cacheable:
        is_empty = block.type == "text" and not block.text("text")
        if _cache_mark(block) and (is_empty or block.type in THINKING):
            kind = "empty text" if is_empty else block.type
            yield f"{block.where}: cache_control cannot be set for {kind} blocks"


def _cache_mark(block: Item) -> Json:
    return as_object(block.data.get("cache_control"))


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


RULES: tuple[Rule[Request], ...] = (*rules_of(globals()), *SHARED_RULES, *HISTORY_RULES)
OPTIONAL_RULES: tuple[Rule[Request], ...] = (thinking_keeps_its_conversation,)
"""Rules that only the newest models have; off unless they are asked for."""
