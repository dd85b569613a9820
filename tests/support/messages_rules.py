"""The judge of Messages API requests: all rules in order, and the pure function that applies them.

The rules that types can express come from `strict_schema.py`, those that other APIs have as well from
`strict_request.py`; the others are here, those of the conversation last. A rule is kept if one of our encoders could
break it. Deliberately not checked, because real requests break them and are taken: that the
first message is the user's, that roles alternate, that tool_use ids are unique in the whole history, that no text of an
answer is one space where it has others. Not checked either, because it depends on the model: prefill as such, and
manual thinking on the newest models.

Each rule yields one text per fault and names its source: P is platform.claude.com/docs/en, # an issue or pull
request.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise, takewhile

import orjson

from tests.support.messages_json import Json, as_list, as_number, as_object, as_text
from tests.support.messages_memory import THINKING, Memory
from tests.support.messages_request import Request, Turn, is_server_result, is_server_side, nested
from tests.support.strict_request import SHARED_RULES, Item, Rule, broken_rules, rules_of
from tests.support.strict_schema import messages_type_errors

MAX_CACHE_MARKS = 4
MIN_BUDGET_TOKENS = 1024
MAX_PICTURE_CHARS = 5 * 1024 * 1024
_PICTURES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
_FORM_KEYWORDS = {
    *("$defs", "$ref", "additionalProperties", "anyOf", "const", "description", "enum", "format", "items"),
    *("properties", "required", "title", "type"),
}

_ID = re.compile(r"^[a-zA-Z0-9_-]+\Z")
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
    if errors := messages_type_errors(request.body):
        yield from messages_type_errors(_without_served_blocks(request)) if _has_served_blocks(request) else errors


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


def the_form_of_the_answer_is_closed(request: Request) -> Iterator[str]:
    """A schema of `output_config.format` has closed objects, no cycle, and no bounds (P structured-outputs)."""
    schema = as_object(as_object(as_object(request.body.get("output_config")).get("format")).get("schema"))
    if not schema:
        return
    definitions = as_object(schema.get("$defs"))
    for name in definitions:
        if name in _reached(definitions, as_object(definitions[name]), frozenset()):
            yield f"output_config.format.schema: the circular reference {name!r} is not supported"
    for inner in _schemas(schema):
        if unknown := sorted(inner.keys() - _FORM_KEYWORDS):
            yield f"output_config.format.schema: {unknown} are not supported"
        if inner.get("type") == "object" and inner.get("additionalProperties") is not False:
            yield "output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly false"
        if not inner.keys() & {"$ref", "anyOf", "const", "enum", "type"}:
            yield "output_config.format.schema: Schema type is not supported"


def _reached(definitions: Json, schema: Json, seen: frozenset[str]) -> frozenset[str]:
    for inner in _schemas(schema):
        name = as_text(inner.get("$ref")).removeprefix("#/$defs/")
        if name and name not in seen:
            seen = _reached(definitions, as_object(definitions.get(name)), seen | {name})
    return seen


def _schemas(schema: Json) -> Iterator[Json]:
    yield schema
    parts = [*as_object(schema.get("properties")).values(), *as_object(schema.get("$defs")).values()]
    for inner in (*parts, *as_list(schema.get("anyOf")), *([schema["items"]] if "items" in schema else [])):
        yield from _schemas(as_object(inner))


def files_are_of_a_kind_that_is_taken(request: Request) -> Iterator[str]:
    """A picture is PNG, JPEG, GIF or WebP of at most 5 MB as Base64, a document a PDF (P vision, P pdf-support)."""
    for turn in request.turns:
        for block in turn.of_type("image", "document"):
            source = block.under("source")
            if source.text("type") != "base64":
                continue
            kinds = _PICTURES if block.type == "image" else {"application/pdf"}
            if source.text("media_type") not in kinds:
                yield f"{block.where}.source.base64.media_type: Input should be one of {sorted(kinds)}"
            if block.type == "image" and len(source.text("data")) > MAX_PICTURE_CHARS:
                yield f"{block.where}.source.base64: image exceeds 5 MB maximum"


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


_RULES_OF_PARAMETERS: tuple[Rule[Request], ...] = rules_of(globals())


# -- the conversation --------------------------------------------------------------------------------------------------


def there_is_a_message(request: Request) -> Iterator[str]:
    """At least one message (langchain-ai/langchain#31657)."""
    if not request.messages:
        yield "messages: at least one message is required"


def content_is_not_empty(request: Request) -> Iterator[str]:
    """Only a final assistant message may be empty (anthropics/claude-code#6774)."""
    for message in request.messages:
        is_final_answer = message is request.messages[-1] and message.role == "assistant"
        if not message.blocks and not is_final_answer:
            yield f"{message.where}.content: messages must have non-empty content"


def text_is_not_empty(request: Request) -> Iterator[str]:
    """Text is non-empty, also in the system prompt and in tool results (anthropics/claude-code#59812)."""
    for block in request.cacheable:
        if block.type == "text" and not block.text("text"):
            yield f"{block.where}: text content blocks must be non-empty"


def user_text_is_not_blank(request: Request) -> Iterator[str]:
    """A user's text has something but white space (home-assistant/core#175637); the assistant's need not."""
    for turn in request.turns:
        for block in turn.of_type("text"):
            if turn.role == "user" and block.text("text") and not block.text("text").strip():
                yield f"{block.where}: text content blocks must contain non-whitespace text"


def an_answer_is_not_blank(request: Request) -> Iterator[str]:
    """A blank text of the assistant's stands beside something else than reasoning (anomalyco/opencode#31259)."""
    for turn in request.turns:
        others = [block for block in turn.blocks if block.type not in THINKING]
        if turn.role == "assistant" and others and not any(b.type != "text" or b.text("text").strip() for b in others):
            yield f"{turn.where}: text content blocks must contain non-whitespace text"


def an_answer_does_not_end_in_thinking(request: Request) -> Iterator[str]:
    """The final block of an assistant message is no reasoning (tailcallhq/forgecode#3071)."""
    for turn in request.turns:
        if turn.role == "assistant" and turn.blocks and turn.blocks[-1].type in THINKING:
            yield f"{turn.where}: the final block in an assistant message cannot be `{turn.blocks[-1].type}`"


def the_final_answer_has_no_trailing_space(request: Request) -> Iterator[str]:
    """A prefill does not end in white space (langchain-ai/langchain#35073, crewAIInc/crewAI#4538)."""
    if not request.turns or request.turns[-1].role != "assistant" or request.continues_a_pause:
        return
    for block in request.turns[-1].blocks[-1:]:
        if block.text("text") != block.text("text").rstrip():
            yield f"{block.where}: final assistant content cannot end with trailing whitespace"


def block_types_fit_the_role(request: Request) -> Iterator[str]:
    """Calls and thinking come from the assistant, results from the user (P api/messages)."""
    for message in request.messages:
        for block in message.blocks:
            if block.type == "tool_result":
                owner = "user"
            elif block.type in (*THINKING, "tool_use") or is_server_side(block):
                owner = "assistant"
            else:
                owner = message.role
            if message.role != owner:
                yield f"{block.where}: `{block.type}` blocks can only be in {owner} messages"


def tool_results_come_first(request: Request) -> Iterator[str]:
    """Results stand before other content (P handle-tool-calls, anthropics/anthropic-sdk-typescript#653)."""
    for turn in request.turns:
        leading = sum(1 for _ in takewhile(lambda block: block.type == "tool_result", turn.blocks))
        for block in turn.blocks[leading:]:
            if turn.role == "user" and block.type == "tool_result":
                yield f"{block.where}: `tool_result` blocks must come before other content"


def tool_use_ids_fit_the_pattern(request: Request) -> Iterator[str]:
    """Ids match ^[a-zA-Z0-9_-]+$ (P api/messages)."""
    for turn in request.turns:
        for block in turn.of_type("tool_use", "tool_result"):
            tool_use_id = block.text("id" if block.type == "tool_use" else "tool_use_id")
            if not _ID.match(tool_use_id):
                yield f"{block.where}: id {tool_use_id!r} should match '^[a-zA-Z0-9_-]+$'"


def error_results_have_content(request: Request) -> Iterator[str]:
    """A result with `is_error` says what went wrong (an error text of the API)."""
    for turn in request.turns:
        for block in turn.of_type("tool_result"):
            content = block.data.get("content")
            empty = not content or all(item.type == "text" and not item.text("text") for item in nested(block))
            if block.data.get("is_error") is True and empty and not as_text(content):
                yield f"{block.where}: content cannot be empty if `is_error` is true"


def references_name_deferred_tools(request: Request) -> Iterator[str]:
    """A reference names a tool that the request defers, and stands among its like (P tool-use/tool-search-tool)."""
    deferred = {tool.text("name") for tool in request.tools if tool.data.get("defer_loading") is True}
    for turn in request.turns:
        for result in turn.of_type("tool_result"):
            references = [block for block in nested(result) if block.type == "tool_reference"]
            if references and len(references) < len(nested(result)):
                yield f"{result.where}: `tool_reference` blocks cannot stand beside other content"
            for block in references:
                if block.text("tool_name") not in deferred:
                    yield f"{block.where}: tool reference {block.text('tool_name')!r} not found in available tools"


def searches_fit(request: Request) -> Iterator[str]:
    """One list of domains at most, without a scheme (P agents-and-tools/tool-use/web-search-tool)."""
    for tool in request.tools:
        if not tool.text("type").startswith("web_search_"):
            continue
        allowed, blocked = as_list(tool.data.get("allowed_domains")), as_list(tool.data.get("blocked_domains"))
        if allowed and blocked:
            yield f"{tool.where}: only one of `allowed_domains` and `blocked_domains` may be given"
        if any("://" in str(domain) for domain in (*allowed, *blocked)):
            yield f"{tool.where}: domains have no scheme"


def server_results_have_their_call(request: Request) -> Iterator[str]:
    """The result of a server tool follows its call (anthropics/claude-code#64383)."""
    called: set[str] = set()
    for turn in request.turns:
        for block in turn.blocks:
            if block.type == "server_tool_use":
                called.add(block.text("id"))
            elif is_server_result(block) and block.text("tool_use_id") not in called:
                yield f"{block.where}: `{block.type}` has no `server_tool_use` before it"


def an_open_server_call_takes_only_results(request: Request) -> Iterator[str]:
    """While a server tool is still to run, the user only sends tool results (P tool-use/server-tools)."""
    for turn, following in pairwise(request.turns):
        closed = {block.text("tool_use_id") for block in turn.blocks if is_server_result(block)}
        is_open = any(block.text("id") not in closed for block in turn.of_type("server_tool_use"))
        if is_open and any(block.type != "tool_result" for block in following.blocks):
            yield f"{following.where}: a server tool call is unresolved, only `tool_result` blocks may follow"


def the_tool_turn_starts_with_thinking(request: Request) -> Iterator[str]:
    """With manual thinking a turn that calls tools begins with its thinking (anomalyco/opencode#3077)."""
    answers: list[Turn] = []  # the assistant's, since the user last spoke without sending results
    for turn in request.turns:
        if turn.role == "assistant":
            answers.append(turn)
        elif turn.role == "user" and not turn.of_type("tool_result"):
            answers.clear()
    if request.thinking != "enabled" or not any(turn.of_type("tool_use") for turn in answers):
        return
    was_served = any(
        turn is answers[0] and echo.start == 0 and not echo.served.is_bare for turn, echo in request.echoes
    )
    first = answers[0].blocks[0] if answers[0].blocks else Item(answers[0].where, {})
    if first.type not in THINKING and not was_served:
        yield f"{first.where}: expected `thinking` or `redacted_thinking`, but found `{first.type}`"


def thinking_is_signed(request: Request) -> Iterator[str]:
    """Thinking comes back with its signature (anthropics/claude-code#63203)."""
    for turn in request.turns:
        for block in turn.of_type("thinking"):
            if not block.text("signature"):
                yield f"{block.where}: invalid `signature` in `thinking` block"


def answers_come_back_unchanged(request: Request) -> Iterator[str]:
    """Thinking and all that stands beside it come back as served (anthropics/claude-code#19539, #63203).

    Thinking is left out where what was before it has changed (the SDK's thinking block binding), and only there. A call
    whose id was in the conversation before may have another: the signature binds the thinking only.
    """
    for turn, echo in request.echoes:
        if echo.served.is_bare and echo.served.prefix in ("", request.prefix(turn, echo.start)):
            yield f"{turn.where}: answer changed: its thinking is gone, and nothing before it has changed"
        if echo.changed is not None:
            blocks = turn.comparable()
            index = echo.start + echo.changed
            found = blocks[index] if 0 <= index < len(blocks) else None
            expected = echo.served.blocks[echo.changed]
            yield f"{turn.where}: answer changed: served {_short(expected)}, came back {_short(found)}"


def thinking_keeps_its_conversation(request: Request) -> Iterator[str]:
    """The newest models bind thinking to all that stood before it (the SDK's thinking block binding)."""
    for turn, echo in request.echoes:
        thinks = any(block.get("type") in THINKING for block in echo.served.blocks)
        if thinks and echo.changed is None and request.prefix(turn, echo.start) != echo.served.prefix:
            yield f"{turn.where}: the conversation before this thinking was changed since"


def _short(block: Json | None) -> str:
    return orjson.dumps(block).decode()[:200]


RULES: tuple[Rule[Request], ...] = (
    *_RULES_OF_PARAMETERS,
    *SHARED_RULES,
    *rules_of(globals(), besides=_RULES_OF_PARAMETERS),
)
OPTIONAL_RULES: tuple[Rule[Request], ...] = (thinking_keeps_its_conversation,)
"""Rules that only the newest models have; off unless they are asked for."""
